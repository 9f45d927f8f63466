"""trained state, dataset -> what the figures show, computed once; how arms are drawn and named"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Float32, Shaped
from matplotlib.axes import Axes
from matplotlib.patches import Circle

from quatrain.models.active_dynamics.collect import Dataset
from quatrain.models.active_dynamics.config import RECORDED, ActiveDynamicsConfig
from quatrain.models.active_dynamics.evaluate import FieldEstimate
from quatrain.models.active_dynamics.state import (
    State,
    TrainingState,
    checkpoint_steps,
    learners_of,
)
from quatrain.plots import BLUE, GREY, ORANGE, RED, EndLabel, draw_each, line_with_band
from quatrain.statistics import median_interval

# Number of dimensions that can be drawn as a map.
PLANE = 2
COLORS = {"active": RED, "random": GREY, "prbs": ORANGE, "step": BLUE, RECORDED: BLUE}
# What the actions of an arm are, where its name does not say it.
ACTIONS = {"active": "planned for information", "prbs": "a pseudo-random binary sequence"}
DOTTED_LINE: dict[str, Any] = {"linewidth": 2, "marker": "o", "markersize": 3}
TRANSITIONS = "transitions, warm-up included"


class Study(NamedTuple):
    """A trained state and what was computed from it.

    actions, path: the action of each transition, and the state it led to.
    """

    config: ActiveDynamicsConfig
    dataset: Dataset
    training: TrainingState
    estimate: FieldEstimate
    actions: Float32[np.ndarray, "learner transition action"]
    path: Float32[np.ndarray, "learner transition d"]

    @property
    def arms(self) -> tuple[str, ...]:
        return self.config.train.arms

    @property
    def radius(self) -> float:
        return self.config.env.region_radius

    @property
    def steps(self) -> tuple[int, ...]:
        return checkpoint_steps(self.config)

    @property
    def pair(self) -> tuple[str, ...]:
        """Returns the arms that maps show: the active (or first) one and, if any, a plain one."""
        shown = "active" if "active" in self.arms else self.arms[0]
        others = [arm for arm in self.arms if arm != shown]
        return (shown, *(["random"] if "random" in others else others[:1]))

    def of_arm(
        self, arm: str, values: Shaped[np.ndarray, "learner ..."]
    ) -> Shaped[np.ndarray, "replicate ..."]:
        return values[learners_of(self.config, arm)]

    def median_learner(self, arm: str) -> int:
        """Returns an arm's learner of median final error, the better one of two in the middle."""
        errors = self.of_arm(arm, self.estimate.nrmse[-1])
        order = np.argsort(errors, kind="stable")
        return learners_of(self.config, arm).start + int(order[(len(errors) - 1) // 2])


def make_study(
    config: ActiveDynamicsConfig, state: State, dataset: Dataset, estimate: FieldEstimate
) -> Study:
    transitions = int(state.transitions)
    return Study(
        config=config,
        dataset=dataset,
        training=TrainingState(config, dataset, state),
        estimate=estimate,
        actions=state.replay.actions[:, :transitions].numpy(force=True),
        path=state.path[:, :transitions].numpy(force=True),
    )


# Elements of figures.


def median_with_band(
    axes: Axes,
    x: Sequence[int] | np.ndarray,
    values: Float[np.ndarray, "replicate point"],
    **style: Any,
) -> Float[np.ndarray, " point"]:
    """Draws the median over replicates as a line and its 95 % interval as a band; of fewer than 6
    replicates each by itself. Returns the median.
    """
    median = np.median(values, 0)
    intervals = [median_interval(column) for column in values.T]
    if None in intervals:
        draw_each(axes, np.asarray(x), values, **style)
    else:
        line_with_band(axes, np.asarray(x), median, *np.array(intervals).T, **style)
    return median


def end_label(arm: str, value: float) -> EndLabel:
    return EndLabel(float(value), f"{arm} {format_number(value)}", COLORS[arm])


def draw_states(axes: Axes, study: Study, learner: int, color: str) -> None:
    """Draws the states that a learner visited, and the border of the region of interest."""
    x1, x2 = study.path[learner].T
    axes.scatter(x1, x2, s=4, color=color, alpha=0.5, linewidths=0)
    draw_border(axes, study)


def draw_border(axes: Axes, study: Study) -> None:
    style: dict[str, Any] = {"edgecolor": "0.3", "linewidth": 1, "linestyle": ":"}
    axes.add_patch(Circle((0, 0), study.radius, fill=False, **style))


def explain_arms(arms: Sequence[str]) -> str:
    """Returns what the arms of a figure are that are not called by what they do."""
    described = [f"{arm}: {ACTIONS[arm]}" for arm in arms if arm in ACTIONS]
    return f"Actions of {', '.join(described)}." if described else ""


def explain_lines(replicates: int) -> str:
    if replicates == 1:
        return "One replicate."
    if median_interval(np.zeros(replicates)) is None:
        return f"A line for each of {replicates} replicates."
    band = "95 % confidence intervals of the median"
    return f"Lines: medians over {replicates} replicates; bands: {band}."


def explain_replicate(replicates: int) -> str:
    return "" if replicates == 1 else f"Of {replicates} replicates the one with the median error."


def format_number(value: float) -> str:
    """Formats with two significant digits: 0.079, 1.2, 350."""
    return f"{value:.2g}" if abs(value) < 10 else f"{value:,.0f}"
