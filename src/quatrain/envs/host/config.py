"""Config of an environment that a user or a library brings."""

from collections.abc import Mapping
from math import isfinite
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ConfigDict, Field, PlainSerializer, field_validator

from quatrain.section import Section

Scalar = bool | int | float | str | None
MAX_EPISODE_STEPS = 100_000


def _pairs(value: Any) -> Any:
    if not isinstance(value, Mapping):
        raise ValueError("is no section of names and values; write {} for none")
    for name, scalar in value.items():
        if not isinstance(scalar, Scalar) or (isinstance(scalar, float) and not isfinite(scalar)):
            raise ValueError(f"{name} is {scalar!r}; give a finite number, a text, true or null")
    return tuple(sorted((str(name), scalar) for name, scalar in value.items()))


# Keyword arguments of an environment: a mapping in params.yaml, hashable pairs in the config.
Options = Annotated[
    tuple[tuple[str, Scalar], ...],
    BeforeValidator(_pairs, json_schema_input_type=dict[str, Scalar]),
    PlainSerializer(dict),
]

# Environment steps beside the training, which the section `evaluate` holds.
Budget = Annotated[
    float,
    Field(
        gt=0,
        le=100,
        description="transitions of validation, references and held-out episodes, as a fraction of "
        "those of the training; numbers of episodes that are null follow from it",
    ),
]


class HostEnv(Section):
    """Holds how to make an environment whose observations are arrays; it steps in Python."""

    model_config = ConfigDict(serialize_by_alias=True)

    kind: Literal["gymnasium", "pettingzoo"] = Field(
        description="gymnasium: one agent; pettingzoo: several that act at once (parallel)"
    )
    id: str | None = Field(
        pattern=r"^[\w\-./]+$",
        max_length=200,
        description="a registered id such as CartPole-v1; null if `import` names a callable",
    )
    import_: str | None = Field(
        alias="import",
        pattern=r"^[A-Za-z_]\w*(\.\w+)*(:[A-Za-z_]\w*)?$",
        max_length=200,
        description="a module that registers the id, or module:callable that returns the "
        "environment; null: none",
    )
    kwargs: Options = Field(description="keyword arguments of the environment")
    max_episode_steps: int | None = Field(
        ge=1,
        le=MAX_EPISODE_STEPS,
        description="steps after which an episode is truncated, if it has not ended before; null: "
        "the environment's own limit, which it has if it is registered with one",
    )
    vectorization: Literal["sync", "async"] = Field(
        description="sync: environments step one after the other; async: all but the first in "
        "processes of their own, which pays from about a millisecond a step on; results are equal"
    )

    @field_validator("id", mode="before")
    @classmethod
    def _without_module(cls, value: Any) -> Any:
        module, colon, name = value.partition(":") if isinstance(value, str) else ("", "", "")
        if colon:
            raise ValueError(
                f"id {value!r} names the module that registers it; set import: {module} and "
                f"id: {name}"
            )
        return value

    @property
    def name(self) -> str:
        """Returns what messages and plots call the environment."""
        return self.id or str(self.import_).partition(":")[2]

    def check(self) -> None:
        is_callable = ":" in (self.import_ or "")
        if is_callable and self.id is not None:
            raise ValueError(
                f"id {self.id!r} and import {self.import_!r} both make the environment; "
                "set id: null, or name a module alone in import"
            )
        if not is_callable and self.id is None:
            raise ValueError(
                "nothing makes the environment; give an id, or import: module:callable"
            )
        if not is_callable and self.kind == "pettingzoo":
            raise ValueError(
                "PettingZoo has no ids; give import: module:callable, "
                "for example mpe2.simple_spread_v3:parallel_env, and id: null"
            )


def names_user_env(section: Any) -> bool:
    """Returns whether the values of a model's section name an environment of a user: its env has a
    `kind`.
    """
    env = section.get("env") if isinstance(section, Mapping) else None
    return isinstance(env, Mapping) and "kind" in env
