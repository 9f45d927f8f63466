"""Config of iqn: world, prefill, network, cycles of playing and learning, evaluation."""

from abc import abstractmethod
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from quatrain.envs.host.config import Budget, HostEnv
from quatrain.envs.host.sizes import Size, held_out_sizes, validation_size
from quatrain.envs.treasurehunt.config import LARGEST, Env
from quatrain.section import ModelSection, Section, at_most, below, fits, multiple

MAX_DATASET_BYTES = 2**33
MAX_RING_BYTES = 2**36
# Bytes of a transition beside its frame: an action and a reward.
TRANSITION = 5


class Collect(Section):
    turns: int = Field(
        ge=1, le=10**7, description="turns of a random policy in each training world"
    )
    held_out_worlds: int = Field(
        ge=2, le=65536, description="worlds used only for evaluation, for one episode"
    )


class Network(Section):
    """Holds the network: observations of the last turns and quantiles -> values of the actions."""

    frames: int = Field(
        ge=1, le=32, description="stacked observations: this turn's and those before"
    )
    hidden: int = Field(ge=8, le=4096, description="units of each layer")
    cosines: int = Field(ge=1, le=512, description="cosines that embed a quantile")
    dueling: bool = Field(description="separate value and advantage heads")
    noisy: Literal["none", "independent"] = Field(
        description="noise on each weight of the layers after the product"
    )


class Loss(Section):
    quantiles: int = Field(
        ge=1, le=256, description="online quantiles of a sample (N of the paper)"
    )
    target_quantiles: int = Field(
        ge=1, le=256, description="target quantiles of a sample (N' of the paper)"
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
        description="transitions of an agent until `end` is reached; a shorter run ends before",
    )


class GeometricEpsilon(Section):
    """Holds epsilon = max(end, start * (1 - decay)^episodes); episodes include the prefill."""

    kind: Literal["geometric"]
    start: float = Field(ge=0, le=1)
    end: float = Field(ge=0, le=1)
    decay: float = Field(ge=0, le=1, description="share lost with each episode")


