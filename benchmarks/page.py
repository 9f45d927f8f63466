"""stored rows -> docs/benchmarks.md and its pictures: claims, goals, other libraries, all rows"""

import os
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from benchmarks import claims, pictures, speed
from benchmarks.claims import COMMANDS, PROPOSALS, WORDS, Named, Verdict
from benchmarks.harness import HEAD, cells, spread
from benchmarks.run import RESULTS
from benchmarks.speed import PLAIN, PROPOSED, Results, Row
from pipeline.judging.render import markdown_table, plain
from pipeline.reporting.sections import folded
from pipeline.storage.figures import png, write_figures
from quatrain.storage.atomic_write import write_durably

FOLDER = "benchmarks"
"""Of the pictures, beside the page."""
TOP = """\
# Speed, claim by claim

Made by `make bench` and `make bench-peers` from `benchmarks/results/*.json` (`python -m
benchmarks.run --page` makes it anew)."""
READING = """\
## How to read

* **before** is a plain reference implementation of the original program, or what stands in
  brackets; **seed's way** is the variant that a document proposes; **ours** is this project.
* The sides of a row are timed by turns in one process. Memory that a process takes, and starts, are
  measured in a new process for each side. Most rows first check that the sides compute the same;
  where the work differs, the row's name or a note says how.
* A ratio says how many times as fast as before something is, for units of memory how many times as
  small: the median over the rounds, with the least and the greatest in brackets. Trust the ratios;
  times are those of this machine.
* A claim is **reproduced** if at least half of the rounds reach its weakest reading, **refuted** if
  no round does, else **in doubt**. Where the proposed variant is not built here, only ours is
  measured. A promise about GPUs is not judged by the times of a CPU.
* *limit* is what this machine takes for the bare core of the work: a gather, a copy, products of
  matrices. Ours may need less, which is more than 100 % of the limit. *without* is ours with the
  named thing taken away: if that brings back the old time, it is what the ratio measures.
* *A / B* is a part or a variant B of the work A."""


def write(root: Path, results: Path) -> list[Path]:
    """Writes the page and its figures: of the committed results into docs, of others beside them;
    returns the page first.

    Raises:
        DataError: a file of results has another form.
    """
    stored = claims.read(results)
    folder = root / "docs" if results.resolve() == (root / RESULTS).resolve() else results
    figures = pictures.draw(claims.named(stored))
    drawn = {f"{name}.png": png(figure) for name, figure in figures.items()}
    write_figures(folder / FOLDER, drawn)
    files = os.path.relpath(results.resolve(), folder.resolve())
    page = folder / "benchmarks.md"
    write_durably(page, render(stored, figures, files).encode())
    return [page, *(folder / FOLDER / name for name in drawn)]


def render(stored: Mapping[str, Results], drawn: Collection[str], files: str) -> str:
    """Renders the page; `drawn` are the figures beside it, `files` is the folder of the JSON
    relative to it.
    """
    rows = claims.named(stored)
    verdicts = {name: claims.verdicts(name, rows) for name in PROPOSALS}
    pictured = {name: f"![{name}]({FOLDER}/{name}.png)" for name in drawn}
    parts = [TOP, summary(verdicts, rows), READING, "## What five documents promise"]
    for name, each in verdicts.items():
        parts += [claims_part(name, each), pictured.get(f"claims_{name}", "")]
    parts += [goals_part(rows), peers_part(rows), pictured.get("peers", "")]
    lines = [[name, cell(text)] for name, text in claims.settings(stored).items()]
    machine = f"## The machine\n\n{markdown_table(('', ''), lines)}" if lines else ""
    parts += [machine, "## All rows"]
    parts += [rows_part(name, stored.get(name), files) for name in COMMANDS]
    return "\n\n".join(part for part in parts if part) + "\n"


