"""What an actor_critic run depends on: colonies and their reward, plates and floors, network, PPO, evaluation."""

import math
import warnings
from typing import Annotated, Literal

from pydantic import Field, model_validator

from quatrain.envs.colony.rules import COMPONENTS, PARAMETERS, REWARDS, Bounds, Rules, reach
from quatrain.section import NumbersOrNone, Section

LARGEST = 1e6
SOFTEST, STIFFEST = 1e-6, 1e12
"""Of a plate of one's own; what is softer counts as 1 (plates.FLOOR), and float32 has room for sums above."""
MAX_BYTES = 2**36
CELL_BYTES = 200
"""About what a slot for a cell takes while a step of its colony is computed."""

Parameter = Literal["delete_ratio", "gamma", "alpha", "noise", "theta"]
Interval = Annotated[
    tuple[Annotated[float, Field(ge=-LARGEST, le=LARGEST)], Annotated[float, Field(ge=-LARGEST, le=LARGEST)]],
    Field(strict=False),
]


class ActionBounds(Section):
    """Lowest and highest value of each number of an action."""

    delete_ratio: Interval = Field(description="share of the cells, the leftmost, that are removed; within 0..1")
    gamma: Interval = Field(description="pixels: how far a child is thrown where it is stiff")
    alpha: Interval = Field(description="stiffness at which it is thrown half as far")
    noise: Interval = Field(description="pixels that are added to each throw; not random")
    theta: Interval = Field(description="radians: its direction; within ±π/2")

    @model_validator(mode="after")
    def _are_ranges(self) -> "ActionBounds":
        limits = {"delete_ratio": (0.0, 1.0), "theta": (-math.pi / 2, math.pi / 2)}
        for name in PARAMETERS:
            low, high = getattr(self, name)
            if not low < high:
                raise ValueError(f"{name}: [{low:g}, {high:g}] is no range; the first must be less than the second")
            least, most = limits.get(name, (0.0, LARGEST))
            if low < least or high > most or (name not in limits and low == 0):
                wanted = f"within {least:.4g}..{most:.4g}" if name in limits else "above 0"
                raise ValueError(f"{name}: [{low:g}, {high:g}] must lie {wanted}")
        return self


class Action(Section):
    """What the policy chooses in each step, and what stands still."""

    bounds: ActionBounds
    active_params: tuple[Parameter, ...] = Field(
        min_length=1, strict=False, description="what the policy chooses; the others are fixed_params"
    )
    fixed_params: dict[str, float] = Field(description="value of each number that is not active")

    @model_validator(mode="after")
    def _each_parameter_once(self) -> "Action":
        active, fixed = self.active_params, set(self.fixed_params)
        if active != tuple(name for name in PARAMETERS if name in active):
            raise ValueError(f"active_params: name each once, in this order: {', '.join(PARAMETERS)}")
        if fixed != set(PARAMETERS) - set(active):
            others = ", ".join(name for name in PARAMETERS if name not in active) or "none"
            raise ValueError(f"fixed_params must give exactly those that are not active: {others}")
        for name, value in self.fixed_params.items():
            low, high = getattr(self.bounds, name)
            if not low <= value <= high:
                raise ValueError(f"fixed_params.{name} {value:g} is outside its bounds [{low:g}, {high:g}]")
        return self


class Reward(Section):
    """What a step pays: components times weights."""

    preset: Literal["goal_control", "centroid_distance_only", "simple_delete_only", "full"]
    weights: dict[str, Annotated[float, Field(ge=-LARGEST, le=LARGEST)]] = Field(
        description="component -> weight, in place of the preset's or beside them; 0 leaves one out"
    )

    @property
    def weighted(self) -> tuple[tuple[str, float], ...]:
        """Components that count, and their weights."""
        chosen = {**REWARDS[self.preset], **self.weights}
        return tuple((name, float(chosen[name])) for name in COMPONENTS if chosen.get(name))

    @model_validator(mode="after")
    def _components_are_known(self) -> "Reward":
        unknown = [name for name in self.weights if name not in COMPONENTS]
        if unknown:
            raise ValueError(f"weights: {unknown[0]!r} is no component; known: {', '.join(COMPONENTS)}")
        if not self.weighted:
            raise ValueError("all weights are 0: nothing can be learned; give one component a weight")
        return self


