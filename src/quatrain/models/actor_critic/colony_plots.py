"""state, dataset of colonies -> figures of what the policy does, and how well on which plates; a
held-out colony as a film
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int64
from matplotlib.axes import Axes

from quatrain.animation import Animation, with_bar
from quatrain.envs.colony.config import PARAMETERS
from quatrain.envs.colony.dynamics import make_world
from quatrain.envs.colony.plates import EXPONENTIAL, LINEAR, Plates
from quatrain.envs.colony.policies import feedback_policy, with_fixed_parameters
from quatrain.envs.colony.world import episodes
from quatrain.envs.drawing import draw_colony
from quatrain.models.actor_critic.colony import spec_of, view_of
from quatrain.models.actor_critic.colony_data import (
    Dataset,
    HeldOut,
    InitialColonies,
    make_colonies,
)
from quatrain.models.actor_critic.colony_scores import Outcome, Outcomes, run_episodes
from quatrain.models.actor_critic.config import ActorCriticConfig
from quatrain.models.actor_critic.network import load_actor
from quatrain.models.actor_critic.train import State
from quatrain.plots import (
    BLACK,
    BLUE,
    RED,
    Figure,
    Picture,
    caption,
    describe_seeds,
    draw_seeds,
    log_ticks,
)

# Pixels of the plate that are shown around the widest colony; width of the picture by its height.
MARGIN = 10
WIDE = 2
MILLISECONDS = 140
BINS = 24
MIN_STEPS = 10  # fewest steps of a bin that is drawn
DOTS = 1500
# Policy -> its name and colour; the learned one is drawn in front of the others.
COMPARED = {
    "constant": ("best constant action", BLACK),
    "feedback": ("controller", BLUE),
    "learned": ("learned", RED),
}
KIND_NAMES = {LINEAR: "linear", EXPONENTIAL: "exponential"}


def pictures(
    config: ActorCriticConfig, state: State, dataset: Dataset, outcomes: Sequence[Outcomes]
) -> dict[str, Picture]:
    """Draws the figures; without `slopes` where all plates have the same slope."""
    held_out = dataset.held_out
    inside = [outcome for outcome, _ in outcomes]
    colony = median_colony(inside[0])
    frames = capture_frames(config, state, dataset, colony)
    intensity = held_out.plates.intensity[held_out.colonies.substrate[colony]]
    pictures: dict[str, Picture] = {
        "growth": animate(config, frames, intensity),
        "laws": draw_laws(config, held_out, inside),
    }
    if len(np.unique(np.concatenate([held_out.plates.m, held_out.outside.m]))) > 1:
        pictures["slopes"] = draw_slopes(config, dataset, outcomes)
    return pictures


def median_colony(outcome: Outcome) -> int:
    order = outcome.returns.argsort(kind="stable")
    return int(order[len(order) // 2])


# A film.


class Frame(NamedTuple):
    """A colony at one step; after an overflow only the cells that have a slot."""

    pos: Float[np.ndarray, "cell 2"]
    parent: Int64[np.ndarray, " cell"]
    new: Bool[np.ndarray, " cell"]


def capture_frames(
    config: ActorCriticConfig, state: State, dataset: Dataset, colony: int
) -> list[Frame]:
    """Returns a frame before the first step and after each step of a held-out colony."""
    held_out = dataset.held_out
    view = view_of(config, held_out.plates, state.scale[0])
    initial = InitialColonies(*(field[colony : colony + 1] for field in held_out.colonies))
    start = make_colonies(view.world.rules, initial)
    actor = load_actor(config, spec_of(config), state.best[0].params)
    played = episodes(view.world, start, view.playing(actor.act))
    frames = []
    for colonies in (start, *(moment.transition.after for moment in played)):
        columns = (colonies.pos, colonies.parent, colonies.new)
        cells = int(colonies.n[0])
        frames.append(Frame(*(column[0, :cells].numpy(force=True) for column in columns)))
    return frames


def animate(
    config: ActorCriticConfig, frames: Sequence[Frame], intensity: Float[np.ndarray, " width"]
) -> Animation:
    """Shows a colony from its first to its last step; the picture follows it over the plate, and
    comes nearer as it gets narrower.
    """
    rules = config.env
    widths = [np.ptp(frame.pos, axis=0).max() for frame in frames]
    reaches = np.maximum.accumulate(widths[::-1])[::-1] / 2 + MARGIN
    widest = np.minimum(reaches[0] * np.array([WIDE, 1]), [rules.width / 2, rules.height / 2])
    pictures = []
    for frame, reach in zip(frames, reaches, strict=True):
        centre = (frame.pos.min(0) + frame.pos.max(0)) / 2
        half = widest * reach / reaches[0]
        x, y = np.clip(centre, half, [rules.width, rules.height] - half)
        window = (x - half[0], x + half[0], y - half[1], y + half[1])
        pictures.append(draw_colony(intensity, rules.height, rules.goal, *frame, window))
    return Animation(with_bar(np.stack(pictures)), MILLISECONDS)


# Laws.


class Steps(NamedTuple):
    """Actions with the states before them, over all steps of all colonies.

    n: number of cells. height: of the colony's middle above the plate's. stiffness: in that middle.
    throw: the distance between a cell there and its child, h = γ / (1 + (α/I)²) + ν, in pixels.
    """

    n: Float[np.ndarray, " step"]
    height: Float[np.ndarray, " step"]
    stiffness: Float[np.ndarray, " step"]
    delete_ratio: Float[np.ndarray, " step"]
    theta: Float[np.ndarray, " step"]
    throw: Float[np.ndarray, " step"]


class Law(NamedTuple):
    """What to draw of an action y by a state x, both of Steps.

    decides: parameters of which one must be active.
    """

    title: str
    x: str
    x_label: str
    y: str
    y_label: str
    decides: set[str]
    scale: Literal["linear", "log"] = "linear"


LAWS = (
    Law(
        title="How many cells are deleted",
        x="n",
        x_label="cells before the step",
        y="delete_ratio",
        y_label="share of cells deleted",
        decides={"delete_ratio"},
    ),
    Law(
        title="In which direction children are thrown",
        x="height",
        x_label="height of the colony's middle above the plate's, px",
        y="theta",
        y_label="θ, direction of throw, rad",
        decides={"theta"},
    ),
    Law(
        title="How far they are thrown",
        x="stiffness",
        x_label="stiffness in the colony's middle",
        y="throw",
        y_label="throw in the colony's middle, px",
        decides={"gamma", "alpha", "noise"},
        scale="log",
    ),
)


def steps_of(config: ActorCriticConfig, held_out: HeldOut, outcome: Outcome) -> Steps:
    """Returns each action with the state before it."""
    initial, intensity = held_out.colonies, held_out.plates.intensity
    running = np.isfinite(outcome.action[..., 0])
    _, colony = running.nonzero()
    first = initial.pos.sum(1, dtype=np.float64) / initial.n[:, None]
    x, y = np.concatenate([first[None], outcome.centroid[:-1]])[running].T
    pixel = np.clip(x, 0, intensity.shape[1] - 1).astype(int)
    stiffness = intensity[initial.substrate[colony], pixel].astype(float)
    action = dict(zip(PARAMETERS, outcome.action[running].T, strict=True))
    softness = 1 + (action["alpha"] / stiffness) ** 2
    return Steps(
        n=np.concatenate([initial.n[None].astype(float), outcome.n[:-1]])[running],
        height=y - config.env.height / 2,
        stiffness=stiffness,
        delete_ratio=action["delete_ratio"],
        theta=action["theta"],
        throw=action["gamma"] / softness + action["noise"],
    )


def play_controller(config: ActorCriticConfig, held_out: HeldOut) -> Outcome:
    world = make_world(config.env, held_out.plates)
    gamma = torch.tensor(held_out.references.feedback_gamma).expand(len(held_out.colonies.n))
    policy = feedback_policy(world.rules, gamma)
    policy = with_fixed_parameters(config.env.action.fixed_params, policy)
    return run_episodes(world, held_out.colonies, policy)


def draw_laws(config: ActorCriticConfig, held_out: HeldOut, outcomes: Sequence[Outcome]) -> Figure:
    """Draws each action that an active parameter decides by what it answers, beside the
    controller's.
    """
    *learned, controller = (
        steps_of(config, held_out, outcome)
        for outcome in (*outcomes, play_controller(config, held_out))
    )
    laws = [law for law in LAWS if law.decides & set(config.env.action.active_params)]
    figure = Figure(figsize=(max(4 * len(laws), 8), 4.2), layout="constrained")
    for axes, law in zip(figure.subplots(1, len(laws), squeeze=False)[0], laws, strict=True):
        _draw_law(axes, law, learned, controller)
    bands = describe_seeds(config.seeds) or "Band: without the lowest and the highest tenth."
    caption(
        figure,
        "Red: learned; dots: some of all steps with held-out colonies, no action drawn; line: "
        f"their median. {bands} Blue, dashed: the median of the hand-written controller.",
    )
    return figure


def _draw_law(axes: Axes, law: Law, learned: Sequence[Steps], controller: Steps) -> None:
    columns = [(getattr(steps, law.x), getattr(steps, law.y)) for steps in (*learned, controller)]
    x, y = (np.concatenate(column) for column in zip(*columns[:-1], strict=True))
    dots = np.linspace(0, len(x) - 1, min(DOTS, len(x))).astype(int)
    axes.scatter(x[dots], y[dots], s=5, color=RED, alpha=0.2, linewidths=0)
    spacing = np.geomspace if law.scale == "log" else np.linspace
    edges = spacing(x.min(), x.max(), BINS + 1)
    centres = (edges[1:] + edges[:-1]) / 2
    *seeds, controlled = (binned(*column, edges) for column in columns)
    quantiles = np.stack(seeds, 1)
    shown = np.isfinite(quantiles[1]).all(0)
    low, median, high = quantiles[..., shown]
    draw_seeds(axes, centres[shown], median, color=RED, linewidth=1.8)
    if len(seeds) == 1:
        axes.fill_between(centres[shown], low[0], high[0], color=RED, alpha=0.15, linewidth=0)
    finite = np.isfinite(controlled[1])
    axes.plot(centres[finite], controlled[1, finite], color=BLUE, linestyle="--", linewidth=1.5)
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


# Slopes.


class Played(NamedTuple):
    """Holds the return of each of COMPARED with each colony, and the plates that these are on."""

    plates: Plates
    substrate: Int64[np.ndarray, " colony"]
    returns: dict[str, Float[np.ndarray, " colony"]]


def compare(
    plates: Plates,
    initial: InitialColonies,
    learned: Sequence[Outcome],
    constant: Float[np.ndarray, " colony"],
    feedback: Float[np.ndarray, " colony"],
) -> Played:
    """Compares policies; of several seeds the mean."""
    mean = np.mean([outcome.returns for outcome in learned], axis=0)
    returns = {"constant": constant, "feedback": feedback, "learned": mean}
    return Played(plates, initial.substrate, returns)


def draw_slopes(
    config: ActorCriticConfig, dataset: Dataset, outcomes: Sequence[Outcomes]
) -> Figure:
    """Draws return by slope of the plate, inside and outside the training range."""
    held_out = dataset.held_out
    inside, outside = zip(*outcomes, strict=True)
    constant, feedback, *elsewhere = held_out.references[1:5]
    groups = [compare(held_out.plates, held_out.colonies, inside, constant, feedback)]
    if config.collect.n_outside:
        groups.append(compare(held_out.outside, held_out.colonies_outside, outside, *elsewhere))
    drawn = np.concatenate([group.plates.kind[group.substrate] for group in groups])
    kinds = [kind for kind in KIND_NAMES if kind in drawn]
    figure = Figure(figsize=(max(5.5 * len(kinds), 8), 4.6), layout="constrained")
    panels = figure.subplots(1, len(kinds), squeeze=False, sharey=True)[0]
    for axes, kind in zip(panels, kinds, strict=True):
        for group in groups:
            _draw_plates(axes, group, kind, filled=group is groups[0])
        slopes = dataset.train.plates.m[dataset.train.plates.kind == kind]
        if len(slopes):
            axes.axvspan(slopes.min(), slopes.max(), color="0.5", alpha=0.12, linewidth=0)
        axes.set(xlabel="slope of the plate", xscale="log", title=f"Plates: {KIND_NAMES[kind]}")
        log_ticks(axes.xaxis)
        axes.grid(alpha=0.25)
    panels[0].set_ylabel("return, mean over a plate's colonies")
    panels[-1].legend(loc="upper left", bbox_to_anchor=(1, 1), reverse=True)
    over_seeds = f" Learned: mean over {config.seeds} seeds." if config.seeds > 1 else ""
    caption(
        figure,
        "A dot is a plate. Grey: slopes of training plates; rings: plates outside that range."
        + over_seeds,
    )
    return figure


def by_plate(played: Played, name: str, kind: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns slope and mean return of the plates of a kind that have colonies."""
    slopes, plate = played.plates.m, played.substrate
    count = np.bincount(plate, minlength=len(slopes))
    shown = (played.plates.kind == kind) & (count > 0)
    total = np.bincount(plate, played.returns[name], minlength=len(slopes))
    return slopes[shown], total[shown] / count[shown]


def _draw_plates(axes: Axes, played: Played, kind: int, filled: bool) -> None:
    for name, (label, color) in COMPARED.items():
        slopes, means = by_plate(played, name, kind)
        (dots,) = axes.plot(slopes, means, "o", color=color, markersize=4.5, alpha=0.75)
        dots.set_label(label if filled else "")
        dots.set_fillstyle("full" if filled else "none")
