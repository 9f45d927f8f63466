"""Config of an environment that a user or a library brings."""

import json
from collections.abc import Mapping
from math import isfinite
from operator import itemgetter
from pathlib import PurePath
from typing import Annotated, Any, ClassVar, Literal

from pydantic import (
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    PlainValidator,
    field_validator,
)

from quatrain.section import Section, together

Scalar = bool | int | float | str | None
MAX_EPISODE_STEPS = 100_000
# The module that holds what Python alone has: lambdas, local classes, those of a notebook.
IN_PROCESS = "quatrain.envs.host.given"


class Pairs(tuple[tuple[str, Any], ...]):
    """Holds a mapping as sorted pairs, which are hashable."""


def frozen(value: Any, name: str = "a value") -> Any:
    """Returns plain values with pairs in place of mappings, and tuples in place of lists.

    Raises:
        ValueError: something else than texts, finite numbers, true, false and null is among them.
    """
    if isinstance(value, Mapping):
        items = ((str(key), frozen(inner, str(key))) for key, inner in value.items())
        return Pairs(sorted(items, key=itemgetter(0)))
    if isinstance(value, list | tuple):
        return tuple(frozen(inner, name) for inner in value)
    if not isinstance(value, Scalar) or (isinstance(value, float) and not isfinite(value)):
        raise ValueError(
            f"{name} is {value!r}; give a finite number, a text, true, null, or lists and sections "
            "of them"
        )
    return value


def thawed(value: Any) -> Any:
    """Returns the values that `frozen` was given, with tuples for lists: some callables take no
    lists, and YAML has no tuples.
    """
    if isinstance(value, Pairs):
        return {name: thawed(inner) for name, inner in value}
    return tuple(map(thawed, value)) if isinstance(value, tuple) else value


def _pairs(value: Any) -> Any:
    if not isinstance(value, Mapping | Pairs):
        raise ValueError("is no section of names and values; write {} for none")
    return value if isinstance(value, Pairs) else frozen(value)


# Keyword arguments: a mapping in params.yaml, hashable pairs in the config.
Options = Annotated[
    Any, PlainValidator(_pairs, json_schema_input_type=dict[str, Any]), PlainSerializer(thawed)
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


class Wrapper(Section):
    """Holds what an environment is wrapped in."""

    model_config = ConfigDict(serialize_by_alias=True)

    import_: str = Field(
        alias="import",
        pattern=r"^[A-Za-z_]\w*(\.\w+)*:[A-Za-z_]\w*$",
        max_length=200,
        description="module:callable, which takes an environment and returns another",
    )
    kwargs: Options = Field(description="keyword arguments beside the environment; {}: none")

    @property
    def name(self) -> str:
        """Returns what messages call the wrapper."""
        return self.import_.partition(":")[2]


def _wrapper(value: Any) -> Any:
    return {"import": value, "kwargs": {}} if isinstance(value, str) else value


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
    wrappers: tuple[Annotated[Wrapper, BeforeValidator(_wrapper)], ...] = Field(
        description="what it is wrapped in, the innermost first: a list of module:callable, or of "
        "{import: module:callable, kwargs: {...}}; []: nothing"
    )
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

    @property
    def in_process(self) -> list[str]:
        """Returns the names of what makes it and exists in one process alone."""
        prefix = f"{IN_PROCESS}:"
        return [each.removeprefix(prefix) for each in self.makers if each.startswith(prefix)]

    @property
    def makers(self) -> list[str]:
        """Returns the import paths of what makes it."""
        return [self.import_ or "", *(each.import_ for each in self.wrappers)]

    def check(self) -> None:
        if self.in_process and self.vectorization == "async":
            raise ValueError(
                f"{self.in_process[0]} exists in this process alone, and vectorization async makes "
                "the environment in others; write it into a module, or set sync"
            )
        is_callable = ":" in (self.import_ or "")
        if is_callable and self.id is not None:
            raise ValueError(
                f"id {self.id!r} and import {self.import_!r} both make the environment; "
                "set one of them to null, or name a module alone in import"
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


# Columns of a recording that tell where episodes end: the number of a row's episode, or flags of
# their last rows.
EPISODE = "episode"
FLAGS = ("terminated", "truncated")
# Keys that tell which environment it is, and all of one, with the values that they have where there
# is none.
NO_MAKER: Mapping[str, Any] = dict.fromkeys(("id", "import", "max_episode_steps")) | {
    "kwargs": {},
    "wrappers": (),
}
NO_ENV: Mapping[str, Any] = {**NO_MAKER, "vectorization": "sync"}


class RecordableEnv(HostEnv):
    """Sets an environment of one agent, or files that it was recorded in. The keys of the other
    kind have no effect, and are refused unless they are empty.

    OF_ENVS, OF_FILES: further keys of either kind, with their empty values.
    """

    OF_ENVS: ClassVar[Mapping[str, Any]] = {}
    OF_FILES: ClassVar[Mapping[str, Any]] = {}

    kind: Literal["gymnasium", "recording"] = Field(  # type: ignore[assignment]
        description="gymnasium: an environment of one agent, which acts; recording: files"
    )
    path: str | None = Field(
        min_length=1,
        max_length=1000,
        description="with kind: recording, a .csv file with a header, or an .npz file; else null",
    )

    @property
    def is_recorded(self) -> bool:
        return self.path is not None

    @property
    def name(self) -> str:
        return super().name if self.path is None else PurePath(self.path).name

    def check(self) -> None:
        together(self, "kind", "recording", "path")
        if not self.is_recorded:
            super().check()
        values = self.model_dump()
        for key, empty in (
            {**NO_ENV, **self.OF_ENVS} if self.is_recorded else self.OF_FILES
        ).items():
            if values[key] != empty:
                raise ValueError(
                    f"{key} has no effect with kind: {self.kind}; leave it out "
                    f"({key}: {json.dumps(empty)})"
                )


def names_user_env(section: Any) -> bool:
    """Returns whether the values of a model's section name an environment of a user: its env has a
    `kind`.
    """
    env = section.get("env") if isinstance(section, Mapping) else None
    return isinstance(env, Mapping) and "kind" in env