class Env(Section):
    """A colony of cells that grows towards the stiff side of a plate."""

    width: int = Field(ge=50, le=100_000, description="pixels; the plate's stiffness rises with x")
    height: int = Field(ge=50, le=100_000, description="pixels")
    max_nodes: int = Field(ge=8, le=4096, description="more cells are an overflow, which ends the episode")
    target_nodes: int = Field(ge=2, description="cells that the colony should hold")
    n0_min: int = Field(ge=1, description="cells at the start, at least")
    n0_max: int = Field(ge=1, description="cells at the start, at most")
    y_center: Interval = Field(description="middle of the start, drawn from this range; shares of the height")
    y_spread: float = Field(ge=0, le=0.5, description="cells start so far around it; a share of the height")
    max_steps: int = Field(ge=1, le=100_000, description="of an episode, which is then truncated")
    left_limit: int = Field(ge=1, description="moves to the left in a row that end an episode")
    delta_time: int = Field(ge=1, description="reward `full`: steps after which a cell has settled")
    delta_intensity: float = Field(ge=-LARGEST, le=LARGEST, description="reward `full`: what a good child gains")
    features: Literal["light", "full"] = Field(description="what is seen: light, or all that the original saw")
    obs_norm: Literal["dataset", "none"] = Field(description="dataset: by mean and deviation of collected behaviour")
    allow_unbounded_growth: bool = Field(description="accept bounds under which every colony overflows")
    check_actions: bool = Field(description="refuse actions outside their bounds, in every step")
    action: Action
    reward: Reward

    @property
    def rules(self) -> Rules:
        """All of this as the colonies take it."""
        shared = {name: getattr(self, name) for name in Rules._fields if name not in ("bounds", "reward")}
        bounds = tuple(Bounds(*getattr(self.action.bounds, name)) for name in PARAMETERS)
        return Rules(**shared, bounds=bounds, reward=self.reward.weighted)

    @model_validator(mode="after")
    def _sizes_fit(self) -> "Env":
        if self.n0_max > self.max_nodes:
            raise ValueError(
                f"n0_max ({self.n0_max}) exceeds env.max_nodes ({self.max_nodes}): colonies would overflow at reset; "
                "lower n0_max."
            )
        if self.n0_min > self.n0_max:
            raise ValueError(f"n0_min ({self.n0_min}) exceeds n0_max ({self.n0_max}); lower n0_min")
        if self.target_nodes >= self.max_nodes:
            raise ValueError(f"target_nodes ({self.target_nodes}) is not below max_nodes ({self.max_nodes}); lower it")
        low, high = self.y_center
        if not (self.y_spread <= low <= high <= 1 - self.y_spread):
            raise ValueError(
                f"y_center [{low:g}, {high:g}] with y_spread {self.y_spread:g} leaves the plate: both ends must lie in "
                f"[{self.y_spread:g}, {1 - self.y_spread:g}], the first not above the second"
            )
        return self

    @model_validator(mode="after")
    def _colonies_can_shrink(self) -> "Env":
        fixed, highest = self.action.fixed_params.get("delete_ratio"), self.action.bounds.delete_ratio[1]
        if self.allow_unbounded_growth or (highest > 0.5 if fixed is None else fixed >= 0.5):
            return self
        what, which = f"bounds.delete_ratio upper bound {highest:g} is not above 0.5", "the bound (0.7)"
        if fixed is not None:
            what, which = f"fixed_params.delete_ratio {fixed:g} is below 0.5", "it"
        raise ValueError(
            f"action.{what}: n' = 2(n - floor(r n)) can then never shrink and each colony overflows; raise {which} or "
            "set env.allow_unbounded_growth: true."
        )

    @model_validator(mode="after")
    def _goal_can_be_reached(self) -> "Env":
        fixed = self.action.fixed_params
        longest = sum(fixed.get(name, self.rules.bounds[PARAMETERS.index(name)].high) for name in ("gamma", "noise"))
        distance = reach(self.rules)
        if self.max_steps * longest < distance:
            why = (
                f"env.max_steps {self.max_steps} x longest spawn {longest:g} px < {distance:g} px to the goal: success "
                "is impossible; raise max_steps or gamma."
            )
            if self.reward.preset == "goal_control":
                raise ValueError(why)
            warnings.warn(f"actor_critic.{why}", stacklevel=2)
        return self


