"""trainings of two sides over the same seeds -> which side is better, or how many seeds would tell.

The unit is a seed, never an episode. Seeds come in batches; after each, an interval of the mean
difference decides or asks for more. It is a repeated confidence interval (Jennison and Turnbull,
1984), with one nominal level for all looks (Pocock, 1977): equal sides are called different in 5 %
of comparisons, however many looks they take.
"""

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from html import escape
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
from jaxtyping import Float
from pydantic_core import to_json

from quatrain.baselines import NOTHING, Direction, Rule
from quatrain.envs.host.score import ORIGIN, on_scale_of
from quatrain.errors import ConfigError, TrainingDiverged
from quatrain.progress import History
from quatrain.seeds import SEEDS_OF_INTERVAL
from quatrain.statistics import half_interval

if TYPE_CHECKING:  # loading a command must not load matplotlib
    from quatrain.plots import Figure

Verdict = Literal["better", "worse", "no difference", "differs", "undecided"]
Scores = Mapping[str, float | None]
Values = Float[np.ndarray, " seeds"]
Table = list[dict[str, str]]

# How often equal sides may be called different.
ERROR = 0.05
BATCHES = (4, 8, 16)
# Simulated comparisons by which the nominal level is found.
SIMULATED = 500_000
# Largest number of seeds that is said to be needed.
MOST_NEEDED = 1000
# Ratio of CPU seconds up to which they are called the same.
SAME_COST = 1.1
# A level of a curve, as a share of the old side's way from its first point to its last.
LEVEL = 0.9


class Run(NamedTuple):
    """Holds a training of one side.

    scores: none if it diverged. weights: their digest. peak_memory: bytes. NaN: not measured.
    """

    seed: int
    scores: Scores = NOTHING
    history: History = NOTHING
    weights: str = ""
    cpu_seconds: float = math.nan
    peak_memory: float = math.nan


