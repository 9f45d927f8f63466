"""stored rows -> docs/benchmarks.md: promises, proposals and ours, and other libraries"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from benchmarks import pictures
from benchmarks.loop.goals import REVISION
from benchmarks.rows import (
    BEFORE,
    DOCUMENTS,
    IQN,
    ORIGINAL,
    OURS,
    PEER,
    PROPOSAL,
    RANDOM,
    Results,
    Row,
    Times,
)
from pipeline.judging.render import markdown_table, plain
from pipeline.storage.figures import png, write_figures
from quatrain.comparison import measure
from quatrain.storage.atomic_write import write_durably

FOLDER = "benchmarks"
"""Of the pictures, beside the page."""
HEAD = ("document", "promised", "measured as", ORIGINAL, PROPOSAL, OURS, "promise")
TOP = """\
# Speed

Documents of five open programs propose changes that are to make them faster. `make bench` measures
three sides of each, and writes this page from `benchmarks/results/*.json` (`make bench ARGS=--page`
only writes it).

* **The original program** is a plain implementation of it, written from its description
  (`benchmarks/reference`). **Its proposal** is the original program with the change that its
  document proposes. **Ours** is the model of this project that does the same work.
* Times of the original program; for the others, how many times as fast as it they are, or as small
  in memory: the median of the rounds, with the quartiles in brackets. Ratios travel to other
  machines, times do not.
* In each round all sides run by turns, in one process, warmed up, with the same threads. Before
  that they are checked to compute the same; where they do not, a note says so.
* A promise **holds** if the lower quartile of the proposal's ratio reaches its weakest reading
  ("50 % faster" is 1.5x), and **does not hold** if the upper quartile does not; it is **in doubt**
  between the two."""
PEERS = """\
## Against other libraries

Measured by `make bench-peers`, which installs them. How many times as long as ours each takes; in
**bold** what is faster than ours."""

LOOP = """\
## The loop around learning

Measured by `make bench BENCH=loop`: this project, and its revision {revision}, in fresh clones,
with whole commands as a user starts them. Times are CPU seconds of all their processes, but for
those called wall. A share is that of what the work stands beside: 0.5 is half of it. `evaluate`
is as in `make repro`, which delivers what stages record; earlier, each delivered by itself.

What is left where a goal is missed: DVC starts each stage as a process, which imports its framework
anew (one warm process for several would have to carry signals, locks and threads from stage to
stage), matplotlib lays each figure out, JAX traces a program before it finds it compiled, and
`dvc exp run` reads its files again and again and delivers after each stage."""

ENVIRONMENTS = """\
## Environments of others

Measured by `make bench BENCH=environments`, after `make bench-peers` has installed them: mean
returns of held-out episodes without exploring, over seeds (lowest..highest). actor_critic (ours)
and iqn have the settings of the preset before an environment, and learn from as many transitions as
stand behind it (actor_critic / iqn). stable-baselines3's PPO learns from as many as ours, with the
settings of rl-baselines3-zoo for that environment, or with its own defaults where there are none.
All validate while they learn, and keep the weights of the best validation. Ours is better or worse
where the 95 % interval of the difference of means lies on one side of zero, else alike; CPU seconds
of both stand in the table above."""


def write(root: Path, stored: Mapping[str, Results]) -> Path:
    """Writes the page and its pictures into docs; returns the page's path."""
    figures = pictures.draw(rows_of(stored))
    encoded = {f"{name}.png": png(figure) for name, figure in figures.items()}
    write_figures(root / "docs" / FOLDER, encoded)
    page = root / "docs" / "benchmarks.md"
    write_durably(page, render(stored, list(figures)).encode())
    return page


def rows_of(stored: Mapping[str, Results]) -> list[Row]:
    return [row for results in stored.values() for row in results.rows]


def render(stored: Mapping[str, Results], drawn: Sequence[str]) -> str:
    """Renders the page; `drawn` are the pictures beside it."""
    rows = rows_of(stored)
    images = {name: f"![{name}]({FOLDER}/{name}.png)" for name in drawn}
    notes = [
        f"* {cell(row.work)}: {cell(row.note)}"
        for row in rows
        if row.note and row.unit != "return" and BEFORE not in row.sides
    ]
    parts = [TOP, claims_table(rows), images.get("claims", "")]
    parts += [PEERS, peers_table(rows), images.get("peers", "")]
    if loop := loop_table(rows):
        parts += [LOOP.format(revision=REVISION), loop]
    if environments := environments_table(rows):
        parts += [ENVIRONMENTS, environments]
    parts += ["## Notes", "\n".join([*notes, *machine_lines(stored)])]
    return "\n\n".join(part for part in parts if part) + "\n"