class Acting(Section):
    quantiles: int = Field(ge=1, le=1024, description="quantiles whose mean is an action's value")
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
        description="turns of each world, without the prefill, rounded up to whole cycles; an "
        "episode that is truncated takes one more, for its final observation",
    )
    turns_per_cycle: int = Field(ge=1, le=10_000)
    updates_per_cycle: int = Field(ge=1, le=10_000, description="gradient steps of each agent")
    batch_size: int = Field(ge=1, le=65536)
    capacity: int = Field(
        ge=1, le=10**9, description="transitions of each agent that the replay holds"
    )
    learning_rate: float = Field(gt=0, le=1)
    adam_eps: float = Field(gt=0, le=1)
    max_grad_norm: float = Field(
        gt=0, le=LARGEST, description="norm to which one agent's gradient is clipped"
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
        ge=1, description="updates per record, and per call of the compiled program"
    )
    evaluate_every: int = Field(
        ge=0,
        description="updates between two greedy evaluations; 0: none while training; more than the "
        "training has: one at its end",
    )
    evaluation_worlds: int = Field(ge=1, le=65536, description="worlds of such an evaluation")
    loss: Loss
    acting: Acting

    @property
    def steps(self) -> int:
        """Returns the number of gradient steps of each agent in the whole training."""
        return -(-self.turns // self.turns_per_cycle) * self.updates_per_cycle

    @property
    def cycles_per_record(self) -> int:
        """Returns the number of cycles per call of the compiled program."""
        return self.record_every // self.updates_per_cycle

    def check(self) -> None:
        multiple(self, "record_every", "updates_per_cycle")
        multiple(self, "evaluate_every", "record_every")


class Evaluate(Section):
    bootstrap_samples: int = Field(
        ge=100, le=10**6, description="resamples of the held-out worlds for an interval"
    )


class UserEnv(HostEnv):
    worlds: int = Field(ge=1, le=4096, description="environments of each seed")


class JaxEnv(UserEnv):
    """Holds how to make an environment that is written in JAX: `import` returns what `gymnax.make`
    does, or an environment with default_params.
    """

    kind: Literal["jax"]  # type: ignore[assignment]
    id: None = Field(
        description="null: import names the callable, such as gymnax:make with kwargs {env_id: "
        "CartPole-v1}"
    )
    wrappers: tuple[()] = Field(description="[]: wrap what import returns")
    vectorization: Literal["sync"] = Field(description="sync: one compiled program steps them all")

    @property
    def name(self) -> str:
        """Returns what messages and plots call the environment."""
        return str(dict(self.kwargs).get("env_id", self.import_))


class LearnerConfig(ModelSection):
    """Holds what iqn has in any world. NUMBER: bytes of a number that an agent observes."""

    LENGTH = "turns"
    NUMBER: ClassVar[int]

    seeds: int = Field(ge=1, le=256, description="independent learners, each with its own worlds")
    env: Env | UserEnv
    collect: Collect
    network: Network
    train: Train
    evaluate: Evaluate

    @property
    def slots(self) -> int:
        """Returns the number of turns of each world that the replay holds."""
        return self.train.capacity // self.env.worlds

    @abstractmethod
    def observed(self, interface: Any) -> tuple[int, int]:
        """Returns how many agents observe how many numbers in a turn; a user's environment tells
        it only when it is made.
        """

    def turn_bytes(self, interface: Any) -> int:
        """Returns the bytes of a turn of all seeds as the replay stores it."""
        agents, size = self.observed(interface)
        number = interface.observation_dtype().itemsize if interface else self.NUMBER
        return self.seeds * agents * self.env.worlds * (size * number + TRANSITION)

    def check_memory(self, interface: Any = None) -> None:
        """Raises ValueError if the prefill or the replay is too large for any machine."""
        size = self.turn_bytes(interface)
        prefill = "the prefill of seeds * env.worlds * collect.turns"
        fits(prefill, size * self.collect.turns, MAX_DATASET_BYTES)
        fits("the replay of seeds * train.capacity", size * self.slots, MAX_RING_BYTES)

    def check(self) -> None:
        turns = "train.turns_per_cycle + network.frames + train.loss.n_step"
        multiple(self, "collect.turns", "train.turns_per_cycle")
        multiple(self, "train.capacity", "env.worlds * train.turns_per_cycle")
        at_most(self, "train.batch_size", "collect.turns * env.worlds")
        at_most(self, "collect.turns", "train.capacity / env.worlds")
        below(self, "train.loss.n_step", "collect.turns")
        at_most(self, f"env.worlds * ({turns})", "train.capacity", "raise train.capacity")
        at_most(self, "train.acting.epsilon.end", "train.acting.epsilon.start")


class UserEnvCollect(Collect):
    held_out_worlds: int | None = Field(  # type: ignore[assignment]
        ge=2,
        le=65536,
        description="episodes of each policy, for the final evaluation only; null: by "
        "evaluate.budget",
    )
    observation_norm: Literal["none", "prefill"] = Field(
        description="prefill: observations minus the mean of the random policy's, divided by their "
        "standard deviation"
    )


class UserEnvTrain(Train):
    evaluation_worlds: int | None = Field(  # type: ignore[assignment]
        ge=1, le=65536, description="episodes of such an evaluation; null: by evaluate.budget"
    )


class UserEnvEvaluate(Evaluate):
    budget: Budget


class IqnUserEnvConfig(LearnerConfig):
    WORLD = "quatrain.models.iqn.user_env"
    NUMBER = 4
    brings_env = True

    env: UserEnv
    collect: UserEnvCollect
    train: UserEnvTrain
    evaluate: UserEnvEvaluate

    @property
    def held_out(self) -> dict[str, Size]:
        """Returns how many held-out episodes each policy plays."""
        return held_out_sizes(self.collect.held_out_worlds, self._budget)

    @property
    def validation(self) -> Size:
        """Returns how many episodes an evaluation while training plays."""
        validations = -(-self.train.steps // max(1, self.train.evaluate_every))
        return validation_size(self.train.evaluation_worlds, self._budget, validations)

    @property
    def transitions(self) -> int:
        """Returns how many transitions of a seed's environments it learns from."""
        return self.env.worlds * (self.collect.turns + self.train.turns)

    @property
    def _budget(self) -> float:
        return self.evaluate.budget * self.transitions

    def observed(self, interface: Any) -> tuple[int, int]:
        return (len(interface.agents), interface.observation_size) if interface else (1, 1)


class IqnJaxEnvConfig(IqnUserEnvConfig):
    WORLD = "quatrain.models.iqn.jax_env"

    env: JaxEnv


class IqnConfig(LearnerConfig):
    WORLD = "quatrain.models.iqn.treasurehunt"
    NUMBER = 1

    env: Env

    @property
    def inputs(self) -> int:
        """Returns the size of a stack: all channels of all cells of all frames."""
        return self.network.frames * self.env.frame_size

    def observed(self, interface: Any) -> tuple[int, int]:  # noqa: ARG002  a user's tells it
        return self.env.agents, self.env.frame_size

    def check(self) -> None:
        super().check()
        multiple(self, "collect.turns", "env.max_turns")
        at_most(self, "train.turns_per_cycle", "env.max_turns")
        blank = "lower it, or the final observation, whose value is never learned, shows the time"
        at_most(self, "network.frames", "env.max_turns", blank)
        turns = self.collect.turns + self.train.turns
        steps = self.env.agents * self.env.worlds * turns
        if steps >= 2**31:
            raise ValueError(
                f"env.agents * env.worlds * all turns = {steps:,} agent-steps; "
                f"at most {2**31 - 1:,}"
            )
        self.check_memory()
