"""Stored pictures: animations that loop, and what files say of themselves."""

from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from PIL import Image, ImageDraw

from pipeline.storage.curves import write_curves
from pipeline.storage.figures import encode
from pipeline.storage.stored_pictures import read_picture
from quatrain.animation import LAST_FRAME, Animation, with_bar
from quatrain.plots import house_style
from quatrain.storage import history


def growing() -> Animation:
    """A disc that grows on a plate of 300 x 200 pixels, for 60 frames."""
    frames = []
    for radius in range(60):
        image = Image.new("RGB", (300, 200), "white")
        ImageDraw.Draw(image).circle((150, 100), radius, "red")
        frames.append(np.array(image))
    return Animation(with_bar(np.stack(frames)), 80, "A disc: it grows.")


def test_an_animation_loops_is_small_and_has_its_colours_and_the_same_bytes(tmp_path: Path):
    data = encode({"disc": growing()})["disc.gif"]
    assert len(data) < 100_000
    assert encode({"disc": growing()}) == {"disc.gif": data}
    path = tmp_path / "disc.gif"
    path.write_bytes(data)
    with Image.open(path) as image:
        assert (image.n_frames, image.info["loop"], image.size) == (60, 0, (300, 204))
        image.seek(40)
        shown = image.convert("RGB")
        assert shown.getpixel((150, 100)) == (255, 0, 0)
        assert shown.getpixel((150, 30)) == (255, 255, 255)
        image.seek(59)
        assert image.info["duration"] == LAST_FRAME * 80
    assert read_picture(path)[:2] == (0, "A disc: it grows.")


def test_a_picture_says_its_place_and_caption_and_no_clock(tmp_path: Path):
    figure = Figure(figsize=(1, 1))
    figure.set_label("λ of a map: each")
    files = encode({"a": growing(), "b": figure})
    (tmp_path / "b.png").write_bytes(files["b.png"])
    assert read_picture(tmp_path / "b.png")[:2] == (1, "λ of a map: each")
    with Image.open(tmp_path / "b.png") as image:
        assert set(image.info) == {"Comment", "dpi"}


@house_style
def drawn() -> dict[str, Figure]:
    figure = Figure(figsize=(2, 2))
    figure.subplots().set_title("a title")
    return {"a": figure}


def test_pictures_are_the_same_whatever_a_matplotlibrc_says():
    """Of a user whose figures are dark, coarse and set by a LaTeX that need not be there."""
    plain = encode(drawn())
    settings = {"text.usetex": True, "text.color": "white", "axes.titlecolor": "white"}
    settings |= {"savefig.facecolor": "black", "figure.facecolor": "black", "font.size": 20}
    with matplotlib.rc_context(settings):
        before = dict(matplotlib.rcParams)
        assert encode(drawn()) == plain
        assert dict(matplotlib.rcParams) == before


# Files of curves.

CURVES = {
    "loss": [(1, 0.5), (2, 0.25), (3, 0.125)],
    "loss/seed/0": [(1, 0.5)],
    "loss/agent/1": [(1, 0.5)],
    "cosine/0": [(3, 1.0)],
    "cosine_mean": [(3, 0.1)],
    "reason/success": [(2, 1.0)],
    "monitor/error.active": [(2, 0.75), (3, 0.5)],
    "monitor/error.active/seed/0": [(2, 0.75)],
}


def test_a_metric_that_is_evaluated_seldom_has_no_blank_cells(tmp_path: Path):
    text = history.to_csv(CURVES)
    assert ",," in text
    (tmp_path / "old.csv").write_text("of an earlier evaluation")
    write_curves(tmp_path, history.from_csv(text))
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {
        "loss.csv": "step,loss\n1,0.5\n2,0.25\n3,0.125\n",
        "cosine_mean.csv": "step,cosine_mean\n3,0.1\n",
        "reason_success.csv": "step,reason/success\n2,1.0\n",
        "monitor_error.active.csv": "step,monitor/error.active\n2,0.75\n3,0.5\n",
    }
