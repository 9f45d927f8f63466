"""Config of iqn: world, prefill, network, cycles of playing and learning, evaluation."""

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from quatrain.envs.treasurehunt.config import LARGEST, Env
from quatrain.envs.treasurehunt.rules import frame_size
from quatrain.section import ModelSection, Section

MAX_DATASET_BYTES = 2**33
MAX_RING_BYTES = 2**36


class Collect(Section):
    turns: int = Field(
        ge=1,
        le=10**7,
        description="turns of a random policy in each training world",
    )
    held_out_worlds: int = Field(
        ge=2,
        le=65536,
        description="worlds used only for evaluation, for one episode",
    )


class Network(Section):
    """Holds the network: observations of the last turns and quantiles -> values of the actions."""

    frames: int = Field(
        ge=1,
        le=32,
        description="stacked observations: this turn's and those before",
    )
    hidden: int = Field(ge=8, le=4096, description="units of each layer")
    cosines: int = Field(ge=1, le=512, description="cosines that embed a quantile")
    dueling: bool = Field(description="separate value and advantage heads")
    noisy: Literal["none", "factorised", "independent"] = Field(
        description="noise on the weights of the layers after the product"
    )


class Loss(Section):
    quantiles: int = Field(
        ge=1,
        le=256,
        description="online quantiles of a sample (N of the paper)",
    )
    target_quantiles: int = Field(
        ge=1,
        le=256,
        description="target quantiles of a sample (N' of the paper)",
    )
    kappa: float = Field(gt=0, le=LARGEST, description="errors beyond it have linear loss")
    double_q: bool = Field(
        description="the online network selects the action, the target network evaluates it"
    )
    n_step: int = Field(ge=1, le=64, description="rewards in a target before it bootstraps")
    discount: float = Field(ge=0, lt=1)


class LinearEpsilon(Section):
    """Holds epsilon = max(end, start - (start - end) * transitions / over_transitions).

    Transitions include the prefill.
    """

    kind: Literal["linear"]
    start: float = Field(ge=0, le=1)
    end: float = Field(ge=0, le=1)
    over_transitions: int = Field(
        ge=1,
        le=10**12,
        description="transitions of an agent until `end` is reached",
    )


class GeometricEpsilon(Section):
    """Holds epsilon = max(end, start * (1 - decay)^episodes); episodes include the prefill."""

    kind: Literal["geometric"]
    start: float = Field(ge=0, le=1)
    end: float = Field(ge=0, le=1)
    decay: float = Field(ge=0, le=1, description="share lost with each episode")


class Acting(Section):
    quantiles: int = Field(
        ge=1,
        le=1024,
        description="quantiles whose mean is an action's value",
    )
    taus: Literal["midpoints", "uniform"] = Field(
        description="midpoints (g + 1/2)/G, or drawn uniformly for each action"
    )
    epsilon: Annotated[LinearEpsilon | GeometricEpsilon, Field(discriminator="kind")]
    evaluation_network: Literal["target", "online"] = Field(
        description="network that acts in evaluations; a Polyak target averages online weights"
    )


class PolyakTarget(Section):
    """Holds target <- rate * online + (1 - rate) * target, after every update."""

    kind: Literal["polyak"]
    rate: float = Field(gt=0, le=1)


class HardTarget(Section):
    """Holds target <- online, every `copy_every` updates."""

    kind: Literal["hard"]
    copy_every: int = Field(ge=1, le=10**9)


class Train(Section):
    """Holds cycles of `turns_per_cycle` turns and `updates_per_cycle` updates."""

    turns: int = Field(
        ge=1,
        le=10**9,
        description="turns of each world, without the prefill; an episode that is truncated takes "
        "one more, for its final observation",
    )
    turns_per_cycle: int = Field(ge=1, le=10_000)
    updates_per_cycle: int = Field(ge=1, le=10_000, description="gradient steps of each agent")
    batch_size: int = Field(ge=1, le=65536)
    capacity: int = Field(
        ge=1,
        le=10**9,
        description="transitions of each agent that the replay holds",
    )
    learning_rate: float = Field(gt=0, le=1)
    adam_eps: float = Field(gt=0, le=1)
    max_grad_norm: float = Field(
        gt=0,
        le=LARGEST,
        description="norm to which one agent's gradient is clipped",
    )
    target: Annotated[PolyakTarget | HardTarget, Field(discriminator="kind")]
    agent_parallelism: Literal["auto", "vmap", "scan"] = Field(
        description="agents learn vectorised, or in a loop"
    )
    seed_parallelism: Literal["auto", "vmap", "scan"] = Field(
        description="seeds of a device learn vectorised, or in a loop, whose bits are the same on "
        "any number of devices; auto: scan on a CPU, else vmap"
    )
    record_every: int = Field(
        ge=1,
        description="updates per record, and per call of the compiled program",
    )
    evaluate_every: int = Field(
        ge=0,
        description="updates between two greedy evaluations; 0: none while training",
    )
    evaluation_worlds: int = Field(ge=1, le=65536, description="worlds of such an evaluation")
    loss: Loss
    acting: Acting

    @property
    def cycles(self) -> int:
        """Returns the number of cycles in the whole training."""
        return self.turns // self.turns_per_cycle

    @property
    def steps(self) -> int:
        """Returns the number of gradient steps of each agent in the whole training."""
        return self.cycles * self.updates_per_cycle

    @property
    def cycles_per_record(self) -> int:
        """Returns the number of cycles per call of the compiled program."""
        return self.record_every // self.updates_per_cycle

    @model_validator(mode="after")
    def _records_hold_whole_cycles(self) -> "Train":
        cycle = self.updates_per_cycle
        check_multiple("turns", self.turns, "turns_per_cycle", self.turns_per_cycle)
        check_multiple("record_every", self.record_every, "updates_per_cycle", cycle)
        check_multiple(
            f"turns / turns_per_cycle * {cycle} =",
            self.steps,
            "record_every",
            self.record_every,
        )
        check_multiple(
            "evaluate_every",
            self.evaluate_every,
            "record_every",
            self.record_every,
        )
        if self.evaluate_every > self.steps:
            raise ValueError(
                f"evaluate_every {self.evaluate_every} exceeds the {self.steps} updates; "
                "0 means never"
            )
        return self


