"""What is explored: a field, how it is pushed, and the channels through which it is seen."""

from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from quatrain.envs.vector_field.kinds import (
    KINDS,
    EmissionSpec,
    FieldSpec,
    Table,
    WorldSpec,
    known_kinds,
    unknown_kind,
)
from quatrain.section import ArraysOrNone, InputArrays, Section

LARGEST = 1e6
MAX_NODES = 1000
START_RADIUS = 1.0
"""An episode starts within it, in each dimension."""
TABLE = ("axis_0", "axis_1", "vectors")
"""Arrays of a table_file."""

Number = Annotated[float, Field(ge=-LARGEST, le=LARGEST)]
Positive = Annotated[float, Field(gt=0, le=LARGEST)]
Row = Annotated[tuple[Number, ...], Field(strict=False, min_length=1, max_length=16)]
Matrix = Annotated[tuple[Row, ...], Field(strict=False, min_length=1, max_length=16)]


class FieldChoice(Section):
    """The vector field that is to be learned."""

    kind: str = Field(description="a built-in field, table, or one that a script has registered")
    parameters: dict[str, Number] = Field(
        description="numbers of the kind in place of its own; {}: none"
    )
    matrix: Matrix | None = Field(description="with kind: linear, A of f(x) = A x by rows")
    table_file: ArraysOrNone = Field(
        description="with kind: table, an .npz file that holds axis_0, axis_1, vectors"
    )
    normalise: Literal["region_rms", "box_max", "none"] = Field(
        description="box_max: greatest speed on [-2, 2]"
    )
    speed: Positive = Field(description="of the field, as `normalise` takes it")

    @field_validator("kind")
    @classmethod
    def _is_known(cls, kind: str) -> str:
        if kind not in known_kinds():
            raise ValueError(unknown_kind(kind))
        return kind

    @field_validator("table_file")
    @classmethod
    def _has_the_arrays(cls, given: InputArrays | None) -> InputArrays | None:
        shapes = [] if given is None else [(one.name, len(one.shape)) for one in given.arrays]
        if given is not None and sorted(name for name, _ in shapes) != list(TABLE):
            found = ", ".join(name for name, _ in shapes) or "nothing"
            raise ValueError(f"holds {found}; numpy.savez it with exactly {', '.join(TABLE)}")
        for name, axes in shapes:
            if name != TABLE[-1] and axes != 1:
                raise ValueError(
                    f"{name} has {axes} axes, expected one: the coordinates of the nodes"
                )
        return given

    @property
    def table(self) -> Table | None:
        """The arrays of table_file; the field itself checks what they say."""
        if self.table_file is None:
            return None
        held = {one.name: one for one in self.table_file.arrays}
        axes = tuple(held[name].numbers for name in TABLE[:-1])
        return Table(self.table_file.name.rsplit("/", 1)[-1], axes, held[TABLE[-1]].nested)

    @model_validator(mode="after")
    def _parameters_are_of_the_kind(self) -> "FieldChoice":
        known = KINDS.get(self.kind, {})
        for name, value in self.parameters.items():
            if name not in known:
                its = ", ".join(known) or "none"
                raise ValueError(
                    f"parameters: {name!r} is no parameter of kind {self.kind}; it has: {its}"
                )
            if name in ("length", "variance") and value <= 0:
                raise ValueError(f"parameters: {name} {value:g} must be above 0")
            if name == "nodes" and value not in range(2, MAX_NODES + 1):
                raise ValueError(
                    f"parameters: nodes {value:g} must be a whole number from 2 to {MAX_NODES}"
                )
        return self

    @model_validator(mode="after")
    def _matrix_and_table_are_of_the_kind(self) -> "FieldChoice":
        for key, kind in (("matrix", "linear"), ("table_file", "table")):
            if (getattr(self, key) is not None) != (self.kind == kind):
                raise ValueError(f"kind: {kind} and {key} go together; set both, or {key}: null")
        if self.matrix is not None and {len(row) for row in self.matrix} != {len(self.matrix)}:
            raise ValueError("matrix is not square: give as many rows as columns")
        return self


class Observation(Section):
    """What is seen of the state: channels, as of neurons."""

    kind: Literal["identity", "linear", "loglinear"] = Field(
        description="x, C x + b, or exp(C x + b)"
    )
    channels: int = Field(ge=1, le=4096)
    noise: Literal["gaussian", "poisson"] = Field(
        description="poisson: counts, with the channels as rates"
    )
    noise_sd: float = Field(ge=1e-3, le=LARGEST, description="of gaussian noise")
    weight_sd: Positive = Field(description="of C, drawn once per dataset")
    bias_sd: Positive = Field(description="of b")

    @model_validator(mode="after")
    def _rates_are_positive(self) -> "Observation":
        if self.noise == "poisson" and self.kind != "loglinear":
            raise ValueError(
                f"noise: poisson needs rates, and kind: {self.kind} may be negative; set kind: loglinear"
            )
        return self


class Env(Section):
    """A latent state that flows along a field, is pushed by actions, and seen through noisy channels."""

    field: FieldChoice
    dt: float = Field(gt=0, le=10, description="time of a transition")
    process_noise: float = Field(ge=0, le=LARGEST, description="variance per unit of time")
    control: Matrix | None = Field(
        description="B of u = B a by rows, one per dimension; null: the identity"
    )
    action_bound: Positive = Field(description="of each number of an action")
    escape_radius: Positive = Field(description="an episode ends beyond it, in any dimension")
    episode_transitions: int | None = Field(
        ge=1, description="after which an episode ends; null: never"
    )
    region_radius: Positive = Field(description="of the ball in which the field is to be known")
    observation: Observation

    @property
    def d(self) -> int:
        """Dimensions of the state."""
        return 2 if self.field.matrix is None else len(self.field.matrix)

    @property
    def action_size(self) -> int:
        """Numbers of an action."""
        return self.d if self.control is None else len(self.control[0])

    @property
    def world(self) -> WorldSpec:
        """All of this but the channels, as the environment takes it."""
        chosen = self.field
        parameters = tuple((KINDS.get(chosen.kind, {}) | chosen.parameters).items())
        of_field = (chosen.matrix, chosen.table, chosen.normalise, chosen.speed)
        field = FieldSpec(chosen.kind, parameters, *of_field, region_radius=self.region_radius)
        return WorldSpec(field, *(getattr(self, name) for name in WorldSpec._fields[1:]))

    @property
    def emission(self) -> EmissionSpec:
        """The channels, as the environment takes them."""
        return EmissionSpec(**self.observation.model_dump())

    @model_validator(mode="after")
    def _dimensions_agree(self) -> "Env":
        d, seen, least = self.d, self.observation, max(self.region_radius, START_RADIUS)
        if self.control is not None and (
            len(self.control) != d or len({len(row) for row in self.control}) != 1
        ):
            raise ValueError(
                f"control has rows of {[len(row) for row in self.control]}; give {d} of one length"
            )
        if seen.kind == "identity" and seen.channels != d:
            raise ValueError(
                f"observation.channels {seen.channels} with kind: identity: the state has {d}; set {d}"
            )
        if seen.channels < d:
            raise ValueError(
                f"observation.channels {seen.channels} is below the state's {d} dimensions; raise it"
            )
        if self.escape_radius <= least:
            raise ValueError(
                f"escape_radius {self.escape_radius:g} must be above {least:g}: region_radius, and where episodes start"
            )
        return self
