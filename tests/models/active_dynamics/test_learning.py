"""The active arm learns sooner, networks learn too, and what the committed settings reach."""

from typing import Any

import numpy as np
import pytest
from scipy.stats import ttest_rel

from pipeline.runtime.stage import Stage
from pipeline.storage.params_file import read_params
from quatrain.devices import on_device
from quatrain.models.active_dynamics.collect import collect
from quatrain.models.active_dynamics.evaluate import evaluate
from quatrain.models.active_dynamics.train import train
from tests.conftest import ROOT, shapes_unchecked
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


def test_after_200_transitions_the_active_arm_has_the_smaller_error():
    """By a one-sided test of the logarithm, paired over six replicates."""
    brief = {"transitions": 200, "record_every": 200, "checkpoints": 3}
    result = run(configured(seeds=6, train=brief))
    active, random = result.estimate.nrmse[-1].reshape(2, 6)
    assert ttest_rel(np.log(active), np.log(random), alternative="less").pvalue < 0.05
    assert np.median(active) < 0.75 * np.median(random)
    assert result.scores["transition_ratio.random"] > 1.5


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
        scores = evaluate(config, last.state, dataset, seeds["evaluate"])
    assert config.seeds == 10
    assert scores["transition_ratio.random"] >= GOAL
    assert scores["transition_ratio.random_low"] >= GOAL
    assert scores["transition_ratio.prbs"] > 1
    assert scores["field_nrmse.active_high"] < scores["field_nrmse.random_low"]
    assert scores["coverage_90.active"] == pytest.approx(0.9, abs=0.1)
