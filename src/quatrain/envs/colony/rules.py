"""The rules of a colony, and the sizes that follow from them."""

from typing import Literal, NamedTuple

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


class Rules(NamedTuple):
    """Holds everything that colonies depend on beside their plates; hashable.

    width, height: of the plate in pixels; its stiffness rises with x. max_nodes: more cells are an
    overflow. target_nodes: size to hold. n0_min, n0_max: range of the number of cells at the start.
    y_center: range of the middle of the start, and y_spread: distance of cells from it; both are
    shares of the height. left_limit: moves of the centroid to the left in a row that end an
    episode. delta_time (steps), delta_intensity: parameters of the reward preset `full`. bounds:
    one per item of PARAMETERS. reward: (component, weight).
    """

    width: int
    height: int
    max_nodes: int
    target_nodes: int
    n0_min: int
    n0_max: int
    y_center: tuple[float, float]
    y_spread: float
    max_steps: int
    left_limit: int
    delta_time: int
    delta_intensity: float
    features: Literal["light", "full"]
    bounds: tuple[Bounds, ...]
    reward: tuple[tuple[str, float], ...]
    check_actions: bool


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
    "growth_penalty",
    "delete_penalty",
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
    "simple_delete_only": {"growth_penalty": 1, "delete_penalty": 1, "terminal_scaled": 1},
    "full": dict.fromkeys(COMPONENTS[COMPONENTS.index("growth_full") :], 1.0),
}


def margins(rules: Rules) -> tuple[float, float]:
    """Returns the pixels between children and the left or right side, and between them and the
    other sides.
    """
    return max(LEAST_MARGIN, MARGIN * rules.width), max(LEAST_MARGIN, MARGIN * rules.height)


def goal(rules: Rules) -> float:
    """Returns the x that a cell must reach, which is the largest possible one."""
    return rules.width - margins(rules)[0]


def reach(rules: Rules) -> float:
    """Returns the pixels between the right end of the start area and the goal."""
    return goal(rules) - START_WIDTH * rules.width