def claims_table(rows: Sequence[Row]) -> str:
    """Renders a line per row that compares with the original program."""
    lines = []
    above = ""
    for row in rows:
        if ORIGINAL in row.sides:
            title, promised = above, "-"
            if row.claim:
                title, promised = DOCUMENTS[row.claim.document], row.claim.promised
            gains = [str(row.proposed or "-"), str(row.ratio(ORIGINAL))]
            cells = ["" if title == above else title, promised, row.work, row.shown(ORIGINAL)]
            lines.append([cell(text) for text in [*cells, *gains, row.verdict]])
            above = title
    return markdown_table(HEAD, lines) if lines else ""


def peers_table(rows: Sequence[Row]) -> str:
    """Renders a line per row that compares with other libraries."""
    lines = []
    for row in rows:
        if row.is_of_peers:
            gains = {f"{name} {ratio}": ratio.median for name, ratio in row.gains.items()}
            texts = [f"**{text}**" if median < 1 else text for text, median in gains.items()]
            lines.append([cell(row.work), row.shown(OURS), "<br>".join(texts)])
    return markdown_table(("work", OURS, "times as long as ours"), lines) if lines else ""


def loop_table(rows: Sequence[Row]) -> str:
    """Renders a line per row that compares with an earlier revision of this project."""
    lines = []
    for row in rows:
        if BEFORE in row.sides:
            others = [
                f"{side} {row.shown(side)}" for side in row.sides if side not in (BEFORE, OURS)
            ]
            cells = [row.work, row.shown(BEFORE), row.shown(OURS), "<br>".join(others), row.note]
            lines.append([cell(text or "-") for text in cells])
    return markdown_table(("work", BEFORE, "now", "beside", "goal"), lines) if lines else ""


def environments_table(rows: Sequence[Row]) -> str:
    """Renders a line per environment: what is learned there, or the line that refuses it."""
    lines = []
    for row in rows:
        if row.unit == "return":
            cells = [spread(row.sides.get(side)) for side in (RANDOM, OURS, PEER, IQN)]
            seeds = max((len(times.values) for times in row.sides.values()), default=0)
            texts = [row.work, str(seeds or "-"), *cells, row.note or against(row)]
            lines.append([cell(text) for text in texts])
    head = ("environment", "seeds", RANDOM, OURS, PEER, IQN, "ours is")
    return markdown_table(head, lines) if lines else ""


def spread(returns: Times | None) -> str:
    if returns is None:
        return "-"
    low, high = min(returns.values), max(returns.values)
    mean = f"{float(f'{np.mean(returns.values):.3g}'):g}"
    return mean if low == high else f"{mean} ({low:.3g}..{high:.3g})"


def against(row: Row) -> str:
    """Says how ours compares with the other library, over seeds."""
    sides = [row.sides[side].values for side in (PEER, OURS) if side in row.sides]
    seeds = min(map(len, sides), default=0)
    if len(sides) < 2 or seeds < 2:
        return "-"
    other, ours = (np.array(values[:seeds]) for values in sides)
    verdict = measure(other, ours, "higher", margin=0.0, is_paired=False).verdict
    return verdict if verdict in ("better", "worse") else "alike"


TABLES = (claims_table, peers_table, loop_table, environments_table)


def machine_lines(stored: Mapping[str, Results]) -> list[str]:
    """Returns the machine, where benchmarks differ with all of its values, and compile times."""
    values: dict[str, list[str]] = {}
    for results in stored.values():
        for name, text in {**results.machine, "rounds": str(results.rounds)}.items():
            values.setdefault(name, []).append(text)
    texts = [f"{name} {' or '.join(dict.fromkeys(each))}" for name, each in values.items()]
    ours = [row.sides[OURS] for row in rows_of(stored) if OURS in row.sides]
    longest = max((times.compile_seconds for times in ours), default=0.0)
    return [
        f"* Compiling takes ours at most {longest:.1f} s, once; it is in no time above.",
        f"* Measured with {cell(', '.join(texts))}.",
    ]


def compare(last: Mapping[str, Results], now: Mapping[str, Results]) -> str:
    """Renders each ratio beside that of the last results; ours is slower or faster where the
    quartiles lie apart.
    """
    lines = []
    for name, results in now.items():
        old = {row.work: row.gains for row in last[name].rows} if name in last else {}
        for row in results.rows:
            for side, ratio in row.gains.items():
                then, word = old.get(row.work, {}).get(side), "new"
                if then:
                    slower, faster = ratio.high < then.low, ratio.low > then.high
                    word = "slower" if slower else "faster" if faster else "alike"
                lines.append([name, row.work, side, str(then or "-"), str(ratio), word])
    return markdown_table(("benchmark", "work", "against", "last time", "now", "ours is"), lines)


def cell(text: str) -> str:
    """Returns words that stay in a table's cell; code in them stays code."""
    return plain(text).replace("\\`", "`")
