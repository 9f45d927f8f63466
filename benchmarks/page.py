"""what benchmarks kept -> docs/benchmarks.md: promises and what they are worth, goals, peers, all rows; pictures."""

import argparse
import os
import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from benchmarks import goals, kept, pictures, verdicts
from benchmarks.claims import PROPOSALS
from benchmarks.kept import COMMANDS, Named, Results, value
from benchmarks.verdicts import PROPOSED, Judged
from pipeline.reporting.sections import folded, plain, table
from pipeline.reporting.speed import LIMIT, PLAIN, VARIANT, Ratio, percent, times
from pipeline.runtime.errors import ArtifactError
from pipeline.storage.atomic_write import write_durably
from pipeline.storage.figures import png, write_figures

RESULTS = Path("benchmarks/results")
PAGE = "benchmarks.md"
FOLDER = "benchmarks"
"""Of the pictures, beside the page."""
READING = """\
* **before** is a plain reference of the original program, or what stands in brackets; **its way** what a proposal
  makes of it; **ours** this project. All run in turn in one process; that they compute the same is checked before.
* A ratio says how many times as much one takes as the other, in seconds (in bytes, where the unit is one of memory):
  the median of the rounds, in brackets the least and the greatest. Ratios are to be trusted, times are this machine's.
* A promise is **reproduced** where half of the rounds or more reach its weakest reading, **refuted** where no round
  does, else **in doubt**. Where the proposal's way is not built here, only ours is measured."""


def write(root: Path, results: Path) -> list[Path]:
    """The page and its pictures: of the committed results in docs, of others beside them. The page is first.

    Raises:
        ArtifactError: a file of results has another form.
    """
    found = kept.read(results)
    folder = root / "docs" if results.resolve() == (root / RESULTS).resolve() else results
    drawn = {
        f"{name}.png": png(figure) for name, figure in pictures.draw(kept.named(found)).items()
    }
    write_figures(folder / FOLDER, drawn)
    files = os.path.relpath(results.resolve(), folder.resolve())
    write_durably(folder / PAGE, render(found, drawn, files).encode())
    return [folder / PAGE, *(folder / FOLDER / name for name in drawn)]


