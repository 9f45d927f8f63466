"""Both sides are trained with the same seeds until it is clear which is better."""

import json
from collections.abc import Callable
from typing import Any

import pytest

import quatrain
from quatrain.api import comparing
from quatrain.comparison import Comparison, Run
from quatrain.errors import TrainingDiverged
from quatrain.params import Params
from tests.conftest import small
from tests.pipeline.fixture_types import Capture, Patch

Trainings = list[tuple[float, int]]
RATE = "train.learning_rate"
SLOW = {RATE: 1e-6}
CONFIG = small("allo", collect={"num_envs": 60, "steps_per_env": 200}, seeds=3)
CARTPOLE = {"kind": "gymnasium", "id": "CartPole-v1"}


@pytest.fixture
def trained(monkeypatch: Patch) -> Trainings:
    """Learning rates and seeds of what would be trained; the score of a pair differs by the rates
    and, in odd seeds, by 2.
    """
    trainings: Trainings = []

    def train(model: str, params: Params, metric: str) -> tuple[Run, str]:
        config = getattr(params, model)
        assert config.seeds == 1
        trainings.append((config.train.learning_rate, params.seed))
        luck = params.seed % 2 * (1 + len(trainings) % 2)
        return Run(params.seed, {metric: config.train.learning_rate + 2.0 * luck}), ""

    monkeypatch.setattr(comparing, "train", train)
    return trainings


def compare(changes: Any, **settings: Any) -> Comparison:
    settings = {"config": CONFIG, "threads": 1, "progress": False} | settings
    return quatrain.compare("allo", changes, **settings)


def test_trainings_are_those_of_fit_seed_by_seed(capsys: Capture):
    comparison = compare(SLOW, seeds=4, seed=5, progress=True)
    assert comparison.change == f"{RATE} 0.01 -> 1e-6"
    config = CONFIG.model_copy(update={"seeds": 1})
    result = quatrain.fit("allo", config=config, seed=7, threads=1, progress=False)
    run = comparison.before[2]
    assert (run.seed, run.scores, run.history.keys()) == (7, result.scores, result.history.keys())
    lines = capsys.readouterr().err.splitlines()
    assert f"seed 7 before: cosine_mean {result.scores['cosine_mean']:.4g}" in lines
    assert lines[-1].startswith("seed 8 after: cosine_mean 0.")
    assert comparison.cpu_seconds.shape == (2, 3)  # without those that compile
    assert comparison.plots().keys() == {"differences", "curves"}
    assert json.loads(comparison.to_json())["is_paired"]


def test_a_change_without_effect_gives_the_same_bytes():
    comparison = compare({"train.seed_parallelism": "scan"}, seeds=4)
    assert comparison.has_same_weights
    assert comparison.verdict == "no difference"


def test_it_ends_after_the_first_batch_that_decides(trained: Trainings):
    assert compare({RATE: 9.0}, batches=(5, 7), seeds=9).verdict == "better"
    assert trained == [(rate, seed) for seed in range(5) for rate in (0.01, 9.0)]


def test_it_ends_undecided_after_the_last_seed(trained: Trainings):
    comparison = compare({RATE: 0.02}, batches=(4, 6), seeds=9, seed=2)
    assert (comparison.verdict, comparison.looks) == ("undecided", (4, 6, 9))
    assert [seed for _, seed in trained[::2]] == list(range(2, 11))


@pytest.mark.usefixtures("trained")
def test_metric_and_margin_are_those_asked_for_or_the_gate_s():
    gate = compare({RATE: 0.02}, seeds=4)
    assert (gate.metric, gate.margin) == ("cosine_mean", 0.005)
    wide = compare({RATE: 0.02}, metric="orthogonality", margin=90.0)
    assert (wide.metric, wide.verdict) == ("orthogonality", "no difference")


def test_both_sides_have_the_environment_of_a_user_and_its_preset(trained: Trainings):
    changes = {"train": {"learning_rate": 1e-4}, "env.max_episode_steps": 70}
    settings: dict[str, Any] = {"env": CARTPOLE, "seeds": 4, "different_worlds": True}
    comparison = quatrain.compare("iqn", changes, progress=False, **settings)
    started = quatrain.config("iqn", env=CARTPOLE).train.learning_rate
    assert {rate for rate, _ in trained} == {started, 1e-4}
    assert (comparison.metric, comparison.is_paired) == ("score", False)
    assert comparison.change == (f"env.max_episode_steps null -> 70, {RATE} {started} -> 0.0001")


def test_a_training_that_diverges_has_no_scores_and_ends_nothing(
    monkeypatch: Patch, capsys: Capture
):
    train_and_score = comparing.train_and_score

    def diverge(begun: quatrain.Result, *others: Any) -> Any:
        if begun.config.train.learning_rate < 1e-5:
            raise TrainingDiverged("allo: is not finite")
        return train_and_score(begun, *others)

    monkeypatch.setattr(comparing, "train_and_score", diverge)
    comparison = compare(SLOW, seeds=4, progress=True)
    assert "Diverged: 0 seeds before, 4 after." in comparison.sentence
    assert "seed 0 after: allo: is not finite\n" in capsys.readouterr().err


REFUSALS: dict[str, Callable[[], Any]] = {
    "quatrain: allo.trian: unknown key; did you mean 'train'?": lambda: compare({"trian.steps": 5}),
    "the changes change nothing: ": lambda: compare({RATE: 0.01}),
    "changes is of type str; give a dictionary of keys ": lambda: compare(RATE),
    "env.layout, evaluate.degeneracy_tol: both sides would be scored in other worlds; give ": (
        lambda: compare({"env.layout": "room1", "evaluate.degeneracy_tol": 0.1})
    ),
    "env.kind: the changes make another environment; give env": (
        lambda: quatrain.compare("iqn", {"env": CARTPOLE}, different_worlds=True)
    ),
    "metric = 'cosine': is no gated metric that ": lambda: compare(SLOW, metric="cosine"),
    "margin is -1; give a number from 0": lambda: compare(SLOW, margin=-1),
    "seeds is of type float; give a whole number from 1": lambda: compare(SLOW, seeds=8.0),
    "a comparison after 3 seeds is none; ": lambda: compare(SLOW, seeds=3),
    "quatrain: seed = 429": lambda: compare(SLOW, seed=2**32 - 3),
    "config is complete, so that preset has no place ": lambda: compare(SLOW, preset="smoke"),
}


@pytest.mark.parametrize("line", REFUSALS)
def test_what_cannot_be_compared_is_refused_before_anything_is_trained(
    line: str, monkeypatch: Patch
):
    monkeypatch.setattr(comparing, "train", pytest.fail)
    with pytest.raises(quatrain.ConfigError) as error:
        REFUSALS[line]()
    assert str(error.value).startswith(line)
    assert "\n" not in str(error.value)
