"""Configuration of actor_critic, of colonies and in an environment that a user or a library brings:
environment, dataset, network, PPO, evaluation.
"""

import math
from itertools import pairwise
from typing import ClassVar, Literal

from pydantic import Field

from quatrain.envs.colony.config import LARGEST, Env
from quatrain.envs.host.config import MAX_EPISODE_STEPS, Budget, HostEnv
from quatrain.envs.host.sizes import Size, held_out_sizes, validation_size
from quatrain.section import ModelSection, NumbersOrNone, Section, at_most, fits, multiple, together

SOFTEST = 1e-6
# Range of a user's plate: stiffness up to plates.FLOOR is replaced by 1, and sums must fit into
# float32.
STIFFEST = 1e12
MAX_BYTES = 2**36
GRAPH_CELLS = 4  # cells whose features take as much memory as those of the whole colony
CELL_BYTES = 200  # approximate memory of one cell slot during a step of its colony

# Of actions that are numbers between bounds; `policy.DISTRIBUTIONS` has a class for each.
Distribution = Literal["beta", "squashed_gaussian"]


class Collect(Section):
    plates: Literal["default_law", "fixed", "two_ridges", "user"] = Field(
        description="drawn from a law; the fixed plate of the original; one with two stiff ridges; "
        "or that of plates_file"
    )
    plates_file: NumbersOrNone = Field(
        description="a path such as inputs/actor_critic/plate.npy: stiffness per pixel"
    )
    n_train: int = Field(ge=1, le=65536, description="plates to train on")
    n_held_out: int = Field(
        ge=1, le=65536, description="plates of the same law, for evaluation only"
    )
    n_outside: int = Field(
        ge=0, le=65536, description="plates that are flatter or steeper than all training plates"
    )
    held_out_colonies: int = Field(
        ge=32, le=10**6, description="colonies before their first step, for evaluation only"
    )
    validation_colonies: int = Field(
        ge=1,
        le=10**6,
        description="colonies on training plates before their first step, to evaluate on while "
        "training",
    )
    constant_search: int = Field(
        ge=200, le=10**6, description="initial points of the search for a constant policy"
    )

    def check(self) -> None:
        together(self, "plates", "user", "plates_file")
        if self.plates != "default_law" and (
            (self.n_train, self.n_held_out, self.n_outside) != (1, 1, 0)
        ):
            raise ValueError(
                f"plates: {self.plates} is one plate; set n_train: 1, n_held_out: 1, n_outside: 0"
            )


class Network(Section):
    policy: Distribution
    encoder: Literal["graph", "attention"] = Field(
        description="graph: features of the whole colony alone; attention: over all its cells, too"
    )
    d: int = Field(ge=4, le=4096, description="units per layer; attention: per cell")
    layers: int = Field(ge=1, le=64, description="hidden layers; attention: blocks")
    heads: int = Field(ge=1, le=64, description="of attention")
    value_heads: Literal["total", "components"] = Field(
        description="one value, or one per component of the reward"
    )

    def check(self) -> None:
        if self.encoder == "attention":
            multiple(self, "d", "heads")