def render(found: Mapping[str, Results | None], drawn: Collection[str], files: str) -> str:
    """The page; `drawn` are the pictures that lie beside it, `files` is where the JSON lies, as seen from it."""
    rows = kept.named(found)
    judged = verdicts.judged(rows)
    parts = [
        "# Speed, claim by claim",
        "Made by `make bench` and `make bench-peers` from `benchmarks/results/*.json` (`python -m benchmarks.page`).",
        summary(judged, rows),
        f"## How to read\n\n{READING}",
        f"## The machine\n\n{machine(found)}",
        "## What five proposals promise\n\nEach is about the original of one of the learners here.",
        *(proposal(name, judged, drawn) for name in PROPOSALS),
        goals_part(rows),
        without_part(rows),
        peers_part(rows, drawn),
        scaling_part(drawn),
        "## All rows",
        *(whole(name, results, files) for name, results in found.items()),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def summary(judged: Sequence[Judged], rows: Sequence[Named]) -> str:
    """How many promises of each document hold, and how many goals are met."""
    words = [word for word in verdicts.WORDS if any(one.word == word for one in judged)]
    lines = []
    for name, told in PROPOSALS.items():
        found = [one.word for one in verdicts.of_proposal(judged, name)]
        lines.append(
            [told.title, str(len(found)), *(str(found.count(word) or "") for word in words)]
        )
    asked = [one.row.met for one in rows if one.row.goal]
    reached = f"{len(asked)} goals of this project: **{sum(map(bool, asked))} met, {asked.count(False)} missed**."
    return f"{table(('proposal', 'items', *words), lines)}\n\n{reached}"


def machine(found: Mapping[str, Results | None]) -> str:
    """What it was measured on, and what was not measured."""
    told = table(("", ""), [[cell(name), cell(text)] for name, text in kept.common(found).items()])
    missing = [name for name, results in found.items() if results is None]
    lines = [f"* {name}: not measured: run `{COMMANDS[name]}`" for name in missing]
    return "\n\n".join(
        part for part in (told if len(missing) < len(found) else "", "\n".join(lines)) if part
    )


# Proposals.

PROPOSAL_HEAD = ("item", "promised", "measured as", "unit", "before", "its way", "ours", "before / its way",
                 "before / ours", "verdict")  # fmt: skip


def proposal(name: str, judged: Sequence[Judged], drawn: Collection[str]) -> str:
    """One document: each of its items with its rows, and a picture."""
    told = PROPOSALS[name]
    lines = [line for one in verdicts.of_proposal(judged, name) for line in item_lines(one)]
    drawing = picture(f"claims_{name}", "promised, measured and ours", drawn)
    return f"### {told.title} ({told.model})\n\n{table(PROPOSAL_HEAD, lines)}{drawing}"


def item_lines(one: Judged) -> list[list[str]]:
    """A line; of an item with several rows one for all and one for each."""
    head = [one.claim.what, one.claim.promised]
    if len(one.rows) == 1:
        return [[*head, *measured_cells(one.rows[0]), one.told]]
    whole_item = [
        *head,
        *["" for _ in PROPOSAL_HEAD[3:]],
        f"**{one.told}**" if one.rows else one.told,
    ]
    each = zip(one.rows, one.words, strict=True)
    return [whole_item, *(["", "", *measured_cells(row), word] for row, word in each)]


def measured_cells(one: Named) -> list[str]:
    row = one.row
    values = [value(side, row.unit) for side in (row.seed_way, row.ours)]
    return [
        cell(one.name),
        row.unit,
        cell(kept.before(row)),
        *values,
        spread(row.ratios.get(PROPOSED)),
        spread(row.ratios.get(PLAIN)),
    ]


# Goals, what is taken away, other libraries, curves.


def goals_part(rows: Sequence[Named]) -> str:
    """Goals that are missed, by how much and what was tried; then those that are met."""
    asked = [(one, goal) for one in rows if (goal := goals.of(one.row)) is not None]
    missed = [
        [
            one.benchmark,
            cell(one.name),
            goal.asked,
            goal.reached,
            goal.share,
            cell(one.row.tried) or "-",
        ]
        for one, goal in asked
        if not one.row.met
    ]
    met = [
        [one.benchmark, cell(one.name), goal.asked, goal.reached]
        for one, goal in asked
        if one.row.met
    ]
    parts = ["## Goals of this project"]
    if missed:
        head = ("benchmark", "work", "goal", "reached", "of the goal", "what was tried")
        parts.append(f"### Missed: {len(missed)}\n\n{table(head, missed)}")
    if met:
        parts.append(
            f"### Met: {len(met)}\n\n{table(('benchmark', 'work', 'goal', 'reached'), met)}"
        )
    return "\n\n".join(parts) if len(parts) > 1 else ""


def without_part(rows: Sequence[Named]) -> str:
    """What remains of a ratio where one optimisation is taken away."""
    lines = []
    for one in rows:
        row = one.row
        if row.without is not None:
            sides = [value(side, row.unit) for side in (row.before, row.without, row.ours)]
            ratios = [
                row.ratios.get(PLAIN),
                kept.between(row.before, row.without),
                kept.between(row.without, row.ours),
            ]
            lines.append(
                [
                    one.benchmark,
                    cell(one.name),
                    cell(row.without.what),
                    row.unit,
                    *sides,
                    *map(spread, ratios),
                ]
            )
    head = ("benchmark", "work", "taken away", "unit", "before", "ours without it", "ours", "before / ours",
            "before / without it", "without it / ours")  # fmt: skip
    told = "Ours with one thing taken away: where that brings back the old figure, it is what the ratio measures."
    return f"## What the ratios measure\n\n{told}\n\n{table(head, lines)}" if lines else ""


def peers_part(rows: Sequence[Named], drawn: Collection[str]) -> str:
    """A line per work, a column per library: how many times as fast as it ours is."""
    works = kept.against_peers(list(rows))
    libraries = list(dict.fromkeys(name for each in works.values() for name in each))
    if not works:
        return f"## Against other libraries\n\nNot measured: run `{COMMANDS['peers']}`."
    lines = [
        [cell(work), *(beside(each.get(name)) for name in libraries)]
        for work, each in works.items()
    ]
    told = "How many times as long (or as many bytes) the other library takes as ours; **bold** where it is ahead of us."
    drawing = picture("peers", "other libraries beside ours", drawn)
    return f"## Against other libraries\n\n{told}\n\n{table(('work', *map(cell, libraries)), lines)}{drawing}"


def beside(one: Named | None) -> str:
    """The ratio to another library."""
    if one is None:
        return ""
    ratio = one.row.ratios[PLAIN]
    return f"**{spread(ratio)}**" if ratio.median < 1 else spread(ratio)


def scaling_part(drawn: Collection[str]) -> str:
    """Curves over batch, worlds, states or capacity."""
    drawing = picture("scaling", "time against batch, worlds, states or capacity", drawn)
    return f"## How it scales{drawing}" if drawing else ""


# All rows.

HEAD = ("row", "unit", "before", "its way", "ours", "without", "limit", "before / ours", "its way / ours",
        "of the limit", "compile s")  # fmt: skip


def whole(name: str, results: Results | None, files: str) -> str:
    """Every row of a benchmark and its notes, folded."""
    if results is None:
        return f"{name}: not measured: run `{COMMANDS[name]}`."
    rows = kept.named({name: results})
    lines = []
    for one in rows:
        row = one.row
        sides = [value(side, row.unit) for side in (row.seed_way, row.ours, row.without, row.limit)]
        ratios = [spread(row.ratios.get(PLAIN)), spread(row.ratios.get(VARIANT))]
        share = percent(row.ratios[LIMIT].median) if LIMIT in row.ratios else "-"
        lines.append(
            [
                cell(one.name),
                row.unit,
                cell(kept.before(row)),
                *sides,
                *ratios,
                share,
                f"{row.ours.compile_seconds:.1f}",
            ]
        )
    notes = "\n".join(f"* {cell(note)}" for note in results.notes)
    file = f"[{name}.json]({files}/{name}.json)"
    source = f"`{COMMANDS[name]}`, {results.rounds} rounds; every round is in {file}."
    body = "\n\n".join(part for part in (source, table(HEAD, lines), notes) if part)
    return folded(f"{name}: {len(rows)} rows", body)


def spread(ratio: Ratio | None) -> str:
    """`4.76x (3.92..5.19)`."""
    if ratio is None:
        return "-"
    least, greatest = (times(end).removesuffix("x") for end in (ratio.least, ratio.greatest))
    return f"{times(ratio.median)} ({least}..{greatest})"


def picture(name: str, what: str, drawn: Collection[str]) -> str:
    """The link, where there is such a picture."""
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