class Collect(Section):
    """Plates to train and to be judged on, the colonies to be judged with, and how well simple policies do there."""

    plates: Literal["default_law", "fixed", "user"] = Field(
        description="drawn from a law; the original's one; or the one of plates_file"
    )
    plates_file: NumbersOrNone = Field(description="a path such as inputs/actor_critic/plate.npy: stiffness per pixel")
    n_train: int = Field(ge=1, le=65536, description="plates to train on")
    n_held_out: int = Field(ge=1, le=65536, description="plates of the same law that only evaluate")
    n_outside: int = Field(ge=0, le=65536, description="plates that are flatter or steeper than any to train on")
    held_out_colonies: int = Field(ge=32, le=10**6, description="colonies at their start that only evaluate")
    constant_search: int = Field(ge=200, le=10**6, description="points where the search for a constant policy begins")

    @model_validator(mode="after")
    def _plates_are_given_once(self) -> "Collect":
        if (self.plates == "user") != (self.plates_file is not None):
            raise ValueError("plates: user and plates_file go together; set both, or plates_file: null")
        if self.plates != "default_law" and (self.n_train, self.n_held_out, self.n_outside) != (1, 1, 0):
            raise ValueError(f"plates: {self.plates} is one plate; set n_train: 1, n_held_out: 1, n_outside: 0")
        return self


class Network(Section):
    """Cells that attend to each other, and two heads: what to do, and what it is worth."""

    policy: Literal["beta", "squashed_gaussian"]
    d: int = Field(ge=4, le=4096, description="units of a cell")
    layers: int = Field(ge=1, le=64, description="attention blocks")
    heads: int = Field(ge=1, le=64)
    value_heads: Literal["total", "components"] = Field(description="one value, or one per component of the reward")

    @model_validator(mode="after")
    def _heads_divide_units(self) -> "Network":
        if self.d % self.heads:
            raise ValueError(f"d {self.d} is not a multiple of heads {self.heads}")
        return self


