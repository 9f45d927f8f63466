"""One call does what the stages do, bit for bit, and leaves the process as it was."""

import os
import re
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
import threadpoolctl  # noqa: F401  # sets a variable when it is loaded
import torch

import quatrain
from pipeline.storage.params_file import read_params
from quatrain.api import progress_display, session
from quatrain.api.results import Result
from quatrain.errors import DataError, PackageMissing
from quatrain.progress import Progress
from quatrain.registry import load as load_modules
from quatrain.storage import folders, formats
from tests.conftest import FORMS, SMALL, small
from tests.pipeline.fixture_types import Capture, Patch
from tests.pipeline.small_project import Project, surround


def arrays_of(result: Result) -> dict[str, np.ndarray]:
    return load_modules(result.model).train.to_arrays(result.state)


def assert_equal(result: Result, other: Result) -> None:
    arrays, others = arrays_of(result), arrays_of(other)
    assert arrays.keys() == others.keys()
    for name, array in arrays.items():
        np.testing.assert_array_equal(array, others[name], strict=True)
    assert result.scores == pytest.approx(other.scores, rel=0, abs=0, nan_ok=True)
    assert result.config == other.config
    assert result.history.keys() == other.history.keys()
    for name, (steps, values) in result.history.items():
        np.testing.assert_array_equal(steps, other.history[name][0])
        np.testing.assert_array_equal(values, other.history[name][1])


def fitted(model: str, device: str = "cpu", seed: int = 0, **sections: Any) -> Result:
    config = small(model, **sections)
    return quatrain.fit(model, config=config, seed=seed, device=device, threads=1, progress=False)


def states() -> tuple[Any, ...]:
    """What the global generators of torch and NumPy hold; libraries draw from Python's when they
    are loaded.
    """
    of_numpy = np.random.get_state()[1].tolist()  # type: ignore[index]  # noqa: NPY002
    return torch.get_rng_state().tolist(), of_numpy


@pytest.mark.parametrize("model", ["allo", "actor_critic"])
def test_scores_are_those_of_the_stages(model: str, tmp_path: Path, monkeypatch: Patch):
    project = Project.create(tmp_path, model)
    surround(monkeypatch, project)
    for verb in ("collect", "train", "evaluate"):
        assert project.call(verb) == 0
    params = read_params(tmp_path)
    config = getattr(params, model)
    result = quatrain.fit(model, config=config, seed=params.seed, progress=False)
    stored = folders.read_json(project.reports / "scores.json")["scores"]
    assert formats.null_if_not_finite(result.scores) == stored
    monkeypatch.chdir("/")
    assert_equal(quatrain.load(project.weights), result)


def test_the_seed_the_dataset_and_changes_are_used(allo: Result):
    other = quatrain.fit(
        "allo", seed=1, threads=1, progress=False, dataset=allo.dataset, **SMALL["allo"]
    )
    assert other.config == allo.config
    assert other.dataset is allo.dataset
    assert other.scores != allo.scores
    elsewhere = small("allo", env={"layout": "room1"})
    with pytest.raises(DataError, match="was collected on another map"):
        quatrain.fit("allo", config=elsewhere, threads=1, progress=False, dataset=allo.dataset)


def test_torch_and_the_environment_are_as_before(actor_critic: Result, monkeypatch: Patch):
    """A default device of the caller is not that of a fit."""
    monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_enable_fast_math=false")
    torch.set_default_device("meta")
    try:
        before = (dict(os.environ), torch.get_num_threads(), states())
        result = fitted("actor_critic", device="cpu")
        assert (dict(os.environ), torch.get_num_threads(), states()) == before
        assert torch.get_default_device() == torch.device("meta")
    finally:
        torch.set_default_device(None)
    assert torch.get_deterministic_debug_mode() == 0
    assert_equal(result, actor_critic)


@pytest.mark.parametrize("model", ["allo", "actor_critic"])
def test_fits_in_two_threads_are_those_one_after_the_other(
    model: str, request: pytest.FixtureRequest
):
    alone = request.getfixturevalue(model)
    before = [os.environ.get(name) for name in session.VARIABLES]
    with ThreadPoolExecutor(2) as threads:
        results = list(threads.map(lambda seed: fitted(model, seed=seed), (0, 1)))
    assert [os.environ.get(name) for name in session.VARIABLES] == before
    assert torch.get_deterministic_debug_mode() == 0
    assert_equal(results[0], alone)
    assert results[1].scores != alone.scores


