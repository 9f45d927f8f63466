"""verdicts of a retraining -> title and body of the pull request or issue that tells of it."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from pipeline.judging import verdicts
from pipeline.judging.verdicts import ModelVerdict
from pipeline.retraining.outcome import ISSUE, Told
from quatrain.baselines import PASSED

LONGEST_DIFF = 30_000
"""Characters of `dvc metrics diff` that are shown: GitHub takes 65,536 in all."""
TABLE_HEAD = 2
"""Lines of a table without rows."""


class Origin(NamedTuple):
    """What was retrained, and how."""

    commit: str
    preset: str
    seed: int
    asked: bool
    """Whether the seed is another one than that of the commit."""

    @property
    def told(self) -> str:
        """`commit 0123456789ab, preset default, seed 7 (new)`."""
        return f"commit {self.commit[:12]}, preset {self.preset}, seed {self.seed}{' (new)' if self.asked else ''}"


class Better(NamedTuple):
    """Of which models the baselines move, and who is only as good as before."""

    moved: tuple[str, ...]
    kept: tuple[str, ...]

    @property
    def told(self) -> str:
        """Whose baselines move, and why the others stay."""
        if not self.moved:
            return "No baseline moves: the scores hold them, and none is clearly better."
        stay = (
            f" Those of {', '.join(self.kept)} stay: their scores hold them." if self.kept else ""
        )
        return f"Baselines of {', '.join(self.moved)} move: a score is clearly better, none is worse.{stay}"


def proposal(
    origin: Origin, judged: Sequence[ModelVerdict], better: Better, diff: str, pictures: str
) -> Told:
    """Of a passed gate with something to store."""
    title = (
        f"Retrain: {', '.join(better.moved)} better"
        if better.moved
        else "Retrain: scores hold their baselines"
    )
    seed = f" (seed {origin.seed})" if origin.asked else ""
    parts = [
        f"The gate passed ({origin.told}).",
        better.told,
        table(judged),
        folded("dvc metrics diff", shortened(diff)) if len(diff.splitlines()) > TABLE_HEAD else "",
        pictures,
    ]
    return Told(title + seed, paragraphs(parts))


def broken(origin: Origin, judged: Sequence[ModelVerdict], kept: str) -> Told:
    """Of a broken gate."""
    why = [
        f"* **{one.model}**: {line.why}"
        for one in judged
        for line in one.verdict.lines
        if line.status not in PASSED
    ]
    parts = [
        f"The gate is broken ({origin.told}). Nothing was promoted and nothing was pushed.",
        "\n".join(dict.fromkeys(why)),
        table(judged),
        f"The report is kept where the retraining ran: `{kept}`.",
    ]
    return Told(ISSUE, paragraphs(parts))


def unchanged(origin: Origin) -> Told:
    """Of a passed gate that leaves nothing to store."""
    return Told(
        "Retrain: nothing changed", f"The gate passed ({origin.told}), and nothing changed.\n"
    )


def paragraphs(parts: Sequence[str]) -> str:
    return "\n\n".join(part for part in parts if part) + "\n"


def table(judged: Sequence[ModelVerdict]) -> str:
    """Scores against baselines, a row per judged metric."""
    rows = [
        f"| {one.model} | {found.metric} | {verdicts.format_score(found.new)} | {verdicts.format_score(found.old)} "
        f"| {verdicts.format_difference(found)} | {marked(found.status)} |"
        for one in judged
        for found in one.comparisons
    ]
    head = [
        "| model | metric | score | baseline | difference | status |",
        "|---|---|---|---|---|---|",
    ]
    return "\n".join([*head, *rows])


def marked(status: str) -> str:
    """What is not simply ok stands out."""
    return status if status == "ok" else f"**{status}**"


def folded(summary: str, content: str) -> str:
    """Shown when it is asked for."""
    return f"<details><summary>{summary}</summary>\n\n{content}\n\n</details>"


def shortened(diff: str) -> str:
    """As many lines as there is room for."""
    lines, room = diff.splitlines(), LONGEST_DIFF
    for number, line in enumerate(lines):
        room -= len(line) + 1
        if room < 0:
            return "\n".join([*lines[:number], "", f"and {len(lines) - number} more lines"])
    return diff


def pictures(reports: Path, branch: str, url: str) -> str:
    """The plots of all models where they can be seen: below `url/BRANCH/`, or in a branch to check out."""
    if not url:
        return f"Report and pictures: branch `{branch}`, `reports/report.md`."
    base = f"{url.rstrip('/')}/{branch}/reports"
    found = sorted(reports.glob("*/plots/*.png"))
    models = sorted({path.parent.parent.name for path in found})
    shown = {
        model: "\n\n".join(
            f"![{path.stem}]({base}/{model}/plots/{path.name})"
            for path in found
            if path.parent.parent.name == model
        )
        for model in models
    }
    return paragraphs(
        [
            f"[The whole report]({base}/report.md)",
            *(folded(f"Pictures of {model}", shown[model]) for model in models),
        ]
    ).rstrip("\n")
