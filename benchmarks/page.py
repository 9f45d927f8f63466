"""results of benchmarks -> docs/benchmarks.md: claims, verdicts, goals, peers, rows; figures"""

import argparse
import os
import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from benchmarks import goals, pictures, result_files, verdicts
from benchmarks.claims import PROPOSALS
from benchmarks.result_files import COMMANDS, Named, Results, value
from benchmarks.verdicts import PROPOSED, ClaimVerdict
from pipeline.reporting.sections import folded, plain
from pipeline.reporting.speed import LIMIT, PLAIN, VARIANT, Ratio, percent, times
from pipeline.reporting.tables import markdown_table
from pipeline.runtime.errors import ArtifactError
from pipeline.storage.atomic_write import write_durably
from pipeline.storage.figures import png, write_figures

RESULTS = Path("benchmarks/results")
PAGE = "benchmarks.md"
FOLDER = "benchmarks"
"""Of the pictures, beside the page."""
READING = """\
* **before** is a plain reference implementation of the original program, or the library in
  brackets; **its way** is the proposal's variant; **ours** is this project. All run in turn in one
  process, after a check that they compute the same.
* A ratio is the quotient of two times (of two sizes for units of memory): the median over the
  rounds, with the least and the greatest in brackets. Trust the ratios; the times are those of
  this machine.
* A claim is **reproduced** if at least half of the rounds reach its weakest reading, **refuted** if
  no round does, else **in doubt**. Where the proposal's variant is not built here, only ours is
  measured."""


def write(root: Path, results: Path) -> list[Path]:
    """Writes the page and its figures: of the committed results into docs, of others beside them;
    returns the page first.

    Raises:
        ArtifactError: a file of results has another schema.
    """
    result = result_files.read(results)
    folder = root / "docs" if results.resolve() == (root / RESULTS).resolve() else results
    drawn = {
        f"{name}.png": png(figure)
        for name, figure in pictures.draw(result_files.named(result)).items()
    }
    write_figures(folder / FOLDER, drawn)
    files = os.path.relpath(results.resolve(), folder.resolve())
    write_durably(folder / PAGE, render(result, drawn, files).encode())
    return [folder / PAGE, *(folder / FOLDER / name for name in drawn)]


