"""Config of colonies: plate and size, actions of a policy, rewards."""

import math
import warnings
from typing import Annotated, Literal, NamedTuple

from pydantic import Field

from quatrain.section import Section, among, at_most, below

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

LARGEST = 1e6

Parameter = Literal["delete_ratio", "gamma", "alpha", "noise", "theta"]
Number = Annotated[float, Field(ge=-LARGEST, le=LARGEST)]
Interval = tuple[Number, Number]


class ActionBounds(Section):
    """Holds the lowest and highest value of each number of an action."""

    delete_ratio: Interval = Field(
        description="share of the cells, the leftmost, that are removed; within 0..1"
    )
    gamma: Interval = Field(
        description="pixels: distance of a child from its parent on stiff ground"
    )
    alpha: Interval = Field(description="stiffness at which that distance is halved")
    noise: Interval = Field(description="pixels added to each distance; not random")
    theta: Interval = Field(description="radians: direction of a child; within ±π/2")

    def check(self) -> None:
        limits = {"delete_ratio": (0.0, 1.0), "theta": (-math.pi / 2, math.pi / 2)}
        for name in PARAMETERS:
            low, high = getattr(self, name)
            bounds = f"{name}: [{low:g}, {high:g}]"
            if not low < high:
                raise ValueError(f"{bounds} is no range; the first must be less than the second")
            least, most = limits.get(name, (0.0, LARGEST))
            allowed = f"within {least:.4g}..{most:.4g}" if name in limits else "above 0"
            if low < least or high > most or (name not in limits and low == 0):
                raise ValueError(f"{bounds} must lie {allowed}")


class Action(Section):
    """Holds which numbers of an action the policy chooses, and the values of the others."""

    bounds: ActionBounds
    active_params: tuple[Parameter, ...] = Field(
        min_length=1, description="numbers that the policy chooses; the others are fixed_params"
    )
    fixed_params: dict[str, float] = Field(description="value of each number that is not active")

    def __hash__(self) -> int:  # a dictionary has none
        return hash((self.bounds, self.active_params))

    def check(self) -> None:
        active = self.active_params
        if active != tuple(name for name in PARAMETERS if name in active):
            order = ", ".join(PARAMETERS)
            raise ValueError(f"active_params: name each once, in this order: {order}")
        inactive = [name for name in PARAMETERS if name not in active]
        if set(self.fixed_params) != set(inactive):
            others = ", ".join(inactive) or "none"
            raise ValueError(f"fixed_params must give exactly those that are not active: {others}")
        for name, value in self.fixed_params.items():
            low, high = getattr(self.bounds, name)
            if not low <= value <= high:
                bounds = f"[{low:g}, {high:g}]"
                raise ValueError(f"fixed_params.{name} {value:g} is outside its bounds {bounds}")


class Reward(Section):
    """Holds the weights of the components of a reward."""

    preset: Literal["goal_control", "goal_control_safe", "centroid_distance_only", "full"] = Field(
        description="goal_control_safe: ending early does not pay"
    )
    weights: dict[str, Annotated[float, Field(ge=-LARGEST, le=LARGEST)]] = Field(
        description="component -> weight, in addition to the preset; 0 removes a component"
    )

    @property
    def weighted(self) -> tuple[tuple[str, float], ...]:
        """Returns the components of nonzero weight, and their weights."""
        weights = {**REWARDS[self.preset], **self.weights}
        return tuple((name, float(weights[name])) for name in COMPONENTS if weights.get(name))

    def __hash__(self) -> int:
        return hash(self.weighted)

    def check(self) -> None:
        among("weights", self.weights, COMPONENTS)
        if not self.weighted:
            raise ValueError(
                "all weights are 0: nothing can be learned; give one component a weight"
            )


