"""trainings of two sides over the same seeds -> which side is better, or how many seeds would tell.

The unit is a seed, never an episode. Seeds come in batches; after each, an interval of the mean
difference decides or asks for more. It is a repeated confidence interval (Jennison and Turnbull,
1984), with one nominal level for all looks (Pocock, 1977): equal sides are called different in 5 %
of comparisons, however many looks they take.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from html import escape
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
from jaxtyping import Float
from pydantic_core import to_json

from quatrain.baselines import Direction, Rule
from quatrain.errors import ConfigError
from quatrain.judgement import NOTHING
from quatrain.progress import History
from quatrain.seeds import SEEDS_OF_INTERVAL

if TYPE_CHECKING:  # loading a command must not load matplotlib
    from matplotlib.figure import Figure

Verdict = Literal["better", "worse", "no difference", "differs", "undecided"]
Values = Float[np.ndarray, " seeds"]
Table = list[dict[str, str]]

# How often equal sides may be called different.
ERROR = 0.05
BATCHES = (4, 8, 16)
# Simulated comparisons by which the nominal level is found.
SIMULATED = 100_000
# Largest number of seeds that is said to be needed.
MOST_NEEDED = 1000
# A level of a curve, as a share of the old side's way from its first point to its last.
LEVEL = 0.9


class Run(NamedTuple):
    """Holds a training of one side.

    scores: none if it diverged. weights: their digest. peak_memory: bytes. NaN: not measured.
    """

    seed: int
    scores: Mapping[str, float | None] = NOTHING
    history: History = NOTHING
    weights: str = ""
    cpu_seconds: float = math.nan
    peak_memory: float = math.nan


class Difference(NamedTuple):
    """Holds how a metric differs over seeds, `after` - `before`: means, and the interval's ends.

    each: of the pairs. better_in: seeds in which `after` is better. correlation: of the pairs.
    needed: seeds that would decide with the same mean and deviation; None if that is decided, or
    more than MOST_NEEDED.
    """

    before: float
    after: float
    mean: float
    low: float
    high: float
    each: Values
    better_in: int
    correlation: float
    verdict: Verdict
    needed: int | None


def looks_to(seeds: int, batches: Sequence[int] = BATCHES) -> tuple[int, ...]:
    """Returns after how many seeds a comparison of at most `seeds` decides.

    Raises:
        ConfigError: there are too few seeds, or the numbers do not ascend.
    """
    looks = (*(count for count in batches if count < seeds), seeds)
    if looks[0] < SEEDS_OF_INTERVAL or list(looks) != sorted(set(looks)):
        raise ConfigError(
            f"a comparison after {', '.join(map(str, looks))} seeds is none; "
            f"give numbers from {SEEDS_OF_INTERVAL} on, the lower ones first"
        )
    return looks


@cache
def nominal_level(looks: tuple[int, ...]) -> float:
    """Computes the level of each interval, after so many pairs, by which all of them together hold
    the truth in 95 % of comparisons with normal differences: by simulation, always the same.
    """
    if len(looks) == 1:
        return ERROR
    from scipy import stats

    counts = np.array(looks)
    pairs = np.random.default_rng(0).standard_normal((SIMULATED, counts[-1]))
    sums, squares = (np.cumsum(pairs**power, 1)[:, counts - 1] for power in (1, 2))
    error = np.sqrt((squares - sums**2 / counts) / (counts - 1) / counts)
    chance = 2 * stats.t.sf(np.abs(sums / counts / error), counts - 1)
    return float(np.quantile(chance.min(1), ERROR))


def measure(
    before: Values,
    after: Values,
    direction: Direction,
    margin: float,
    level: float = ERROR,
    is_paired: bool = True,
) -> Difference:
    """Compares a metric of two sides, whose entries have the same seeds if they are paired.

    NaN, of a training that diverged, counts as the worst score of both sides. margin: differences
    up to this do not matter. level: how often the interval may miss the truth.
    """
    worst = (np.nanmax if direction == "lower" else np.nanmin)([*before, *after])
    old, new = (np.where(np.isnan(side), worst, side) for side in (before, after))
    each = new - old
    mean = float(each.mean())
    half = half_paired(each, level) if is_paired else half_unpaired(old, new, level)
    low, high = mean - half, mean + half
    verdict = judge(low, high, direction, margin)
    gains = -each if direction == "lower" else each
    has_pairs = is_paired and old.std() > 0 and new.std() > 0
    return Difference(
        before=float(old.mean()),
        after=float(new.mean()),
        mean=mean,
        low=low,
        high=high,
        each=each,
        better_in=int((gains > 0).sum()),
        correlation=float(np.corrcoef(old, new)[0, 1]) if has_pairs else math.nan,
        verdict=verdict,
        needed=seeds_needed(each, margin, level) if verdict == "undecided" else None,
    )


def judge(low: float, high: float, direction: Direction, margin: float) -> Verdict:
    """Returns what an interval of `after` - `before` says."""
    if low > 0 or high < 0:
        if direction == "near":
            return "differs"
        return "better" if (low > 0) == (direction == "higher") else "worse"
    return "no difference" if max(-low, high) <= margin else "undecided"


def half_paired(each: Values, level: float) -> float:
    """Computes half the width of the interval of a mean, t(1 - level/2, n-1)·sd/√n."""
    return t_quantile(level, len(each) - 1) * float(each.std(ddof=1)) / math.sqrt(len(each))


def half_unpaired(old: Values, new: Values, level: float) -> float:
    """Computes half the width of the interval of a difference of two means (Welch, 1947)."""
    errors = np.array([side.var(ddof=1) / len(side) for side in (old, new)])
    if not errors.any():
        return 0.0
    freedom = errors.sum() ** 2 / (errors**2 / [len(old) - 1, len(new) - 1]).sum()
    return t_quantile(level, freedom) * math.sqrt(errors.sum())


def t_quantile(level: float, freedom: float) -> float:
    from scipy import special  # loaded at once, unlike `stats`

    return float(special.stdtrit(freedom, 1 - level / 2))


def seeds_needed(each: Values, margin: float, level: float) -> int | None:
    mean, deviation = abs(float(each.mean())), float(each.std(ddof=1))
    for count in range(len(each) + 1, MOST_NEEDED + 1):
        half = t_quantile(level, count - 1) * deviation / math.sqrt(count)
        if half < max(mean, margin - mean):
            return count
    return None


@dataclass(frozen=True, eq=False, repr=False)
class Comparison:
    """Holds what a change did to a model: trainings before and after it.

    Attributes:
        model: its name.
        change: what differs, in a few words.
        before, after: trainings; those at the same place have the same seed.
        rules: of the gated metrics.
        metric: the one that decides.
        margin: differences of it up to this do not matter.
        looks: after how many seeds the comparison might end.
        curves: names of recorded metrics that tell how a training went.
        is_paired: whether both sides have the same worlds.
    """

    model: str
    change: str
    before: Sequence[Run]
    after: Sequence[Run]
    rules: Sequence[Rule]
    metric: str
    margin: float
    looks: tuple[int, ...] = BATCHES
    curves: Sequence[str] = ()
    is_paired: bool = True

    @cached_property
    def differences(self) -> dict[str, Difference]:
        """Returns each gated metric of both sides, the one that decides first."""
        found = {}
        for rule in sorted(self.rules, key=lambda rule: rule.metric != self.metric):
            old, new = (
                np.array([run.scores.get(rule.metric) for run in side], float)
                for side in self.sides
            )
            if np.isfinite([old, new]).any():
                margin = self.margin if rule.metric == self.metric else rule.tolerance
                level = nominal_level(self.looks)
                found[rule.metric] = measure(
                    old, new, rule.direction, margin, level, self.is_paired
                )
        return found

    @property
    def verdict(self) -> Verdict:
        """Returns whether `after` is better, worse, not different beyond the margin, or whether
        that is undecided.
        """
        return self.differences[self.metric].verdict

    @property
    def sentence(self) -> str:
        """Says what was found: by how much, in how many seeds and at what cost."""
        found, seeds = self.differences[self.metric], len(self.after)
        by = f"{signed(found.mean)} {interval(found)} {self.metric}"
        if found.verdict == "undecided":
            need = f"about {found.needed}" if found.needed else f"more than {MOST_NEEDED:,}"
            text = f"undecided after {seeds} seeds: {by}; {need} would decide"
        elif found.verdict != "no difference":
            wins = found.better_in if found.verdict == "better" else seeds - found.better_in
            less = f"; less than {self.allowed}" if abs(found.mean) < self.margin else ""
            text = f"{found.verdict}: {by}, in {wins} of {seeds} seeds{less}"
        elif found.each.any():
            text = f"no difference that matters: {by} over {seeds} seeds, within {self.allowed}"
        else:
            same = "; the weights are the same bytes" if self.has_same_weights else ""
            text = f"no difference: {self.metric} is equal in all {seeds} seeds{same}"
        lost = [sum(not run.scores for run in side) for side in self.sides]
        diverged = f" Diverged: {lost[0]} seeds before, {lost[1]} after." if any(lost) else ""
        old, new = (sum(run.cpu_seconds for run in side) for side in self.sides)
        cost = f" It takes {new / old:.2f} times the CPU seconds." if new + old > 0 else ""
        return f"{self.model}, {self.change}: {text}.{diverged}{cost}"

    @property
    def sides(self) -> tuple[Sequence[Run], Sequence[Run]]:
        return self.before, self.after

    @property
    def allowed(self) -> str:
        tolerances = {rule.metric: rule.tolerance for rule in self.rules}
        who = "the gate" if tolerances[self.metric] == self.margin else "the margin"
        return f"the {self.margin:g} that {who} tolerates"

    @property
    def has_same_weights(self) -> bool:
        """Returns whether the weights of each seed are the same bytes on both sides."""
        pairs = zip(*self.sides, strict=True)
        return all(old.weights and old.weights == new.weights for old, new in pairs)

    @property
    def table(self) -> Table:
        """Returns a row for each gated metric, as text by column."""
        return [
            {
                "metric": metric,
                "before": f"{found.before:.4g}",
                "after": f"{found.after:.4g}",
                "difference (95 %)": f"{signed(found.mean)} {interval(found)}",
                "better in": f"{found.better_in} of {len(self.after)}",
                "verdict": found.verdict + " (uncorrected)" * (metric != self.metric),
            }
            for metric, found in self.differences.items()
        ]

    @property
    def costs(self) -> Table:
        """Returns a row for what each side took, as text by column, where it was measured."""
        numbers: dict[str, list[float]] = {
            "CPU seconds a seed": [
                sum(run.cpu_seconds for run in side) / len(side) for side in self.sides
            ],
            "peak memory, GiB": [
                max(run.peak_memory for run in side) / 2**30 for side in self.sides
            ],
        }
        rows = {
            name: [f"{value:.3g}" for value in values]
            for name, values in numbers.items()
            if np.isfinite(values).all()
        }
        curves = [mean_curve(side, self.curves[0]) for side in self.sides if self.curves]
        if len(curves) == 2 and all(len(steps) for steps, _ in curves):
            first, *_, last = curves[0][1]
            level = first + LEVEL * (last - first)
            reached = [first_step(*curve, level) for curve in curves]
            rows[f"steps to {self.curves[0]} {level:.4g}"] = reached
        return [{"cost": name, "before": old, "after": new} for name, (old, new) in rows.items()]

    @property
    def caveats(self) -> list[str]:
        """Returns what a reader has to know beside the sentence."""
        found, seeds = self.differences[self.metric], len(self.after)
        several = (
            f", corrected for looks after {', '.join(map(str, self.looks))} seeds"
            if len(self.looks) > 1
            else ""
        )
        texts = [
            f"Only {self.metric} decides, by the 95 % interval of the mean difference over "
            f"seeds{several}: 5 of 100 comparisons of equal sides are called better or worse.",
            "The other metrics are uncorrected: the more of them, the likelier one differs by "
            "chance.",
            f"What holds for these params, over {seeds} seeds, need not hold for others.",
        ]
        if not self.is_paired:
            texts.append("The sides have worlds of their own, so that their seeds are no pairs.")
        elif math.isfinite(found.correlation):
            helps = "makes" if found.correlation > 0 else "does not make"
            texts.append(
                "Both sides have the same seeds, and so the same worlds. Scores of a pair "
                f"correlate by {found.correlation:.2f}, which {helps} the interval narrower."
            )
        if any(run.scores.get(self.metric) is None for side in self.sides for run in side):
            texts.append("A training that diverged counts as the worst score of both sides.")
        return texts

    def plots(self) -> "dict[str, Figure]":
        """Draws the differences against zero and what is tolerated, and the learning curves."""
        from quatrain.comparison_plots import draw

        return draw(self)

    def to_json(self) -> str:
        """Returns everything but the curves as JSON: what was found, and each training."""
        before, after = ([run._replace(history={})._asdict() for run in s] for s in self.sides)
        differences = {
            metric: found._asdict() | {"each": found.each.tolist()}
            for metric, found in self.differences.items()
        }
        found = {
            **{name: getattr(self, name) for name in ("model", "change", "verdict", "sentence")},
            **{name: getattr(self, name) for name in ("metric", "margin", "looks", "is_paired")},
            "level": nominal_level(self.looks),
            "differences": differences,
            "before": before,
            "after": after,
        }
        return to_json(found, indent=1, inf_nan_mode="null").decode()

    def __repr__(self) -> str:
        return f"<quatrain.Comparison {self.sentence}>"

    def _repr_html_(self) -> str:
        lines = "".join(f"<li>{escape(text)}</li>" for text in self.caveats)
        tables = "".join(html_table(rows) for rows in (self.table, self.costs) if rows)
        return f"<p><b>{escape(self.sentence)}</b></p>{tables}<ul>{lines}</ul>"


def mean_curve(side: Sequence[Run], metric: str) -> tuple[np.ndarray, np.ndarray]:
    """Returns steps and mean over the seeds that recorded a metric; empty ones if none did."""
    curves = [run.history[metric] for run in side if metric in run.history]
    if not curves:
        return np.zeros(0), np.zeros(0)
    length = min(len(steps) for steps, _ in curves)
    return curves[0][0][:length], np.mean([values[:length] for _, values in curves], 0)


def first_step(steps: np.ndarray, values: np.ndarray, level: float) -> str:
    """Formats the first step at which values are beyond a level, seen from the first of them."""
    reached = values >= level if values[0] < level else values <= level
    return f"{steps[reached.argmax()]:,}" if reached.any() else "never"


def signed(value: float) -> str:
    return f"{value + 0.0:+.3g}"


def interval(found: Difference) -> str:
    return f"({signed(found.low)} to {signed(found.high)})"


def html_table(rows: Table) -> str:
    lines = [
        "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in cells)
        for tag, cells in (("th", rows[0]), *(("td", row.values()) for row in rows))
    ]
    return "<table>" + "".join(f"<tr>{line}</tr>" for line in lines) + "</table>"
