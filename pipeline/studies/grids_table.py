"""scores of allo on maps, seed by seed -> a table with intervals, and lines about the goals."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from pipeline.judging.render import markdown_table
from quatrain.baselines import Rule
from quatrain.statistics import format_mean

# Vectors of equal eigenvalues count as one space, as in the paper's code.
PAPER_METRIC = "cosine_paper"
HEAD = (
    "map",
    "states",
    "seeds",
    "cosine",
    "min",
    "random",
    "largest group",
    "random, unscaled",
    "without groups",
    "orthogonality",
    "paper's metric",
    "its random",
    "its ceiling",
    "paper ALLO",
    "index-wise",
    "its random",
    "λ error: quotient",
    "corrected dual",
    "dual",
    "seconds",
)


class MapResult(NamedTuple):
    """Holds the scores of each seed on one map."""

    name: str
    by_seed: Sequence[Mapping[str, float | None]]

    def values(self, metric: str) -> np.ndarray:
        """Returns the metric of each seed; empty where it does not exist."""
        scores = [each.get(metric) for each in self.by_seed]
        return np.array([score for score in scores if score is not None], float)


def grids_table(results: Sequence[MapResult], paper: Mapping[str, Any]) -> str:
    """Formats a row for each map, with '-' for numbers that do not exist for it."""
    return markdown_table(HEAD, [_cells(result, paper) for result in results])


def _cells(result: MapResult, paper: Mapping[str, Any]) -> list[str]:
    reference = paper["layouts"].get(result.name, {}).get("allo")
    return [
        result.name,
        _mean(result, "states", decimals=0),
        str(len(result.by_seed)),
        _with_interval(result, "cosine_mean"),
        _mean(result, "cosine_min"),
        _mean(result, "floor_random", decimals=2),
        _mean(result, "group_largest", decimals=0),
        _mean(result, "random_unscaled", decimals=2),
        _mean(result, "cosine_single"),
        _mean(result, "orthogonality", decimals=3),
        _with_interval(result, PAPER_METRIC),
        _mean(result, "random_paper", decimals=2),
        _mean(result, "ceiling_paper"),
        "-" if reference is None else f"{reference:.4f}",
        _with_interval(result, "cosine_index"),
        _mean(result, "random_index", decimals=2),
        _mean(result, "eigenvalue_error_rayleigh", decimals=5),
        _mean(result, "eigenvalue_error_corrected", decimals=5),
        _mean(result, "eigenvalue_error_dual", decimals=5),
        _mean(result, "seconds", decimals=0),
    ]


def _mean(result: MapResult, metric: str, decimals: int = 4) -> str:
    values = result.values(metric)
    return f"{values.mean():.{decimals}f}" if len(values) else "-"


def _with_interval(result: MapResult, metric: str) -> str:
    values = result.values(metric)
    return format_mean(values, 4) if len(values) else "-"


def goal_lines(
    results: Sequence[MapResult],
    rules: Sequence[Rule],
    paper: Mapping[str, Any],
) -> list[str]:
    """Returns on how many maps the goals are reached by every seed, and which maps miss them.

    Goals are those of the gate's rules, and the paper's scores. These are means over 60 seeds, so
    that the mean is compared with them, too.
    """
    lines = [_rule_line(rule, rule.goal, results) for rule in rules if rule.goal is not None]
    theirs = {name: scores["allo"] for name, scores in paper["layouts"].items()}
    compared = [each for each in results if each.name in theirs and len(each.values(PAPER_METRIC))]
    if not compared:
        return lines
    what = "paper's metric is at least the paper's ALLO"
    return [
        *lines,
        _goal(
            f"{what} in the mean",
            compared,
            lambda each: bool(each.values(PAPER_METRIC).mean() >= theirs[each.name]),
        ),
        _goal(
            f"{what} by every seed",
            compared,
            lambda each: _every(each, PAPER_METRIC, lambda scores: scores >= theirs[each.name]),
        ),
    ]


def _rule_line(rule: Rule, goal: float, results: Sequence[MapResult]) -> str:
    if rule.direction == "higher":
        return _goal(
            f"{rule.metric} is at least {goal} by every seed",
            results,
            lambda each: _every(each, rule.metric, lambda scores: scores >= goal),
        )
    return _goal(
        f"{rule.metric} is at most {goal} by every seed",
        results,
        lambda each: _every(each, rule.metric, lambda scores: scores <= goal),
    )


def _every(
    result: MapResult,
    metric: str,
    good: Callable[[np.ndarray], np.ndarray],
) -> bool:
    """Returns whether every seed has a good score; a score that is missing or NaN is none."""
    scores = result.values(metric)
    return len(scores) == len(result.by_seed) and bool(good(scores).all())


def _goal(
    what: str,
    results: Sequence[MapResult],
    reached: Callable[[MapResult], bool],
) -> str:
    missed = [each.name for each in results if not reached(each)]
    line = f"{what} on {len(results) - len(missed)} of {len(results)} maps"
    return f"{line}; not on {', '.join(missed)}" if missed else line
