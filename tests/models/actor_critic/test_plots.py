"""Figures of every run, and what those over training show."""

import functools
import math
from typing import Any

import numpy as np
import pytest
from matplotlib.axes import Axes

from quatrain.models.actor_critic.config import ActorCriticConfig
from quatrain.models.actor_critic.figures import training
from quatrain.models.actor_critic.figures.replays import COLORS, format_number
from quatrain.plots import ORANGE, RED
from quatrain.progress import History
from tests.models.actor_critic.small_runs import ONE_PLATE, Run, configured, free, run

ALWAYS = {
    "learning_curve",
    "episodes",
    "updates",
    "actions",
    "laws",
    "sizes",
    "film",
    "paired",
    "constant_search",
}


def titles(axes: Axes) -> str:
    return axes.get_title(loc="left")


def texts(axes: Axes) -> set[str]:
    return {text.get_text() for text in axes.texts}


def lines_of(axes: Axes, color: str) -> list[Any]:
    return [line for line in axes.lines if line.get_color() == color]


# Every figure of every run.

RUNS: dict[str, dict[str, Any]] = {
    "as it is": {},
    "squashed, values of components, two seeds": {
        "seeds": 2,
        "network": {"policy": "squashed_gaussian", "value_heads": "components"},
    },
    "all features, components beside the preset's": {
        "env": {
            "features": "full",
            "reward": {"weights": {"edge": 0.1, "survival": 0.2, "action": -0.01}},
        },
    },
    "the original's plate and first stage": {
        "env": {"reward": {"preset": "centroid_distance_only"}, "action": free("delete_ratio")},
        "collect": {"plates": "fixed", **ONE_PLATE},
    },
    "a flat plate and a number that hardly matters": {
        "env": {"reward": {"preset": "simple_delete_only"}, "action": free("noise")},
        "collect": {
            "plates": "user",
            "plates_file": {"name": "plate.npy", "numbers": [1.5] * 60},
            **ONE_PLATE,
        },
    },
    "no success": {"env": {"max_steps": 4}},
    "no episode has ended": {"train": {"horizon": 2, "transitions": 48, "minibatch_size": 24}},
}


@functools.cache
def named(name: str) -> Run:
    return run(configured(**RUNS[name]))


@pytest.fixture
def plain() -> Run:
    return named("as it is")


@pytest.mark.parametrize("name", RUNS)
def test_every_figure_is_drawn_for_every_run(name: str):
    result = named(name)
    figures = result.figures()
    assert set(figures) == (
        ALWAYS if result.config.collect.plates != "default_law" else ALWAYS | {"slopes"}
    )
    for drawn, figure in figures.items():
        figure.canvas.draw()
        assert all(axes.has_data() for axes in figure.axes), drawn
        assert not [
            text for axes in figure.axes for text in (*texts(axes), titles(axes)) if "nan" in text
        ], drawn


def test_some_of_those_runs_end_as_they_are_called():
    assert math.isnan(named("no success").scores["steps_to_goal"])
    assert not named("no episode has ended").history["episodes"][1].any()


# Over training.


def test_learning_curve_is_the_training_return_between_its_yardsticks(plain: Run):
    (axes,) = training.draw_learning_curve(plain.config, plain.history, plain.scores).axes
    (line,) = lines_of(axes, ORANGE)
    assert line.get_xdata().tolist() == [192, 384, 576, 768]
    np.testing.assert_array_equal(line.get_ydata(), plain.history["return"][1])
    for name in ("random", "constant", "feedback"):
        (dashed,) = lines_of(axes, COLORS[name])
        assert dashed.get_ydata()[0] == plain.scores[f"{name}_return"]
    dot = next(line for line in lines_of(axes, RED) if line.get_marker() == "o")
    assert dot.get_ydata().tolist() == [plain.scores["return_mean"]]
    assert f"held out {format_number(plain.scores['return_mean'])}" in texts(axes)


