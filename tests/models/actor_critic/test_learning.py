"""Whole runs of minutes: what the committed settings reach, and that a fifth of them learns."""

import pytest

from pipeline.runtime.stage import Stage
from pipeline.storage.params_file import read_params
from quatrain.devices import on_device
from quatrain.models.actor_critic.collect import collect
from quatrain.models.actor_critic.evaluate import evaluate
from quatrain.models.actor_critic.train import State, train
from quatrain.statistics import aggregate_seeds
from tests.conftest import ROOT, shapes_unchecked

pytestmark = pytest.mark.slow

SEEDS = 5
MARGIN, FRACTION = "margin_over_constant", "fraction_of_feedback"


def scores_of(preset: str | None, seeds: int) -> list[dict[str, float]]:
    """Of each seed on its own, after collecting and training as the stages do."""
    params = read_params(ROOT, preset)
    to_collect, to_train, to_evaluate = (
        Stage(verb, "actor_critic", ROOT, params).seed(verb)
        for verb in ("collect", "train", "evaluate")
    )
    alone = params.actor_critic.model_copy(update={"seeds": 1})
    with on_device(params, "torch"), shapes_unchecked():
        dataset = collect(alone, to_collect)
        *_, end = train(alone.model_copy(update={"seeds": seeds}), dataset, to_train)
        return [
            evaluate(alone, State.from_seeds([seed]), dataset, to_evaluate).scores
            for seed in end.state.seeds
        ]


def test_the_preset_reaches_its_goals_over_seeds():
    """Each seed is better than the best constant action by a quarter."""
    of_seeds = scores_of(None, SEEDS)
    scores = aggregate_seeds(of_seeds, [MARGIN, FRACTION])
    assert min(item[MARGIN] for item in of_seeds) >= 0.25
    assert scores[f"{MARGIN}_low"] >= 0.25
    assert scores[FRACTION] >= 0.97


def test_colonies_cross_two_ridges():
    """Where attention over cells with its former settings learned to end early instead."""
    of_seeds = scores_of("two_ridges", 4)
    assert min(item["success_rate"] for item in of_seeds) >= 0.95
    assert min(item["return_mean"] for item in of_seeds) > max(0, of_seeds[0]["constant_return"])


def test_the_smoke_preset_learns_that_colonies_need_holding():
    """A random policy has about -2.8: each colony overflows."""
    (scores,) = scores_of("smoke", 1)
    assert scores["random_return"] < -2
    assert scores["return_mean"] > 0
