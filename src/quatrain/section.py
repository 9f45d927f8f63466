"""The base of all sections of params.yaml: frozen, closed, finite, strictly typed."""

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from importlib import import_module
from operator import attrgetter
from typing import Annotated, Any, ClassVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

# File ending of an array of numbers.
NUMBERS = ".npy"
# File ending of several arrays; any other file holds text.
ARRAYS = ".npz"
# Up to here a float tells whole numbers apart.
LARGEST_WHOLE = 2.0**53
# Annotations of whole numbers.
WHOLE = (int, int | None)


def _whole(value: Any) -> Any:
    is_whole = isinstance(value, float) and value.is_integer() and abs(value) <= LARGEST_WHOLE
    return int(value) if is_whole else value


def tuples(value: Any) -> Any:
    """Returns a value of YAML or JSON with tuples in place of lists."""
    if isinstance(value, Mapping):
        return {key: tuples(inner) for key, inner in value.items()}
    return tuple(tuples(inner) for inner in value) if isinstance(value, list) else value


class Section(BaseModel):
    """Defines a part of params.yaml: hashable (static in `jax.jit`), without unknown keys, NaN or
    infinity.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, strict=True)

    @model_validator(mode="before")
    @classmethod
    def _read_values(cls, values: Any) -> Any:
        """Reads what YAML and JSON have for whole numbers, such as 2e4, and for tuples: lists."""
        if not isinstance(values, Mapping):
            return values
        whole = {key for key, field in cls.model_fields.items() if field.annotation in WHOLE}
        plain: dict[str, Any] = tuples(values)
        return {key: _whole(value) if key in whole else value for key, value in plain.items()}

    def check(self) -> None:
        """Raises ValueError if values do not fit together; a section with such rules overrides
        it.
        """

    @model_validator(mode="after")
    def _is_checked(self) -> "Section":
        self.check()
        return self


# Rules for `Section.check`. `keys` may be one key, a product with sums, or a quotient of them:
# `steps`, `env.worlds * (collect.turns + train.turns)`, `train.capacity / env.worlds`.


def at_most(section: Section, keys: str, limit: str, remedy: str = "lower it") -> None:
    """Raises ValueError if a number is above another."""
    if _value(section, keys) > _value(section, limit):
        raise ValueError(f"{_shown(section, keys)} exceeds {_shown(section, limit)}; {remedy}")


def below(section: Section, keys: str, limit: str, remedy: str = "lower it") -> None:
    """Raises ValueError unless a number is less than another."""
    if _value(section, keys) >= _value(section, limit):
        raise ValueError(f"{_shown(section, keys)} is not below {_shown(section, limit)}; {remedy}")


def multiple(section: Section, keys: str, unit: str) -> None:
    """Raises ValueError unless a number is a multiple of another."""
    if _value(section, keys) % _value(section, unit):
        raise ValueError(f"{_shown(section, keys)} is not a multiple of {_shown(section, unit)}")


def together(section: Section, key: str, value: object, other: str) -> None:
    """Raises ValueError unless `other` has a value, not null, if and only if `key` has `value`."""
    if (getattr(section, key) == value) != (getattr(section, other) is not None):
        raise ValueError(f"{key}: {value} and {other} go together; set both, or {other}: null")


def among(key: str, values: Iterable[str], names: Collection[str], of: str = "") -> None:
    """Raises ValueError if a name does not exist."""
    for name in values:
        if name not in names:
            raise ValueError(f"{key}: {name!r} is unknown; known{of}: {', '.join(names) or 'none'}")


def distinct(key: str, names: Sequence[str]) -> None:
    """Raises ValueError if a name is there twice."""
    for index, name in enumerate(names):
        if name in names[:index]:
            raise ValueError(f"{key}: {name!r} is there twice; name each once")


def fits(what: str, size: int, limit: int) -> None:
    """Raises ValueError if arrays need more bytes than the limit."""
    if size > limit:
        raise ValueError(
            f"{what} takes about {size / 2**30:.0f} GiB; at most {limit // 2**30}; lower one"
        )


def _value(section: Section, keys: str) -> Any:
    dividend, *divisors = (_product(section, part) for part in keys.split(" / "))
    return dividend // divisors[0] if divisors else dividend


def _product(section: Section, keys: str) -> Any:
    factors = [factor.strip("()").split(" + ") for factor in keys.split(" * ")]
    return math.prod(sum(attrgetter(key)(section) for key in factor) for factor in factors)


def _shown(section: Section, keys: str) -> str:
    value = _value(section, keys)
    number = f"{value:g}" if isinstance(value, float) else value
    return f"{keys} = {number}" if " " in keys else f"{keys} {number}"


class ModelSection(Section):
    """Defines the section of a model in one kind of environment.

    WORLD: the module that implements the model's environment protocol, imported when first used.
    brings_env: whether a user or a library brings the environment (envs/host). LENGTH: the key of
    `train` by which a finished training can be made longer; empty where its state has a fixed size.
    """

    WORLD: ClassVar[str] = ""
    LENGTH: ClassVar[str] = ""
    brings_env: ClassVar[bool] = False

    @property
    def is_recorded(self) -> bool:
        """Returns whether files of recorded episodes take the place of an environment."""
        return bool(getattr(vars(self).get("env"), "is_recorded", False))

    @property
    def world(self) -> Any:
        return import_module(self.WORLD)

    def check_device(self, device: str) -> None:
        """Raises ValueError if a model with this section cannot run on a device of params.yaml; a
        model that depends on it overrides this.
        """


class InputFile(Section):
    """Holds a text file that a config names: its content replaces its path."""

    name: str
    text: str


class NamedArray(Section):
    """Holds an array of a file, with its numbers in C order; the config may refuse NaN and
    infinity.
    """

    model_config = ConfigDict(allow_inf_nan=True)

    name: str
    shape: tuple[Annotated[int, Field(ge=1)], ...]
    numbers: tuple[float, ...]

    def check(self) -> None:
        count = len(self.numbers)
        if math.prod(self.shape) != count:
            raise ValueError(
                f"{self.name}: shape {self.shape} does not hold {count} numbers; mend one"
            )


class InputArrays(Section):
    """Holds an .npz file that a config names: its arrays replace its path. The config
    checks them.
    """

    name: str
    arrays: tuple[NamedArray, ...]


class InputNumbers(Section):
    """Holds an .npy file that a config names: its numbers replace its path. NaN and infinity are
    allowed.
    """

    model_config = ConfigDict(allow_inf_nan=True)

    name: str
    numbers: tuple[float, ...]


# The content of a file that a config names.
Content = str | tuple[float, ...] | tuple[NamedArray, ...]


def names_file(value: object) -> bool:
    """Returns whether a value is a path, which has a slash or a file ending, not a built-in
    name.
    """
    return isinstance(value, str) and ("/" in value or value.endswith((".txt", ".csv", ".json")))


def _read_file(key: str, ending: str = "", writer: str = "") -> BeforeValidator:
    """Returns a validator that replaces a path by a section with its name and, as `key`, what the
    file holds.
    """

    def read(value: object, info: Any) -> object:
        if not isinstance(value, str):
            return value
        if not ending and value.endswith((NUMBERS, ARRAYS)):
            raise ValueError(f"{value} holds numbers; name a text file")
        if not value.endswith(ending):
            raise ValueError(f"{value} is no {ending} file; write one with {writer}")
        reader: Callable[[object], Content] | None = (info.context or {}).get("read_input")
        if reader is None:
            content = f"{{'name': ..., {key!r}: ...}}"
            raise ValueError(
                f"{value!r} is a path; give {content} in its place, or a reader as context"
            )
        return {"name": value, key: reader(value)}

    return BeforeValidator(read, json_schema_input_type=str | None)


_TEXT = _read_file("text")


def _read_named(value: object, info: Any) -> object:
    return _TEXT.func(value, info) if names_file(value) else value  # type: ignore[call-arg]


# A built-in name, or a path, which the reader of params.yaml replaces by the content of the file.
NameOrFile = Annotated[str | InputFile, BeforeValidator(_read_named)]

# Paths, which the reader of params.yaml replaces by the content of the file, or null.
FileOrNone = Annotated[InputFile | None, _TEXT]
NumbersOrNone = Annotated[InputNumbers | None, _read_file("numbers", NUMBERS, "numpy.save")]
ArraysOrNone = Annotated[InputArrays | None, _read_file("arrays", ARRAYS, "numpy.savez")]
