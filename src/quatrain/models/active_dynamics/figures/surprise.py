"""observations -> figure: how surprised each arm was by what it saw, above a filter that knows the true field

Its sum is what not knowing the field has cost. Of an exact learner with a true prior the mean of it is the information
gained about the field, by the chain rule of mutual information: who pays more was surer than it should have been.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float64, Shaped
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from quatrain.models.active_dynamics.bayes_filter import filter as beliefs
from quatrain.models.active_dynamics.bayes_filter.filter import START_VARIANCE, Belief, Filter
from quatrain.models.active_dynamics.figures.parts import (
    COLORS,
    log_ticks,
    median_with_band,
    number,
    over_transitions,
    told,
)
from quatrain.models.active_dynamics.figures.study import Study, at_checkpoints, recorded
from quatrain.models.active_dynamics.network import make_rbf
from quatrain.plots import EndLabel, caption, label_ends
from quatrain.progress import History

LOWEST = 0.5
"""Of the least median above 0, where the axis begins; what lies below is drawn there."""
PRICE = "Dashed: who pays as much as it gains is as sure as it may be; above the line, too sure. "


@torch.no_grad()
def oracle(study: Study) -> Float64[np.ndarray, "learner transition"]:
    """-log likelihood per channel of what each row saw, by a filter of its states that knows the true field.

    What was seen of a new beginning is not kept, so that there it knows less than the row did.
    """
    training, d = study.training, study.config.env.d
    env, ring = study.config.env, training.replay
    rbf = make_rbf(study.config.network.rbf, d)
    given = Filter(rbf, training.world.emission.double(), env.dt, env.process_noise)
    first = torch.tensor(study.dataset.train.observations[:, 0]).repeat(len(study.arms), 1)
    belief, told_by_step = beliefs.state_prior(d, study.config.learners), []
    beliefs.correct(given, belief, first.double())
    for time in range(study.path.shape[1]):
        u = (ring.actions[:, time] @ training.world.control.T).double()
        beliefs.predict_state(given, belief, study.true_field, u)
        told_by_step.append(beliefs.correct(given, belief, ring.observations[:, time].double()))
        _forget(belief, ring.truncated[:, time])
    return torch.stack(told_by_step, 1).numpy(force=True)


def _forget(belief: Belief, where: Tensor) -> None:
    """Where an episode ended, in place."""
    belief.mean[where] = 0
    belief.covariance[where] = START_VARIANCE * torch.eye(
        belief.mean.shape[1], dtype=belief.mean.dtype
    )


class Cost(NamedTuple):
    """Of an arm, at records that tell of a new checkpoint.

    paid: nats of all channels by which it was more surprised than the oracle, summed since the beginning. gained: nats
    about the field's weights.
    """

    steps: Shaped[np.ndarray, " point"]
    paid: Float64[np.ndarray, "replicate point"]
    gained: Float64[np.ndarray, "replicate point"]

    @property
    def rate(self) -> Float64[np.ndarray, "replicate point"]:
        """Paid per transition since the point before."""
        return np.diff(self.paid, prepend=0) / np.diff(self.steps, prepend=0)


def cost(
    study: Study, history: History, by_oracle: Float64[np.ndarray, "learner transition"], arm: str
) -> Cost:
    """A record of the surprise tells its mean over the transitions since the one before."""
    ends, kept = history[f"innovation_nll.{arm}"][0], at_checkpoints(study, history, arm)
    own = (recorded(study, history, "innovation_nll", arm) * np.diff(ends, prepend=0)).cumsum(1)
    best = study.of(arm, by_oracle).cumsum(1)[:, ends - 1]
    paid = (own - best)[:, kept.records] * study.config.env.observation.channels
    return Cost(ends[kept.records], paid, kept.values)


def draw_innovation(study: Study, history: History, scores: Mapping[str, float]) -> Figure:
    """How much more surprised than the oracle each arm was; of an exact filter its sum, beside what was gained."""
    by_oracle = oracle(study)
    costs = {arm: cost(study, history, by_oracle, arm) for arm in study.arms}
    compared = (
        study.config.network.family == "bayes_filter" and study.config.network.decoder == "known"
    )
    figure = Figure(figsize=(13.5 if compared else 8.5, 5), layout="constrained")
    left, *right = figure.subplots(1, 2 if compared else 1, squeeze=False)[0]
    _draw_rates(left, study, costs, scores)
    for axes in right:
        _draw_price(axes, costs)
    caption(
        figure,
        "The oracle is a filter that knows the true field and sees the same; held out: with rollouts that were not "
        "learned from. Nats of all channels.\n"
        f"{PRICE if compared else ''}{told(study.config.seeds)}",
    )
    return figure


def _draw_rates(
    axes: Axes, study: Study, costs: Mapping[str, Cost], scores: Mapping[str, float]
) -> None:
    """Over transitions; in words, with rollouts that were not learned from."""
    medians = np.concatenate([np.median(found.rate, 0) for found in costs.values()])
    lowest = LOWEST * medians.min(
        where=medians > 0, initial=medians.max() if medians.max() > 0 else 1
    )
    ends = []
    for arm, found in costs.items():
        rate = np.maximum(found.rate, lowest)
        median = median_with_band(
            axes, found.steps, rate, color=COLORS[arm], linewidth=2, marker="o", markersize=3
        )
        ends.append(
            EndLabel(float(median[-1]), f"{arm}{held_out(study, scores, arm)}", COLORS[arm])
        )
    axes.set_title("Surprise at what is seen next, above an oracle's", loc="left", fontsize=10)
    axes.set(
        yscale="log",
        ylim=(lowest, 2 * max(medians.max(), lowest)),
        ylabel="nats per transition above the oracle",
    )
    over_transitions(axes, next(iter(costs.values())).steps)
    log_ticks(axes.yaxis)
    axes.grid(alpha=0.25)
    label_ends(axes, ends)


def held_out(study: Study, scores: Mapping[str, float], arm: str) -> str:
    """Surprise above the oracle's with rollouts that were not learned from."""
    above = scores[f"innovation_nll.{arm}"] - scores["innovation_nll_oracle"]
    return f", held out {number(study.config.env.observation.channels * above)}"


def _draw_price(axes: Axes, costs: Mapping[str, Cost]) -> None:
    """What was paid, over what was gained for it."""
    ends = []
    for arm, found in costs.items():
        gained, paid = np.median(found.gained, 0), np.median(found.paid, 0)
        axes.plot(gained, paid, color=COLORS[arm], linewidth=2, marker="o", markersize=3)
        ends.append(
            EndLabel(
                float(paid[-1]), f"{arm}: {number(paid[-1])} for {number(gained[-1])}", COLORS[arm]
            )
        )
    axes.axline((0, 0), slope=1, color="0.3", linewidth=1, linestyle="--")
    axes.set_title("What surprise has cost, and what it told of the field", loc="left", fontsize=10)
    axes.set(
        xlabel="information gained about the field's weights, nats",
        ylabel="sum of the surprise, nats",
    )
    axes.grid(alpha=0.25)
    label_ends(axes, ends)
