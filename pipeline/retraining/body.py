"""verdicts of a retraining -> title and body of its pull request or issue."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from pipeline.judging import tables, verdicts
from pipeline.reporting.tables import markdown_table
from pipeline.retraining.outcome import ISSUE, Message
from pipeline.runtime.redaction import shown
from quatrain.judgement import PASSED

# Characters of `dvc metrics diff` that are shown: GitHub takes 65,536 in all.
LONGEST_DIFF = 30_000
HEADER_LINES = 2
TABLE_HEAD = ("model", "metric", "score", "baseline", "difference", "status")


class Origin(NamedTuple):
    commit: str
    preset: str
    seed: int
    is_new_seed: bool

    @property
    def summary(self) -> str:
        return (
            f"commit {self.commit[:12]}, preset {self.preset}, "
            f"seed {self.seed}{' (new)' if self.is_new_seed else ''}"
        )


class BaselineChanges(NamedTuple):
    moved: tuple[str, ...]
    unchanged: tuple[str, ...]

    @property
    def summary(self) -> str:
        if not self.moved:
            return "No baseline moves: the scores hold them, and none is clearly better."
        text = (
            f"Baselines of {', '.join(self.moved)} move: a score is clearly better, none is worse."
        )
        rest = f" Those of {', '.join(self.unchanged)} stay: their scores hold them."
        return text + rest if self.unchanged else text


def proposal(
    origin: Origin,
    results: Sequence[verdicts.ModelVerdict],
    changes: BaselineChanges,
    diff: str,
    figures: str,
) -> Message:
    result = (
        f"{', '.join(changes.moved)} better" if changes.moved else "scores hold their baselines"
    )
    seed = f" (seed {origin.seed})" if origin.is_new_seed else ""
    has_rows = len(diff.splitlines()) > HEADER_LINES
    details = folded("dvc metrics diff", shortened(diff)) if has_rows else ""
    return Message(
        f"Retrain: {result}{seed}",
        paragraphs(
            [
                f"The gate passed ({origin.summary}).",
                changes.summary,
                table(results),
                details,
                figures,
            ]
        ),
    )


def broken(origin: Origin, results: Sequence[verdicts.ModelVerdict], report: str) -> Message:
    gate = f"The gate is broken ({origin.summary}). Nothing was promoted and nothing was pushed."
    reasons = [
        f"* **{result.model}**: {line.why}"
        for result in results
        for line in result.verdict.lines
        if line.status not in PASSED
    ]
    place = f"The report is kept where the retraining ran: `{report}`."
    return Message(
        ISSUE, paragraphs([gate, "\n".join(dict.fromkeys(reasons)), table(results), place])
    )


def unchanged(origin: Origin) -> Message:
    return Message(
        "Retrain: nothing changed", f"The gate passed ({origin.summary}), and nothing changed.\n"
    )


def paragraphs(parts: Sequence[str]) -> str:
    return "\n\n".join(part for part in parts if part) + "\n"


def table(results: Sequence[verdicts.ModelVerdict]) -> str:
    """Returns the scores against baselines in Markdown, a row per judged metric."""
    rows = []
    for result in results:
        for line in result.comparisons:
            rows.append(
                (
                    result.model,
                    line.metric,
                    tables.format_score(line.new),
                    tables.format_score(line.old),
                    tables.format_difference(line),
                    line.status if line.status == "ok" else f"**{line.status}**",
                )
            )
    return markdown_table(TABLE_HEAD, rows)


def folded(summary: str, content: str) -> str:
    return f"<details><summary>{summary}</summary>\n\n{content}\n\n</details>"


def shortened(diff: str) -> str:
    """Returns as many lines as LONGEST_DIFF allows."""
    lines = diff.splitlines()
    room = LONGEST_DIFF
    for number, line in enumerate(lines):
        room -= len(line) + 1
        if room < 0:
            return "\n".join([*lines[:number], "", f"and {len(lines) - number} more lines"])
    return diff


def figures(reports: Path, branch: str, url: str) -> str:
    """Returns links to the plots of all models below `url/BRANCH/`, or the branch to check out
    without a url.
    """
    if not url:
        return f"Report and pictures: branch `{branch}`, `reports/report.md`."
    base = f"{shown(url).rstrip('/')}/{branch}/reports"
    parts = [f"[The whole report]({base}/report.md)"]
    for model in sorted({path.parent.parent.name for path in reports.glob("*/plots/*.png")}):
        links = [
            f"![{path.stem}]({base}/{model}/plots/{path.name})"
            for path in sorted((reports / model / "plots").glob("*.png"))
        ]
        parts.append(folded(f"Pictures of {model}", "\n\n".join(links)))
    return paragraphs(parts).rstrip("\n")
