"""Whole runs of minutes: what the committed settings reach."""

from typing import Any, NamedTuple

import jax
import numpy as np
import pytest

from pipeline.storage.params_file import read_params
from quatrain.models.iqn.collect import collect
from quatrain.models.iqn.config import IqnConfig
from quatrain.models.iqn.evaluate import evaluate
from quatrain.models.iqn.learn import init_params
from quatrain.models.iqn.train import train
from quatrain.models.iqn.treasurehunt import sizes
from quatrain.models.iqn.treasurehunt_scores import order_gap, play_policy
from tests.conftest import ROOT, params_with, shapes_unchecked

pytestmark = pytest.mark.slow


class Outcome(NamedTuple):
    """Agent-steps at the first greedy return of 100; scores at the preset's end and far later."""

    steps_to_100: int
    scores: dict[str, float]
    later: dict[str, float]


def iqn(**changes: Any) -> IqnConfig:
    return params_with({"iqn": changes}).iqn


def outcome(seed: int) -> Outcome:
    often = {"evaluate_every": 64, "evaluation_worlds": 128}  # standard error of a return: 1.2
    preset, config = iqn(), iqn(train={"turns": 6000, **often})
    dataset, reached, scores = collect(config, seed), 0, {}
    for progress in train(config, dataset, seed + 100):
        greedy = progress.metrics["greedy_return"]
        if not reached and len(greedy) and greedy[-1] >= 100:
            reached = int(progress.metrics["agent_steps"][-1])
        if progress.step == preset.train.steps:
            scores = evaluate(config, progress.state, dataset, 5).scores
    return Outcome(reached, scores, evaluate(config, progress.state, dataset, 5).scores)


@pytest.mark.parametrize("seed", range(3))
def test_the_preset_reaches_the_oracle_that_sees_as_far_in_time_and_stays_there(seed: int):
    with shapes_unchecked():
        result = outcome(seed)
    assert 0 < result.steps_to_100 <= 30_000
    assert result.scores["share"] >= 1
    assert result.later["share"] >= 1


def test_moving_first_pays_in_a_fixed_order_only():
    gaps = {}
    for order in ("fixed", "shuffled"):
        config = iqn(env={"agent_order": order}, collect={"held_out_worlds": 2048})
        dataset, key = collect(config, 1), jax.random.key(2)
        unused = init_params(config, sizes(config, dataset), key)
        oracle = play_policy(config, "oracle_view", unused, dataset, key)
        of_worlds = oracle.returns[0] - oracle.returns[-1]
        gaps[order] = order_gap(oracle), of_worlds.std(ddof=1) / np.sqrt(len(of_worlds))
    assert gaps["fixed"][0] > 10
    assert abs(gaps["shuffled"][0]) <= 2 * gaps["shuffled"][1]


def test_the_large_world_is_learned_within_300_000_agent_steps():
    brief = {"seeds": 1, "train": {"turns": 1000, "evaluate_every": 0}}
    config = read_params(ROOT, "large", {"iqn": brief}).iqn
    dataset = collect(config, 0)
    *_, end = train(config, dataset, 100)
    scores = evaluate(config, end.state, dataset, 5).scores
    assert end.metrics["agent_steps"][-1] <= 300_000
    assert scores["share"] >= 0.97
    assert scores["return_mean"] >= 10 * scores["random_return"]
