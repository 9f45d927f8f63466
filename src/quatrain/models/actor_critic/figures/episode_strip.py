"""one held-out colony -> a strip of frames: plate, cells, lines from parents to children."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int64
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import LinearSegmentedColormap, LogNorm
from matplotlib.figure import Figure
from matplotlib.image import AxesImage

from quatrain.envs.colony.dynamics import Colonies
from quatrain.envs.colony.episodes import episodes
from quatrain.envs.colony.rules import REASONS
from quatrain.models.actor_critic.config import ActorCriticConfig
from quatrain.models.actor_critic.figures.replays import Replays, median_colony
from quatrain.models.actor_critic.figures.training import format_number
from quatrain.models.actor_critic.ppo.learner import State, load_actor
from quatrain.models.actor_critic.worlds.colony import spec_of, view_of
from quatrain.models.actor_critic.worlds.colony_data import Dataset, InitialColonies, make_colonies
from quatrain.plots import ORANGE, RED, SMALL_TITLE, caption

FRAMES = 6
# Light colours, so that cells stand out.
PLATE = LinearSegmentedColormap.from_list("plate", ["white", "#8fbcdb"])


class Frame(NamedTuple):
    """Holds a colony at one step; after an overflow only the cells that have a slot."""

    step: int
    n: int
    pos: Float[np.ndarray, "cell 2"]
    parent: Int64[np.ndarray, " cell"]
    new: Bool[np.ndarray, " cell"]


def draw_episode_strip(
    config: ActorCriticConfig,
    replays: Replays,
    frames: Sequence[Frame],
    intensity: Float[np.ndarray, " width"],
) -> Figure:
    """Draws an episode of the first seed's policy: that of the colony with the median return."""
    outcome = replays.learned[0]
    colony = median_colony(outcome)
    figure = _draw_frames(config, frames, intensity)
    end = REASONS[outcome.reasons[colony]].replace("_", " ")
    figure.suptitle(
        f"A typical colony: return {format_number(float(outcome.returns[colony]))}, "
        f"{end} after {len(frames) - 1} steps",
        fontsize=11,
        x=0.02,
        ha="left",
    )
    caption(
        figure,
        f"Held-out colony {colony}, whose return is the median. Red: cells; orange: born in the "
        "last step. Lines: from parent to child. Dashed: the goal, at the stiff side of the plate.",
    )
    return figure


def _draw_frames(
    config: ActorCriticConfig,
    frames: Sequence[Frame],
    intensity: Float[np.ndarray, " width"],
) -> Figure:
    """Draws FRAMES of the frames, evenly spaced, on their plate."""
    width = float(np.clip(6.5 * config.env.width / config.env.height + 2.5, 8, 16))
    figure = Figure(figsize=(width, 6.2), layout="constrained")
    panels = figure.subplots(2, FRAMES // 2, sharex=True, sharey=True)
    places = np.linspace(0, len(frames) - 1, FRAMES).round().astype(int)
    for axes, place in zip(panels.flat, places, strict=True):
        plate = _draw_plate(axes, config, intensity)
        _draw_cells(axes, frames[place])
        axes.set(xlabel="x, px", ylabel="y, px")
        axes.label_outer()
    figure.colorbar(
        plate,
        ax=panels,
        label="stiffness",
        pad=0.01,
        ticks=np.geomspace(intensity.min(), intensity.max(), 5 if np.ptp(intensity) else 1),
        format="%.3g",
    ).minorticks_off()
    return figure


def capture_frames(
    config: ActorCriticConfig,
    state: State,
    dataset: Dataset,
    colony: int,
) -> list[Frame]:
    """Returns a frame before the first step and after each step of a held-out colony."""
    held_out = dataset.held_out
    view = view_of(config, held_out.plates, state.scale[0])
    initial = InitialColonies(*(field[colony : colony + 1] for field in held_out.colonies))
    start = make_colonies(view.world.rules, initial)
    actor = load_actor(config, spec_of(config), state.best[0].params)
    played = episodes(view.world, start, view.playing(actor.act))
    later = (moment.transition.after for moment in played)
    return [_frame(colonies) for colonies in (start, *later)]


def _frame(colonies: Colonies) -> Frame:
    n = int(colonies.n[0])
    return Frame(
        step=int(colonies.t[0]),
        n=n,
        pos=colonies.pos[0, :n].numpy(force=True),
        parent=colonies.parent[0, :n].numpy(force=True),
        new=colonies.new[0, :n].numpy(force=True),
    )


def _draw_plate(
    axes: Axes,
    config: ActorCriticConfig,
    intensity: Float[np.ndarray, " width"],
) -> AxesImage:
    plate = axes.imshow(
        intensity[None],
        extent=(0, config.env.width, 0, config.env.height),
        norm=LogNorm(0.99 * intensity.min(), 1.01 * intensity.max()),
        cmap=PLATE,
        aspect="equal",
        origin="lower",
    )
    axes.axvline(config.env.goal, color="0.3", linestyle="--", linewidth=1)
    return plate


def _draw_cells(axes: Axes, frame: Frame) -> None:
    child = np.flatnonzero(frame.parent >= 0)
    edges = np.stack([frame.pos[frame.parent[child]], frame.pos[child]], 1)
    axes.add_collection(LineCollection(list(edges), colors="0.3", linewidths=0.7))
    x, y = frame.pos.T
    axes.scatter(
        x,
        y,
        s=10,
        c=np.where(frame.new, ORANGE, RED).tolist(),
        zorder=3,
        linewidths=0,
    )
    axes.set_title(f"step {frame.step}: {frame.n} cells", **SMALL_TITLE)
