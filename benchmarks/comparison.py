"""seeds of each model -> how often a comparison is wrong, beside adastop: docs/compare.md

Simulates comparisons and writes the table. `record`, before it, trains the seeds, in an hour.
`adastop`, before it, asks that library about the same scores, in an hour.
"""

import argparse
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float
from pydantic import TypeAdapter

from pipeline.judging.render import markdown_table, plain
from pipeline.reporting.result_files import read_file, write_lines
from pipeline.reporting.scores_page import between_marks
from quatrain.comparison import BATCHES, measure, nominal_level
from quatrain.storage.atomic_write import write_durably
from quatrain.storage.folders import read_text

# Model -> its first gated metric -> a score of each seed.
RECORDED = Path("benchmarks/results/seed_noise.json")
# Noise -> shares of adastop, of equal sides and of such that differ.
ASKED = Path("benchmarks/results/adastop.json")
PAGE = Path("docs/compare.md")
COMMAND = "python -m benchmarks.comparison"
BEGIN, END = f"<!-- Made by `{COMMAND}`. -->", f"<!-- End of what `{COMMAND}` makes. -->"
HEAD = (
    *("noise of the scores", "equal sides: called different", "1 sd better: found"),
    *("equal sides, margin 1 sd: alike", "adastop: equal sides", "adastop: 1 sd better"),
)

SEEDS = BATCHES[-1]
TRAININGS = 10
COMPARISONS = 10_000
# Comparisons by adastop, which takes a second for each.
FEWER = 200
# Seeds that adastop adds at a time, so that it has as many in the end.
ADDED = 4
DIVERGED = 1 / 8

Scores = Float[np.ndarray, " seeds"]
Sides = Float[np.ndarray, "comparisons 2 seeds"]
# Verdict -> share of comparisons; `seeds`: how many a side had, on average.
Shares = Mapping[str, float]
# Old scores, new ones, margin -> verdict, and seeds of a side.
Decide = Callable[[Scores, Scores, float], tuple[str, int]]
FORM = TypeAdapter(dict[str, dict[str, Any]])


def main() -> None:
    parser = argparse.ArgumentParser(prog=COMMAND, description=__doc__)
    parser.add_argument("work", nargs="?", choices=("record", "adastop"))
    root, work = Path.cwd(), parser.parse_args().work
    if work == "record":
        write_lines(root / RECORDED, record(root), depth=2)
    elif work == "adastop":
        asked = {name: ask_adastop(sides) for name, sides in equal_sides(root).items()}
        write_lines(root / ASKED, asked, depth=2)
    else:
        page = between_marks(read_text(root / PAGE), render(root), BEGIN, END, str(PAGE))
        write_durably(root / PAGE, page.encode())


def record(root: Path) -> dict[str, dict[str, list[float | None]]]:
    """Trains the default params of each model with other seeds, as `make compare` does."""
    from pipeline.judging.gate import rules_of
    from pipeline.trials.engine import run_all
    from pipeline.trials.local import Machine
    from pipeline.trials.place import needs_of
    from pipeline.trials.trial import make_trial
    from quatrain.presets import read_raw
    from quatrain.registry import MODELS
    from quatrain.validation import overlaid

    raw = read_raw(root, None)
    trials = [
        make_trial(root, model, overlaid(raw, {"seed": seed, model: {"seeds": 1}}))
        for model in MODELS
        for seed in range(TRAININGS)
    ]
    with Machine(root, **needs_of(trials)) as machine:
        labels = [f"{trial.model}, seed {trial.params.seed}" for trial in trials]
        outcomes = iter(run_all(root, trials, labels, machine))
    metrics = {model: rules_of(model, "default")[0].metric for model in MODELS}
    return {
        model: {metric: [next(outcomes).scores.get(metric) for _ in range(TRAININGS)]}
        for model, metric in metrics.items()
    }


