"""a sweep -> the page that a person reads at its end, its pictures, and trials.json."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from pipeline.judging.render import markdown_table, plain
from pipeline.reporting.page import as_html
from pipeline.reporting.sections import folded
from pipeline.scaling.importance import obstacle
from pipeline.scaling.labels import text_of
from pipeline.scaling.listing import (
    cells,
    gain_text,
    head,
    in_order,
    outcome_lines,
    score_text,
    table,
)
from pipeline.scaling.records import Trial
from pipeline.scaling.result import (
    Dimension,
    SweepResult,
    confirmation_of,
    confirmed,
    count_states,
    finite_score,
    first_runs,
    gain_of,
    ranked,
    start_of,
    winner_of,
)
from pipeline.storage.figures import png, write_figures
from quatrain.seeds import SEEDS_OF_INTERVAL
from quatrain.storage import formats
from quatrain.storage.atomic_write import write_together

if TYPE_CHECKING:  # matplotlib is slow to import
    from matplotlib.figure import Figure

__all__ = ["figures", "markdown", "summary", "table", "write"]

PLOTS = "plots"
# Trials of the search that are shown beside the start if none was confirmed.
TOP = 5


def write(folder: Path, result: SweepResult) -> None:
    """Writes plots/*.png, and then trials.json, sweep.md and sweep.html.

    Raises:
        OSError: e.g. the disk is full; each file is whole, the old one or the new one.
    """
    from pipeline.scaling.pictures import pictures

    drawn = pictures(result)
    images = {f"{name}.png": png(picture.figure) for name, picture in drawn.items()}
    write_figures(folder / PLOTS, images)
    text = markdown(result, {name: picture.caption for name, picture in drawn.items()})
    pages = {
        "trials.json": formats.to_json(summary(result)),
        "sweep.md": text.encode(),
        "sweep.html": as_html(text, title(result), folder).encode(),
    }
    write_together(folder, pages)


def figures(result: SweepResult) -> "dict[str, Figure]":
    """Draws the pictures of the page by name; none if no trial has a score."""
    from pipeline.scaling.pictures import pictures

    return {name: picture.figure for name, picture in pictures(result).items()}


def summary(result: SweepResult) -> dict[str, Any]:
    """Returns the sweep and all its trials as JSON; null for what is not finite."""
    winner = winner_of(result)
    content = {
        **result._asdict(),
        "space": {key: dimension._asdict() for key, dimension in result.space.items()},
        "trials": [trial.model_dump(mode="json") for trial in result.trials],
        "winner": None if winner is None else winner.number,
    }
    return {key: _finite(value) for key, value in content.items()}


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def title(result: SweepResult) -> str:
    return f"Sweep: {result.name}"


def markdown(result: SweepResult, captions: dict[str, str]) -> str:
    """Returns the page: the outcome, pictures with these captions, and all trials."""
    parts = [
        f"# {plain(title(result))}",
        "\n".join(f"* {plain(line)}" for line in outcome_lines(result)),
        adoption(result),
        introduction(result),
        "## Searched and confirmed",
        comparison(result),
        "## Pictures",
        *(picture_section(name, caption) for name, caption in captions.items()),
        missing_pictures(result, captions),
        "## Space",
        space_table(result),
        "## Trials",
        all_trials(result),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def adoption(result: SweepResult) -> str:
    if result.adopted is None:
        return "No preset was written."
    chain = f"PRESET={result.adopted} MODELS={result.model}"
    return (
        f"Adopted as preset {plain(result.adopted)}: `make repro {plain(chain)}` repeats it, "
        f"`make promote {plain(chain)}` makes it the baseline."
    )


def introduction(result: SweepResult) -> str:
    better = "higher" if result.higher_is_better else "lower"
    return (
        f"The search ({plain(result.search)}) looked for the best {plain(result.judge)} "
        f"({better} is better) of {plain(result.model)}, starting from preset "
        f"{plain(result.preset)}; trials are watched by train/{plain(result.watch)}. "
        f"Trials, without those that confirm: {count_states(first_runs(result)) or 'none'}."
    )


def comparison(result: SweepResult) -> str:
    """Returns a table of search and confirmation side by side, for the best and the start."""
    if winner_of(result) is None:
        return "Nothing to compare: no trial has a score."
    trials = confirmed(result) or ranked(result, first_runs(result))[:TOP]
    start = start_of(result)
    if start is not None and start not in trials:
        trials.append(start)
    rows = [_comparison_row(result, trial) for trial in trials]
    better = "higher" if result.higher_is_better else "lower"
    note = (
        f"Scores are {plain(result.judge)} ({better} is better), with 95 % intervals over seeds "
        f"from {SEEDS_OF_INTERVAL} on; fewer cannot tell a difference from chance. The best of "
        "many trials is partly lucky, so the search overrates it: confirming repeats the values "
        "with another seed and more seeds. *Lost*: how much worse the "
        "score became. *Gain*: how much better than the start. Of several confirmed trials the "
        "best is still a little lucky."
    )
    return f"{markdown_table(('trial', 'search', 'confirmed', 'lost', 'gain'), rows)}\n\n{note}"


def _comparison_row(result: SweepResult, trial: Trial) -> list[str]:
    start, repeat = start_of(result), confirmation_of(result, trial)
    lost = "-"
    if repeat is not None and trial.score is not None:
        sign = 1 if result.higher_is_better else -1
        lost = f"{sign * (trial.score - finite_score(repeat)):.4g}"
    gain = None if trial is start else gain_of(result, trial)
    against = "-"
    if gain is not None:
        against = gain_text(gain) + ("" if gain.is_confirmed else " (search)")
    name = f"{trial.name} (the start)" if trial is start else trial.name
    return [name, score_text(trial), score_text(repeat), lost, against]


def picture_section(name: str, caption: str) -> str:
    heading = plain(name.replace("_", " ").capitalize())
    return f"### {heading}\n\n![{heading}]({PLOTS}/{quote(name)}.png)\n\n{plain(caption)}"


def missing_pictures(result: SweepResult, captions: dict[str, str]) -> str:
    if not captions:
        return f"No pictures: no trial has a score of {plain(result.judge)}."
    reason = obstacle(result)
    return f"No picture of importance: {plain(reason)}." if reason else ""


def space_table(result: SweepResult) -> str:
    """Returns what each key may be, in full, and its values of the start and the winner."""
    pair = (start_of(result), winner_of(result))
    rows = [
        [
            plain(key),
            plain(describe(dimension)),
            *("-" if trial is None else plain(text_of(trial.values.get(key))) for trial in pair),
        ]
        for key, dimension in result.space.items()
    ]
    return markdown_table(("key", "searched", "start", "winner"), rows)


def describe(dimension: Dimension) -> str:
    """Returns `0.0001 to 0.01, log scale`, or the choices with their numbers."""
    if dimension.choices is not None:
        texts = [f"{place}: {text_of(each)}" for place, each in enumerate(dimension.choices, 1)]
        return "; ".join(texts)
    ends = f"{text_of(dimension.low)} to {text_of(dimension.high)}"
    return f"{ends}, log scale" if dimension.is_log else ends


def all_trials(result: SweepResult) -> str:
    if not result.trials:
        return "No trial was run."
    confirming = [trial for trial in result.trials if trial.role == "confirm"]
    trials = in_order(result, first_runs(result)) + in_order(result, confirming)
    note = (
        "The best first, then those without a score; those that confirm last, because other seeds "
        "are no fair comparison. A stopped trial has the last watched value at its step, which is "
        "no score."
    )
    return f"{note}\n\n" + folded(f"All {len(trials)} trials", _trials_table(result, trials))


def _trials_table(result: SweepResult, trials: Sequence[Trial]) -> str:
    rows = [[*cells(result, trial), trial.reason] for trial in trials]
    names = [plain(name) for name in (*head(result), "reason")]
    return markdown_table(names, [[plain(cell) or "-" for cell in row] for row in rows])