class Difference(NamedTuple):
    """Holds how a metric differs over seeds, `after` - `before`: means, and the interval's ends.

    each: of the pairs. better_in: pairs in which `after` is better; None without pairs or best end.
    correlation: of the pairs. needed: seeds that would decide with the same mean and deviation;
    None if that is decided, or more than MOST_NEEDED.
    """

    before: float
    after: float
    mean: float
    low: float
    high: float
    each: Values
    better_in: int | None
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
    from scipy import special

    counts, rng = np.array(looks), np.random.default_rng(0)
    new = np.diff(counts, prepend=0)  # whose sums and squares are drawn as such
    shape = (SIMULATED, len(looks))
    sums = rng.standard_normal(shape) * np.sqrt(new)
    within = np.where(new > 1, rng.chisquare(np.maximum(new - 1, 1), shape), 0.0)
    means, squares = (np.cumsum(each, 1) / counts for each in (sums, sums**2 / new + within))
    error = np.sqrt((squares - means**2) / (counts - 1))
    chance = 2 * special.stdtr(counts - 1, -np.abs(means / error))
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

    NaN, of a training that diverged, counts as worse by the margin than the worst score of both
    sides, which are alike only if both diverged as often. margin: differences up to this do not
    matter. level: how often the interval may miss the truth.
    """
    sign = -1.0 if direction == "lower" else 1.0
    scores = sign * np.array([before, after])
    lowest, highest = np.nanmin(scores), np.nanmax(scores)
    worst = lowest - (margin or float(lowest == highest))
    old, new = (np.where(np.isnan(side), sign * worst, side) for side in (before, after))
    each = new - old
    mean = float(each.mean())
    error, freedom = standard_error(old, new, is_paired)
    half = t_quantile(level, freedom) * error
    verdict = judge(mean - half, mean + half, direction, margin)
    if verdict == "no difference" and np.isnan(before).sum() != np.isnan(after).sum():
        verdict = "undecided"
    has_correlation = is_paired and old.std() > 0 and new.std() > 0
    return Difference(
        before=float(old.mean()),
        after=float(new.mean()),
        mean=mean,
        low=mean - half,
        high=mean + half,
        each=each,
        better_in=int((sign * each > 0).sum()) if is_paired and direction != "near" else None,
        correlation=float(np.corrcoef(old, new)[0, 1]) if has_correlation else math.nan,
        verdict=verdict,
        needed=seeds_needed(each, error, margin, level) if verdict == "undecided" else None,
    )


def judge(low: float, high: float, direction: Direction, margin: float) -> Verdict:
    """Returns what an interval of `after` - `before` says."""
    if low > 0 or high < 0:
        if direction == "near":
            return "differs"
        return "better" if (low > 0) == (direction == "higher") else "worse"
    return "no difference" if max(-low, high) <= margin else "undecided"


def standard_error(old: Values, new: Values, is_paired: bool) -> tuple[float, float]:
    """Computes the standard error of the mean difference and its degrees of freedom: of pairs, or
    of two means (Welch, 1947).
    """
    freedom = len(old) - 1.0
    if is_paired:
        return float((new - old).std(ddof=1)) / math.sqrt(len(old)), freedom
    squares = np.array([old.var(ddof=1), new.var(ddof=1)]) / len(old)
    total = float(squares.sum())
    if total:
        freedom *= total**2 / float((squares**2).sum())
    return math.sqrt(total), freedom


def seeds_needed(each: Values, error: float, margin: float, level: float) -> int | None:
    count, mean = len(each), abs(float(each.mean()))
    counts = range(count + 1, MOST_NEEDED + 1)

    def decides(seeds: int) -> bool:
        half = t_quantile(level, seeds - 1.0) * error * math.sqrt(count / seeds)
        return half < max(mean, margin - mean)

    first = bisect_left(counts, True, key=decides)
    return counts[first] if first < len(counts) else None


def t_quantile(level: float, freedom: float) -> float:
    from scipy import special

    return float(special.stdtrit(freedom, 1 - level / 2))


def in_words(difference: Difference, metric: str, margin: float, who: str = "the gate") -> str:
    """Says how a metric differs, in a part of a sentence; `who` tolerates the margin."""
    seeds, allowed = len(difference.each), f"the {margin:g} that {who} tolerates"
    by = f"{with_interval(difference)} {metric}"
    if difference.verdict == "undecided":
        need = f"about {difference.needed}" if difference.needed else f"more than {MOST_NEEDED:,}"
        return f"undecided after {seeds} seeds: {by}; {need} would decide"
    if difference.verdict != "no difference":
        count = (difference.each * difference.mean > 0).sum()
        pairs = "" if difference.better_in is None else f", in {count} of {seeds} seeds"
        less = f"; less than {allowed}" if abs(difference.mean) < margin else ""
        return f"{difference.verdict}: {by}{pairs}{less}"
    if difference.each.any():
        return f"no difference that matters: {by} over {seeds} seeds, within {allowed}"
    return f"no difference: {metric} is equal in all {seeds} seeds"


@dataclass(frozen=True, eq=False, repr=False)
class Comparison:
    """Holds what a change did to a model: trainings before and after it.

    Attributes:
        model: its name.
        change: what differs, in a few words.
        before, after: trainings; those at the same place have the same seed.
        rules: of the compared metrics.
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
        """Returns each compared metric of both sides, the one that decides first.

        Raises:
            TrainingDiverged: no training has the metric that decides.
        """
        level = nominal_level(self.looks)
        scored = [scores for side in self.scores for scores in side if scores]
        differences = {}
        for rule in sorted(self.rules, key=lambda rule: rule.metric != self.metric):
            old, new = (
                np.array([scores.get(rule.metric) for scores in side], float)
                for side in self.scores
            )
            is_of_both = all(rule.metric in scores for scores in scored)
            if is_of_both and not np.isnan([old, new]).all():
                differences[rule.metric] = measure(
                    old, new, rule.direction, self.margin_of(rule), level, self.is_paired
                )
            elif rule.metric == self.metric:
                raise TrainingDiverged(
                    f"{self.model}: {self.metric} is in no scores of either side"
                )
        return differences

    def margin_of(self, rule: Rule) -> float:
        """Returns which differences of a metric do not matter."""
        return self.margin if rule.metric == self.metric else rule.tolerance

    @property
    def verdict(self) -> Verdict:
        """Returns whether `after` is better, worse, not different beyond the margin, or whether
        that is undecided.
        """
        return self.differences[self.metric].verdict

    @property
    def sentence(self) -> str:
        """Says what was found: by how much, in how many seeds and at what cost."""
        tolerances = {rule.metric: rule.tolerance for rule in self.rules}
        who = "the gate" if tolerances[self.metric] == self.margin else "the margin"
        difference = self.differences[self.metric]
        text = in_words(difference, self.metric, self.margin, who)
        is_same = not difference.each.any() and self.has_same_weights
        same = "; the weights are the same bytes" if is_same else ""
        lost = [sum(not run.scores for run in side) for side in self.sides]
        diverged = f" Diverged: {lost[0]} seeds before, {lost[1]} after." if any(lost) else ""
        return f"{self.model}, {self.change}: {text}{same}.{diverged}{self.cost}"

    @property
    def cost(self) -> str:
        """Says how many times the CPU seconds `after` takes, if that is no chance: as on another
        day a machine may do other work beside.
        """
        old, new = self.cpu_seconds
        if not old.size:
            return ""
        ratios = np.log(new / old)
        if abs(ratios.mean()) <= max(half_interval(ratios), math.log(SAME_COST)):
            return " It costs the same."
        return f" It takes {math.exp(ratios.mean()):.2f} times the CPU seconds."

    @property
    def cpu_seconds(self) -> Float[np.ndarray, "sides seeds"]:
        """Returns the CPU seconds of the seeds in which both sides were measured."""
        seconds = np.array(
            [[run.cpu_seconds if run.scores else math.nan for run in side] for side in self.sides]
        )
        return seconds[:, (seconds > 0).all(0)]

    @property
    def seeds(self) -> int:
        return len(self.after)

    @property
    def sides(self) -> tuple[Sequence[Run], Sequence[Run]]:
        return self.before, self.after

    @property
    def scores(self) -> tuple[Sequence[Scores], Sequence[Scores]]:
        """Returns the scores of both sides; those of a pair are measured on one scale."""
        old, new = ([run.scores for run in side] for side in self.sides)
        if self.is_paired:
            new = [on_scale_of(*pair) for pair in zip(old, new, strict=True)]
        return old, new

    @property
    def has_same_weights(self) -> bool:
        """Returns whether the weights of each seed are the same bytes on both sides."""
        pairs = zip(*self.sides, strict=True)
        return all(old.weights and old.weights == new.weights for old, new in pairs)

    @property
    def table(self) -> Table:
        """Returns a row for each compared metric, as text by column."""
        rules = {rule.metric: rule for rule in self.rules}
        return [
            {
                "metric": metric,
                "best": rules[metric].direction,
                "before": f"{each.before:.4g}",
                "after": f"{each.after:.4g}",
                "difference (95 %)": with_interval(each),
                "tolerated": f"{self.margin_of(rules[metric]):g}",
                "better in": "-" if each.better_in is None else f"{each.better_in} of {self.seeds}",
                "verdict": each.verdict + " (uncorrected)" * (metric != self.metric),
            }
            for metric, each in self.differences.items()
        ]

    @property
    def costs(self) -> Table:
        """Returns a row for what each side took, as text by column, where it was measured."""
        seconds = self.cpu_seconds.mean(1) if self.cpu_seconds.size else [math.nan]
        memory = [np.max([run.peak_memory for run in side]) / 2**30 for side in self.sides]
        rows = {
            name: [f"{value:,.1f}" for value in values]
            for name, values in (("CPU seconds a seed", seconds), ("peak memory, GiB", memory))
            if np.isfinite(values).all()
        }
        for metric in self.curves[:1]:
            rows |= steps_to_level(self.sides, metric)
        return [{"cost": name, "before": old, "after": new} for name, (old, new) in rows.items()]

    @property
    def caveats(self) -> list[str]:
        """Returns what a reader has to know beside the sentence."""
        correlation = self.differences[self.metric].correlation
        looks = ", ".join(map(str, self.looks))
        texts = [
            f"The unit is a seed, a training of each side: {self.seeds} of at most "
            f"{self.looks[-1]}.",
            f"Only {self.metric} decides, by the 95 % interval of the mean difference over seeds, "
            f"corrected for all looks (after {looks} seeds): about 5 of 100 comparisons "
            "call equal sides better or worse, or sides that differ by more than is tolerated no "
            "different.",
            "The intervals of the other metrics are not corrected for being several: the more of "
            "them, the likelier one differs by chance.",
            f"Costs are the same up to {SAME_COST} times the CPU seconds, or within their noise.",
            "What holds for these params need not hold for others.",
        ]
        if not self.is_paired:
            texts.append("The sides have worlds of their own, so that their seeds are no pairs.")
        elif math.isfinite(correlation):
            helps = "makes" if correlation > 0 else "does not make"
            texts.append(
                "Both sides have the same seeds, and so the same worlds. Scores of a pair "
                f"correlate by {correlation:.2f}, which {helps} the interval narrower."
            )
        if self.is_paired and any(ORIGIN in run.scores for run in self.after):
            texts.append(
                "score of a pair is measured on the scale of `before`: its references, and the "
                "deviation of its random actions."
            )
        if any(run.scores.get(self.metric) is None for side in self.sides for run in side):
            texts.append("A training that diverged counts as worse than all scores of both sides.")
        return texts

    def plots(self) -> "dict[str, Figure]":
        """Draws the differences against zero and what is tolerated, and the learning curves."""
        from quatrain.comparison_plots import draw

        return draw(self)

    def to_json(self) -> str:
        """Returns everything but the curves as JSON: what was found, and each training."""
        names = ("model", "change", "verdict", "sentence", "metric", "margin", "looks", "is_paired")
        before, after = (
            [
                run._asdict() | {"scores": dict(scores), "history": {}}
                for run, scores in zip(side, side_scores, strict=True)
            ]
            for side, side_scores in zip(self.sides, self.scores, strict=True)
        )
        content = {name: getattr(self, name) for name in names} | {
            "level": nominal_level(self.looks),
            "differences": {name: each._asdict() for name, each in self.differences.items()},
            "before": before,
            "after": after,
        }
        return to_json(content, indent=1, inf_nan_mode="null", fallback=list).decode()

    def __repr__(self) -> str:
        return f"<quatrain.Comparison {self.sentence}>"

    def _repr_html_(self) -> str:
        lines = "".join(f"<li>{escape(text)}</li>" for text in self.caveats)
        tables = "".join(html_table(rows) for rows in (self.table, self.costs) if rows)
        return f"<p><b>{escape(self.sentence)}</b></p>{tables}<ul>{lines}</ul>"


