"""Whole runs of minutes: what the committed settings reach on the committed plates, and that a
fifth of them learns.
"""

import sys
from functools import lru_cache

import pytest

from pipeline.runtime.devices import on_device
from pipeline.runtime.stage import Stage
from pipeline.storage.params_file import read_params
from quatrain.models.actor_critic.collect import collect
from quatrain.models.actor_critic.evaluate import evaluate
from quatrain.models.actor_critic.train import State, train
from quatrain.statistics import aggregate_seeds
from tests.conftest import ROOT

pytestmark = pytest.mark.slow

SEEDS = 3
GOALS = {"margin_over_constant": 0.25, "fraction_of_feedback": 0.95}


def scores_of(preset: str | None, seeds: int) -> list[dict[str, float]]:
    """Of each seed on its own, after collecting and training as the stages do; the first one is the
    stages' own.
    """
    params = read_params(ROOT, preset)
    seed = {
        verb: Stage(verb, "actor_critic", ROOT, params).seed(verb)
        for verb in ("collect", "train", "evaluate")
    }
    alone = params.actor_critic.model_copy(update={"seeds": 1})
    with on_device(params, "torch"):
        dataset = collect(alone, seed["collect"])
        *_, end = train(alone.model_copy(update={"seeds": seeds}), dataset, seed["train"])
        return [
            evaluate(alone, State.from_seeds([item]), dataset, seed["evaluate"])
            for item in end.state.seeds
        ]


@lru_cache
def preset_scores() -> list[dict[str, float]]:
    return scores_of(None, SEEDS)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_each_seed_is_better_than_the_best_constant_action_by_a_quarter(seed: int):
    assert preset_scores()[seed]["margin_over_constant"] >= GOALS["margin_over_constant"]


def test_the_preset_reaches_its_goals_over_seeds(capsys: pytest.CaptureFixture[str]):
    scores = aggregate_seeds(preset_scores(), list(GOALS))
    with capsys.disabled():
        for name in GOALS:
            each = " ".join(f"{item[name]:.4f}" for item in preset_scores())
            interval = f"{scores[f'{name}_low']:.4f} to {scores[f'{name}_high']:.4f}"
            sys.stdout.write(
                f"\n{name}: {each}; mean {scores[name]:.4f}, 95 % of means {interval}\n"
            )
    assert scores["margin_over_constant_low"] >= GOALS["margin_over_constant"]
    assert scores["fraction_of_feedback"] >= GOALS["fraction_of_feedback"]


def test_the_smoke_preset_learns_that_colonies_need_holding():
    """A random policy has about -2.8: each colony overflows."""
    (scores,) = scores_of("smoke", 1)
    assert scores["random_return"] < -2
    assert scores["return_mean"] > 0