def check_multiple(key: str, value: int, unit_key: str, unit: int) -> None:
    if value % unit:
        raise ValueError(f"{key} {value} is not a multiple of {unit_key} {unit}")


class Evaluate(Section):
    bootstrap_samples: int = Field(
        ge=100,
        le=10**6,
        description="resamples of the held-out worlds for an interval",
    )


class LearnerConfig(ModelSection):
    """Holds what iqn has in its own world and in a user's environment (hosted/config.py)."""

    seeds: int = Field(
        ge=1,
        le=256,
        description="independent learners, each with its own worlds",
    )
    env: Any
    collect: Collect
    network: Network
    train: Train
    evaluate: Evaluate

    @property
    def slots(self) -> int:
        """Returns the number of turns of each world that the replay holds."""
        return self.train.capacity // self.env.worlds

    @model_validator(mode="after")
    def _turns_divide(self) -> "LearnerConfig":
        train = self.train
        cycle = self.env.worlds * train.turns_per_cycle
        cycle_key = "env.worlds * train.turns_per_cycle ="
        check_multiple(
            "collect.turns",
            self.collect.turns,
            "train.turns_per_cycle",
            train.turns_per_cycle,
        )
        check_multiple("train.capacity", train.capacity, cycle_key, cycle)
        return self

    @model_validator(mode="after")
    def _sizes_suffice(self) -> "LearnerConfig":
        train = self.train
        turns = self.collect.turns
        worlds = self.env.worlds
        least_turns = train.turns_per_cycle + self.network.frames + train.loss.n_step
        check_at_most(
            "train.batch_size",
            train.batch_size,
            "the prefill of collect.turns * env.worlds =",
            turns * worlds,
        )
        check_at_most(
            "collect.turns",
            turns,
            "the turns of train.capacity / env.worlds =",
            self.slots,
        )
        check_at_most(
            "train.loss.n_step",
            train.loss.n_step,
            "the last target of the prefill, collect.turns - 1 =",
            turns - 1,
        )
        check_at_most(
            "env.worlds * (train.turns_per_cycle + network.frames + n_step) =",
            worlds * least_turns,
            "train.capacity",
            train.capacity,
        )
        return self

    @model_validator(mode="after")
    def _epsilon_reaches_its_end(self) -> "LearnerConfig":
        epsilon = self.train.acting.epsilon
        if epsilon.start < epsilon.end:
            raise ValueError(
                f"train.acting.epsilon.start {epsilon.start} is less than its end {epsilon.end}"
            )
        if isinstance(epsilon, GeometricEpsilon):
            return self
        transitions = (self.collect.turns + self.train.turns) * self.env.worlds
        if epsilon.over_transitions > transitions:
            fall = (epsilon.start - epsilon.end) * transitions / epsilon.over_transitions
            raise ValueError(
                f"train.acting.epsilon.over_transitions {epsilon.over_transitions} exceeds the "
                f"run's {transitions} transitions of an agent: "
                f"epsilon would still be {epsilon.start - fall:.2f} at the end"
            )
        return self


class IqnConfig(LearnerConfig):
    env: Env

    @property
    def inputs(self) -> int:
        """Returns the size of a stack: all channels of all cells of all frames."""
        return self.network.frames * frame_size(self.env.rules)

    @property
    def replay_bytes(self) -> int:
        """Returns the size of all replays: a frame, an action and a reward per transition."""
        transitions = self.seeds * self.env.agents * self.env.worlds * self.slots
        return transitions * (frame_size(self.env.rules) + 5)

    @model_validator(mode="after")
    def _episodes_are_whole(self) -> "IqnConfig":
        max_turns = self.env.max_turns
        check_multiple("collect.turns", self.collect.turns, "env.max_turns", max_turns)
        check_at_most(
            "train.turns_per_cycle", self.train.turns_per_cycle, "env.max_turns", max_turns
        )
        return self

    @model_validator(mode="after")
    def _frames_do_not_show_the_time(self) -> "IqnConfig":
        if self.network.frames > self.env.max_turns:
            raise ValueError(
                f"network.frames {self.network.frames} must be at most env.max_turns "
                f"{self.env.max_turns}: the blank frames before the start would tell the final "
                "observation, whose value is never learned"
            )
        return self

    @model_validator(mode="after")
    def _everything_fits_into_memory(self) -> "IqnConfig":
        turns = self.collect.turns + self.train.turns
        steps = self.env.agents * self.env.worlds * turns
        if steps >= 2**31:
            raise ValueError(
                f"env.agents * env.worlds * all turns = {steps:,} agent-steps; "
                f"at most {2**31 - 1:,}"
            )
        for key, size, limit in (
            (
                "collect.turns",
                self.replay_bytes * self.collect.turns // self.slots,
                MAX_DATASET_BYTES,
            ),
            ("train.capacity", self.replay_bytes, MAX_RING_BYTES),
        ):
            if size > limit:
                raise ValueError(
                    f"{key} takes {size / 2**30:.0f} GiB over all seeds, worlds and agents; "
                    f"at most {limit // 2**30}"
                )
        return self


def check_at_most(key: str, value: int, limit_key: str, limit: int) -> None:
    if value > limit:
        raise ValueError(f"{key} {value} exceeds {limit_key} {limit}")
