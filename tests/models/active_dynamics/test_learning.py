"""Who asks learns sooner than who does not; networks learn too; and what the committed settings
reach in a minute.
"""

import sys
from functools import cache
from typing import Any

import numpy as np
import pytest
from scipy.stats import ttest_rel

from pipeline.runtime.devices import on_device
from pipeline.runtime.stage import Stage
from pipeline.storage.params_file import read_params
from quatrain.models.active_dynamics.collect import collect
from quatrain.models.active_dynamics.evaluate import estimate_field, evaluate
from quatrain.models.active_dynamics.state import TrainingState
from quatrain.models.active_dynamics.train import train
from tests.conftest import ROOT
from tests.models.active_dynamics.small_trials import Run, configured, run

GOAL = 5.0
SMALL_VAE: dict[str, Any] = {
    "samples": 3,
    "window": 16,
    "batch_size": 8,
    "min_windows": 4,
    "learning_rate": 0.01,
    "anneal": 50,
}


def errors(result: Run) -> np.ndarray:
    """[checkpoint, arm, replicate]"""
    rows = TrainingState.from_state(result.config, result.dataset, result.state).learner
    nrmse = estimate_field(result.config, rows, result.state, result.dataset).nrmse
    return nrmse.reshape(len(nrmse), len(result.config.train.arms), -1)


def test_after_200_transitions_who_asked_is_less_wrong():
    """One-sided, paired over six replicates, of the logarithm."""
    result = run(
        configured(seeds=6, train={"transitions": 200, "record_every": 200, "checkpoints": 3})
    )
    active, random = errors(result)[-1]
    assert ttest_rel(np.log(active), np.log(random), alternative="less").pvalue < 0.05
    assert np.median(active) < 0.75 * np.median(random)
    scores = evaluate(result.config, result.state, result.dataset, 0)
    assert scores["transition_ratio.random"] > 1.5


@cache
def network_run() -> Run:
    changes = {"hidden": 16, "head": 16}
    train_part = {
        "arms": ("active", "random"),
        "transitions": 120,
        "record_every": 40,
        "seq_vae": SMALL_VAE,
    }
    return run(configured("seq_vae", seeds=1, network={"seq_vae": changes}, train=train_part))


@pytest.mark.parametrize("arm", ["active", "random"])
def test_a_network_beats_the_zero_field_and_its_exact_bound_rises(arm: str):
    result = network_run()
    bound = [item.metrics[f"elbo_exact.{arm}"].item() for item in result.yields]
    assert bound[0] < bound[1] - 0.2
    assert bound[0] < bound[2] - 0.2
    first, last = (
        evaluate(result.config, item.state, result.dataset, 0)
        for item in (result.yields[0], result.yields[-1])
    )
    assert last[f"field_nrmse.{arm}"] < 0.8 < 1
    assert last[f"displacement_r2_5.{arm}"] > 0.5
    assert last[f"elbo.{arm}"] > first[f"elbo.{arm}"] + 0.2
    assert last[f"innovation_nll.{arm}"] < first[f"innovation_nll.{arm}"]


@pytest.mark.slow
def test_the_committed_settings_need_a_fifth_of_random_s_transitions(
    capsys: pytest.CaptureFixture[str],
):
    """Ten replicates, as the stages collect, train and judge them."""
    params = read_params(ROOT, None)
    seed = {
        verb: Stage(verb, "active_dynamics", ROOT, params).seed(verb)
        for verb in ("collect", "train", "evaluate")
    }
    config = params.active_dynamics
    with on_device(params, "torch"):
        dataset = collect(config, seed["collect"])
        yields = list(train(config, dataset, seed["train"]))
        scores = evaluate(config, yields[-1].state, dataset, seed["evaluate"])
    shown = [f"transition_ratio.{arm}" for arm in config.train.arms[1:]]
    shown += [
        f"{name}.{arm}" for name in ("field_nrmse", "coverage_90") for arm in config.train.arms
    ]
    with capsys.disabled():
        for name in shown:
            interval = f"{scores[f'{name}_low']:.4g} to {scores[f'{name}_high']:.4g}"
            sys.stdout.write(f"\n{name}: median {scores[name]:.4g}, 95 % of medians {interval}")
        sys.stdout.write("\n")
    assert config.seeds == 10
    assert scores["transition_ratio.random"] >= GOAL
    assert scores["transition_ratio.random_low"] >= GOAL
    assert scores["transition_ratio.prbs"] > 1
    assert scores["field_nrmse.active_high"] < scores["field_nrmse.random_low"]
    assert scores["coverage_90.active"] == pytest.approx(0.9, abs=0.1)
