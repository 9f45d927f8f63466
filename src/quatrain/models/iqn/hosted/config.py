"""Config of iqn in a user's environment: how to make it, and how its observations are scaled."""

from typing import Literal

from pydantic import Field

from quatrain.envs.host.config import HostEnv
from quatrain.models.iqn.config import Collect, LearnerConfig


class HostWorlds(HostEnv):
    worlds: int = Field(
        ge=1,
        le=4096,
        description="environments that are stepped in turn, for each seed",
    )


class HostCollect(Collect):
    observation_norm: Literal["none", "prefill"] = Field(
        description="prefill: observations minus the mean of the random policy's, divided by their "
        "standard deviation"
    )


class HostedIqnConfig(LearnerConfig):
    brings_env = True

    env: HostWorlds
    collect: HostCollect
