"""snapshots of a training -> a film in which learned vectors turn into the true ones"""

import numpy as np
from jaxtyping import Float, Int, UInt8
from matplotlib import colormaps
from PIL import Image, ImageDraw, ImageFont

from quatrain.animation import Animation, with_bar
from quatrain.models.allo.collect import Dataset
from quatrain.models.allo.config import AlloConfig
from quatrain.models.allo.train import RECORDS, State
from quatrain.models.allo.truth import Spectrum, aligned, strict_cosine, true_table

MILLISECONDS = 300
# Most vectors side by side; in pixels the width of a picture, the space beside a map, and the side
# of a cell: least, where fewer vectors would do, and most.
COLUMNS = 5
WIDTH = 800
GAP = 10
LEAST_CELL = 4
LARGEST_CELL = 16
# Height of a line of text, and of its letters.
LINE = 32
FONT = 18
# Shades of a sign: few colours make a film small.
SHADES = 10
COLORS = (255 * colormaps["RdBu"](np.linspace(0, 1, 2 * SHADES + 1))[:, :3]).astype(np.uint8)
WALL = 100
INK = (50, 50, 50)


def film_vectors(
    config: AlloConfig,
    state: State,
    dataset: Dataset,
    truth: Spectrum,
    table: Float[np.ndarray, "states d"],
) -> Animation:
    """Shows the vectors of the first learner at each snapshot, and in the end those of `table`,
    below the true ones; a colour is the same number in both. The first vector, which is constant,
    is left out.
    """
    end, every = int(state.step[0]), config.train.record_every
    steps = [record * every for record in RECORDS if record * every < end]
    tables = [*np.asarray(state.snapshots)[: len(steps)], table]
    true = true_table(truth, table.shape[1])
    limits = np.maximum(np.abs(true).max(0), 1e-9)
    coords = np.asarray(dataset.coords)
    above = _draw_row("True eigenvectors", true / limits, coords)
    frames = []
    for step, learned in zip([*steps, end], tables, strict=True):
        cosine = strict_cosine(learned, truth).mean()
        title = f"Learned vectors after {step:,} steps: mean cosine {cosine:.3f}"
        below = _draw_row(title, aligned(learned, truth) / limits, coords)
        frames.append(np.vstack([above, below]))
    return Animation(with_bar(np.stack(frames)), MILLISECONDS)


def _draw_row(
    title: str, vectors: Float[np.ndarray, "states d"], coords: Int[np.ndarray, "states 2"]
) -> UInt8[np.ndarray, "height width 3"]:
    """Draws maps of vectors side by side below a title; red: -1, white: 0, blue: 1."""
    x, y = (coords - coords.min(0) + 1).T
    height, width = y.max() + 2, x.max() + 2
    columns = max(1, min(COLUMNS, WIDTH // (LEAST_CELL * width + GAP)))
    shown = vectors[:, 1 : columns + 1] if vectors.shape[1] > 1 else vectors
    shades = (SHADES * (np.clip(shown, -1, 1) + 1)).round().astype(int)
    maps = np.full((height, shown.shape[1], width, 3), WALL, np.uint8)
    maps[y, :, x] = COLORS[shades]
    size = np.clip((WIDTH // shown.shape[1] - GAP) // width, 1, LARGEST_CELL)
    large = maps.repeat(size, 0).repeat(size, 2)
    spaced = np.pad(large, ((0, GAP), (0, 0), (0, GAP), (0, 0)), constant_values=255)
    row = spaced.reshape(len(spaced), -1, 3)
    row = np.pad(row, ((0, 0), (0, max(0, WIDTH - row.shape[1])), (0, 0)), constant_values=255)
    line = Image.new("RGB", (row.shape[1], LINE), "white")
    font = ImageFont.load_default(FONT)
    ImageDraw.Draw(line).text((0, LINE / 2), title, INK, font, anchor="lm")
    return np.vstack([np.array(line), row])
