"""What an iqn run depends on: world, prefill, network, the cycle of playing and learning, evaluation."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from quatrain.envs.treasurehunt.config import LARGEST, Env
from quatrain.envs.treasurehunt.rules import frame_size
from quatrain.section import Section

MAX_DATASET_BYTES = 2**33
MAX_RING_BYTES = 2**36


class Collect(Section):
    """The prefill of the replay by a random policy, and the worlds in which the learner is judged."""

    turns: int = Field(
        ge=1, le=10**7, description="turns that a random policy plays in each training world"
    )
    held_out_worlds: int = Field(
        ge=2, le=65536, description="worlds of one episode that only evaluate"
    )


class Network(Section):
    """Observations of the last turns and quantiles -> values of the actions."""

    frames: int = Field(
        ge=1, le=32, description="observations that the network sees: this turn's and those before"
    )
    hidden: int = Field(ge=8, le=4096, description="units of each layer")
    cosines: int = Field(ge=1, le=512, description="cosines that embed a quantile")
    dueling: bool = Field(description="value and advantages apart")
    noisy: Literal["none", "factorised", "independent"] = Field(
        description="noise on the weights behind the product"
    )


class Loss(Section):
    """The quantile Huber loss and its targets."""

    quantiles: int = Field(
        ge=1, le=256, description="online quantiles of a sample (N of the paper)"
    )
    target_quantiles: int = Field(
        ge=1, le=256, description="target quantiles of a sample (N' of the paper)"
    )
    kappa: float = Field(gt=0, le=LARGEST, description="errors beyond it count linearly")
    double_q: bool = Field(
        description="the online network chooses the action that the target network values"
    )
    n_step: int = Field(ge=1, le=64, description="rewards in a target before it bootstraps")
    discount: float = Field(ge=0, lt=1)


class LinearEpsilon(Section):
    """max(end, start - (start - end) * transitions / over_transitions), prefill counted."""

    kind: Literal["linear"]
    start: float = Field(ge=0, le=1)
    end: float = Field(ge=0, le=1)
    over_transitions: int = Field(
        ge=1, le=10**12, description="transitions of an agent until `end` is reached"
    )


class GeometricEpsilon(Section):
    """max(end, start * (1 - decay)^episodes), prefill counted."""

    kind: Literal["geometric"]
    start: float = Field(ge=0, le=1)
    end: float = Field(ge=0, le=1)
    decay: float = Field(ge=0, le=1, description="lost with each episode")


class Acting(Section):
    """How an agent chooses while it learns."""

    quantiles: int = Field(ge=1, le=1024, description="quantiles whose mean is an action's value")
    taus: Literal["midpoints", "uniform"] = Field(
        description="midpoints (g + 1/2)/G, or drawn anew for each act"
    )
    epsilon: Annotated[LinearEpsilon | GeometricEpsilon, Field(discriminator="kind")]
    judged: Literal["target", "online"] = Field(
        description="the network that plays in evaluations; a Polyak target averages the online one over updates"
    )


class PolyakTarget(Section):
    """target <- rate * online + (1 - rate) * target, after every update."""

    kind: Literal["polyak"]
    rate: float = Field(gt=0, le=1)


class HardTarget(Section):
    """target <- online, every so many updates."""

    kind: Literal["hard"]
    copy_every: int = Field(ge=1, le=10**9)


class Train(Section):
    """Cycles of playing `turns_per_cycle` turns and learning `updates_per_cycle` times."""

    turns: int = Field(ge=1, le=10**9, description="turns of each world, prefill not counted")
    turns_per_cycle: int = Field(ge=1, le=10_000)
    updates_per_cycle: int = Field(ge=1, le=10_000, description="gradient steps of each agent")
    batch_size: int = Field(ge=1, le=65536)
    capacity: int = Field(
        ge=1, le=10**9, description="transitions of each agent that the replay holds"
    )
    learning_rate: float = Field(gt=0, le=1)
    adam_eps: float = Field(gt=0, le=1)
    max_grad_norm: float = Field(gt=0, le=LARGEST, description="of one agent's gradient")
    target: Annotated[PolyakTarget | HardTarget, Field(discriminator="kind")]
    agent_parallelism: Literal["auto", "vmap", "scan"] = Field(
        description="agents learn side by side, or in turn"
    )
    record_every: int = Field(
        ge=1, description="updates per record, and per call of the compiled program"
    )
    evaluate_every: int = Field(
        ge=0, description="updates between two greedy evaluations; 0: none while training"
    )
    evaluation_worlds: int = Field(ge=1, le=65536, description="worlds of such an evaluation")
    loss: Loss
    acting: Acting

    @property
    def cycles(self) -> int:
        """Of the whole training."""
        return self.turns // self.turns_per_cycle

    @property
    def steps(self) -> int:
        """Gradient steps of each agent in the whole training."""
        return self.cycles * self.updates_per_cycle

    @property
    def cycles_per_record(self) -> int:
        """In a call of the compiled program."""
        return self.record_every // self.updates_per_cycle

    @model_validator(mode="after")
    def _records_hold_whole_cycles(self) -> "Train":
        cycle = self.updates_per_cycle
        _refuse_remainder("turns", self.turns, "turns_per_cycle", self.turns_per_cycle)
        _refuse_remainder("record_every", self.record_every, "updates_per_cycle", cycle)
        _refuse_remainder(
            f"turns / turns_per_cycle * {cycle} =", self.steps, "record_every", self.record_every
        )
        _refuse_remainder("evaluate_every", self.evaluate_every, "record_every", self.record_every)
        if self.evaluate_every > self.steps:
            raise ValueError(
                f"evaluate_every {self.evaluate_every} exceeds the {self.steps} updates; 0 means never"
            )
        return self


def _refuse_remainder(key: str, value: int, of: str, unit: int) -> None:
    if value % unit:
        raise ValueError(f"{key} {value} is not a multiple of {of} {unit}")


class Evaluate(Section):
    """How sure the scores are."""

    bootstrap_samples: int = Field(
        ge=100, le=10**6, description="resamples of the held-out worlds for an interval"
    )


class IqnConfig(Section):
    """Everything an iqn run depends on."""

    seeds: int = Field(ge=1, le=256, description="learners, each in worlds of its own")
    env: Env
    collect: Collect
    network: Network
    train: Train
    evaluate: Evaluate

    @property
    def inputs(self) -> int:
        """Numbers that a network sees: all channels of all cells of all frames."""
        return self.network.frames * frame_size(self.env.rules)

    @property
    def slots(self) -> int:
        """Turns that the replay holds of each world."""
        return self.train.capacity // self.env.worlds

    @property
    def replay_bytes(self) -> int:
        """Of all seeds, worlds and agents: a frame, an action and a reward per transition."""
        per_turn = self.seeds * self.env.worlds * self.env.agents * (frame_size(self.env.rules) + 5)
        return per_turn * self.slots

    @model_validator(mode="after")
    def _turns_fit_together(self) -> "IqnConfig":
        train, worlds, turns = self.train, self.env.worlds, self.collect.turns
        cycle = worlds * train.turns_per_cycle
        _refuse_remainder("collect.turns", turns, "env.max_turns", self.env.max_turns)
        _refuse_remainder("collect.turns", turns, "train.turns_per_cycle", train.turns_per_cycle)
        _refuse_remainder(
            "train.capacity", train.capacity, "env.worlds * train.turns_per_cycle =", cycle
        )
        least = cycle + worlds * (self.network.frames + train.loss.n_step)
        for key, value, of, most in (
            ("train.turns_per_cycle", train.turns_per_cycle, "env.max_turns", self.env.max_turns),
            (
                "train.batch_size",
                train.batch_size,
                "the prefill of collect.turns * env.worlds =",
                turns * worlds,
            ),
            ("collect.turns", turns, "the turns of train.capacity / env.worlds =", self.slots),
            (
                "train.loss.n_step",
                train.loss.n_step,
                "the last target of the prefill, collect.turns - 1 =",
                turns - 1,
            ),
            (
                "env.worlds * (train.turns_per_cycle + network.frames + n_step) =",
                least,
                "train.capacity",
                train.capacity,
            ),
        ):
            if value > most:
                raise ValueError(f"{key} {value} exceeds {of} {most}")
        return self

    @model_validator(mode="after")
    def _frames_do_not_show_the_time(self) -> "IqnConfig":
        if self.network.frames >= self.env.max_turns:
            raise ValueError(
                f"network.frames {self.network.frames} must be less than env.max_turns {self.env.max_turns}: the blank "
                "frames before the start would tell the last turn, whose value is never learned"
            )
        return self

    @model_validator(mode="after")
    def _epsilon_arrives(self) -> "IqnConfig":
        epsilon = self.train.acting.epsilon
        if epsilon.start < epsilon.end:
            raise ValueError(
                f"train.acting.epsilon.start {epsilon.start} is less than its end {epsilon.end}"
            )
        if isinstance(epsilon, LinearEpsilon):
            whole = (self.collect.turns + self.train.turns) * self.env.worlds
            if epsilon.over_transitions > whole:
                last = (
                    epsilon.start - (epsilon.start - epsilon.end) * whole / epsilon.over_transitions
                )
                raise ValueError(
                    f"train.acting.epsilon.over_transitions {epsilon.over_transitions} exceeds the run's {whole} "
                    f"transitions of an agent: epsilon would still be {last:.2f} at the end"
                )
        return self

    @model_validator(mode="after")
    def _everything_fits_into_memory(self) -> "IqnConfig":
        turns = self.collect.turns + self.train.turns
        if (steps := self.env.agents * self.env.worlds * turns) >= 2**31:
            raise ValueError(
                f"env.agents * env.worlds * all turns = {steps:,} agent-steps; at most {2**31 - 1:,}"
            )
        dataset = self.replay_bytes * self.collect.turns // self.slots
        for key, size, most in (
            ("collect.turns", dataset, MAX_DATASET_BYTES),
            ("train.capacity", self.replay_bytes, MAX_RING_BYTES),
        ):
            if size > most:
                raise ValueError(
                    f"{key} takes {size / 2**30:.0f} GiB over all seeds, worlds and agents; at most {most // 2**30}"
                )
        return self