class Train(Section):
    """Proximal policy optimisation: iterations of a rollout of all colonies and some epochs on it."""

    num_envs: int = Field(ge=1, le=2**20, description="parallel colonies")
    horizon: int = Field(ge=1, le=100_000, description="steps of a rollout")
    transitions: int = Field(ge=1, le=10**12, description="of the whole training, rounded up to whole iterations")
    epochs: int = Field(ge=1, le=1000, description="passes over a rollout")
    minibatch_size: int = Field(ge=1, le=2**24, description="transitions per gradient step")
    discount: float = Field(gt=0, le=1)
    gae_lambda: float = Field(ge=0, le=1)
    gae: Literal["auto", "scan", "lfilter", "loop"] = Field(description="how advantages are summed; auto: the fastest")
    clip: float = Field(gt=0, lt=1, description="of the ratio of new and old probability")
    value_clip: float = Field(ge=0, le=LARGEST, description="how far a value may move per iteration; 0: any way")
    target_kl: float = Field(gt=0, le=LARGEST, description="nats; once the policy moved so far, an iteration ends")
    learning_rate: float = Field(gt=0, le=1)
    lr_final_fraction: float = Field(ge=0, le=1, description="the learning rate falls linearly to this part of it")
    value_coef: float = Field(ge=0, le=LARGEST)
    entropy_start: float = Field(ge=0, le=LARGEST, description="weight of the entropy at the start")
    entropy_end: float = Field(ge=0, le=LARGEST, description="and at the end; linear between")
    max_grad_norm: float = Field(gt=0, le=LARGEST)
    adam_eps: float = Field(gt=0, le=1)
    world_size: int = Field(ge=1, le=64, description="processes that share the colonies")
    amp: Literal["none", "bf16"] = Field(description="bf16: half precision in the network; on a GPU")
    compile: bool = Field(description="torch.compile; pays on a GPU, or after many iterations")
    record_every: int = Field(ge=1, description="iterations per record")

    @property
    def batch(self) -> int:
        """Transitions of an iteration."""
        return self.num_envs * self.horizon

    @property
    def steps(self) -> int:
        """Iterations of the whole training."""
        return -(-self.transitions // self.batch)

    @model_validator(mode="after")
    def _parts_fit(self) -> "Train":
        if self.num_envs % self.world_size:
            raise ValueError(f"num_envs {self.num_envs} is not a multiple of world_size {self.world_size}")
        if self.minibatch_size % self.world_size:
            raise ValueError(f"minibatch_size {self.minibatch_size} is not a multiple of world_size {self.world_size}")
        if self.minibatch_size > self.batch:
            raise ValueError(f"minibatch_size {self.minibatch_size} exceeds num_envs * horizon {self.batch}; lower it")
        return self


class Evaluate(Section):
    """How sure the scores are."""

    bootstrap_samples: int = Field(ge=100, le=10**6, description="resamples of the held-out colonies for an interval")


class ActorCriticConfig(Section):
    """Everything an actor_critic run depends on."""

    seeds: int = Field(ge=1, le=256, description="learners, on the same plates")
    env: Env
    collect: Collect
    network: Network
    train: Train
    evaluate: Evaluate

    @model_validator(mode="after")
    def _rooms_fit_together(self) -> "ActorCriticConfig":
        given = self.collect.plates_file
        if given is not None:
            if len(given.numbers) != self.env.width:
                expected = f"{self.env.width} values expected (env.width)"
                raise ValueError(f"collect.plates_file: {expected}, got {len(given.numbers)}")
            for column, value in enumerate(given.numbers):
                if not (SOFTEST < value <= STIFFEST):
                    wanted = f"> {SOFTEST:g} and <= {STIFFEST:g}" if 0 < value < math.inf else "finite and > 0"
                    what = f"collect.plates_file: value at column {column} is {value:g}"
                    raise ValueError(f"{what}; intensities must be {wanted}.")
        if self.env.features == "full" and self.env.obs_norm == "none":
            raise ValueError("env.obs_norm none with env.features full: they are raw pixels and stiffness; set dataset")
        return self

    @model_validator(mode="after")
    def _arrays_fit_into_memory(self) -> "ActorCriticConfig":
        env, collect, cells = self.env, self.collect, self.env.max_nodes
        plates = collect.n_train + collect.n_held_out + collect.n_outside
        for what, size in {
            "a rollout of train.num_envs * train.horizon * env.max_nodes": self.train.batch * cells * 64,
            "collect.n_train, n_held_out and n_outside plates of env.width": plates * env.width * 4,
            "collect.constant_search * 16 colonies of env.max_nodes": collect.constant_search * 16 * cells * CELL_BYTES,
            "collect.held_out_colonies of env.max_nodes": collect.held_out_colonies * cells * CELL_BYTES,
            "collect.held_out_colonies * env.max_steps": collect.held_out_colonies * env.max_steps * 64,
        }.items():
            if size > MAX_BYTES:
                raise ValueError(f"{what} takes about {size / 2**30:.0f} GiB; at most {MAX_BYTES // 2**30}; lower one")
        return self
