"""a sweep -> the table at its end, and reports/sweeps/NAME: a page, pictures, trials.json."""

import json
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import optuna
from matplotlib import pyplot
from optuna.visualization import matplotlib as pictures
from tabulate import tabulate

from pipeline.judging.render import markdown_table, plain
from pipeline.reporting.page import as_html
from pipeline.storage.figures import png, write_figures
from pipeline.trials.search import Row, rank
from pipeline.trials.verdict import Result
from quatrain.comparison import ERROR, with_interval
from quatrain.plots import matplotlib_defaults
from quatrain.storage import formats
from quatrain.storage.atomic_write import write_together

# Rows in the terminal, and characters of a cell there.
TOP = 12
LONGEST = 28
# Trials with a score from which on importances are more than noise.
LEAST_SCORED = 10


def table(result: Result) -> str:
    """Returns the start and the best trials for a terminal, and what was found."""
    rows = [_cells(result, row) for row in in_order(result)]
    lines = tabulate(
        rows[:TOP], "keys", "simple", maxcolwidths=LONGEST, disable_numparse=True
    ).splitlines()
    more = [f"and {len(rows) - TOP} more on the page"] if len(rows) > TOP else []
    return "\n".join([*map(str.rstrip, lines), *more, "", result.text])


def write(folder: Path, result: Result, study: optuna.Study) -> list[Path]:
    """Writes plots/*.png, trials.json and sweep.html; returns their paths.

    Raises:
        OSError: e.g. the disk is full; each file is whole, the old one or the new one.
    """
    figures = draw(result, study)
    write_figures(folder / "plots", figures)
    title = f"Sweep: {result.space.name}"
    text = markdown(result, title, figures)
    files = {
        "trials.json": formats.to_json([row._asdict() for row in result.rows]),
        "sweep.html": as_html(text, title, folder).encode(),
    }
    write_together(folder, files)
    return [*(folder / name for name in files), *(folder / "plots" / name for name in figures)]


def markdown(result: Result, title: str, figures: Mapping[str, bytes]) -> str:
    sweep = result.space.sweep
    better = "higher" if result.space.is_higher_better else "lower"
    rows = [_cells(result, row) for row in in_order(result)]
    parts = [
        f"# {plain(title)}",
        f"**{plain(result.text)}**",
        f"Model {plain(sweep.model)}, preset {plain(sweep.preset)}, search {sweep.search}, judged "
        f"by {plain(sweep.judge)} ({better} is better). Trial 0 is the start. *Repeated*: means of "
        "start and trial over other base seeds, where the best has no luck from the search. "
        "*Difference*: of these, seed by seed, with an interval that is wider than one alone, as "
        f"the best of several is chosen: all hold the truth in {1 - ERROR:.0%} of sweeps. A "
        "training that diverged counts as worse than all scores of both.",
        markdown_table([*map(plain, rows[0])], [[*map(plain, row.values())] for row in rows]),
        *(f"![{Path(name).stem}](plots/{name})" for name in figures),
    ]
    return "\n\n".join(parts) + "\n"


def in_order(result: Result) -> list[Row]:
    """Returns the start, the others with a score, the best first, and those without one."""
    start, *others = result.rows
    ranked = rank(others, result.space.is_higher_better)
    return [start, *ranked, *(row for row in others if row.score is None)]


def _cells(result: Result, row: Row) -> dict[str, str]:
    sweep = result.space.sweep
    gain = result.differences.get(row.number)
    return {
        "trial": str(row.number),
        "state": row.state,
        **{key: text_of(row.values.get(key)) for key in sweep.space},
        sweep.judge: "" if row.score is None else f"{row.score:.5g}",
        "repeated": f"{gain.before:.5g} -> {gain.after:.5g}" if gain else "",
        "difference": with_interval(gain) if gain else "",
        "verdict": gain.verdict if gain else "",
        f"{sweep.watch} at step": f"{row.last.value:.5g} at {row.last.step}" if row.last else "",
        "reason": row.reason,
    }


def text_of(value: Any) -> str:
    """Returns a value as a person writes it: floats with four digits, text without quotes."""
    if isinstance(value, float):
        return f"{value:.4g}"
    return value if isinstance(value, str) else json.dumps(value)


def draw(result: Result, study: optuna.Study) -> dict[str, bytes]:
    """Draws the trials that have a score, by file name: as much as so many of them tell."""
    scored = sum(row.score is not None for row in result.rows)
    plots: dict[str, Callable[..., Any]] = {
        "history": pictures.plot_optimization_history,
        "parallel": pictures.plot_parallel_coordinate,
        "slices": pictures.plot_slice,
    }
    if scored >= LEAST_SCORED:
        plots["importances"] = pictures.plot_param_importances
    files = {}
    pyplot.switch_backend("agg")  # no window
    style = matplotlib_defaults({"figure.figsize": (9, 4.5), "font.size": 9})
    with style, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of axes with one value
        for name, plot in plots.items() if scored else ():
            axes = np.ravel(plot(study, target_name=result.space.sweep.judge))
            for each in axes:
                each.tick_params("x", labelrotation=20)
            files[f"{name}.png"] = png(axes[0].figure)
            pyplot.close(axes[0].figure)
    return files
