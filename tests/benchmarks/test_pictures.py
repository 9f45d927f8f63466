"""Pictures show what the rows say, and no text stands on another."""

from itertools import combinations
from pathlib import Path

import pytest
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from benchmarks import pictures
from benchmarks.result_files import named, read
from benchmarks.table import Point, Row
from quatrain.plots import BLUE, ORANGE, RED
from tests.benchmarks.small_results import ALL, PEERS, RING, STEP, keep, measured


def drawn(folder: Path, rows: dict[str, list[Row]]) -> dict[str, Figure]:
    return pictures.draw(named(read(keep(folder, rows))))


def bars(axes: Axes, color: str) -> list[float]:
    """How far bars of a colour reach."""
    patches = [bar for bar in axes.patches if bar.get_facecolor()[:3] == pytest.approx(rgb(color))]
    return [float(bar.get_x() + bar.get_width()) for bar in patches]


def rgb(color: str) -> tuple[float, ...]:
    from matplotlib.colors import to_rgb

    return to_rgb(color)


def test_only_what_was_measured_is_drawn(tmp_path: Path):
    assert drawn(tmp_path / "a", {}) == {}
    assert set(drawn(tmp_path / "b", ALL)) == {"claims_allo", "claims_colony", "scaling", "peers"}


def test_bars_are_the_measured_ratios_and_the_mark_is_the_promise(tmp_path: Path):
    (axes,) = drawn(tmp_path, {"allo": [STEP]})["claims_allo"].axes
    assert bars(axes, ORANGE) == pytest.approx([2])
    assert bars(axes, BLUE) == pytest.approx([6])
    (mark,) = [line for line in axes.lines if line.get_color() == RED and len(line.get_xdata())]
    assert list(mark.get_xdata()) == [2, 2]
    (rounds,) = [line for line in axes.lines if list(line.get_xdata()) == [3, 12]]
    assert rounds.get_ydata()[0] == 1
    assert [text.get_text() for text in axes.texts] == ["2x", "6x"]


def test_an_item_with_several_rows_shows_the_middle_one(tmp_path: Path):
    rows = [
        STEP._replace(name=f"step {slow}", before=measured(slow)) for slow in (0.012, 1.2, 0.12)
    ]
    (axes,) = drawn(tmp_path, {"allo": rows})["claims_allo"].axes
    assert bars(axes, BLUE) == pytest.approx([60])


def test_a_library_that_is_ahead_has_another_colour(tmp_path: Path):
    (axes,) = drawn(tmp_path, {"peers": PEERS})["peers"].axes
    assert (bars(axes, BLUE), bars(axes, RED)) == (pytest.approx([4]), pytest.approx([0.5]))
    assert [text.get_text() for text in axes.texts] == ["cpprb 4x", "flashbax 0.5x"]


def test_a_curve_has_a_line_per_side_in_the_order_of_what_grows(tmp_path: Path):
    (axes,) = drawn(tmp_path, {"machine": RING[::-1]})["scaling"].axes
    before, ours = axes.lines
    assert list(before.get_xdata()) == list(ours.get_xdata()) == [1e3, 1e4, 1e6]
    assert list(before.get_ydata()) == pytest.approx([100, 1000, 1e5])
    assert list(ours.get_ydata()) == pytest.approx([2, 2, 2])
    assert [label.get_text() for label in axes.get_xticklabels()] == ["1k", "10k", "1M"]
    texts = [text.get_text() for text in axes.texts]
    assert texts == ["50x", "500x", "50000x", "ours", "before"]


def test_a_flat_curve_looks_flat_and_has_numbers_beside_it(tmp_path: Path):
    rows = [
        Row(f"at {at}", "us/call", measured(6.1e-6 + at * 1e-8), point=Point("c", "b", at))
        for at in (1, 2, 4)
    ]
    figure = drawn(tmp_path, {"machine": rows})["scaling"]
    FigureCanvasAgg(figure).draw()
    low, high = figure.axes[0].get_ylim()
    shown = [
        float(label.get_text()) for label in figure.axes[0].get_yticklabels() if label.get_text()
    ]
    assert high / low >= 10
    assert len([number for number in shown if low <= number <= high]) >= 3


def test_a_curve_against_another_library_names_it_and_stands_on_no_bar_chart(tmp_path: Path):
    rows = [row._replace(name=f"  {row.name}", against="cpprb") for row in RING]
    figures = drawn(tmp_path, {"peers": [*rows, rows[0]._replace(before=measured(9.0))]})
    assert set(figures) == {"scaling"}
    (axes,) = figures["scaling"].axes
    assert [text.get_text() for text in axes.texts] == ["50x", "500x", "50000x", "ours", "cpprb"]


def test_no_text_stands_on_another_and_none_on_a_promise(tmp_path: Path):
    close = [
        Row(
            f"row {claim}",
            "s",
            measured(1 / slow),
            measured(1.0),
            measured(1 / way),
            claims=(claim,),
        )
        for claim, slow, way in (
            ("allo-1", 1.01, 1.4),
            ("allo-2", 900, 0.2),
            ("allo-4", 0.97, 1.04),
            ("allo-overall", 5e4, 1.9),
        )
    ]
    points = [
        Row(f"at {at}", "s", measured(1.0), measured(1.1), point=Point("c", "b", at))
        for at in (1, 2, 4, 8)
    ]
    peers = [
        PEERS[0]._replace(name=f"work; before: {name}", against=name)
        for name in ("stable-baselines3", "a")
    ]
    for name, figure in drawn(tmp_path, {"allo": close, "machine": points, "peers": peers}).items():
        FigureCanvasAgg(figure).draw()
        for axes in figure.axes:
            boxes = [
                text.get_window_extent()
                for text in (*axes.texts, *axes.get_yticklabels())
                if text.get_text()
            ]
            assert not [pair for pair in combinations(boxes, 2) if pair[0].overlaps(pair[1])], name
            marks = [
                line.get_window_extent()
                for line in axes.lines
                if line.get_color() == RED and len(line.get_xdata())
            ]
            assert not [box for box in boxes for mark in marks if box.overlaps(mark)], name
            inside = figure.bbox
            assert all(inside.x0 <= box.x0 and box.x1 <= inside.x1 for box in boxes), name
