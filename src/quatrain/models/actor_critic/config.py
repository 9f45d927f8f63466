"""What an actor_critic run depends on: colonies and their reward, plates and floors, network, PPO, evaluation."""

import math
from typing import Literal

from pydantic import Field, model_validator

from quatrain.envs.colony.config import LARGEST, Env
from quatrain.section import NumbersOrNone, Section

SOFTEST, STIFFEST = 1e-6, 1e12
"""Of a plate of one's own; what is softer counts as 1 (plates.FLOOR), and float32 has room for sums above."""
MAX_BYTES = 2**36
CELL_BYTES = 200
"""About what a slot for a cell takes while a step of its colony is computed."""


class Collect(Section):
    """Plates to train and to be judged on, the colonies to be judged with, and how well simple policies do there."""

    plates: Literal["default_law", "fixed", "user"] = Field(
        description="drawn from a law; the original's one; or the one of plates_file"
    )
    plates_file: NumbersOrNone = Field(
        description="a path such as inputs/actor_critic/plate.npy: stiffness per pixel"
    )
    n_train: int = Field(ge=1, le=65536, description="plates to train on")
    n_held_out: int = Field(ge=1, le=65536, description="plates of the same law that only evaluate")
    n_outside: int = Field(
        ge=0, le=65536, description="plates that are flatter or steeper than any to train on"
    )
    held_out_colonies: int = Field(
        ge=32, le=10**6, description="colonies at their start that only evaluate"
    )
    constant_search: int = Field(
        ge=200, le=10**6, description="points where the search for a constant policy begins"
    )

    @model_validator(mode="after")
    def _plates_are_given_once(self) -> "Collect":
        if (self.plates == "user") != (self.plates_file is not None):
            raise ValueError(
                "plates: user and plates_file go together; set both, or plates_file: null"
            )
        if self.plates != "default_law" and (self.n_train, self.n_held_out, self.n_outside) != (
            1,
            1,
            0,
        ):
            raise ValueError(
                f"plates: {self.plates} is one plate; set n_train: 1, n_held_out: 1, n_outside: 0"
            )
        return self


class Network(Section):
    """Cells that attend to each other, and two heads: what to do, and what it is worth."""

    policy: Literal["beta", "squashed_gaussian"]
    d: int = Field(ge=4, le=4096, description="units of a cell")
    layers: int = Field(ge=1, le=64, description="attention blocks")
    heads: int = Field(ge=1, le=64)
    value_heads: Literal["total", "components"] = Field(
        description="one value, or one per component of the reward"
    )

    @model_validator(mode="after")
    def _heads_divide_units(self) -> "Network":
        if self.d % self.heads:
            raise ValueError(f"d {self.d} is not a multiple of heads {self.heads}")
        return self


class Train(Section):
    """Proximal policy optimisation: iterations of a rollout of all colonies and some epochs on it."""

    num_envs: int = Field(ge=1, le=2**20, description="parallel colonies")
    horizon: int = Field(ge=1, le=100_000, description="steps of a rollout")
    transitions: int = Field(
        ge=1, le=10**12, description="of the whole training, rounded up to whole iterations"
    )
    epochs: int = Field(ge=1, le=1000, description="passes over a rollout")
    minibatch_size: int = Field(ge=1, le=2**24, description="transitions per gradient step")
    discount: float = Field(gt=0, le=1)
    gae_lambda: float = Field(ge=0, le=1)
    gae: Literal["auto", "scan", "lfilter", "loop"] = Field(
        description="how advantages are summed; auto: the fastest"
    )
    clip: float = Field(gt=0, lt=1, description="of the ratio of new and old probability")
    value_clip: float = Field(
        ge=0, le=LARGEST, description="how far a value may move per iteration; 0: any way"
    )
    target_kl: float = Field(
        gt=0, le=LARGEST, description="nats; once the policy moved so far, an iteration ends"
    )
    learning_rate: float = Field(gt=0, le=1)
    lr_final_fraction: float = Field(
        ge=0, le=1, description="the learning rate falls linearly to this part of it"
    )
    value_coef: float = Field(ge=0, le=LARGEST)
    entropy_start: float = Field(ge=0, le=LARGEST, description="weight of the entropy at the start")
    entropy_end: float = Field(ge=0, le=LARGEST, description="and at the end; linear between")
    max_grad_norm: float = Field(gt=0, le=LARGEST)
    adam_eps: float = Field(gt=0, le=1)
    world_size: int = Field(ge=1, le=64, description="processes that share the colonies")
    amp: Literal["none", "bf16"] = Field(
        description="bf16: half precision in the network; on a GPU"
    )
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
            raise ValueError(
                f"num_envs {self.num_envs} is not a multiple of world_size {self.world_size}"
            )
        if self.minibatch_size % self.world_size:
            raise ValueError(
                f"minibatch_size {self.minibatch_size} is not a multiple of world_size {self.world_size}"
            )
        if self.minibatch_size > self.batch:
            raise ValueError(
                f"minibatch_size {self.minibatch_size} exceeds num_envs * horizon {self.batch}; lower it"
            )
        return self


class Evaluate(Section):
    """How sure the scores are."""

    bootstrap_samples: int = Field(
        ge=100, le=10**6, description="resamples of the held-out colonies for an interval"
    )


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
                    wanted = (
                        f"> {SOFTEST:g} and <= {STIFFEST:g}"
                        if 0 < value < math.inf
                        else "finite and > 0"
                    )
                    what = f"collect.plates_file: value at column {column} is {value:g}"
                    raise ValueError(f"{what}; intensities must be {wanted}.")
        if self.env.features == "full" and self.env.obs_norm == "none":
            raise ValueError(
                "env.obs_norm none with env.features full: they are raw pixels and stiffness; set dataset"
            )
        return self

    @model_validator(mode="after")
    def _arrays_fit_into_memory(self) -> "ActorCriticConfig":
        env, collect, cells = self.env, self.collect, self.env.max_nodes
        plates = collect.n_train + collect.n_held_out + collect.n_outside
        for what, size in {
            "a rollout of train.num_envs * train.horizon * env.max_nodes": self.train.batch
            * cells
            * 64,
            "collect.n_train, n_held_out and n_outside plates of env.width": plates * env.width * 4,
            "collect.constant_search * 16 colonies of env.max_nodes": collect.constant_search
            * 16
            * cells
            * CELL_BYTES,
            "collect.held_out_colonies of env.max_nodes": collect.held_out_colonies
            * cells
            * CELL_BYTES,
            "collect.held_out_colonies * env.max_steps": collect.held_out_colonies
            * env.max_steps
            * 64,
        }.items():
            if size > MAX_BYTES:
                raise ValueError(
                    f"{what} takes about {size / 2**30:.0f} GiB; at most {MAX_BYTES // 2**30}; lower one"
                )
        return self
