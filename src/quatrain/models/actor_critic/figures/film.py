"""one held-out colony -> a strip of pictures: its cells, whose children they are, and the plate under them."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int64
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import LinearSegmentedColormap, LogNorm
from matplotlib.figure import Figure
from matplotlib.image import AxesImage

from quatrain.envs.colony.dynamics import Colonies, make_world
from quatrain.envs.colony.episodes import episodes
from quatrain.envs.colony.rules import REASONS, goal
from quatrain.models.actor_critic.collect import Dataset, Starts, colonies_of
from quatrain.models.actor_critic.config import ActorCriticConfig
from quatrain.models.actor_critic.figures.replays import Replays, number, typical
from quatrain.models.actor_critic.ppo.acting import mean_policy
from quatrain.models.actor_critic.ppo.agent import actor_of
from quatrain.models.actor_critic.train import State
from quatrain.plots import ORANGE, RED, caption

MOMENTS = 6
PLATE = LinearSegmentedColormap.from_list("plate", ["white", "#8fbcdb"])
"""Light, so that cells stand out."""


class Picture(NamedTuple):
    """A colony at a moment; of an overflowed one as many cells as there is room for."""

    step: int
    n: int
    pos: Float[np.ndarray, "cell 2"]
    parent: Int64[np.ndarray, " cell"]
    new: np.ndarray


def draw_film(
    config: ActorCriticConfig, state: State, dataset: Dataset, replays: Replays
) -> Figure:
    """The colony with the median return under the policy of the first seed, from its start to its end."""
    held_out, chosen = dataset.held_out, typical(replays.learned[0])
    film = filmed(config, state, dataset, chosen)
    intensity = held_out.plates.intensity[held_out.colonies.substrate[chosen]]
    width = np.clip(6.5 * config.env.width / config.env.height + 2.5, 8, 16)
    figure = Figure(figsize=(float(width), 6.2), layout="constrained")
    panels = figure.subplots(2, MOMENTS // 2, sharex=True, sharey=True)
    for axes, place in zip(
        panels.flat, np.linspace(0, len(film) - 1, MOMENTS).round().astype(int), strict=True
    ):
        plate = _draw_plate(axes, config, intensity)
        _draw_cells(axes, film[place])
    ticks = np.geomspace(intensity.min(), intensity.max(), 5 if np.ptp(intensity) else 1)
    figure.colorbar(
        plate, ax=panels, label="stiffness", pad=0.01, ticks=ticks, format="%.3g"
    ).minorticks_off()
    for axes in panels[-1]:
        axes.set_xlabel("x, px")
    for axes in panels[:, 0]:
        axes.set_ylabel("y, px")
    outcome = replays.learned[0]
    end = REASONS[outcome.reasons[chosen]].replace("_", " ")
    title = f"A typical colony: return {number(float(outcome.returns[chosen]))}, {end} after {len(film) - 1} steps"
    figure.suptitle(title, fontsize=11, x=0.02, ha="left")
    caption(
        figure,
        f"Held-out colony {chosen}, whose return is the median. Red: cells; orange: born in the last step. "
        "Lines: from parent to child. Dashed: the goal.",
    )
    return figure


def filmed(config: ActorCriticConfig, state: State, dataset: Dataset, colony: int) -> list[Picture]:
    """Before the first step and after each."""
    held_out = dataset.held_out
    world = make_world(config.env.rules, held_out.plates)
    starts = Starts(*(field[colony : colony + 1] for field in held_out.colonies))
    start = colonies_of(world.rules, starts)
    act = mean_policy(actor_of(config, world, state.seeds[0]))
    return [
        picture(start),
        *(picture(moment.transition.after) for moment in episodes(world, start, act)),
    ]


def picture(colonies: Colonies) -> Picture:
    """Of the only colony of a batch."""
    n = int(colonies.n[0])
    pos, parent, new = (
        field[0, :n].numpy(force=True) for field in (colonies.pos, colonies.parent, colonies.new)
    )
    return Picture(int(colonies.t[0]), n, pos, parent, new)


def _draw_plate(
    axes: Axes, config: ActorCriticConfig, intensity: Float[np.ndarray, " width"]
) -> AxesImage:
    norm = LogNorm(0.99 * intensity.min(), 1.01 * intensity.max())
    extent = (0, config.env.width, 0, config.env.height)
    plate = axes.imshow(
        intensity[None], extent=extent, norm=norm, cmap=PLATE, aspect="equal", origin="lower"
    )
    axes.axvline(goal(config.env.rules), color="0.3", linestyle="--", linewidth=1)
    return plate


def _draw_cells(axes: Axes, seen: Picture) -> None:
    child = np.flatnonzero(seen.parent >= 0)
    edges = list(np.stack([seen.pos[seen.parent[child]], seen.pos[child]], 1))
    axes.add_collection(LineCollection(edges, colors="0.3", linewidths=0.7))
    x, y = seen.pos.T
    axes.scatter(x, y, s=10, c=np.where(seen.new, ORANGE, RED).tolist(), zorder=3, linewidths=0)
    axes.set_title(f"step {seen.step}: {seen.n} cells", loc="left", fontsize=10)