def curves(side: Sequence[Run], metric: str) -> tuple[np.ndarray, np.ndarray] | None:
    """Returns steps, and values by seed, of the trainings that recorded a metric and ended; None
    if none did.
    """
    rows = [run.history[metric] for run in side if run.scores and metric in run.history]
    if not rows:
        return None
    length = min(len(steps) for steps, _ in rows)
    return rows[0][0][:length], np.stack([values[:length] for _, values in rows])


def steps_to_level(sides: Sequence[Sequence[Run]], metric: str) -> dict[str, list[str]]:
    """Returns when the mean curve of each side first reaches LEVEL of the old side's way."""
    recorded = [curve for side in sides if (curve := curves(side, metric))]
    if len(recorded) < len(sides):
        return {}
    means = [(steps, values.mean(0)) for steps, values in recorded]
    first, last = means[0][1][[0, -1]]
    level = first + LEVEL * (last - first)
    cells = []
    for steps, mean in means:
        reached = np.sign(last - first) * (mean - level) >= 0
        cells.append(f"{steps[reached.argmax()]:,}" if reached.any() else "never")
    return {f"training steps to {metric} {level:.4g}": cells}


def with_interval(difference: Difference) -> str:
    mean, low, high = (
        f"{value + 0.0:+.3g}" for value in (difference.mean, difference.low, difference.high)
    )
    return f"{mean} ({low} to {high})"


def html_table(rows: Table) -> str:
    lines = [
        "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in cells)
        for tag, cells in (("th", rows[0]), *(("td", row.values()) for row in rows))
    ]
    return "<table>" + "".join(f"<tr>{line}</tr>" for line in lines) + "</table>"
