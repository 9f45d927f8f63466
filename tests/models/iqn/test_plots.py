"""Figures of every run, and the numbers that they state, of histories and episodes made by hand."""

import numpy as np
import pytest

from quatrain.models.iqn import plots as plotting
from quatrain.models.iqn.config import IqnConfig
from quatrain.models.iqn.evaluate import Outcomes
from quatrain.models.iqn.learn import State
from quatrain.models.iqn.treasurehunt import Dataset
from quatrain.models.iqn.treasurehunt_scores import REFERENCE_POLICIES, Outcome
from quatrain.plots import ORANGE, RED
from quatrain.progress import Evaluation, History, Progress, by_seed, history, rows
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
    rewards = np.where(events == 1, 10, -1.0).astype(np.float32)
    items = np.arange(TURNS + 1)[:, None, None] > np.arange(100).reshape(10, 10)
    positions = np.ones((TURNS + 1, agents, 2), np.int16)
    return Outcome(rewards, events, np.arange(WORLDS), items.astype(np.int8), positions)


def outcomes(agents: int, seeds: int) -> Outcomes:
    references = {name: outcome(agents, place) for place, name in enumerate(REFERENCE_POLICIES)}
    return Outcomes([outcome(agents, 50 + seed) for seed in range(seeds)], references)


@pytest.mark.parametrize(("agents", "seeds", "evaluations"), [(1, 3, 2), (12, 2, 0)])
def test_every_figure_is_drawn_for_every_run(agents: int, seeds: int, evaluations: int):
    figures = plotting.plots(
        config(agents, seeds),
        State(*[None] * len(State._fields)),
        Dataset(None, None),
        recorded(agents, seeds, evaluations),
        Evaluation(SCORES, outcomes(agents, seeds)),
    )
    fairness = ["fairness"] if agents > 1 else []
    assert list(figures) == ["episode", "learning_curve", "returns", *fairness, "learning"]
    assert len(np.unique(figures.pop("episode").frames, axis=0)) > 1
    for figure in figures.values():
        figure.draw_without_rendering()
        assert all(axes.has_data() for axes in figure.axes)
        assert figure.get_suptitle().endswith("?")


def test_learning_curve_counts_agent_steps():
    build = recorded(3, 2)
    policies = plotting.policy_returns(config(3, 2), outcomes(3, 2), SCORES)
    axes, _ = plotting.draw_learning_curve(config(3, 2), build, policies).axes
    greedy, training = (
        next(line for line in axes.lines if line.get_color() == color) for color in (RED, ORANGE)
    )
    assert greedy.get_xdata().tolist() == [1500, 2000]
    assert training.get_xdata().tolist() == [1000 + 100 * cycle for cycle in range(1, 11)]
    assert greedy.get_ydata()[-1] == pytest.approx(build["greedy_return/seed/0"][1][-1])


def test_policies_have_the_means_that_were_judged_and_the_intervals_that_there_are():
    for seeds, interval, text in (
        (1, True, "worlds."),
        (4, False, ", of learned none from 4 seeds."),
        (5, True, "5 seeds."),
    ):
        policies = plotting.policy_returns(config(3, seeds), outcomes(3, seeds), SCORES)
        learned = policies["learned"]
        assert (learned.level.value, policies["oracle_view"].level.value) == (30, 60)
        assert (learned.level.half > 0) == interval
        assert learned.values.shape == (seeds, WORLDS)
        assert plotting.describe_intervals(policies).endswith(text)


def test_a_figure_says_how_many_worlds_policies_play_if_some_play_more_of_them():
    policies = plotting.policy_returns(config(3, 1), outcomes(3, 1), SCORES)
    assert f"over {WORLDS} held-out worlds" in plotting.describe_intervals(policies)
    longer = np.zeros((1, 2 * WORLDS))
    policies["random"] = policies["random"]._replace(values=longer)
    assert f"over {WORLDS} to {2 * WORLDS} held-out" in plotting.describe_intervals(policies)
