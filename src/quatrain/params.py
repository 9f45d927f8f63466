"""The schema of params.yaml: keys that all models share, and one section per model."""

from collections.abc import Collection, Mapping
from functools import reduce
from importlib import import_module
from operator import or_
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag, TypeAdapter, create_model

from quatrain.envs.host.config import names_user_env
from quatrain.registry import MODELS
from quatrain.section import ModelSection, Section

# The names of a union's schemas, which errors of pydantic show.
OURS = "ours"
USER_ENV = "user_env"
JAX_ENV = "jax_env"


def class_name(model: str) -> str:
    """Returns MyModel for my_model."""
    return "".join(part.capitalize() for part in model.split("_"))


def schemas_of(model: str) -> dict[str, type[ModelSection]]:
    """Returns the classes of a model's section in its config.py: MyModelConfig and, for an
    environment that a user brings, MyModelUserEnvConfig and, for one written in JAX,
    MyModelJaxEnvConfig if there are such.
    """
    config = import_module(f"quatrain.models.{model}.config")
    kinds = {OURS: "", USER_ENV: "UserEnv", JAX_ENV: "JaxEnv"}
    names = {tag: f"{class_name(model)}{kind}Config" for tag, kind in kinds.items()}
    return {tag: getattr(config, name) for tag, name in names.items() if hasattr(config, name)}


def tag_of(section: Any, schemas: Collection[str] = (OURS, USER_ENV, JAX_ENV)) -> str:
    """Returns which of a model's schemas a section has, or the values of one."""
    if not (getattr(section, "brings_env", False) or names_user_env(section)):
        return OURS
    env = section["env"] if isinstance(section, Mapping) else section.env
    kind = env["kind"] if isinstance(env, Mapping) else env.kind
    return JAX_ENV if kind == "jax" and JAX_ENV in schemas else USER_ENV


def schema_of(model: str) -> Any:
    """Returns the type of a model's section: a class, or a union of several."""
    schemas = schemas_of(model)
    if USER_ENV not in schemas:
        return schemas[OURS]
    tagged = [Annotated[schema, Tag(tag)] for tag, schema in schemas.items()]
    return Annotated[reduce(or_, tagged), Discriminator(lambda section: tag_of(section, schemas))]


def section_class(model: str, values: Any) -> type[ModelSection]:
    """Returns the class of a model's section that has these values."""
    schemas = schemas_of(model)
    return schemas.get(tag_of(values), schemas[OURS])


SECTIONS = {model: schema_of(model) for model in MODELS}


class _SharedParams(Section):
    """Holds params.yaml as one frozen value; every key is required, so that the file shows every
    number.
    """

    preset: str = Field(
        pattern=r"^[a-z][a-z0-9_]*$",
        description="`default`, or the name of the overlay in presets/",
    )
    seed: int = Field(
        ge=0, lt=2**32, description="each stage derives one named seed per purpose from it"
    )
    device: Literal["auto", "cpu", "cuda", "mps"] = Field(
        description="auto: cuda where the model's framework reaches it, else cpu; "
        "mps, Apple's GPU: torch models only"
    )
    devices: int = Field(
        ge=1,
        le=256,
        description="devices over which JAX models spread their seeds, an equal share on each "
        "(3 seeds use 1 of 2); with device cpu parts of the processor; torch models use one",
    )
    threads: int = Field(
        ge=1, le=256, description="compute threads; a CPU result depends on this number"
    )
    deterministic: bool = Field(
        description="on a GPU: slower kernels whose result repeats bit for bit"
    )
    checkpoint_seconds: float = Field(
        ge=0,
        le=86400,
        description="interval of checkpoints: the most work that an interruption loses",
    )
    drift: Literal["warn", "refuse"] = Field(
        description="what to do if a recording differs from that of the accepted model"
    )

    def check(self) -> None:
        for model in MODELS:
            getattr(self, model).check_device(self.device)


if TYPE_CHECKING:

    class Params(_SharedParams):
        def __getattr__(self, model: str) -> Any: ...

else:
    Params = create_model(
        "Params",
        __base__=_SharedParams,
        __module__=__name__,
        __doc__=_SharedParams.__doc__,
        **SECTIONS,
    )


def read_section(model: str, text: str | bytes) -> Section:
    """Returns a model's section from the JSON of a stored config.

    Raises:
        ValidationError: the values do not fit the schema.
    """
    section: Section = TypeAdapter(SECTIONS[model]).validate_json(text)
    return section
