"""episodes -> a figure of the learned policy's actions by what it sees, beside the controller's"""

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from quatrain.envs.colony.dynamics import ROUNDING
from quatrain.envs.colony.plates import Plates
from quatrain.envs.colony.policies import GAIN
from quatrain.envs.colony.rules import PARAMETERS
from quatrain.models.actor_critic.config import ActorCriticConfig
from quatrain.models.actor_critic.figures.replays import Replays
from quatrain.models.actor_critic.scores.colony import Outcome
from quatrain.models.actor_critic.worlds.colony_data import InitialColonies
from quatrain.plots import BLUE, RED, caption, describe_seeds, draw_seeds

THROW = {"gamma", "alpha", "noise"}  # parameters that decide how far a child is thrown
BINS = 24
MIN_STEPS = 10  # fewest steps of a bin that is drawn
DOTS = 1500
NEAR = 2  # distance from the target size, in cells, that counts as reaching it


class Steps(NamedTuple):
    """Holds actions with the states before them, over all steps of all colonies.

    n: number of cells. y, stiffness: at the centroid.
    """

    n: Float[np.ndarray, " step"]
    y: Float[np.ndarray, " step"]
    stiffness: Float[np.ndarray, " step"]
    action: Float[np.ndarray, "step 5"]

    def column(self, name: str) -> Float[np.ndarray, " step"]:
        return self.action[:, PARAMETERS.index(name)]


class Law(NamedTuple):
    """Holds what to draw of an action y by a state x.

    learned: x and y in the steps of each seed. controller: its y by x.
    """

    title: str
    x_label: str
    y_label: str
    learned: Sequence[tuple[np.ndarray, np.ndarray]]
    controller: Callable[[np.ndarray], np.ndarray]
    scale: Literal["linear", "log"] = "linear"


def draw_laws(config: ActorCriticConfig, replays: Replays) -> Figure:
    """Draws deletion ratio by size, direction by height, and throw by stiffness, of those that an
    active parameter decides, beside the controller's.
    """
    *learned, feedback = (
        steps_of(replays.plates, replays.initial, outcome)
        for outcome in (*replays.learned, replays.feedback)
    )
    active = set(config.env.action.active_params)
    laws = []
    if "delete_ratio" in active:
        laws.append(_size_law(config, learned))
    if "theta" in active:
        laws.append(_height_law(config, learned))
    if THROW & active:
        laws.append(_throw_law(learned, feedback))
    figure = Figure(figsize=(max(5.5 * len(laws), 8), 4.8), layout="constrained")
    for axes, law in zip(figure.subplots(1, len(laws), squeeze=False)[0], laws, strict=True):
        _draw_law(axes, law)
    bands = describe_seeds(config.seeds) or "Band: without the lowest and the highest tenth."
    caption(
        figure,
        "Red: learned; dots: some of all steps with held-out colonies, no action drawn; line: "
        f"their median. {bands} Blue, dashed: the hand-written controller.",
    )
    return figure


def steps_of(plates: Plates, initial: InitialColonies, outcome: Outcome) -> Steps:
    """Returns each action with the state before it."""
    running = np.isfinite(outcome.action[..., 0])
    _, colony = running.nonzero()
    first = initial.pos.sum(1, dtype=np.float64) / initial.n[:, None]
    x, y = np.concatenate([first[None], outcome.centroid[:-1]])[running].T
    pixel = np.clip(x, 0, plates.intensity.shape[1] - 1).astype(int)
    return Steps(
        n=np.concatenate([initial.n[None].astype(float), outcome.n[:-1]])[running],
        y=y,
        stiffness=plates.intensity[initial.substrate[colony], pixel].astype(float),
        action=outcome.action[running],
    )


def next_size(steps: Steps) -> Float[np.ndarray, " step"]:
    """Returns the number of cells after each step, n' = 2(n − ⌊r n⌋), overflows included."""
    return 2 * (steps.n - np.floor(steps.column("delete_ratio") * steps.n + ROUNDING))


def throw(steps: Steps) -> Float[np.ndarray, " step"]:
    """Returns the distance between a cell at the centroid and its child, h = γ / (1 + (α/I)²) + ν,
    in pixels.
    """
    softness = 1 + (steps.column("alpha") / steps.stiffness) ** 2
    return steps.column("gamma") / softness + steps.column("noise")


