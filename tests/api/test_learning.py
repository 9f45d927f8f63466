"""A training that is watched, stopped, saved and continued is the uninterrupted one."""

import os
import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import quatrain
from quatrain.api.results import Result
from quatrain.envs.host.config import IN_PROCESS
from quatrain.errors import ConfigError, DataError
from tests.api.test_fit import assert_equal
from tests.api.test_own_environments import config_of
from tests.conftest import small


def fit(model: str, config: Any = None, **watched: Any) -> Result:
    return quatrain.fit(model, config=config, threads=1, progress=False, **watched)


FORMS: dict[str, Callable[[], tuple[str, Any]]] = {
    "allo": lambda: ("allo", small("allo")),
    "iqn-user_env": lambda: ("iqn", config_of("iqn")),
    "actor_critic-user_env": lambda: ("actor_critic", config_of("actor_critic")),
}


@pytest.mark.parametrize("form", FORMS)
def test_a_stopped_training_is_scored_and_goes_on_to_the_bit(form: str, tmp_path: Path):
    model, config = FORMS[form]()
    records: list[Any] = []
    whole = fit(model, config, callback=records.append)
    assert [records[-1].step, records[-1].steps, whole.step] == [config.train.steps] * 3
    assert records[-1].metrics.items() <= {k: v[1][-1] for k, v in whole.history.items()}.items()
    first = records[0].step
    folder = tmp_path / "run"
    stopped = fit(model, config, callback=lambda _: True, folder=folder)
    assert (stopped.step, stopped.config) == (first, config)
    assert stopped.scores.keys() <= whole.scores.keys()
    assert_equal(fit(model, resume_from=stopped), whole)
    assert quatrain.load(folder).step == first
    assert_equal(fit(model, config, resume_from=folder, folder=folder), whole)
    assert quatrain.load(folder).step == whole.step


def test_a_checkpoint_is_loaded_without_scores_and_a_crash_leaves_it(tmp_path: Path):
    config = small("allo")

    def fail(record: Any) -> None:
        if record.step == record.steps:
            raise RuntimeError("crashed")

    with pytest.raises(RuntimeError, match="crashed"):
        fit("allo", config, callback=fail, checkpoint_every=40, folder=tmp_path)
    saved = quatrain.load(tmp_path)
    assert saved.step == 40
    assert "scores" not in vars(saved)


@pytest.fixture
def sigint_raises() -> Iterator[None]:
    """A shell has background jobs ignore the signal, and the tests inherit that."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("sigint_raises")
def test_ctrl_c_returns_what_was_learned_and_a_second_one_raises(monkeypatch: Any):
    config = small("allo")

    def press(_record: Any = None) -> None:
        os.kill(os.getpid(), signal.SIGINT)

    with pytest.warns(UserWarning, match=r"allo: Ctrl-C at step .*; what was learned is scored"):
        result = fit("allo", config, callback=press)
    assert result.step == config.train.record_every
    assert np.isfinite(result.scores["cosine_mean"])
    monkeypatch.setattr(Result, "scores", property(lambda _: press()))
    with pytest.warns(UserWarning, match="Ctrl-C"), pytest.raises(KeyboardInterrupt):
        fit("allo", config, callback=press)


def test_a_result_trains_on(allo: Result):
    steps, every = allo.config.train.steps, allo.config.train.record_every
    longer = allo.train(every, progress=False)
    assert (longer.step, longer.config.train.steps) == (steps + every, steps + every)
    assert longer.history["loss"][0].tolist() == [*allo.history["loss"][0], steps + every]
    assert_equal(fit("allo", resume_from=allo, train={"steps": steps + every}), longer)
    config = small("allo", train={"steps": steps + every})
    assert_equal(fit("allo", config, resume_from=allo), longer)


def test_a_training_goes_on_in_the_environment_that_is_given_again():
    config = config_of("actor_critic")
    whole = fit("actor_critic", config)
    env = {"import": config.env.import_}
    stopped = fit("actor_critic", config, callback=lambda _: True)
    assert_equal(fit("actor_critic", resume_from=stopped, env=env), whole)
    # As of another process, which had a lambda of this name.
    gone = config.env.model_copy(update={"import_": f"{IN_PROCESS}:gone"})
    params = stopped.params.model_copy(
        update={"actor_critic": config.model_copy(update={"env": gone})}
    )
    loaded = Result("actor_critic", params, *parts_of(stopped), step=stopped.step)
    with pytest.raises(DataError, match=r"gone was defined in another process .*; give it in env="):
        fit("actor_critic", resume_from=loaded)
    assert_equal(fit("actor_critic", resume_from=loaded, env=env), whole)


def parts_of(result: Result) -> tuple[Any, ...]:
    return result.dataset, result.state, result.history


def test_what_cannot_go_on_is_one_line(allo: Result, tmp_path: Path):
    (tmp_path / "mine.py").touch()
    refused: dict[str, Callable[[], Any]] = {
        "resume_from was trained with other values: network.d 3 -> 2; leave them out, or": (
            lambda: fit("allo", small("allo", network={"d": 2}), resume_from=allo)
        ),
        "resume_from was trained with other values: train.batch_size": (
            lambda: fit("allo", resume_from=allo, train={"batch_size": 3})
        ),
        "resume_from is a result of allo, not of iqn": lambda: fit("iqn", resume_from=allo),
        "resume_from has a dataset already": (
            lambda: fit("allo", resume_from=allo, dataset=allo.dataset)
        ),
        "checkpoint_every needs a folder": lambda: fit("allo", checkpoint_every=5),
        "checkpoint_every 9,999 exceeds the 60 steps of the training": (
            lambda: fit("allo", small("allo"), checkpoint_every=9999, folder=tmp_path / "kept")
        ),
        "callback is of type int; give a function": lambda: fit("allo", callback=5),
        "more is 0; give a whole number from 1": lambda: allo.train(0),
        "steps 61 is not a multiple of record_every": lambda: allo.train(1),
        "is in the way of a folder that only": lambda: fit("allo", folder=tmp_path),
        "saved holds the result of a training; name another, or go on with it by resume_from=": (
            lambda: fit("allo", folder=allo.save(tmp_path / "saved"))
        ),
        "seed is 3, and resume_from was trained with 0; leave it out, or train anew": (
            lambda: fit("allo", resume_from=allo, seed=3)
        ),
        "resume_from was trained for 60 steps; give at least as many as train={'steps': ...}": (
            lambda: fit("allo", resume_from=allo, train={"steps": 40})
        ),
    }
    for line, call in refused.items():
        with pytest.raises((ConfigError, DataError), match=re.escape(line)):
            call()


@pytest.mark.parametrize(("every", "at"), [(30, [30, 50]), (80, [50])])
def test_a_training_is_evaluated_at_its_end(every: int, at: list[int]):
    config = small("allo", train={"steps": 50, "record_every": 10, "evaluate_every": every})
    assert fit("allo", config).history["cosine_mean"][0].tolist() == at