def render(result: Mapping[str, Results | None], drawn: Collection[str], files: str) -> str:
    """Renders the page; `drawn` are the figures beside it, `files` is the folder of the JSON
    relative to it.
    """
    rows = result_files.named(result)
    scored = verdicts.claim_verdicts(rows)
    parts = [
        "# Speed, claim by claim",
        (
            "Made by `make bench` and `make bench-peers` from `benchmarks/results/*.json` (`python"
            " -m benchmarks.page`)."
        ),
        summary(scored, rows),
        f"## How to read\n\n{READING}",
        f"## The machine\n\n{machine(result)}",
        "## What five proposals promise\n\nEach is about the original of one of the learners here.",
        *(proposal(name, scored, drawn) for name in PROPOSALS),
        goals_part(rows),
        without_part(rows),
        peers_part(rows, drawn),
        scaling_part(drawn),
        "## All rows",
        *(whole(name, results, files) for name, results in result.items()),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def summary(scored: Sequence[ClaimVerdict], rows: Sequence[Named]) -> str:
    """Counts the claims of each document by verdict, and the goals that are reached."""
    words = [word for word in verdicts.WORDS if any(item.word == word for item in scored)]
    lines = []
    for name, message in PROPOSALS.items():
        result = [item.word for item in verdicts.of_proposal(scored, name)]
        lines.append(
            [message.title, str(len(result)), *(str(result.count(word) or "") for word in words)]
        )
    asked = [item.row.is_reached for item in rows if item.row.goal]
    reached = (
        f"{len(asked)} goals of this project: **{sum(map(bool, asked))} met, {asked.count(False)}"
        " missed**."
    )
    return f"{markdown_table(('proposal', 'items', *words), lines)}\n\n{reached}"


def machine(result: Mapping[str, Results | None]) -> str:
    """Describes the machine and the benchmarks that were not measured."""
    message = markdown_table(
        ("", ""), [[cell(name), cell(text)] for name, text in result_files.common(result).items()]
    )
    missing = [name for name, results in result.items() if results is None]
    lines = [f"* {name}: not measured: run `{COMMANDS[name]}`" for name in missing]
    return "\n\n".join(
        part for part in (message if len(missing) < len(result) else "", "\n".join(lines)) if part
    )


# Proposals.

PROPOSAL_HEAD = (
    "item",
    "promised",
    "measured as",
    "unit",
    "before",
    "its way",
    "ours",
    "before / its way",
    "before / ours",
    "verdict",
)


def proposal(name: str, scored: Sequence[ClaimVerdict], drawn: Collection[str]) -> str:
    """Renders one document: its items with their rows, and a figure."""
    message = PROPOSALS[name]
    lines = [line for item in verdicts.of_proposal(scored, name) for line in item_lines(item)]
    drawing = picture(f"claims_{name}", "promised, measured and ours", drawn)
    return (
        f"### {message.title} ({message.model})\n\n{markdown_table(PROPOSAL_HEAD, lines)}{drawing}"
    )


def item_lines(item: ClaimVerdict) -> list[list[str]]:
    """Returns the lines of an item; with several rows one for all and one for each."""
    head = [item.claim.what, item.claim.promised]
    if len(item.rows) == 1:
        return [[*head, *measured_cells(item.rows[0]), item.text]]
    whole_item = [
        *head,
        *["" for _ in PROPOSAL_HEAD[3:]],
        f"**{item.text}**" if item.rows else item.text,
    ]
    each = zip(item.rows, item.words, strict=True)
    return [whole_item, *(["", "", *measured_cells(row), word] for row, word in each)]


def measured_cells(item: Named) -> list[str]:
    row = item.row
    values = [value(side, row.unit) for side in (row.seed_way, row.ours)]
    return [
        cell(item.name),
        row.unit,
        cell(result_files.before(row)),
        *values,
        spread(row.ratios.get(PROPOSED)),
        spread(row.ratios.get(PLAIN)),
    ]


# Goals, what is taken away, other libraries, curves.


def goals_part(rows: Sequence[Named]) -> str:
    """Goals that are missed, by how much and what was tried; then those that are met."""
    asked = [(item, goal) for item in rows if (goal := goals.of(item.row)) is not None]
    missed = [
        [
            item.benchmark,
            cell(item.name),
            goal.asked,
            goal.reached,
            goal.share,
            cell(item.row.tried) or "-",
        ]
        for item, goal in asked
        if not item.row.is_reached
    ]
    encountered = [
        [item.benchmark, cell(item.name), goal.asked, goal.reached]
        for item, goal in asked
        if item.row.is_reached
    ]
    parts = ["## Goals of this project"]
    if missed:
        head = ("benchmark", "work", "goal", "reached", "of the goal", "what was tried")
        parts.append(f"### Missed: {len(missed)}\n\n{markdown_table(head, missed)}")
    if encountered:
        table = markdown_table(("benchmark", "work", "goal", "reached"), encountered)
        parts.append(f"### Met: {len(encountered)}\n\n{table}")
    return "\n\n".join(parts) if len(parts) > 1 else ""


def without_part(rows: Sequence[Named]) -> str:
    """Renders the rows that take one optimisation away."""
    lines = []
    for item in rows:
        row = item.row
        if row.without is not None:
            sides = [value(side, row.unit) for side in (row.before, row.without, row.ours)]
            ratios = [
                row.ratios.get(PLAIN),
                result_files.between(row.before, row.without),
                result_files.between(row.without, row.ours),
            ]
            lines.append(
                [
                    item.benchmark,
                    cell(item.name),
                    cell(row.without.what),
                    row.unit,
                    *sides,
                    *map(spread, ratios),
                ]
            )
    head = (
        "benchmark",
        "work",
        "taken away",
        "unit",
        "before",
        "ours without it",
        "ours",
        "before / ours",
        "before / without it",
        "without it / ours",
    )
    message = (
        "Ours with one thing taken away: where that brings back the old figure, it is what the"
        " ratio measures."
    )
    if not lines:
        return ""
    return f"## What the ratios measure\n\n{message}\n\n{markdown_table(head, lines)}"


def peers_part(rows: Sequence[Named], drawn: Collection[str]) -> str:
    """Renders a line per work and a column per library: how many times as fast ours is."""
    works = result_files.against_peers(list(rows))
    libraries = list(dict.fromkeys(name for each in works.values() for name in each))
    if not works:
        return f"## Against other libraries\n\nNot measured: run `{COMMANDS['peers']}`."
    lines = [
        [cell(work), *(beside(each.get(name)) for name in libraries)]
        for work, each in works.items()
    ]
    message = (
        "How many times as long (or as many bytes) the other library takes as ours; **bold** where"
        " it is ahead of us."
    )
    drawing = picture("peers", "other libraries beside ours", drawn)
    table = markdown_table(("work", *map(cell, libraries)), lines)
    return f"## Against other libraries\n\n{message}\n\n{table}{drawing}"


def beside(item: Named | None) -> str:
    """Formats the ratio to another library."""
    if item is None:
        return ""
    ratio = item.row.ratios[PLAIN]
    return f"**{spread(ratio)}**" if ratio.median < 1 else spread(ratio)


def scaling_part(drawn: Collection[str]) -> str:
    """Curves over batch, worlds, states or capacity."""
    drawing = picture("scaling", "time against batch, worlds, states or capacity", drawn)
    return f"## How it scales{drawing}" if drawing else ""


# All rows.

HEAD = (
    "row",
    "unit",
    "before",
    "its way",
    "ours",
    "without",
    "limit",
    "before / ours",
    "its way / ours",
    "of the limit",
    "compile s",
)


def whole(name: str, results: Results | None, files: str) -> str:
    """Renders every row of a benchmark and its notes, folded."""
    if results is None:
        return f"{name}: not measured: run `{COMMANDS[name]}`."
    rows = result_files.named({name: results})
    lines = []
    for item in rows:
        row = item.row
        sides = [value(side, row.unit) for side in (row.seed_way, row.ours, row.without, row.limit)]
        ratios = [spread(row.ratios.get(PLAIN)), spread(row.ratios.get(VARIANT))]
        share = percent(row.ratios[LIMIT].median) if LIMIT in row.ratios else "-"
        lines.append(
            [
                cell(item.name),
                row.unit,
                cell(result_files.before(row)),
                *sides,
                *ratios,
                share,
                f"{row.ours.compile_seconds:.1f}",
            ]
        )
    notes = "\n".join(f"* {cell(note)}" for note in results.notes)
    file = f"[{name}.json]({files}/{name}.json)"
    source = f"`{COMMANDS[name]}`, {results.rounds} rounds; every round is in {file}."
    body = "\n\n".join(part for part in (source, markdown_table(HEAD, lines), notes) if part)
    return folded(f"{name}: {len(rows)} rows", body)


def spread(ratio: Ratio | None) -> str:
    """Formats a ratio as `4.76x (3.92..5.19)`."""
    if ratio is None:
        return "-"
    least, greatest = (times(end).removesuffix("x") for end in (ratio.least, ratio.greatest))
    return f"{times(ratio.median)} ({least}..{greatest})"


def picture(name: str, what: str, drawn: Collection[str]) -> str:
    """Renders the link to a figure, if it exists."""
    return f"\n\n![{what}]({FOLDER}/{name}.png)" if f"{name}.png" in drawn else ""


def cell(text: str) -> str:
    """Words that stay in a table's cell; code in them stays code."""
    return plain(text).replace("\\`", "`")


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.page", description=__doc__)
    parser.add_argument(
        "--results", type=Path, default=RESULTS, help="folder of the JSON (default: %(default)s)"
    )
    try:
        written = write(Path.cwd(), parser.parse_args(argv).results)
    except ArtifactError as error:
        print(f"page: {error} [exit 3]", file=sys.stderr)
        return 3
    print(f"{written[0]} and {len(written) - 1} pictures")
    return 0


if __name__ == "__main__":
    sys.exit(main())
