"""The schema of params.yaml: keys that all models share, and one section per model."""

from typing import Annotated, Literal

from pydantic import Discriminator, Field, Tag, TypeAdapter, model_validator

from quatrain.envs.host.config import variant
from quatrain.models.active_dynamics.config import ActiveDynamicsConfig
from quatrain.models.actor_critic.config import ActorCriticConfig, Train
from quatrain.models.actor_critic.hosted.config import HostedActorCriticConfig
from quatrain.models.allo.config import AlloConfig
from quatrain.models.allo.hosted.config import HostedAlloConfig
from quatrain.models.iqn.config import IqnConfig
from quatrain.models.iqn.hosted.config import HostedIqnConfig
from quatrain.section import Section


class Params(Section):
    """Holds params.yaml as one frozen value; every key is required, so that the file shows every
    number.
    """

    preset: str = Field(
        pattern=r"^[a-z][a-z0-9_]*$",
        description="`default`, or the name of the overlay in presets/",
    )
    seed: int = Field(
        ge=0,
        lt=2**32,
        description="each stage derives one named seed per purpose from it",
    )
    device: Literal["auto", "cpu", "cuda", "mps"] = Field(
        description="auto: cuda where the model's framework reaches it, else cpu; "
        "mps, Apple's GPU: torch models only"
    )
    devices: int = Field(
        ge=1,
        le=256,
        description="devices over which allo and iqn spread their seeds, an equal share on each "
        "(3 seeds use 1 of 2); with device cpu parts of the processor; torch models use one",
    )
    threads: int = Field(
        ge=1,
        le=256,
        description="compute threads; a CPU result depends on this number",
    )
    deterministic: bool = Field(
        description="on a GPU: slower kernels whose result repeats bit for bit"
    )
    checkpoint_seconds: float = Field(
        ge=0,
        le=86400,
        description="interval of checkpoints: the most work that an interruption loses",
    )
    allo: Annotated[
        Annotated[AlloConfig, Tag("built_in")] | Annotated[HostedAlloConfig, Tag("hosted")],
        Discriminator(variant),
    ]
    iqn: Annotated[
        Annotated[IqnConfig, Tag("built_in")] | Annotated[HostedIqnConfig, Tag("hosted")],
        Discriminator(variant),
    ]
    actor_critic: Annotated[
        Annotated[ActorCriticConfig, Tag("built_in")]
        | Annotated[HostedActorCriticConfig, Tag("hosted")],
        Discriminator(variant),
    ]
    active_dynamics: ActiveDynamicsConfig

    @model_validator(mode="after")
    def _half_precision_has_a_device(self) -> "Params":
        train = self.actor_critic.train
        if self.device == "cpu" and isinstance(train, Train) and train.amp == "bf16":
            raise ValueError(
                "actor_critic.train.amp bf16 needs a GPU: "
                "on CPU it was measured slower than float32; set none"
            )
        return self


def read_section(model: str, text: str | bytes) -> Section:
    """Returns a model's section from the JSON of a stored config.

    Raises:
        ValidationError: the values do not fit the schema.
    """
    return TypeAdapter(Params.__annotations__[model]).validate_json(text)
