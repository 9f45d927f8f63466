"""the frames of one held-out colony -> an animation of its growth"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, UInt8

from quatrain.animation import Animation, paint_discs, paint_line, palette_of, with_bar
from quatrain.models.actor_critic.config import ActorCriticConfig
from quatrain.models.actor_critic.figures.episode_strip import PLATE, Frame
from quatrain.plots import BLACK, ORANGE, RED

# Width of the picture in pixels, at most.
WIDTH = 480
RADIUS = 2.2
MILLISECONDS = 140
# Colours of a plate; those of everything else follow.
SHADES = 24
EDGE, CELL, NEW, GOAL, LIGHT = range(SHADES, SHADES + 5)


def animate(
    config: ActorCriticConfig, frames: Sequence[Frame], intensity: Float[np.ndarray, " width"]
) -> Animation:
    """Shows a colony from its first to its last step on its plate."""
    scale = min(1.0, WIDTH / config.env.width)
    plate = _paint_plate(config, intensity, scale)
    pictures = np.stack([_paint_cells(plate, frame, scale) for frame in frames])
    shades = PLATE(np.linspace(0, 1, SHADES))[:, :3]
    palette = np.concatenate(
        [np.round(255 * shades).astype(np.uint8), palette_of([BLACK, RED, ORANGE, BLACK, "0.9"])]
    )
    return Animation(with_bar(pictures, LIGHT, EDGE), palette, MILLISECONDS, "")


def _paint_plate(
    config: ActorCriticConfig, intensity: Float[np.ndarray, " width"], scale: float
) -> UInt8[np.ndarray, "row column"]:
    """Paints shades by the logarithm of stiffness, and the dashed line of the goal."""
    height, width = round(scale * config.env.height), round(scale * config.env.width)
    stiffness = np.log(intensity[np.linspace(0, len(intensity) - 1, width).round().astype(int)])
    share = (stiffness - stiffness.min()) / max(float(np.ptp(stiffness)), 1e-9)
    plate = np.tile((share * (SHADES - 1)).astype(np.uint8), (height, 1))
    rows = np.arange(height)
    plate[rows % 8 < 5, min(int(scale * config.env.goal), width - 1)] = GOAL
    return plate


def _paint_cells(
    plate: UInt8[np.ndarray, "row column"], frame: Frame, scale: float
) -> UInt8[np.ndarray, "row column"]:
    """Paints lines from parents to children, cells, and those born in the last step, on top."""
    picture = plate.copy()
    points = scale * frame.pos * np.array([1, -1]) + np.array([0, len(plate) - 1])
    for child in np.flatnonzero(frame.parent >= 0):
        paint_line(picture, points[frame.parent[child]], points[child], EDGE)
    paint_discs(picture, points[~frame.new], RADIUS, CELL)
    paint_discs(picture, points[frame.new], RADIUS, NEW)
    return picture
