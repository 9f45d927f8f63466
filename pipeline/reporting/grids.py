"""scores of allo on maps, seed by seed -> a table with intervals, and lines about the goals."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from pipeline.reporting.tables import markdown_table
from quatrain.statistics import half_interval

GOAL = 0.997
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
    "paper's metric",
    "its random",
    "its ceiling",
    "paper ALLO",
    "λ error: quotient",
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
        _with_interval(result, "cosine_paper"),
        _mean(result, "random_paper", decimals=2),
        _mean(result, "ceiling_paper"),
        "-" if reference is None else f"{reference:.4f}",
        _mean(result, "eigenvalue_relative_error_rayleigh"),
        _mean(result, "eigenvalue_relative_error_dual"),
        _mean(result, "seconds", decimals=0),
    ]


def _mean(result: MapResult, metric: str, decimals: int = 4) -> str:
    values = result.values(metric)
    return f"{values.mean():.{decimals}f}" if len(values) else "-"


def _with_interval(result: MapResult, metric: str) -> str:
    values = result.values(metric)
    if len(values) < 2:
        return _mean(result, metric)
    return f"{values.mean():.4f} ± {float(half_interval(values)):.4f}"


def goal_lines(results: Sequence[MapResult], paper: Mapping[str, Any]) -> list[str]:
    """Returns on how many maps the goals are reached, and which maps miss them."""
    below = [each.name for each in results if each.values("cosine_mean").mean() < GOAL]
    compared = [
        (each.name, each.values("cosine_paper").mean(), paper["layouts"][each.name]["allo"])
        for each in results
        if each.name in paper["layouts"] and len(each.values("cosine_paper"))
    ]
    behind = [name for name, ours, theirs in compared if ours < theirs]
    lines = [_goal(f"cosine is at least {GOAL}", len(results), below)]
    if compared:
        lines.append(_goal("paper's metric is at least the paper's ALLO", len(compared), behind))
    return lines


def _goal(what: str, maps: int, missed: Sequence[str]) -> str:
    line = f"{what} on {maps - len(missed)} of {maps} maps"
    return f"{line}; not on {', '.join(missed)}" if missed else line