def summary(verdicts: Mapping[str, Sequence[Verdict]], rows: Sequence[Named]) -> str:
    """Counts the claims of each document by verdict, and the goals that are reached."""
    counts = {name: [item.word for item in each] for name, each in verdicts.items()}
    words = [word for word in WORDS if any(word in each for each in counts.values())]
    lines = [
        [PROPOSALS[name].title, str(len(each)), *(str(each.count(word) or "") for word in words)]
        for name, each in counts.items()
    ]
    goals = [item.row.goal_reached for item in rows if item.row.goal]
    reached = f"**{goals.count(True)} reached, {goals.count(False)} missed**"
    table = markdown_table(("document", "claims", *words), lines)
    return f"{table}\n\n{len(goals)} goals of this project: {reached}."


def claims_part(name: str, verdicts: Sequence[Verdict]) -> str:
    """Renders one document: its claims, each with its rows."""
    lines = []
    for item in verdicts:
        first = [item.claim.what, item.claim.promised]
        rows = [each.row for each in item.rows]
        if len(rows) == 1:
            lines.append([*first, *gains(rows[0]), item.text])
        else:
            lines.append([*first, "", "", "", f"**{item.text}**" if rows else item.text])
            words = zip(rows, item.words, strict=True)
            lines += [["", "", *gains(row), word] for row, word in words]
    head = ("claim", "promised", "measured as", "seed's way", "ours", "verdict")
    document = PROPOSALS[name]
    return f"### {document.title} ({document.model})\n\n{markdown_table(head, lines)}"


def gains(row: Row) -> list[str]:
    """Returns a row's name and what the seed's way and ours gain, or else take."""
    other = "" if row.against == speed.REFERENCE else f" (before: {row.against})"
    cells = []
    for name, side in ((PROPOSED, row.seed_way), (PLAIN, row.ours)):
        takes = "-" if side is None else speed.in_unit(side.median, row.unit)
        cells.append(spread(row.ratios[name]) if name in row.ratios else takes)
    return [cell(row.title + other), *cells]


def goals_part(rows: Sequence[Named]) -> str:
    """Renders goals that are missed, by how much and what was tried; then the others, folded."""
    missed, others = [], []
    for item in rows:
        row = item.row
        line = [item.benchmark, cell(item.key), speed.asked(row), speed.reached(row)]
        if row.goal_reached:
            others.append(line)
        elif row.goal:
            missed.append([*line, speed.percent(row.goal_share or 0), cell(row.tried) or "-"])
    head = ("benchmark", "work", "goal", "reached")
    table = markdown_table((*head, "of the goal", "what was tried"), missed)
    parts = [f"Missed: {len(missed)}.\n\n{table}"] if missed else []
    parts += [folded(f"{len(others)} reached", markdown_table(head, others))] if others else []
    return "\n\n".join(["## Goals of this project", *parts]) if parts else ""


def peers_part(rows: Sequence[Named]) -> str:
    """Renders a line per work: how many times as fast as each library ours is."""
    works = claims.peers(rows)
    if not works:
        return f"## Against other libraries\n\nNot measured: run `{COMMANDS['peers']}`."
    lines = []
    for work, each in works.items():
        ratios = {library: row.ratios[PLAIN] for library, row in each.items()}
        texts = {f"{library} {spread(ratio)}": ratio.median for library, ratio in ratios.items()}
        bold = [f"**{text}**" if median < 1 else text for text, median in texts.items()]
        lines.append([cell(work), "<br>".join(bold)])
    table = markdown_table(("work", "times as long (or as many bytes) as ours"), lines)
    return f"## Against other libraries\n\nIn **bold** what is ahead of us.\n\n{table}"


def rows_part(name: str, results: Results | None, files: str) -> str:
    """Renders every row of a benchmark and its notes, folded."""
    if results is None:
        return f"{name}: not measured: run `{COMMANDS[name]}`."
    lines = [[cell(text) for text in cells(row)] for row in results.rows]
    notes = "\n".join(f"* {cell(note)}" for note in results.notes)
    file = f"[{name}.json]({files}/{name}.json)"
    source = f"`{COMMANDS[name]}`, {results.rounds} rounds; every round is in {file}."
    body = "\n\n".join(part for part in (source, markdown_table(HEAD, lines), notes) if part)
    return folded(f"{name}: {len(lines)} rows", body)


def cell(text: str) -> str:
    """Returns words that stay in a table's cell; code in them stays code."""
    return plain(text).replace("\\`", "`")