def equal_sides(root: Path) -> dict[str, Sides]:
    """Draws scores of both sides from one law, the same each time; NaN: diverged."""
    rng, shape = np.random.default_rng(0), (COMPARISONS, 2, SEEDS)
    normal, heavy = rng.standard_normal(shape), rng.standard_t(3, shape)
    failures, coin = rng.random(shape) < DIVERGED, rng.integers(2, size=shape).astype(float)
    of_world = rng.standard_normal((COMPARISONS, 1, SEEDS))
    laws = {
        "normal": normal,
        "normal, pairs correlate by 0.5": (normal + of_world) / np.sqrt(2),
        "t with 3 degrees of freedom": heavy,
        "0 or 1, as likely": coin,
        "normal, one seed in eight diverges": np.where(failures, np.nan, normal),
    }
    recorded = read_file(root, RECORDED, FORM, f"{COMMAND} record") or {}
    for model, metrics in recorded.items():
        for metric, scores in metrics.items():
            name = f"{model}: {metric} of {len(scores)} seeds"
            laws[name] = rng.choice(np.array(scores, float), shape)
    return laws


def deviation(sides: Sides) -> float:
    """Returns the standard deviation of the differences of pairs of which both ended."""
    return float(np.nanstd(sides[:, 1] - sides[:, 0]))


def simulate(decide: Decide, sides: Sides, shift: float = 0.0, margin: float = 0.0) -> Shares:
    ends = [decide(old, new + shift, margin) for old, new in sides]
    counts = Counter(verdict for verdict, _ in ends)
    shares = {verdict: count / len(ends) for verdict, count in counts.items()}
    return shares | {"seeds": float(np.mean([seeds for _, seeds in ends]))}


def by_comparison(old: Scores, new: Scores, margin: float) -> tuple[str, int]:
    level = nominal_level(BATCHES)
    for count in BATCHES:
        verdict = measure(old[:count], new[:count], "higher", margin, level).verdict
        if verdict != "undecided":
            break
    return verdict, count


def by_adastop(old: Scores, new: Scores, _: float) -> tuple[str, int]:
    from adastop import MultipleAgentsComparator

    worst = np.nanmin([old, new])
    sides = {"old": np.nan_to_num(old, nan=worst), "new": np.nan_to_num(new, nan=worst)}
    test = MultipleAgentsComparator(n=ADDED, K=SEEDS // ADDED, alpha=0.05, seed=0)
    while not test.is_finished:
        count = ADDED * (test.k + 1)
        test.partial_compare({name: side[:count] for name, side in sides.items()}, verbose=False)
    verdicts = {"larger": "worse", "smaller": "better", "equal": "no difference"}
    return verdicts[test.decisions["[0 1]"]], count


def ask_adastop(sides: Sides) -> dict[str, Any]:
    shift, few = deviation(sides), sides[:FEWER]
    equal, better = simulate(by_adastop, few), simulate(by_adastop, few, shift)
    return {"equal": equal, "better": better, "version": version("adastop")}


def render(root: Path) -> str:
    """Renders a line for each noise."""
    asked = read_file(root, ASKED, FORM, f"{COMMAND} adastop") or {}
    lines = []
    for name, sides in equal_sides(root).items():
        once, theirs = deviation(sides), asked.get(name, {})
        cells = [
            cell(simulate(by_comparison, sides), "better", "worse"),
            cell(simulate(by_comparison, sides, shift=once), "better"),
            cell(simulate(by_comparison, sides, margin=once), "no difference"),
            cell(theirs.get("equal"), "better", "worse"),
            cell(theirs.get("better"), "better"),
        ]
        lines.append([plain(name), *cells])
    versions = " and ".join({each["version"]: "" for each in asked.values()})
    return (
        f"{markdown_table(HEAD, lines)}\n\n"
        f"Of {COMPARISONS:,} comparisons; adastop {versions}: of the first {FEWER} of them."
    )


def cell(shares: Shares | None, *verdicts: str) -> str:
    """Formats a share and, in brackets, the mean number of seeds of a side; "-" if not asked."""
    if shares is None:
        return "-"
    share = sum(shares.get(verdict, 0.0) for verdict in verdicts)
    return f"{100 * share:.1f} % ({shares['seeds']:.1f})"


if __name__ == "__main__":
    sys.exit(main())
