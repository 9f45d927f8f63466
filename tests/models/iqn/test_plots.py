"""Figures of every run, and the numbers that they state, of histories and episodes made by hand."""

from typing import Any

import numpy as np
import pytest
from matplotlib.axes import Axes

from quatrain.animation import Animation
from quatrain.models.iqn import plots as plotting
from quatrain.models.iqn.config import IqnConfig
from quatrain.models.iqn.evaluate import Outcomes
from quatrain.models.iqn.figures import film
from quatrain.models.iqn.figures.policies import draw_comparison, samples
from quatrain.models.iqn.figures.training import draw_learning_curve
from quatrain.models.iqn.figures.treasurehunt import lorenz
from quatrain.models.iqn.learn import State
from quatrain.models.iqn.treasurehunt import Dataset
from quatrain.models.iqn.treasurehunt_scores import REFERENCE_POLICIES, Outcome, gini
from quatrain.plots import ORANGE, RED
from quatrain.progress import History, Progress, by_seed, history, rows
from tests.conftest import params_with

TURNS, WORLDS = 20, 7
METRICS = ("loss", "td_error_abs", "grad_norm", "clipped", "episode_return", "greedy_return")
SCORES = {"return_mean": 30.0, "share": 0.5, "score": -0.25, "order_gap": 4.0}
SCORES |= {"oracle_view_order_gap": 9.0, "gini_systematic": 0.1, "gini_episode": 0.2}
SCORES |= {f"{name}_return": -12.0 for name in REFERENCE_POLICIES} | {"oracle_view_return": 60.0}


def config(agents: int, seeds: int) -> IqnConfig:
    return params_with({"iqn": {"seeds": seeds, "env": {"agents": agents}}}).iqn


def recorded(agents: int, seeds: int, evaluations: int = 2) -> History:
    """What ten cycles record, with greedy evaluations at equal distances."""
    cycles = np.arange(10.0)[:, None] + np.zeros((1, seeds))
    result = {"epsilon": 1 - cycles / 10, "agent_steps": 1000 + 100 * (cycles + 1)}
    for name in METRICS:
        entries = evaluations if name == "greedy_return" else 10
        values = np.random.default_rng(0).uniform(size=(entries, seeds, agents))
        result |= {name: values.mean(-1), f"{name}/agent": values}
    return history(rows(Progress(320, None, by_seed(result)), 0))


def outcome(agents: int, seed: int) -> Outcome:
    events = np.random.default_rng(seed).integers(-2, 2, (TURNS, agents, WORLDS)).astype(np.int8)
    return Outcome(np.where(events == 1, 10, -1.0).astype(np.float32), events, np.arange(WORLDS))


def outcomes(agents: int, seeds: int) -> Outcomes:
    references = {name: outcome(agents, place) for place, name in enumerate(REFERENCE_POLICIES)}
    return Outcomes([outcome(agents, 50 + seed) for seed in range(seeds)], references)


def line_of(axes: Axes, color: str) -> Any:
    return next(line for line in axes.lines if line.get_color() == color)


@pytest.mark.parametrize(("agents", "seeds", "evaluations"), [(5, 1, 2), (1, 3, 2), (12, 2, 0)])
def test_every_figure_is_drawn_for_every_run(
    agents: int, seeds: int, evaluations: int, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(plotting, "play_held_out", lambda *_: outcomes(agents, seeds))
    animation = Animation(np.zeros((2, 3, 4), np.uint8), np.zeros((1, 3), np.uint8), 100, "")
    monkeypatch.setattr(film, "animate", lambda *_: animation)
    figures = plotting.plots(
        config(agents, seeds),
        State(*[None] * len(State._fields)),
        Dataset(None, None),
        recorded(agents, seeds, evaluations),
        SCORES,
    )
    names = ["learning_curve", "baseline_comparison", "fairness", "learning"]
    assert list(figures) == ["episode", *names]
    assert "act in turn" in figures.pop("episode").caption
    for figure in figures.values():
        figure.draw_without_rendering()
        assert all(axes.has_data() and axes.get_title(loc="left") for axes in figure.axes)
    assert len(figures["fairness"].axes) == min(agents, 2)  # one agent has no Lorenz curve


def test_learning_curve_counts_agent_steps_and_ends_with_the_last_evaluation():
    build = recorded(3, 2)
    axes, beside = draw_learning_curve(config(3, 2), build, outcomes(3, 2), SCORES).axes
    greedy, training = line_of(axes, RED), line_of(axes, ORANGE)
    assert greedy.get_xdata().tolist() == [1500, 2000]
    assert training.get_xdata().tolist() == [1000 + 100 * cycle for cycle in range(1, 11)]
    assert greedy.get_ydata()[-1] == pytest.approx(build["greedy_return/seed/0"][1][-1])
    said, held_out = (
        {text.get_text().split()[0] for text in each.texts} for each in (axes, beside)
    )
    # Policies are compared in the same worlds alone.
    assert (said, held_out) == ({"greedy", "while"}, {"learned", "random", "oracle,"})


def test_bars_stand_at_their_scores_the_best_on_top():
    (axes,) = draw_comparison(config(3, 1), outcomes(3, 1), SCORES, "", "").axes
    names = [label.get_text() for label in axes.get_yticklabels()]
    widths = dict(zip(names, (bar.get_width() for bar in axes.patches), strict=True))
    assert (widths["learned"], widths["random"], widths["oracle, own view"]) == (30, -12, 60)
    assert list(widths.values()) == sorted(widths.values(), reverse=True)


def test_few_seeds_have_no_interval():
    for seeds, text in ((1, "worlds."), (4, ", of learned none from 4 seeds."), (5, "5 seeds.")):
        figure = draw_comparison(config(3, seeds), outcomes(3, seeds), SCORES, "", "")
        bars = [label.get_text() for label in figure.axes[0].texts]
        (learned,) = [bar for bar in bars if bar.startswith("30.0")]
        assert ("±" in learned) == (seeds != 4)
        assert text in figure.get_supxlabel().replace("\n", " ")


def test_samples_are_worlds_of_one_seed_and_else_seeds():
    played = outcomes(3, 4)
    item, several = (
        samples(learned, lambda each: each.returns)
        for learned in (played.learned[:1], played.learned)
    )
    assert (item.shape, several.shape) == ((WORLDS, 3), (4, 3))
    np.testing.assert_allclose(several[0], item.mean(0))


def test_a_lorenz_curve_is_that_of_the_gini():
    incomes = np.random.default_rng(2).uniform(size=(6, 40)) ** 3
    curves = lorenz(incomes)
    area = (curves[1:] + curves[:-1]).sum(0) / 12
    np.testing.assert_allclose(1 - 2 * area, gini(incomes))
    assert lorenz(np.zeros(4)).tolist() == [0, 0.25, 0.5, 0.75, 1]
