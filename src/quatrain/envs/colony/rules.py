"""What a colony depends on, and the sizes that follow from it."""

from typing import Literal, NamedTuple

PARAMETERS = ("delete_ratio", "gamma", "alpha", "noise", "theta")
"""The five numbers of an action, in order; theta in radians, noise in pixels."""
RUNNING, SUCCESS, OVERFLOW, EXTINCT, LEFT_DRIFT, TIMEOUT, OUT_OF_BOUNDS = range(7)
"""Reasons why an episode ends; only TIMEOUT truncates. OUT_OF_BOUNDS is reserved: the spawn law clamps."""
REASONS = ("running", "success", "overflow", "extinct", "left_drift", "timeout", "out_of_bounds")
START_WIDTH = 0.1
"""Share of the width in which colonies begin."""
MARGIN, LEAST_MARGIN = 0.01, 2.0
"""Cells keep so far from the sides of the plate: a share of each, and pixels at least."""
NODE_FEATURES = {"light": 8, "full": 11}
GRAPH_FEATURES = {"light": 10, "full": 19}


class Bounds(NamedTuple):
    """Of one number of an action."""

    low: float
    high: float


class Rules(NamedTuple):
    """Everything that colonies depend on beside their plates; hashable.

    width, height: of the plate in pixels; its stiffness rises with x. max_nodes: more cells are an overflow.
    target_nodes: the size to hold. n0_min..n0_max: cells at the start. y_center: range of the start's middle, and
    y_spread: cells lie so far around it; both are fractions of the height. left_limit: moves of the centroid to the
    left in a row that end an episode. delta_time (steps), delta_intensity: of the reward preset `full`. bounds: of
    PARAMETERS. reward: component -> weight.
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


COMPONENTS = (
    *("progress", "growth", "metabolic", "lane", "time", "terminal"),
    *("distance", "first_step", "terminal_scaled", "growth_penalty", "delete_penalty"),
    *(
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
    ),
    "terminal_raw",
)
"""What a reward can be made of; each is a function of rewards.py."""
REWARDS: dict[str, dict[str, float]] = {
    "goal_control": {
        "progress": 10,
        "growth": 0.25,
        "metabolic": 0.05,
        "lane": 0.4,
        "time": 0.02,
        "terminal": 2,
    },
    "centroid_distance_only": {"distance": 1, "terminal_scaled": 1},
    "simple_delete_only": {"growth_penalty": 1, "delete_penalty": 1, "terminal_scaled": 1},
    "full": dict.fromkeys(
        (
            *(
                "growth_full",
                "action",
                "centroid",
                "spawn",
                "delete",
                "efficiency",
                "edge",
                "node",
                "survival",
            ),
            *("milestone", "terminal_raw"),
        ),
        1.0,
    ),
}
"""Presets: component -> weight."""


def margins(rules: Rules) -> tuple[float, float]:
    """Pixels that children keep from the left and right, and from the upper and lower side."""
    return max(LEAST_MARGIN, MARGIN * rules.width), max(LEAST_MARGIN, MARGIN * rules.height)


def goal(rules: Rules) -> float:
    """The x that a cell must reach: where it can go no further."""
    return rules.width - margins(rules)[0]


def reach(rules: Rules) -> float:
    """Pixels from where colonies begin, at most, to the goal."""
    return goal(rules) - START_WIDTH * rules.width