class Ppo(Section):
    """Defines proximal policy optimisation, whatever the environments."""

    num_envs: int = Field(ge=1, le=2**20, description="parallel environments")
    horizon: int = Field(ge=1, le=100_000, description="steps of a rollout")
    noise_hold: int = Field(
        ge=1,
        le=100_000,
        description="steps whose continuous actions are drawn by the same random numbers: more "
        "explore farther",
    )
    transitions: int = Field(
        ge=1, le=10**12, description="of the whole training, rounded up to whole iterations"
    )
    epochs: int = Field(ge=1, le=1000, description="passes over a rollout")
    minibatch_size: int = Field(ge=1, le=2**24, description="transitions per gradient step")
    discount: float = Field(gt=0, le=1, description="in the first iteration")
    discount_end: float = Field(
        gt=0, le=1, description="at the end; 1 - discount changes geometrically"
    )
    gae_lambda: float = Field(ge=0, le=1)
    clip: float = Field(
        gt=0, lt=1, description="largest deviation from 1 of the ratio of new and old probability"
    )
    value_clip: float = Field(
        ge=0, le=LARGEST, description="largest change of a value per iteration; 0: not limited"
    )
    value_norm: Literal["running", "none"] = Field(
        description="running: values are learnt in units of the deviation of recent returns"
    )
    target_kl: float = Field(
        gt=0,
        le=LARGEST,
        description="nats; an iteration stops at this KL divergence from the policy of its rollout",
    )
    learning_rate: float = Field(gt=0, le=1)
    lr_final_fraction: float = Field(
        ge=0, le=1, description="the learning rate falls linearly to this fraction"
    )
    value_coef: float = Field(ge=0, le=LARGEST)
    entropy_start: float = Field(
        ge=0, le=LARGEST, description="weight of the entropy in the first iteration"
    )
    entropy_end: float = Field(
        ge=0, le=LARGEST, description="weight of the entropy at the end; it changes linearly"
    )
    max_grad_norm: float = Field(gt=0, le=LARGEST)
    adam_eps: float = Field(gt=0, le=1)
    record_every: int = Field(ge=1, description="iterations per record")
    evaluate_every: int = Field(
        ge=0,
        description="iterations between two evaluations, of which the best weights are kept; "
        "0: never, the last weights are kept",
    )

    @property
    def batch(self) -> int:
        return self.num_envs * self.horizon

    @property
    def steps(self) -> int:
        """Returns the iterations of the whole training."""
        return -(-self.transitions // self.batch)

    def counts(self, done: int) -> list[int]:
        """Returns the iterations of each record that follows after `done` iterations; records
        end at multiples of `record_every`, wherever a training goes on.
        """
        every = self.record_every
        ends = [*range(done + every - done % every, self.steps, every), self.steps]
        return [end - begin for begin, end in pairwise([done, *ends]) if begin < end]

    def check(self) -> None:
        multiple(self, "evaluate_every", "record_every")
        at_most(self, "minibatch_size", "num_envs * horizon")
        if (self.discount == 1) != (self.discount_end == 1):
            raise ValueError(
                f"discount {self.discount:g} cannot change to {self.discount_end:g}: "
                "1 - discount changes by a factor; set both to 1, or neither"
            )


class Train(Ppo):
    amp: Literal["none", "bf16"] = Field(
        description="bf16: half precision in the network; on a GPU"
    )
    compile: bool = Field(description="torch.compile; pays on a GPU, or after many iterations")


class Evaluate(Section):
    bootstrap_samples: int = Field(
        ge=100,
        le=10**6,
        description="resamples of held-out plates, of colonies of a given one, or of episodes",
    )


class ActorCriticConfig(ModelSection):
    WORLD = "quatrain.models.actor_critic.colony"
    LENGTH = "transitions"

    seeds: int = Field(ge=1, le=256, description="learners, on the same plates")
    env: Env
    collect: Collect
    network: Network
    train: Train
    evaluate: Evaluate

    def check_device(self, device: str) -> None:
        """Raises ValueError if half precision is set on a CPU."""
        if device == "cpu" and self.train.amp == "bf16":
            raise ValueError(
                "actor_critic.train.amp bf16 needs a GPU: "
                "on CPU it was measured slower than float32; set none"
            )

    def check(self) -> None:
        if self.collect.plates_file is not None:
            self._check_plate(self.collect.plates_file.numbers)
        if self.env.features == "full" and self.env.obs_norm == "none":
            raise ValueError(
                "env.obs_norm none with env.features full: "
                "they are raw pixels and stiffness; set dataset"
            )
        self._check_memory()

    def _check_plate(self, plate: tuple[float, ...]) -> None:
        if len(plate) != self.env.width:
            raise ValueError(
                f"collect.plates_file: {self.env.width} values expected (env.width), "
                f"got {len(plate)}"
            )
        for column, value in enumerate(plate):
            if not (SOFTEST < value <= STIFFEST):
                in_range = 0 < value < math.inf
                limits = f"> {SOFTEST:g} and <= {STIFFEST:g}" if in_range else "finite and > 0"
                raise ValueError(
                    f"collect.plates_file: value at column {column} is {value:g}; "
                    f"intensities must be {limits}."
                )

    def _check_memory(self) -> None:
        env = self.env
        collect = self.collect
        cells = env.max_nodes if self.network.encoder == "attention" else GRAPH_CELLS
        sizes = {
            "a rollout of train.num_envs * train.horizon * env.max_nodes": (
                self.train.batch * cells * 64
            ),
            "collect.n_train, n_held_out and n_outside plates of env.width": (
                (collect.n_train + collect.n_held_out + collect.n_outside) * env.width * 4
            ),
            "collect.constant_search * 16 colonies of env.max_nodes": (
                collect.constant_search * 16 * env.max_nodes * CELL_BYTES
            ),
            "collect.held_out_colonies of env.max_nodes": (
                collect.held_out_colonies * env.max_nodes * CELL_BYTES
            ),
            "collect.held_out_colonies * env.max_steps": (
                collect.held_out_colonies * env.max_steps * 64
            ),
        }
        for arrays, size in sizes.items():
            fits(arrays, size, MAX_BYTES)


# In an environment that a user or a library brings.


class UserEnvCollect(Section):
    transitions: int = Field(
        ge=2,
        le=10**8,
        description="of a random policy, whose observations give the scale of observations",
    )
    constant_search: int = Field(
        ge=1,
        le=10**6,
        description="constant actions of which the best is found; all, if there are no more",
    )
    validation_episodes: int | None = Field(
        ge=1, le=10**6, description="to evaluate on while training; null: by evaluate.budget"
    )
    held_out_episodes: int | None = Field(
        ge=2,
        le=10**6,
        description="of each policy, for the final evaluation only; null: by evaluate.budget",
    )


class UserEnvNetwork(Section):
    encoder: ClassVar[Literal["scaled"]] = "scaled"
    value_heads: ClassVar[Literal["total"]] = "total"
    policy: Distribution = Field(
        description="of actions that are vectors; indices are drawn from a categorical distribution"
    )
    observation_scale: Literal["running", "dataset", "none"] = Field(
        description="mean and deviation of observations, which are clipped 10 deviations away: of "
        "all met in training; of those collected; none: observations as they are"
    )
    d: int = Field(ge=4, le=4096, description="units per layer")
    layers: int = Field(ge=1, le=64, description="hidden layers")


class UserEnvTrain(Ppo):
    amp: ClassVar[Literal["none"]] = "none"
    compile: ClassVar[bool] = False


class UserEnvEvaluate(Evaluate):
    budget: Budget


class ActorCriticUserEnvConfig(ModelSection):
    WORLD = "quatrain.models.actor_critic.user_env"
    LENGTH = "transitions"
    brings_env = True

    seeds: int = Field(ge=1, le=256, description="learners, one after the other in one process")
    env: HostEnv
    collect: UserEnvCollect
    network: UserEnvNetwork
    train: UserEnvTrain
    evaluate: UserEnvEvaluate

    @property
    def held_out(self) -> dict[str, Size]:
        """Returns how many held-out episodes each policy plays."""
        collect = self.collect
        return held_out_sizes(collect.held_out_episodes, self._budget, collect.transitions)

    @property
    def validation(self) -> Size:
        """Returns how many episodes an evaluation while training plays."""
        validations = -(-self.train.steps // max(1, self.train.evaluate_every))
        return validation_size(self.collect.validation_episodes, self._budget, validations)

    @property
    def transitions(self) -> int:
        """Returns how many transitions a learner learns from: whole iterations."""
        return self.train.steps * self.train.batch

    @property
    def _budget(self) -> float:
        return self.evaluate.budget * self.transitions

    def check(self) -> None:
        if self.env.kind == "pettingzoo":
            raise ValueError(
                "env.kind pettingzoo has several agents, and actor_critic learns one policy; "
                "use iqn, or set gymnasium"
            )
        # An environment tells its own limit only when it is made.
        steps = self.env.max_episode_steps or MAX_EPISODE_STEPS
        size = self.train.num_envs * steps * 8
        fits("actions: train.num_envs * env.max_episode_steps", size, MAX_BYTES)


# With any environment.
Config = ActorCriticConfig | ActorCriticUserEnvConfig
