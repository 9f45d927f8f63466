"""What an iqn run depends on: world, prefill, network, the cycle of playing and learning, evaluation."""

from functools import lru_cache
from typing import Annotated, Literal

from pydantic import Field, model_validator

from quatrain.envs.treasurehunt.layouts import Map, items, open_map, parse_map, spawnable, starts
from quatrain.envs.treasurehunt.rules import Entity, Rules, frame_size
from quatrain.section import FileOrNone, Section

LARGEST = 1e6
"""Of rewards: a float32 sum over an episode still tells them apart."""
RESERVED = ("empty", "wall", "ground", "agent", "left")
"""Other channels of what agents see, and `items_left`."""
MAX_DATASET_BYTES = 2**33
MAX_RING_BYTES = 2**36


class EntityKind(Section):
    """A kind of item: what taking one pays, and its share of all that grow."""

    name: str = Field(pattern=r"^[a-z][a-z0-9_]*$", max_length=32)
    value: float = Field(ge=-LARGEST, le=LARGEST, description="reward of the agent that steps on it")
    weight: float = Field(ge=0, le=LARGEST, description="how often it grows, beside the other kinds")


class Env(Section):
    """The treasure hunt: its map, what grows there, who walks, what they see; and how many such worlds run at once."""

    worlds: int = Field(ge=1, le=65536, description="parallel training worlds")
    height: int | None = Field(ge=4, le=256, description="of an open map; null with layout or layout_file")
    width: int | None = Field(ge=4, le=256, description="of an open map; null with layout or layout_file")
    layout: str | None = Field(
        max_length=2**17, description="a map as text: # wall, . floor, - bare floor, A start, 1-9"
    )
    layout_file: FileOrNone = Field(description="a path such as inputs/iqn/map.txt, or null")
    agents: int = Field(ge=1, le=64)
    max_turns: int = Field(ge=1, le=10_000, description="turns of an episode, which is then truncated")
    entities: tuple[EntityKind, ...] = Field(
        min_length=1, max_length=9, strict=False, description="at most 9 kinds of items"
    )
    spawn_probability: float = Field(ge=0, le=1, description="of an empty cell, per turn")
    wall_value: float = Field(ge=-LARGEST, le=LARGEST, description="reward for walking into a wall")
    agent_value: float = Field(ge=-LARGEST, le=LARGEST, description="reward for walking into another agent")
    vision_radius: int = Field(ge=1, le=15, description="cells that an agent sees to each side")
    ground: Literal["sand", "plain"] = Field(description="sand: the ground is a channel of what agents see")
    agent_order: Literal["fixed", "shuffled"] = Field(description="who acts first in a turn")

    @property
    def rules(self) -> Rules:
        """All of this but the number of worlds, as the world takes it.

        Raises:
            LayoutError: the map cannot be read.
        """
        return _rules(self)

    @model_validator(mode="after")
    def _one_source_of_the_map(self) -> "Env":
        sizes = (self.height is not None) + (self.width is not None)
        given = (sizes > 0) + (self.layout is not None) + (self.layout_file is not None)
        if given != 1 or sizes == 1:
            raise ValueError(
                "give height and width, or layout, or layout_file, not two of them; set the others to null"
            )
        return self

    @model_validator(mode="after")
    def _entities_can_be_told_apart(self) -> "Env":
        names = [kind.name for kind in self.entities]
        double = [name for index, name in enumerate(names) if name in names[:index]]
        if double:
            raise ValueError(f"entities: {double[0]!r} is there twice; give each kind a name of its own")
        taken = [name for name in names if name in RESERVED]
        if taken:
            raise ValueError(f"entities: {taken[0]!r} is the name of something else; none of {', '.join(RESERVED)}")
        if not any(kind.weight for kind in self.entities):
            raise ValueError(f"entities: the weights of {', '.join(names)} are all 0; at least one must grow")
        return self

    @model_validator(mode="after")
    def _map_suits_those_who_walk_it(self) -> "Env":
        rows = self.rules.map.rows
        height, width, cells = len(rows), len(rows[0]), len(starts(self.rules.map))
        if self.agents > cells:
            raise ValueError(
                f"agents is {self.agents} but the map has {cells} start cells. Lower agents or enlarge the map."
            )
        if self.vision_radius > (largest := max(height, width) - 1):
            side = 2 * self.vision_radius + 1
            raise ValueError(
                f"vision_radius {self.vision_radius} sees {side}x{side} cells of a {height}x{width} map. "
                f"At most {largest} (= larger side - 1)."
            )
        if not (self.spawn_probability and spawnable(self.rules.map).any()) and not items(self.rules.map).any():
            why = "the layout has no cell where items grow" if self.spawn_probability else "spawn_probability is 0"
            raise ValueError(f"{why} and the layout has no items: no reward can be earned.")
        return self


@lru_cache(maxsize=16)
def _rules(env: Env) -> Rules:
    return Rules(
        map=_map(env),
        agents=env.agents,
        max_turns=env.max_turns,
        entities=tuple(Entity(kind.name, kind.value, kind.weight) for kind in env.entities),
        spawn_probability=env.spawn_probability,
        wall_value=env.wall_value,
        agent_value=env.agent_value,
        vision_radius=env.vision_radius,
        ground=env.ground,
        agent_order=env.agent_order,
    )


def _map(env: Env) -> Map:
    if env.layout_file is not None:
        return parse_map(env.layout_file.text, env.layout_file.name, len(env.entities))
    if env.layout is not None:
        return parse_map(env.layout, "layout", len(env.entities))
    assert env.height is not None
    assert env.width is not None
    return open_map(env.height, env.width)