def _size_law(config: ActorCriticConfig, learned: Sequence[Steps]) -> Law:
    """Compares with r = 1 − Nc/(2n), for which the next size n' = 2(n − r n) is the target."""
    target = config.env.target_nodes
    errors = np.concatenate([np.abs(next_size(steps) - target) for steps in learned])
    near = (errors <= NEAR).mean()
    return Law(
        title=f"{near:.0%} of all steps lead to within {NEAR} cells of the target",
        x_label="cells n (the controller: 1 − Nc/(2n))",
        y_label="r, share of cells deleted",
        learned=[(steps.n, steps.column("delete_ratio")) for steps in learned],
        controller=lambda n: np.clip(1 - target / (2 * n), *config.env.action.bounds.delete_ratio),
    )


def _height_law(config: ActorCriticConfig, learned: Sequence[Steps]) -> Law:
    middle = config.env.height / 2
    seeds = [(steps.y - middle, steps.column("theta")) for steps in learned]
    slope = np.mean([_slope(*seed) for seed in seeds])
    return Law(
        title=f"θ changes by {slope:+.4f} rad per pixel, the controller's by {-GAIN:+.4f}",
        x_label="height of the colony's middle above the plate's, px",
        y_label="θ, direction of throw, rad",
        learned=seeds,
        controller=lambda height: np.clip(-GAIN * height, *config.env.action.bounds.theta),
    )


def _throw_law(learned: Sequence[Steps], feedback: Steps) -> Law:
    """Interpolates the controller's steps by stiffness: its γ, α and ν are constant."""
    order = feedback.stiffness.argsort()
    seeds = [(steps.stiffness, throw(steps)) for steps in learned]
    median = np.median(np.concatenate([thrown for _, thrown in seeds]))
    controllers = throw(feedback)
    return Law(
        title=f"A child lands {median:.1f} px away, the controller's {np.median(controllers):.1f}",
        x_label="stiffness in the colony's middle",
        y_label="throw in the colony's middle, px",
        learned=seeds,
        controller=lambda x: np.interp(x, feedback.stiffness[order], controllers[order]),
        scale="log",
    )


def _slope(x: np.ndarray, y: np.ndarray) -> float:
    """Returns the least-squares slope; 0 where x is constant."""
    deviation = x - x.mean()
    return float(deviation @ y / max(deviation @ deviation, 1e-9))


def _draw_law(axes: Axes, law: Law) -> None:
    x, y = (np.concatenate(column) for column in zip(*law.learned, strict=True))
    dots = np.linspace(0, len(x) - 1, min(DOTS, len(x))).astype(int)
    axes.scatter(x[dots], y[dots], s=5, color=RED, alpha=0.2, linewidths=0)
    spacing = np.geomspace if law.scale == "log" else np.linspace
    edges = spacing(x.min(), x.max(), BINS + 1)
    centres = (edges[1:] + edges[:-1]) / 2
    quantiles = np.stack([binned(*seed, edges) for seed in law.learned], 1)
    shown = np.isfinite(quantiles[1]).all(0)
    low, median, high = quantiles[..., shown]
    draw_seeds(axes, centres[shown], median, color=RED, linewidth=1.8)
    if len(median) == 1:
        axes.fill_between(centres[shown], low[0], high[0], color=RED, alpha=0.15, linewidth=0)
    axes.plot(centres, law.controller(centres), color=BLUE, linestyle="--", linewidth=1.5)
    axes.set(title=law.title, xlabel=law.x_label, ylabel=law.y_label, xscale=law.scale)
    axes.grid(alpha=0.25)


def binned(
    x: Float[np.ndarray, " step"], y: Float[np.ndarray, " step"], edges: Float[np.ndarray, " edge"]
) -> Float[np.ndarray, "3 bin"]:
    """Returns the 10 %, 50 % and 90 % quantiles of y in each bin of x; NaN in bins with fewer than
    MIN_STEPS.
    """
    bins = len(edges) - 1
    place = np.clip(np.searchsorted(edges, x, side="right") - 1, 0, bins - 1)
    quantiles = np.full((3, bins), np.nan)
    for full in np.flatnonzero(np.bincount(place) >= MIN_STEPS):
        quantiles[:, full] = np.quantile(y[place == full], (0.1, 0.5, 0.9))
    return quantiles