class Env(Section):
    """Configures a colony of cells that grows towards the stiff side of a plate."""

    width: int = Field(ge=50, le=100_000, description="pixels; the plate's stiffness rises with x")
    height: int = Field(ge=50, le=100_000, description="pixels")
    max_nodes: int = Field(
        ge=8, le=4096, description="more cells are an overflow, which ends the episode"
    )
    target_nodes: int = Field(ge=2, description="cells that the colony should hold")
    n0_min: int = Field(ge=1, description="cells at the start, at least")
    n0_max: int = Field(ge=1, description="cells at the start, at most")
    y_center: Interval = Field(
        description="middle of the start, drawn from this range; shares of the height"
    )
    y_spread: float = Field(
        ge=0,
        le=0.5,
        description="largest distance of cells from it at the start; a share of the height",
    )
    max_steps: int = Field(
        ge=1, le=100_000, description="steps after which an episode is truncated"
    )
    left_limit: int = Field(ge=1, description="consecutive moves to the left that end an episode")
    delta_time: int = Field(ge=1, description="reward `full`: steps after which a cell has settled")
    delta_intensity: float = Field(
        ge=-LARGEST, le=LARGEST, description="reward `full`: stiffness that a good child gains"
    )
    features: Literal["light", "full"] = Field(
        description="observed features: light, or all of the original"
    )
    obs_norm: Literal["dataset", "none"] = Field(
        description="dataset: by mean and standard deviation of collected observations"
    )
    allow_unbounded_growth: bool = Field(
        description="accept bounds under which every colony overflows"
    )
    check_actions: bool = Field(
        description="raise an error for actions outside their bounds, in every step"
    )
    action: Action
    reward: Reward

    @property
    def bounds(self) -> tuple[Bounds, ...]:
        """Returns the range of each of PARAMETERS."""
        return tuple(Bounds(*getattr(self.action.bounds, name)) for name in PARAMETERS)

    @property
    def reward_weights(self) -> tuple[tuple[str, float], ...]:
        return self.reward.weighted

    @property
    def margins(self) -> tuple[float, float]:
        """Returns the pixels between children and the left or right side, and between them and the
        other sides.
        """
        return max(LEAST_MARGIN, MARGIN * self.width), max(LEAST_MARGIN, MARGIN * self.height)

    @property
    def goal(self) -> float:
        """Returns the x that a cell must reach, which is the largest possible one."""
        return self.width - self.margins[0]

    def check(self) -> None:
        at_most(self, "n0_max", "max_nodes", "lower it, or colonies overflow at reset")
        at_most(self, "n0_min", "n0_max")
        below(self, "target_nodes", "max_nodes")
        low, high = self.y_center
        if not (self.y_spread <= low <= high <= 1 - self.y_spread):
            raise ValueError(
                f"y_center [{low:g}, {high:g}] with y_spread {self.y_spread:g} leaves the plate: "
                f"both ends must lie in [{self.y_spread:g}, {1 - self.y_spread:g}], "
                "the first not above the second"
            )
        self._check_colonies_can_shrink()
        self._check_goal_can_be_reached()

    def _check_colonies_can_shrink(self) -> None:
        fixed = self.action.fixed_params.get("delete_ratio")
        highest = self.action.bounds.delete_ratio[1]
        if fixed is None:
            can_shrink = highest > 0.5
            key = f"bounds.delete_ratio upper bound {highest:g} is not above 0.5"
            remedy = "the bound (0.7)"
        else:
            can_shrink = fixed >= 0.5
            key = f"fixed_params.delete_ratio {fixed:g} is below 0.5"
            remedy = "it"
        if not (self.allow_unbounded_growth or can_shrink):
            raise ValueError(
                f"action.{key}: n' = 2(n - floor(r n)) can then never shrink and each colony "
                f"overflows; raise {remedy} or set env.allow_unbounded_growth: true."
            )

    def _check_goal_can_be_reached(self) -> None:
        highest = {name: getattr(self.action.bounds, name)[1] for name in ("gamma", "noise")}
        longest = sum(self.action.fixed_params.get(name, high) for name, high in highest.items())
        distance = self.goal - START_WIDTH * self.width
        if self.max_steps * longest < distance:
            problem = (
                f"env.max_steps {self.max_steps} x longest spawn {longest:g} px < {distance:g} px "
                "to the goal: success is impossible; raise max_steps or gamma."
            )
            if self.reward.preset.startswith("goal_control"):
                raise ValueError(problem)
            warnings.warn(f"actor_critic.{problem}", stacklevel=2)
