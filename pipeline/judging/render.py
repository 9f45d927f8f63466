"""judgements -> a table for a terminal, and Markdown for pages, pull requests and MLflow."""

import html
import re
from collections.abc import Iterable, Sequence

from tabulate import tabulate

from quatrain.judgement import (
    PASSED,
    VERDICTS,
    Interval,
    Judgement,
    Line,
    Scores,
    Verdict,
    interval_over_seeds,
)

HEAD = ("model", "metric", "score", "baseline", "difference", "allowed", "status")
# Cards of a row, where no style says how many fit.
CARDS = 2


def rows(judgements: Sequence[Judgement]) -> list[tuple[str, ...]]:
    """Returns the cells of HEAD for each judged metric; `allowed` is the tolerance, widened by
    noise.
    """
    return [
        (judgement.model, line.metric, *cells(line), f"{line.allowed:.3g}", line.status)
        for judgement in judgements
        for line in judgement.lines
    ]


def text(judgements: Sequence[Judgement]) -> str:
    """Returns the table of scores for a terminal."""
    table = tabulate(rows(judgements), HEAD, tablefmt="simple", disable_numparse=True)
    return "\n".join(map(str.rstrip, table.splitlines()))


def markdown(judgements: Sequence[Judgement]) -> str:
    """Returns the table of scores in Markdown."""
    lines = [(*map(plain, row), status(word)) for *row, word in rows(judgements)]
    return markdown_table(HEAD, lines)


def cells(line: Line) -> tuple[str, str, str]:
    """Returns score and baseline with their intervals, and the difference with half of its own:
    `+0.0120 ± 0.0340`.
    """
    difference = "-"
    if line.difference is not None:
        rounded = round(line.difference, 4)
        difference = f"{rounded:+.4f}" if rounded else "0.0000"
        difference += "" if line.half is None else f" ± {line.half:.4f}"
    score = with_interval(line.value, line.interval)
    return score, with_interval(line.baseline, line.baseline_interval), difference


def scores_table(scores: Scores, names: Iterable[str]) -> str:
    """Returns scores with their intervals over seeds as a table in Markdown."""
    rows = [(plain(name), score(scores, name)) for name in names]
    return markdown_table(("metric", "score"), rows)


def score(scores: Scores, name: str) -> str:
    """Formats a score with its interval over seeds, if it has one."""
    return with_interval(scores.get(name), interval_over_seeds(name, scores))


def with_interval(value: float | None, interval: Interval | None) -> str:
    """Formats a score: `0.1500 (0.1000 to 0.2000)`."""
    if value is None or interval is None:
        return number(value)
    return f"{number(value)} ({number(interval[0])} to {number(interval[1])})"


def number(value: float | None, decimals: int = 4) -> str:
    return "-" if value is None else f"{value:.{decimals}f}"


def status(word: str) -> str:
    return word if word in PASSED else f"**{word}**"


def verdict_of_all(judgements: Sequence[Judgement]) -> Verdict:
    """Returns the worst verdict."""
    return max((each.verdict for each in judgements), key=VERDICTS.index)


def heading(judgements: Sequence[Judgement]) -> str:
    """Returns the worst verdict in a heading's words; a first baseline may still be missing."""
    broken = [judgement for judgement in judgements if not judgement.passed]
    if broken and all(judgement.only_lacks_a_baseline for judgement in broken):
        return "No baseline yet"
    return verdict_of_all(judgements).capitalize()


def summary(judgements: Sequence[Judgement]) -> str:
    """Returns how many scores hold their baselines, and why the others do not, in Markdown."""
    lines = [line for judgement in judgements for line in judgement.lines]
    broken = [(each.model, line.why) for each in judgements for line in each.broken]
    if broken:
        reasons = dict.fromkeys(f"* **{model}**: {plain(why)}" for model, why in broken)
        count = f"**{heading(judgements)}**: {len(broken)} of {len(lines)} scores."
        return f"{count}\n\n" + "\n".join(reasons)
    passed = f"**Passed**: all {len(lines)} scores hold their baselines."
    better = sum(line.status == "better" for line in lines)
    return f"{passed} {better} better: `make promote` would store that." if better else passed


def changes(judgement: Judgement) -> str:
    """Returns what differs between the runs of scores and baseline, as a list in Markdown."""
    return "\n".join(f"* {plain(line)}" for line in judgement.changes)


def changes_of_all(judgements: Sequence[Judgement]) -> str:
    """Returns what has changed since the baselines of these models, a list each."""
    parts = [
        f"Since the baseline of **{each.model}**:\n\n{changes(each)}"
        for each in judgements
        if each.changes
    ]
    return "\n\n".join(parts)


def markdown_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Returns a table of GitHub's Markdown without padding, so that its rows diff one by one."""
    return tabulate(rows, head, tablefmt="github", disable_numparse=True, stralign=None)


def side_by_side(cells: Sequence[str]) -> str:
    """Returns a table without heads; the page's style makes its cells cards, as many as fit."""
    rows = [cells[place : place + CARDS] for place in range(0, len(cells), CARDS)]
    table = markdown_table([""] * len(rows[0]), rows)
    return f'<div class="cards">\n\n{table}\n\n</div>'


def enlarged_by_click(name: str, path: str) -> str:
    """Returns a picture for a card that the page's style enlarges, without a script."""
    return f"<details><summary>![{plain(name)}]({path})</summary></details>"


def plain(text: object) -> str:
    """Escapes text from a file: no markup, one line, and no end of a table's cell."""
    line = html.escape(" ".join(str(text).split()), quote=False)
    return re.sub(r"([\\`*\[\]|~]|(?<![^\W_])_|_(?![^\W_]))", r"\\\1", line)
