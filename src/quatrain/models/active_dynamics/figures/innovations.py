"""observations -> surprise of each arm, beside a filter that knows the field; signs of misfit

The sum of the surprise above the oracle's is the price of not knowing the field. For an exact
learner with a true prior its mean is the information gained about the field, by the chain rule of
mutual information; a greater sum shows overconfidence. Innovations of a right filter have the size
that it expects, and do not follow each other. The field's error near the data is as large as its
variance says.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float64, Shaped
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from quatrain.models.active_dynamics import misfit
from quatrain.models.active_dynamics.bayes_filter import filter as filters
from quatrain.models.active_dynamics.bayes_filter.filter import START_VARIANCE
from quatrain.models.active_dynamics.figures.parts import (
    COLORS,
    DOTTED_LINE,
    draw_arm,
    end_label,
    explain_arms,
    explain_lines,
    format_number,
    label_arms,
    log_ticks,
    set_title,
    set_transitions_axis,
)
from quatrain.models.active_dynamics.figures.study import (
    Study,
    arm_metric,
    information_at_checkpoints,
)
from quatrain.models.active_dynamics.references import true_filter
from quatrain.plots import EndLabel, caption
from quatrain.progress import History

# Lower end of the axis, relative to the least median above 0; lower values are drawn there.
LOWEST = 0.5
PRICE_CAPTION = "Dashed: surprise equal to information gained (calibrated); above: overconfident."
# Distance at which the last range, which has no end, is drawn.
LAST = 1.6


@torch.no_grad()
def oracle_nll(study: Study) -> Float64[np.ndarray, "learner transition"]:
    """Computes -log likelihood per channel of each learner's observations by the oracle.

    The oracle is a filter of the states that knows the true field. The first observations of new
    episodes are not stored, so that it knows less than the learner after each reset.
    """
    env = study.config.env
    world = study.training.world
    ring = study.training.replay
    oracle = true_filter(study.config, world)
    first = torch.tensor(study.dataset.train.observations[:, 0]).repeat(len(study.arms), 1)
    belief = filters.state_prior(env.d, study.config.learners)
    start_covariance = START_VARIANCE * torch.eye(env.d, dtype=torch.float64)
    filters.correct(oracle, belief, first.double())
    nll = []
    for time in range(study.path.shape[1]):
        control = (ring.actions[:, time] @ world.control.T).double()
        filters.predict_state(oracle, belief, study.true_field, control)
        nll.append(filters.correct(oracle, belief, ring.observations[:, time].double()))
        belief.mean[ring.truncated[:, time]] = 0
        belief.covariance[ring.truncated[:, time]] = start_covariance
    return torch.stack(nll, 1).numpy(force=True)


class Cost(NamedTuple):
    """Holds the excess surprise of an arm, at the records that cover a new checkpoint.

    paid: nats of all channels above the oracle, summed since the beginning. gained: nats about the
    field's weights.
    """

    steps: Shaped[np.ndarray, " point"]
    paid: Float64[np.ndarray, "replicate point"]
    gained: Float64[np.ndarray, "replicate point"]

    @property
    def rate(self) -> Float64[np.ndarray, "replicate point"]:
        """Returns the nats paid per transition since the point before."""
        return np.diff(self.paid, prepend=0) / np.diff(self.steps, prepend=0)


def excess_cost(
    study: Study, history: History, oracle: Float64[np.ndarray, "learner transition"], arm: str
) -> Cost:
    """Computes an arm's cost; each record has the mean surprise since the record before.

    oracle: the result of `oracle_nll`.
    """
    ends = history[f"innovation_nll.{arm}"][0]
    _, records, gained = information_at_checkpoints(study, history, arm)
    nll = arm_metric(study, history, "innovation_nll", arm)
    total = (nll * np.diff(ends, prepend=0)).cumsum(1)
    oracle_total = study.of_arm(arm, oracle).cumsum(1)[:, ends - 1]
    paid = (total - oracle_total)[:, records] * study.config.env.observation.channels
    return Cost(ends[records], paid, gained)


def draw_innovation(study: Study, history: History, scores: Mapping[str, float]) -> Figure:
    """Draws each arm's surprise above the oracle's; for an exact filter also its sum."""
    oracle = oracle_nll(study)
    costs = {arm: excess_cost(study, history, oracle, arm) for arm in study.arms}
    network = study.config.network
    is_exact = network.family == "bayes_filter" and network.decoder == "known"
    figure = Figure(figsize=(13 if is_exact else 8.5, 5), layout="constrained")
    ratios = (6, 1, 6) if is_exact else (6, 1)
    panels = figure.subplots(1, len(ratios), width_ratios=ratios)
    panels[1].sharey(panels[0])
    _draw_rates(panels[0], study, costs)
    _draw_held_out(panels[1], study, scores)
    if is_exact:
        _draw_price(panels[2], costs)
    caption(
        figure,
        "Surprise: −log likelihood, in nats of all channels. The oracle is a filter that knows the "
        "true field and has the same observations.",
        PRICE_CAPTION if is_exact else "",
        explain_arms(study.arms),
        explain_lines(study.config.seeds),
    )
    return figure


def _draw_rates(axes: Axes, study: Study, costs: Mapping[str, Cost]) -> None:
    medians = np.concatenate([np.median(cost.rate, 0) for cost in costs.values()])
    highest = medians.max()
    lowest = LOWEST * medians.min(where=medians > 0, initial=highest if highest > 0 else 1)
    ends = [
        draw_arm(axes, arm, cost.steps, np.maximum(cost.rate, lowest), **DOTTED_LINE)
        for arm, cost in costs.items()
    ]
    axes.set(
        yscale="log",
        ylim=(lowest, 2 * max(highest, lowest)),
        ylabel="nats per transition above the oracle",
    )
    set_transitions_axis(axes, costs[study.arms[0]].steps)
    log_ticks(axes.yaxis)
    label_arms(axes, "Surprise at the next own observation, above the oracle's", ends)


def _draw_held_out(axes: Axes, study: Study, scores: Mapping[str, float]) -> None:
    """Draws each arm's surprise on the same held-out rollouts; the least shown is the axis' end."""
    bottom, _ = axes.get_ylim()
    levels = [(arm, held_out_surprise(study, scores, arm)) for arm in study.arms]
    for arm, level in levels:
        axes.plot([0], [max(level, bottom)], "o", color=COLORS[arm], clip_on=False)
    axes.set(xticks=[], xlim=(-1, 1))
    axes.tick_params(axis="y", labelleft=False)
    texts = [
        end_label(arm, max(level, bottom), f" {format_number(level)}") for arm, level in levels
    ]
    label_arms(axes, "Held-out rollouts", texts)


def held_out_surprise(study: Study, scores: Mapping[str, float], arm: str) -> float:
    """Returns the surprise above the oracle's on held-out rollouts, in nats of all channels."""
    excess = scores[f"innovation_nll.{arm}"] - scores["innovation_nll_oracle"]
    return study.config.env.observation.channels * excess