@pytest.mark.parametrize(
    "form", ["active_dynamics-seq_vae", "actor_critic-user_env", "allo-user_env"]
)
def test_the_generators_of_the_caller_stay_as_they_are(form: str, monkeypatch: Patch):
    """Not even for a while: another thread may draw from them."""
    monkeypatch.setattr(torch, "manual_seed", pytest.fail)
    monkeypatch.setattr(torch, "set_rng_state", pytest.fail)
    before = states()
    model, sections = FORMS[form]
    fitted(model, **sections)
    assert states() == before


def test_the_flags_of_the_caller_change_no_number(allo: Result, actor_critic: Result):
    """Each flag is tried in tests/frameworks."""
    with jax.default_prng_impl("rbg"), jax.enable_x64(True), np.errstate(all="raise"):
        assert_equal(fitted("allo"), allo)
        assert quatrain.evaluate(allo) == allo.scores
        assert allo.plots()
    torch.set_default_dtype(torch.float64)
    try:
        with torch.autocast("cpu"), torch.inference_mode():
            result = fitted("actor_critic")
            answer = result.predict(result.example_request())
            assert quatrain.evaluate(result) == actor_critic.scores
            assert torch.zeros(1).dtype == torch.float64
            assert torch.is_autocast_enabled("cpu")
    finally:
        torch.set_default_dtype(torch.float32)
    assert_equal(result, actor_critic)
    np.testing.assert_equal(answer, actor_critic.predict(actor_critic.example_request()))


def test_progress_is_a_bar_on_a_terminal_and_plain_lines_elsewhere(
    capsys: Capture, monkeypatch: Patch
):
    yields = [Progress(step, None, {"cosine": np.array([step / 60])}) for step in range(1, 61)]

    def said(enabled: bool = True) -> list[str]:
        assert list(progress_display.shown(yields, "allo", 60, ("cosine",), enabled)) == yields
        return capsys.readouterr().err.splitlines()

    lines = said()
    assert len(lines) == progress_display.LINES
    assert lines[-1] == "allo: 60/60  cosine 1"
    assert said(enabled=False) == []
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    assert "100%" in said()[-1]
    monkeypatch.setattr(progress_display, "find_spec", lambda _: None)
    assert said() == lines


def test_a_missing_library_is_named_with_its_extra(monkeypatch: Patch):
    monkeypatch.setattr(session, "find_spec", lambda _: None)
    with pytest.raises(PackageMissing, match=r"^allo needs .*: pip install 'quatrain\[jax\]'$"):
        quatrain.fit("allo")
    with pytest.raises(PackageMissing, match=r"^quatrain.make needs gymnasium: .*\[gym\]'$"):
        quatrain.make("Grid-v0")


def test_scoring_again_gives_the_same_scores_and_other_worlds_give_others(actor_critic: Result):
    scores = actor_critic.scores
    assert quatrain.evaluate(actor_critic, dataset=actor_critic.dataset) == scores
    assert quatrain.evaluate(actor_critic, seed=actor_critic.seed) == scores
    other = quatrain.evaluate(actor_critic, seed=7)
    assert other["random_return"] != scores["random_return"]
    assert quatrain.evaluate(actor_critic, seed=7) == other
    brief = quatrain.evaluate(actor_critic, env={"max_steps": 10})
    assert brief["return_mean"] < scores["return_mean"]


def test_scoring_where_the_model_does_not_fit_is_refused(actor_critic: Result):
    with pytest.raises(DataError, match="actor_critic was trained in another form of environment"):
        quatrain.evaluate(actor_critic, env={"max_nodes": 40})
    refused: dict[str, dict[str, Any]] = {
        "actor_critic.env.widht: unknown key; did you mean": {"env": {"widht": 3}},
        "dataset and env exclude each other": {"env": {}, "dataset": actor_critic.dataset},
        "env is of type list; give an id such as": {"env": []},
        "quatrain: seed = -1: Input should be": {"seed": -1},
        "quatrain: seed = 1.5: Input should be": {"seed": 1.5},
    }
    for line, settings in refused.items():
        with pytest.raises(quatrain.ConfigError, match=re.escape(line)):
            quatrain.evaluate(actor_critic, **settings)


def test_data_of_another_type_are_refused(allo: Result):
    with pytest.raises(DataError, match="dataset is of type int, not data of this allo; give the"):
        quatrain.evaluate(allo, dataset=5)
    with pytest.raises(DataError, match="dataset is of type dict, not data of this allo; give the"):
        quatrain.fit("allo", config=allo.config, dataset={})


def test_a_system_that_is_drawn_from_the_seed_has_no_other_held_out_data():
    with pytest.raises(DataError, match="active_dynamics draws the system itself, or numbers"):
        quatrain.evaluate(fitted("active_dynamics"), seed=3)
