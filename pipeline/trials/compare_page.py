"""a comparison -> the table at its end, and reports/compare/NAME: a page, Markdown, JSON."""

import re
from pathlib import Path

from tabulate import tabulate

from pipeline.judging.render import markdown_table, plain
from pipeline.reporting.page import as_html
from pipeline.runtime import git
from pipeline.storage.figures import encode, write_figures
from pipeline.storage.run_key import sources_of
from pipeline.trials.sides import Request
from quatrain.comparison import Comparison, Table
from quatrain.differences import differing
from quatrain.envs.host.score import ORIGIN
from quatrain.registry import MODELS
from quatrain.storage.atomic_write import write_together

FOLDER = Path("reports/compare")
# Modules that make worlds and data, or score learners.
OF_SCORES = re.compile(r"/envs/|/(collect|evaluate|rules)\.py$")
# Params and commits that a page lists, at most.
MOST_LISTED = 20


def text(comparison: Comparison) -> str:
    """Returns tables for a terminal, and the sentence."""
    tables = [
        tabulate(rows, "keys", "simple", disable_numparse=True)
        for rows in (comparison.table, comparison.costs)
    ]
    return "\n\n".join([*tables, comparison.sentence])


def write(root: Path, request: Request, comparison: Comparison) -> list[Path]:
    """Writes compare.html, compare.md, compare.json and plots; returns their paths, the page first.

    Raises:
        OSError: e.g. the disk is full; each file is whole, the old one or the new one.
    """
    folder = root / FOLDER / request.name
    figures = encode(comparison.plots())
    write_figures(folder / "plots", figures)
    title = f"Comparison: {request.name}"
    pictures = [f"![{Path(name).stem}](plots/{name})" for name in figures]
    page = as_html(markdown(root, request, comparison, *pictures), title, folder)
    files = {
        "compare.html": page.encode(),
        "compare.md": markdown(root, request, comparison).encode(),
        "compare.json": f"{comparison.to_json()}\n".encode(),
    }
    write_together(folder, files)
    return [*(folder / name for name in files), *(folder / "plots" / name for name in figures)]


def markdown(root: Path, request: Request, comparison: Comparison, *pictures: str) -> str:
    """Returns what was found, what differs and what to keep in mind, for a page or a pull
    request.
    """
    caveats = [*comparison.caveats, *of_references(comparison), *of_code(root, request)]
    parts = [
        f"# {plain(comparison.sentence)}",
        *pictures[:1],
        table(comparison.table),
        *([table(comparison.costs)] if comparison.costs else []),
        *pictures[1:],
        "## What differs",
        "\n".join(f"* {line}" for line in what_differs(root, request)),
        "## What to keep in mind",
        "\n".join(f"* {plain(line)}" for line in caveats),
    ]
    return "\n\n".join(parts) + "\n"


def table(rows: Table) -> str:
    cells = [[plain(cell) for cell in row.values()] for row in rows]
    return markdown_table([*map(plain, rows[0])], cells)


def what_differs(root: Path, request: Request) -> list[str]:
    """Returns the sides, the params that differ and the commits between them, as Markdown."""
    before, after = request.before, request.after
    lines = [f"before: {plain(before.name)}", f"after: {plain(after.name)}"]
    others = MODELS.keys() - {request.model}
    old, new = (
        {key: value for key, value in side.raw.items() if key not in others}
        for side in (before, after)
    )
    lines += [
        f"`{key}`: {plain(old)} -> {plain(new)}"
        for key, (old, new) in differing(old, new).items()
        if key != f"{request.model}.seeds"  # a training has one
    ]
    if before.checkout is not None:
        commits = ("log", "--format=%h %s", f"{before.checkout.name}..HEAD", "--", *git.CODE)
        lines += [f"commit {plain(line)}" for line in git.git(root, *commits).splitlines()]
    rest = len(lines) - MOST_LISTED
    if rest > 0:
        lines[MOST_LISTED:] = [f"and {rest} more"]
    return lines


def of_references(comparison: Comparison) -> list[str]:
    """Says which references differ between the trainings of a pair, where their scores have no
    scale that both can be measured on.
    """
    names = {
        name
        for rule in comparison.rules
        for name in rule.references
        for old, new in zip(*comparison.sides, strict=True)
        if comparison.is_paired and old.scores and new.scores
        if ORIGIN not in old.scores.keys() & new.scores.keys()
        if old.scores.get(name) != new.scores.get(name)
    }
    if not names:
        return []
    return [
        f"References of equal seeds differ ({', '.join(sorted(names))}): what they are computed "
        "from is part of the change; if that is worlds or evaluation, scores are no measure of it."
    ]


def of_code(root: Path, request: Request) -> list[str]:
    """Says which code of worlds and scores differs between the sides."""
    checkout, model = request.before.checkout, request.model
    if checkout is None:
        return []
    params = request.after.trial(root, model, 0).params
    old = sources_of(checkout, model, params, "evaluate", checkout)
    new = sources_of(root, model, params, "evaluate")
    names = [
        name
        for name in sorted(old.keys() | new.keys())
        if old.get(name) != new.get(name) and OF_SCORES.search(name)
    ]
    if not names:
        return []
    return [
        f"Code of worlds or scores differs ({', '.join(names)}): if it makes other worlds or other "
        "scores, the sides are not measured alike."
    ]