def _draw_price(axes: Axes, costs: Mapping[str, Cost]) -> None:
    ends = []
    for arm, cost in costs.items():
        gained = np.median(cost.gained, 0)
        paid = np.median(cost.paid, 0)
        axes.plot(gained, paid, color=COLORS[arm], **DOTTED_LINE)
        ends.append(end_label(arm, paid[-1], f" {format_number(paid[-1])}"))
    axes.axline((0, 0), slope=1, color="0.3", linewidth=1, linestyle="--")
    axes.set(
        xlabel="information gained about the field's weights, nats",
        ylabel="sum of the excess surprise, nats",
    )
    label_arms(axes, "What that adds up to, over what was learned for it", ends)


# Misfit.


def draw_misfit(study: Study, scores: Mapping[str, float]) -> Figure:
    """Draws error by distance; for a filter also size and correlation of its innovations."""
    has_innovations = f"nis.{study.arms[0]}" in scores
    figure = Figure(figsize=(13 if has_innovations else 7, 5), layout="constrained")
    panels = figure.subplots(1, 2 if has_innovations else 1, squeeze=False)[0]
    ends = [_draw_distances(panels[0], study, arm) for arm in study.arms]
    label_arms(panels[0], "Error by distance to the data", ends)
    log_ticks(panels[0].yaxis)
    if has_innovations:
        _draw_innovations(panels[1], study, scores)
    caption(
        figure,
        "Left, dashed: the error that the learner expects.",
        "Right: innovations are observations minus their prediction; grey: if the field is right."
        if has_innovations
        else "",
        f"Medians over {study.config.seeds} replicates.",
    )
    return figure


def _draw_distances(axes: Axes, study: Study, arm: str) -> EndLabel:
    truth = study.dataset.held_out
    square = ((study.estimate.mean - truth.grid_field) ** 2).sum(2)
    variance = study.estimate.variance.sum(2)
    rows = (square, variance, misfit.nearest_distances(study.path, truth.grid))
    ranges = misfit.by_distance(*(study.of_arm(arm, row) for row in rows))
    x = np.array([*misfit.EDGES[:-1], LAST])
    filled = np.isfinite(ranges.error).any(0)
    error, expected = (np.nanmedian(values[:, filled], 0) for values in ranges)
    axes.plot(x[filled], error, color=COLORS[arm], **DOTTED_LINE)
    axes.plot(x[filled], expected, color=COLORS[arm], linestyle="--")
    axes.set(
        xscale="log",
        yscale="log",
        xlabel="distance to the nearest visited state, up to",
        ylabel="error of the field, speed",
    )
    log_ticks(axes.xaxis)
    return end_label(arm, error[-1], f" {format_number(error[-1])}")


def _draw_innovations(axes: Axes, study: Study, scores: Mapping[str, float]) -> None:
    for name, line in (("nis", axes.axvspan), ("whiteness", axes.axhspan)):
        line(scores[f"{name}_expected_low"], scores[f"{name}_expected_high"], color="0.85")
    for arm in study.arms:
        x, y = scores[f"nis.{arm}"], scores[f"whiteness.{arm}"]
        axes.plot(x, y, "o", color=COLORS[arm], markersize=8, label=arm)
    axes.plot(scores["nis_oracle"], scores["whiteness_oracle"], "k*", label="true field")
    axes.set(
        xlabel="mean square of innovations, relative to the expected one",
        ylabel="correlation with the innovation before",
    )
    axes.legend(loc="upper left", bbox_to_anchor=(1, 1))
    axes.grid(alpha=0.25)
    set_title(axes, "What a filter with the learned field does not foresee")