class Collect(Section):
    """The prefill of the replay by a random policy, and the worlds in which the learner is judged."""

    turns: int = Field(ge=1, le=10**7, description="turns that a random policy plays in each training world")
    held_out_worlds: int = Field(ge=2, le=65536, description="worlds of one episode that only evaluate")


class Network(Section):
    """Observations of the last turns and quantiles -> values of the actions."""

    frames: int = Field(ge=1, le=32, description="observations that the network sees: this turn's and those before")
    hidden: int = Field(ge=8, le=4096, description="units of each layer")
    cosines: int = Field(ge=1, le=512, description="cosines that embed a quantile")
    dueling: bool = Field(description="value and advantages apart")
    noisy: Literal["none", "factorised", "independent"] = Field(description="noise on the weights behind the product")


class Loss(Section):
    """The quantile Huber loss and its targets."""

    quantiles: int = Field(ge=1, le=256, description="online quantiles of a sample (N of the paper)")
    target_quantiles: int = Field(ge=1, le=256, description="target quantiles of a sample (N' of the paper)")
    kappa: float = Field(gt=0, le=LARGEST, description="errors beyond it count linearly")
    double_q: bool = Field(description="the online network chooses the action that the target network values")
    n_step: int = Field(ge=1, le=64, description="rewards in a target before it bootstraps")
    discount: float = Field(ge=0, lt=1)


class LinearEpsilon(Section):
    """max(end, start - (start - end) * transitions / over_transitions), prefill counted."""

    kind: Literal["linear"]
    start: float = Field(ge=0, le=1)
    end: float = Field(ge=0, le=1)
    over_transitions: int = Field(ge=1, le=10**12, description="transitions of an agent until `end` is reached")


class GeometricEpsilon(Section):
    """max(end, start * (1 - decay)^episodes), prefill counted."""

    kind: Literal["geometric"]
    start: float = Field(ge=0, le=1)
    end: float = Field(ge=0, le=1)
    decay: float = Field(ge=0, le=1, description="lost with each episode")


class Acting(Section):
    """How an agent chooses while it learns."""

    quantiles: int = Field(ge=1, le=1024, description="quantiles whose mean is an action's value")
    taus: Literal["midpoints", "uniform"] = Field(description="midpoints (g + 1/2)/G, or drawn anew for each act")
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
    capacity: int = Field(ge=1, le=10**9, description="transitions of each agent that the replay holds")
    learning_rate: float = Field(gt=0, le=1)
    adam_eps: float = Field(gt=0, le=1)
    max_grad_norm: float = Field(gt=0, le=LARGEST, description="of one agent's gradient")
    target: Annotated[PolyakTarget | HardTarget, Field(discriminator="kind")]
    agent_parallelism: Literal["auto", "vmap", "scan"] = Field(description="agents learn side by side, or in turn")
    record_every: int = Field(ge=1, description="updates per record, and per call of the compiled program")
    evaluate_every: int = Field(ge=0, description="updates between two greedy evaluations; 0: none while training")
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
        _refuse_remainder(f"turns / turns_per_cycle * {cycle} =", self.steps, "record_every", self.record_every)
        _refuse_remainder("evaluate_every", self.evaluate_every, "record_every", self.record_every)
        if self.evaluate_every > self.steps:
            raise ValueError(f"evaluate_every {self.evaluate_every} exceeds the {self.steps} updates; 0 means never")
        return self


def _refuse_remainder(key: str, value: int, of: str, unit: int) -> None:
    if value % unit:
        raise ValueError(f"{key} {value} is not a multiple of {of} {unit}")


class Evaluate(Section):
    """How sure the scores are."""

    bootstrap_samples: int = Field(ge=100, le=10**6, description="resamples of the held-out worlds for an interval")


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
        _refuse_remainder("train.capacity", train.capacity, "env.worlds * train.turns_per_cycle =", cycle)
        least = cycle + worlds * (self.network.frames + train.loss.n_step)
        for key, value, of, most in (
            ("train.turns_per_cycle", train.turns_per_cycle, "env.max_turns", self.env.max_turns),
            ("train.batch_size", train.batch_size, "the prefill of collect.turns * env.worlds =", turns * worlds),
            ("collect.turns", turns, "the turns of train.capacity / env.worlds =", self.slots),
            ("train.loss.n_step", train.loss.n_step, "the last target of the prefill, collect.turns - 1 =", turns - 1),
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
            raise ValueError(f"train.acting.epsilon.start {epsilon.start} is less than its end {epsilon.end}")
        if isinstance(epsilon, LinearEpsilon):
            whole = (self.collect.turns + self.train.turns) * self.env.worlds
            if epsilon.over_transitions > whole:
                last = epsilon.start - (epsilon.start - epsilon.end) * whole / epsilon.over_transitions
                raise ValueError(
                    f"train.acting.epsilon.over_transitions {epsilon.over_transitions} exceeds the run's {whole} "
                    f"transitions of an agent: epsilon would still be {last:.2f} at the end"
                )
        return self

    @model_validator(mode="after")
    def _everything_fits_into_memory(self) -> "IqnConfig":
        turns = self.collect.turns + self.train.turns
        if (steps := self.env.agents * self.env.worlds * turns) >= 2**31:
            raise ValueError(f"env.agents * env.worlds * all turns = {steps:,} agent-steps; at most {2**31 - 1:,}")
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