def test_shares_of_yardsticks_are_told_only_where_they_mean_something():
    scores = {"return_mean": 6.0, "constant_return": 4.0, "feedback_return": 8.0}
    scores |= {"margin_over_constant": 0.5, "fraction_of_feedback": 0.75}
    assert (
        training.compare_returns(scores)
        == "+50% on the best constant action, 75.0% of the controller"
    )
    negative = scores | {"constant_return": -4.0}
    assert (
        training.compare_returns(negative)
        == "+10.00 on the best constant action, -2.00 on the controller"
    )


@pytest.mark.parametrize("preset", ["goal_control", "full"])
def test_stacked_components_sum_up_to_the_return(preset: str):
    config = configured(env={"reward": {"preset": preset}})
    made_by_hand = recorded(config)
    layers = training.reward_layers(config, made_by_hand)
    total = made_by_hand["return"][1]
    np.testing.assert_allclose(np.sum([layer.values for layer in layers], 0), total)
    upper, _ = training.draw_episodes(config, made_by_hand).axes
    ends = np.concatenate(
        [path.vertices for stack in upper.collections for path in stack.get_paths()]
    )
    last = ends[ends[:, 0] == ends[:, 0].max(), 1]
    assert last.max() + last.min() == pytest.approx(total[-1])
    assert len(layers) == min(len(config.env.reward.weighted), len(training.PALETTE) + 1)


def test_reasons_are_shares_of_those_that_occur():
    config = configured()
    layers = training.reason_layers(config, recorded(config))
    assert [layer.label for layer in layers] == ["success 75%", "overflow 25%"]
    np.testing.assert_allclose(np.sum([layer.values for layer in layers], 0), 1)


def test_before_the_first_episode_ends_nothing_is_shown():
    config = configured()
    episodes = {"episodes": (np.arange(1, 6), np.array([0.0, 0, 3, 0, 2]))}
    result = training.episode_curve(config, recorded(config) | episodes, "return")
    assert np.isfinite(result.values[0]).tolist() == [False, False, True, True, True]


def test_several_seeds_have_bands():
    config = configured(seeds=3)
    (axes,) = training.draw_learning_curve(config, recorded(config), run_scores()).axes
    (line,) = lines_of(axes, ORANGE)
    np.testing.assert_allclose(line.get_ydata(), recorded(config)["return"][1])
    assert len(axes.collections) == 2  # the band, and the interval of the held-out score


def recorded(config: ActorCriticConfig) -> History:
    """Five iterations in which every component pays something; of several seeds, each one more."""
    rng, steps = np.random.default_rng(5), np.arange(1, 6)
    paid = {name: rng.normal(size=5) for name, _ in config.env.reward.weighted}
    result = {f"reward/{name}": values for name, values in paid.items()}
    result |= {f"reason/{name}": np.zeros(5) for name in training.REASON_COLORS}
    result |= {"reason/success": np.full(5, 0.75), "reason/overflow": np.full(5, 0.25)}
    result |= {
        "return": np.sum(
            [weight * paid[name] for name, weight in config.env.reward.weighted], axis=0
        )
    }
    result |= {"episodes": np.ones(5), "transitions": 192.0 * steps}
    by_seed = {}
    for seed in range(config.seeds if config.seeds > 1 else 0):
        by_seed |= {
            f"{name}/seed/{seed}": values + (name == "return") * (seed - 1)
            for name, values in result.items()
        }
    return {name: (steps, values) for name, values in (result | by_seed).items()}


def run_scores() -> dict[str, float]:
    names = ("return_mean", "constant_return", "feedback_return", "random_return")
    scores = dict(zip(names, (6.0, 4.0, 8.0, -2.0), strict=True))
    scores |= {"margin_over_constant": 0.5, "fraction_of_feedback": 0.75}
    return scores | {"return_mean_low": 5.5, "return_mean_high": 6.25}
