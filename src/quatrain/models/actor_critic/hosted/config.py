"""Configuration of actor_critic in an environment that a user or a library brings."""

from typing import Literal

from pydantic import Field

from quatrain.envs.host.config import MAX_EPISODE_STEPS, HostEnv
from quatrain.models.actor_critic.config import Ppo
from quatrain.section import ModelSection, Section, fits

MAX_BYTES = 2**36


class Collect(Section):
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
    search_episodes: int = Field(ge=1, le=10**6, description="for each of these actions")
    validation_episodes: int = Field(ge=1, le=10**6, description="to evaluate on while training")
    held_out_episodes: int = Field(ge=2, le=10**6, description="for the final evaluation only")


class Network(Section):
    policy: Literal["beta", "squashed_gaussian"] = Field(
        description="of actions that are vectors; indices are drawn from a categorical distribution"
    )
    observation_scale: Literal["running", "dataset", "none"] = Field(
        description="mean and deviation of observations, which are clipped 10 deviations away: of "
        "all met in training; of those collected; none: observations as they are"
    )
    d: int = Field(ge=4, le=4096, description="units per layer")
    layers: int = Field(ge=1, le=64, description="hidden layers")


class Evaluate(Section):
    bootstrap_samples: int = Field(ge=100, le=10**6, description="resamples of held-out episodes")


class HostedActorCriticConfig(ModelSection):
    brings_env = True
    seeds: int = Field(ge=1, le=256, description="learners, one after the other in one process")
    env: HostEnv
    collect: Collect
    network: Network
    train: Ppo
    evaluate: Evaluate

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
