"""How much sooner planned actions reach the same error: 1 against itself, none without learning."""

import numpy as np
import pytest

from quatrain.models.active_dynamics import evaluate as module
from quatrain.models.active_dynamics.state import checkpoint_steps
from tests.models.active_dynamics.small_trials import configured


@pytest.mark.parametrize(
    ("errors", "target", "transitions"),
    [
        ((0.9, 0.9, 0.4, 0.1), 0.2, 100.0 * 10**0.5),  # half-way from 0.4 to 0.1 in the logarithm
        ((0.9, 0.9, 0.4, 0.1), 0.1, 1000.0),
        ((0.9, 0.1, 0.9, 0.1), 0.3, 100.0 * 10.0 ** (np.log(3) / np.log(9))),  # from then on
    ],
)
def test_an_error_is_reached_along_logarithms_where_it_stays_below(
    errors: tuple[float, ...], target: float, transitions: float
):
    result = module.reached_at((1, 10, 100, 1000), np.array(errors), target)
    assert result == pytest.approx(transitions)


def test_a_ratio_compares_the_medians_of_arms_at_the_larger_of_their_last_errors():
    config = configured(seeds=3, train={"arms": ("random", "active", "prbs")})
    assert checkpoint_steps(config) == (10, 16, 24, 38, 60)
    random = np.array([[1, 1, 1]] * 4 + [[0.9, 0.5, 0.1]])
    active = np.array([[1, 0.9, 1], [0.5, 0.5, 9], [0.5, 0.4, 0], [0.5, 0, 0.4], [0.5, 0, 0.4]])
    prbs = np.array([[1, 1, 1], [0.9, 0.9, 0.9], [0.4, 0, 9], [0.3, 0.3, 0.3], [0.3, 0.3, 0.3]])
    result = module.ratios(config, np.concatenate([random, active, prbs], 1))
    assert result == pytest.approx(
        {"transition_ratio.random": 60 / 16, "transition_ratio.prbs": 24 / 24}
    )
    passive = configured(seeds=3, train={"arms": ("random", "prbs")})
    assert module.ratios(passive, np.concatenate([random, prbs], 1)) == {}


def test_an_arm_that_learns_nothing_or_diverges_has_no_ratio():
    """Its last error, and that of the other one, would need no transition."""
    steps = checkpoint_steps(configured())
    falling = np.array([0.9, 0.5, 0.3, 0.2, 0.1])
    rising = np.array([0.9, 0.5, 0.3, 1.1, 2.2])
    constant = np.full(5, 0.9)
    assert module.same_error(steps, falling, falling * 0.8).ratio > 1
    for worthless in (rising, constant, np.full(5, np.nan)):
        for pair in ((worthless, falling), (falling, worthless), (worthless, worthless)):
            assert np.isnan(module.same_error(steps, *pair).ratio)
    assert np.isnan(module.same_error(steps, falling, falling * 10).ratio)  # begins below it


def test_a_resample_without_a_ratio_leaves_no_interval(monkeypatch: pytest.MonkeyPatch):
    """Of nine replicates four diverge: the median falls, but not in each resample."""
    monkeypatch.setattr("quatrain.models.active_dynamics.evaluate.RESAMPLES", 200)
    config, name = configured(seeds=9), "transition_ratio.random"
    steps = np.array(checkpoint_steps(config))[:, None]
    falls = np.tile(3 / steps, (1, 9))
    some_rise = np.concatenate([falls[:, :5], falls[::-1, :4]], 1)
    errors = np.concatenate([falls, some_rise], 1)
    assert module.ratios(config, errors) == {name: 1}
    assert module.ratio_interval(config, errors, name, 0) is None


def test_the_interval_of_a_ratio_is_drawn_over_replicates(monkeypatch: pytest.MonkeyPatch):
    """Errors fall as 1/transitions, those of the active arm from half the height."""
    monkeypatch.setattr("quatrain.models.active_dynamics.evaluate.RESAMPLES", 200)
    config, name = configured(seeds=9), "transition_ratio.random"
    steps = np.array(checkpoint_steps(config))[:, None]
    luck = np.exp(0.3 * np.random.default_rng(0).normal(size=(2, 9)))
    equal, drawn = (
        np.concatenate([3 * factors[0] / steps, 6 * factors[1] / steps], 1)
        for factors in (np.ones((2, 9)), luck)
    )
    assert module.ratio_interval(config, equal, name, 0) == pytest.approx((2, 2))
    low, high = module.ratio_interval(config, drawn, name, 0)
    assert 1.2 < low < module.ratios(config, drawn)[name] < high < 3.2
    assert module.ratio_interval(config, drawn, name, 0) == (low, high)
    few = np.concatenate([drawn[:, :5], drawn[:, 9:14]], 1)
    assert module.ratio_interval(configured(seeds=5), few, name, 0) is None
