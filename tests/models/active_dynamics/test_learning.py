"""Where it is known what can be learned, it is learned, and sooner by active learners; networks
learn too; what the committed settings reach.
"""

from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor

from pipeline.runtime.stage import Stage
from pipeline.storage.params_file import read_params
from quatrain.devices import on_device
from quatrain.models.active_dynamics.collect import collect
from quatrain.models.active_dynamics.evaluate import evaluate
from quatrain.models.active_dynamics.train import train
from tests.conftest import ROOT, shapes_unchecked
from tests.models.active_dynamics.small_trials import PLANNED, Run, configured, run

GOAL = 5.0
LINEAR: dict[str, Any] = {"field": {"kind": "linear", "matrix": [[-0.5, -1.0], [1.0, -0.5]]}}
"""A whirl that draws in: a learner that does not push sees only its middle."""
GRID = {"rbf": {"side": 9, "length": 0.6}}
SMALL_VAE: dict[str, Any] = {"samples": 3, "window": 16, "batch_size": 8, "min_windows": 4}
SMALL_VAE |= {"learning_rate": 0.01, "anneal": 50}


@cache
def learned() -> Run:
    brief = {"transitions": 300, "record_every": 300, "checkpoints": 2, "planner": PLANNED}
    return run(configured(seeds=3, env=LINEAR, network=GRID, train=brief))


def errors(result: Run, arm: str) -> Tensor:
    return result.of(arm, torch.tensor(result.estimate.nrmse[-1]))


def test_the_active_arm_knows_a_linear_field_after_300_transitions():
    assert errors(learned(), "active").max() < 0.2
    assert errors(learned(), "random").min() > 0.3
    scores = learned().scores
    assert scores["planned.active"] == 1
    assert scores["displacement_r2_20.active"] > 0.97 > scores["displacement_r2_20.random"]
    assert scores["innovation_nll.active"] < scores["innovation_nll.random"]
    assert scores["information_gained.active"] > 1.5 * scores["information_gained.random"]


def test_a_network_beats_the_zero_field_and_its_exact_bound_rises():
    brief = {"transitions": 120, "record_every": 40, "seq_vae": SMALL_VAE}
    network = {"seq_vae": {"hidden": 16, "head": 16}}
    result = run(configured("seq_vae", seeds=1, network=network, train=brief))
    first, last = (
        Run(result.config, result.dataset, [result.yields[place]]).scores for place in (0, -1)
    )
    for arm in ("active", "random"):
        bound = [item.metrics[f"elbo_exact.{arm}"].item() for item in result.yields]
        assert bound[0] < min(bound[1:]) - 0.2
        assert last[f"field_nrmse.{arm}"] < 0.8
        assert last[f"displacement_r2_5.{arm}"] > 0.5
        assert last[f"elbo.{arm}"] > first[f"elbo.{arm}"] + 0.2
        assert last[f"innovation_nll.{arm}"] < first[f"innovation_nll.{arm}"]


@pytest.mark.slow
def test_the_committed_settings_need_a_fifth_of_the_transitions_of_random_actions():
    """Ten replicates, with the seeds of the stages."""
    params = read_params(ROOT, None)
    seeds = {
        verb: Stage(verb, "active_dynamics", ROOT, params).seed(verb)
        for verb in ("collect", "train", "evaluate")
    }
    config = params.active_dynamics
    with on_device(params, "torch"), shapes_unchecked():
        dataset = collect(config, seeds["collect"])
        *_, last = train(config, dataset, seeds["train"])
        scores = evaluate(config, last.state, dataset, seeds["evaluate"]).scores
    assert config.seeds == 10
    assert scores["transition_ratio.random"] >= GOAL
    assert scores["transition_ratio.random_low"] >= GOAL
    assert scores["transition_ratio.prbs"] > 1
    assert scores["field_nrmse.active_high"] < scores["field_nrmse.random_low"]
    assert scores["coverage_90.active"] == pytest.approx(0.9, abs=0.1)
