"""Config of allo in a user's environment: which observations count as one state."""

from pydantic import Field, model_validator

from quatrain.envs.host.config import HostEnv
from quatrain.models.allo.config import MAX_DRAWN, AlloConfig


class Env(HostEnv):
    bins: int | None = Field(
        ge=2,
        le=1000,
        description="cells on each axis of the observed box, whose observations count as one "
        "state; null: each different observation is a state",
    )

    @model_validator(mode="after")
    def _one_agent(self) -> "Env":
        if self.kind != "gymnasium":
            raise ValueError(f"kind {self.kind}: allo walks alone; set kind: gymnasium")
        return self


class HostedAlloConfig(AlloConfig):
    brings_env = True

    env: Env  # type: ignore[assignment]

    @model_validator(mode="after")
    def _check_sizes(self) -> "HostedAlloConfig":
        drawn = self.train.record_every * self.train.batch_size * self.seeds
        if drawn > MAX_DRAWN:
            raise ValueError(
                f"record_every * batch_size * seeds = {drawn:,} samples are drawn at once; "
                f"at most {MAX_DRAWN:,}"
            )
        return self
