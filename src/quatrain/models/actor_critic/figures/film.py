"""one held-out colony -> an animation of its growth"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int64, UInt8

from quatrain.animation import Animation, paint_discs, paint_line, palette_of, with_bar
from quatrain.envs.colony.dynamics import Colonies
from quatrain.envs.colony.world import episodes
from quatrain.models.actor_critic.colony import spec_of, view_of
from quatrain.models.actor_critic.colony_data import Dataset, InitialColonies, make_colonies
from quatrain.models.actor_critic.config import ActorCriticConfig
from quatrain.models.actor_critic.network import load_actor
from quatrain.models.actor_critic.train import State
from quatrain.plots import BLACK, ORANGE, RED

# Pixels of the picture's width, and of a pixel of the plate, at most.
WIDTH = 720
LARGEST = 2.0
RADIUS = 3.0
# Pixels of the plate that are shown above and below all cells.
MARGIN = 20
MILLISECONDS = 140
# Light colours of a plate, so that cells stand out; those of everything else follow.
SHADES = 24
SOFT, STIFF = palette_of(["white", "#8fbcdb"])
EDGE, CELL, NEW, GOAL, LIGHT = range(SHADES, SHADES + 5)


class Frame(NamedTuple):
    """Holds a colony at one step; after an overflow only the cells that have a slot."""

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
    later = (moment.transition.after for moment in played)
    return [_frame(colonies) for colonies in (start, *later)]


def _frame(colonies: Colonies) -> Frame:
    n = int(colonies.n[0])
    columns = (colonies.pos, colonies.parent, colonies.new)
    return Frame(*(column[0, :n].numpy(force=True) for column in columns))


def animate(
    config: ActorCriticConfig, frames: Sequence[Frame], intensity: Float[np.ndarray, " width"]
) -> Animation:
    """Shows a colony from its first to its last step on the part of its plate that it crosses."""
    scale = min(LARGEST, WIDTH / config.env.width)
    y = np.concatenate([frame.pos[:, 1] for frame in frames])
    low = max(float(y.min()) - MARGIN, 0.0)
    high = min(float(y.max()) + MARGIN, float(config.env.height))
    plate = _paint_plate(config, intensity, scale, round(scale * (high - low)))
    pictures = np.stack([_paint_cells(plate, frame, scale, high) for frame in frames])
    shades = np.linspace(SOFT, STIFF, SHADES).round().astype(np.uint8)
    palette = np.concatenate([shades, palette_of([BLACK, RED, ORANGE, BLACK, "0.9"])])
    return Animation(with_bar(pictures, LIGHT, EDGE), palette, MILLISECONDS, "")


def _paint_plate(
    config: ActorCriticConfig, intensity: Float[np.ndarray, " width"], scale: float, height: int
) -> UInt8[np.ndarray, "row column"]:
    """Paints shades by the logarithm of stiffness, and the dashed line of the goal."""
    width = round(scale * config.env.width)
    stiffness = np.log(intensity[np.linspace(0, len(intensity) - 1, width).round().astype(int)])
    share = (stiffness - stiffness.min()) / max(float(np.ptp(stiffness)), 1e-9)
    plate = np.tile((share * (SHADES - 1)).astype(np.uint8), (height, 1))
    plate[np.arange(height) % 8 < 5, min(int(scale * config.env.goal), width - 1)] = GOAL
    return plate


def _paint_cells(
    plate: UInt8[np.ndarray, "row column"], frame: Frame, scale: float, top: float
) -> UInt8[np.ndarray, "row column"]:
    """Paints lines from parents to children, cells, and those born in the last step, on top."""
    picture = plate.copy()
    points = scale * (frame.pos * np.array([1, -1]) + np.array([0, top]))
    for child in np.flatnonzero(frame.parent >= 0):
        paint_line(picture, points[frame.parent[child]], points[child], EDGE)
    paint_discs(picture, points[~frame.new], RADIUS, CELL)
    paint_discs(picture, points[frame.new], RADIUS, NEW)
    return picture
