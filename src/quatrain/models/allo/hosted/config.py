"""Config of allo in a user's environment: which observations count as one state."""

from pydantic import Field

from quatrain.envs.host.config import HostEnv
from quatrain.models.allo.config import AlloConfig


class Env(HostEnv):
    bins: int | None = Field(
        ge=2,
        le=1000,
        description="cells on each axis of the observed box, whose observations count as one "
        "state; null: each different observation is a state",
    )

    def check(self) -> None:
        super().check()
        if self.kind != "gymnasium":
            raise ValueError(f"kind {self.kind}: allo walks alone; set kind: gymnasium")


class HostedAlloConfig(AlloConfig):
    brings_env = True

    env: Env  # type: ignore[assignment]

    def check(self) -> None:
        self._check_drawn()
