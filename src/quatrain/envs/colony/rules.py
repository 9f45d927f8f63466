"""The constants of colonies: codes, names and presets."""

from typing import NamedTuple

# The five numbers of an action, in order; theta in radians, noise in pixels.
PARAMETERS = ("delete_ratio", "gamma", "alpha", "noise", "theta")
# Reasons why an episode ends; only TIMEOUT truncates. OUT_OF_BOUNDS never occurs: children are
# clamped.
RUNNING, SUCCESS, OVERFLOW, EXTINCT, LEFT_DRIFT, TIMEOUT, OUT_OF_BOUNDS = range(7)
REASONS = ("running", "success", "overflow", "extinct", "left_drift", "timeout", "out_of_bounds")
# Share of the width in which colonies begin.
START_WIDTH = 0.1
# Distance of cells from the sides of the plate, as a share of width or height.
MARGIN = 0.01
# Minimum of that distance, in pixels.
LEAST_MARGIN = 2.0
NODE_FEATURES = {"light": 8, "full": 11}
GRAPH_FEATURES = {"light": 10, "full": 19}


class Bounds(NamedTuple):
    """Holds the range of one number of an action."""

    low: float
    high: float


# Components of a reward; rewards.py has a function for each.
COMPONENTS = (
    "progress",
    "growth",
    "metabolic",
    "lane",
    "time",
    "terminal",
    "forfeit",
    "distance",
    "first_step",
    "terminal_scaled",
    "growth_full",
    "action",
    "centroid",
    "spawn",
    "delete",
    "efficiency",
    "edge",
    "node",
    "survival",
    "milestone",
    "terminal_raw",
)
GOAL_CONTROL = {
    "progress": 10.0,
    "growth": 0.25,
    "metabolic": 0.05,
    "lane": 0.4,
    "time": 0.02,
    "terminal": 2.0,
}
# Presets: component -> weight. In goal_control a colony that ends at once avoids the costs of steps
# without progress; in goal_control_safe it pays them, so that staying at the right size is better.
REWARDS: dict[str, dict[str, float]] = {
    "goal_control": GOAL_CONTROL,
    "goal_control_safe": GOAL_CONTROL | {"forfeit": 1.0},
    "centroid_distance_only": {"distance": 1, "terminal_scaled": 1},
    "full": dict.fromkeys(COMPONENTS[COMPONENTS.index("growth_full") :], 1.0),
}
