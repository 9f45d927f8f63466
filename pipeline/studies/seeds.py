"""benchmarks/results/seeds.json <-> scores over seeds, and their table in docs/results.md."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict, TypeAdapter

from pipeline.judging.render import markdown_table, plain
from pipeline.reporting.result_files import read_file
from pipeline.reporting.scores_page import between_marks
from quatrain.baselines import Rule
from quatrain.judgement import Scores

RESULTS = Path("benchmarks/results/seeds.json")
PEERS = Path("benchmarks/results/peers.json")
PAGE = Path("docs/results.md")
BEGIN = "<!-- Made by `make results`. -->"
END = "<!-- End of what `make results` makes. -->"
HEAD = (
    "model",
    "metric (better)",
    "seeds",
    "score (95 % interval)",
    "lowest to highest seed",
    "beside it",
    "CPU seconds per seed",
)
# In a note of `make bench-peers` that has scores of another library.
OF_SEEDS = " seeds: "


class SeedResult(NamedTuple):
    """Holds the scores of one model over seeds, and what they cost.

    key: of params, code and machine. train_cpu_seconds: of all seeds and threads, compilation
    included.
    """

    key: str
    machine: Mapping[str, str]
    seeds: int
    train_cpu_seconds: float
    evaluate_cpu_seconds: float
    scores: Mapping[str, float | None]


class Peers(BaseModel):
    """Holds what this page shows of the results of other libraries."""

    notes: list[str]


FORM = TypeAdapter(dict[str, SeedResult], config=ConfigDict(strict=True))
PEERS_FORM = TypeAdapter(Peers)


def read(root: Path) -> dict[str, SeedResult]:
    """Reads model -> result, of those that were run.

    Raises:
        DataError: the file has another form.
    """
    return read_file(root, RESULTS, FORM, f"rm {RESULTS}; make results") or {}


def render(root: Path, done: Mapping[str, SeedResult], rules: Mapping[str, Sequence[Rule]]) -> str:
    """Renders a table with a row per judged metric, and what other libraries reach.

    Raises:
        DataError: the results of other libraries have another form.
    """
    if not done:
        return "Not measured yet: run `make results`."
    rows = []
    for model, result in done.items():
        # One time for all metrics of a model.
        seconds = f"{result.train_cpu_seconds / result.seeds:.3g}"
        for rule in rules[model]:
            rows.append([plain(model), *row_of(rule, result), seconds])
            seconds = ""
    machines = {plain(result.machine["cpu"]) for result in done.values()}
    machine = f"Seconds of training, of all threads, on {', '.join(sorted(machines))}."
    return "\n\n".join([markdown_table(HEAD, rows), machine, *peer_notes(root)])


def row_of(rule: Rule, result: SeedResult) -> list[str]:
    """Returns the cells of a metric: the interquartile mean, or the median of replicates."""
    scores, metric = result.scores, rule.metric
    center = f"{metric}_iqm" if f"{metric}_iqm" in scores else metric
    text = shown(scores, center)
    if f"{center}_low" in scores:
        text += f" ({shown(scores, f'{center}_low')} to {shown(scores, f'{center}_high')})"
    extremes = " to ".join(shown(scores, f"{metric}_{end}") for end in ("least", "greatest"))
    beside = [*rule.lower_references, *rule.upper_references, *other_arms(metric, scores)]
    lines = [f"{plain(name)} {shown(scores, name)}" for name in beside]
    goal = [] if rule.goal is None else [f"goal {rule.goal:g}"]
    cells = [f"{plain(metric)} ({rule.direction})", str(result.seeds), text]
    return [*cells, extremes.replace("- to -", "-"), "<br>".join([*goal, *lines]) or "-"]


def other_arms(metric: str, scores: Scores) -> list[str]:
    """Returns the same metric of other arms: `field_nrmse.prbs` beside `field_nrmse.active`."""
    stem, dot, _ = metric.rpartition(".")
    ends = ("_low", "_high")
    names = [name for name in scores if dot and name.startswith(f"{stem}{dot}")]
    return sorted(name for name in names if name != metric and not name.endswith(ends))


def shown(scores: Scores, name: str) -> str:
    value = scores.get(name)
    return "-" if value is None else f"{value:.4g}"


def peer_notes(root: Path) -> list[str]:
    """Returns what `make bench-peers` notes about scores of other libraries over seeds."""
    results = read_file(root, PEERS, PEERS_FORM, "make bench-peers")
    notes = [note for note in results.notes if OF_SEEDS in note] if results else []
    return ["\n".join(f"* {plain(note)}" for note in notes)] if notes else []


def with_table(page: str, text: str) -> str:
    """Returns the page with the text between the marks.

    Raises:
        DataError: it has not one of each mark.
    """
    return between_marks(page, text, BEGIN, END, str(PAGE))
