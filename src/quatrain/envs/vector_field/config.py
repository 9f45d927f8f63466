"""Config of the world: a vector field, actions on it, and the channels that observe it."""

import math
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Field, field_validator

from quatrain.envs.vector_field.kinds import KINDS, POSITIVE, FieldError, known_kinds, unknown_kind
from quatrain.section import ArraysOrNone, InputArrays, Section, among, together

# Largest coordinate, velocity and setting.
LARGEST = 1e6
# Largest difference between two steps of an axis, relative to their mean; float32 rounds steps.
EVENNESS = 1e-3
MAX_NODES = 1000
# Bound of the first state of an episode, in each dimension.
START_RADIUS = 1.0
# Names of the arrays of a table_file.
TABLE = ("axis_0", "axis_1", "vectors")

Number = Annotated[float, Field(ge=-LARGEST, le=LARGEST)]
Positive = Annotated[float, Field(gt=0, le=LARGEST)]
Row = Annotated[tuple[Number, ...], Field(min_length=1, max_length=16)]
Matrix = Annotated[tuple[Row, ...], Field(min_length=1, max_length=16)]


class Table(NamedTuple):
    """Holds velocities at the nodes of a regular grid: vectors[i, j] at axes[0][i], axes[1][j]."""

    name: str
    axes: tuple[Any, Any]
    vectors: Any


class FieldChoice(Section):
    """Configures the vector field to learn."""

    kind: str = Field(description="a built-in field, table, or one that a script has registered")
    parameters: dict[str, Number] = Field(
        description="parameters that override those of the kind; {}: none"
    )
    matrix: Matrix | None = Field(description="with kind: linear, A of f(x) = A x by rows")
    table_file: ArraysOrNone = Field(
        description="with kind: table, an .npz file that holds axis_0, axis_1, vectors"
    )
    normalise: Literal["region_rms", "box_max", "none"] = Field(
        description="box_max: greatest speed on [-2, 2]"
    )
    speed: Positive = Field(description="speed of the field, as `normalise` defines it")

    @field_validator("kind")
    @classmethod
    def _is_registered(cls, kind: str) -> str:
        if kind not in known_kinds():
            raise ValueError(unknown_kind(kind))
        return kind

    @field_validator("table_file")
    @classmethod
    def _has_the_arrays(cls, file: InputArrays | None) -> InputArrays | None:
        if file is None:
            return None
        names = [array.name for array in file.arrays]
        if sorted(names) != list(TABLE):
            actual = ", ".join(names) or "nothing"
            raise ValueError(f"holds {actual}; numpy.savez it with exactly {', '.join(TABLE)}")
        for array in file.arrays:
            axes = len(array.shape)
            if array.name != TABLE[-1] and axes != 1:
                raise ValueError(
                    f"{array.name} has {axes} axes, expected one: the coordinates of the nodes"
                )
        return file

    @property
    def table(self) -> Table | None:
        """Returns the arrays of table_file, whose values `Env` checks."""
        if self.table_file is None:
            return None
        import numpy as np  # whoever reads a config without a table does not wait for it

        files = self.table_file.arrays
        arrays = {array.name: np.array(array.numbers).reshape(array.shape) for array in files}
        name = self.table_file.name.rsplit("/", 1)[-1]
        return Table(name, (arrays["axis_0"], arrays["axis_1"]), arrays["vectors"])

    def __hash__(self) -> int:
        return hash((self.kind, *sorted(self.parameters.items())))  # a dictionary has none

    def check(self) -> None:
        names = KINDS.get(self.kind, {})
        among("parameters", self.parameters, names, of=f" to kind {self.kind}")
        for name, value in self.parameters.items():
            if name in POSITIVE and value <= 0:
                raise ValueError(f"parameters: {name} {value:g} must be above 0")
            if name == "nodes" and value not in range(2, MAX_NODES + 1):
                raise ValueError(
                    f"parameters: nodes {value:g} must be a whole number from 2 to {MAX_NODES}"
                )
        together(self, "kind", "linear", "matrix")
        together(self, "kind", "table", "table_file")
        if self.matrix is not None and {len(row) for row in self.matrix} != {len(self.matrix)}:
            raise ValueError("matrix is not square: give as many rows as columns")


class Observation(Section):
    """Configures the channels that observe the state, such as neurons."""

    kind: Literal["identity", "linear", "loglinear"] = Field(
        description="x, C x + b, or exp(C x + b)"
    )
    channels: int = Field(ge=1, le=4096)
    noise: Literal["gaussian", "poisson"] = Field(
        description="poisson: counts, with the channels as rates"
    )
    noise_sd: float = Field(ge=1e-3, le=LARGEST, description="standard deviation of gaussian noise")
    weight_sd: Positive = Field(description="standard deviation of C, drawn once per dataset")
    bias_sd: Positive = Field(description="standard deviation of b")

    def check(self) -> None:
        if self.noise == "poisson" and self.kind != "loglinear":
            raise ValueError(
                f"noise: poisson needs rates, and kind: {self.kind} may be negative; "
                "set kind: loglinear"
            )


class Env(Section):
    """Configures a latent state that follows a field and actions, observed through noisy
    channels.
    """

    field: FieldChoice
    dt: float = Field(gt=0, le=10, description="time of a transition")
    process_noise: float = Field(ge=0, le=LARGEST, description="variance per unit of time")
    control: Matrix | None = Field(
        description="B of u = B a by rows, one per dimension; null: the identity"
    )
    action_bound: Positive = Field(description="bound of each number of an action")
    escape_radius: Positive = Field(description="an episode ends beyond it, in any dimension")
    episode_transitions: int | None = Field(
        ge=1, description="transitions after which an episode ends; null: never"
    )
    region_radius: Positive = Field(
        description="radius of the ball in which the field is evaluated"
    )
    observation: Observation

    @property
    def d(self) -> int:
        return 2 if self.field.matrix is None else len(self.field.matrix)

    @property
    def action_size(self) -> int:
        return self.d if self.control is None else len(self.control[0])

    def check(self) -> None:
        if self.field.table is not None:
            check_table(self.field.table, self.region_radius)
        if self.control is not None:
            lengths = [len(row) for row in self.control]
            if len(lengths) != self.d or len(set(lengths)) != 1:
                raise ValueError(f"control has rows of {lengths}; give {self.d} of one length")
        observed = self.observation
        channels = f"observation.channels {observed.channels}"
        if observed.kind == "identity" and observed.channels != self.d:
            raise ValueError(
                f"{channels} with kind: identity: the state has {self.d}; set {self.d}"
            )
        if observed.channels < self.d:
            raise ValueError(f"{channels} is below the state's {self.d} dimensions; raise it")
        least = max(self.region_radius, START_RADIUS)
        if self.escape_radius <= least:
            raise ValueError(
                f"escape_radius {self.escape_radius:g} must be above {least:g}: "
                "region_radius, and where episodes start"
            )


def check_table(table: Table, region_radius: float) -> None:
    """Checks that a table is a field on a grid that covers the region.

    Raises:
        FieldError: an axis is not finite, increasing and even, or does not span the region; vectors
            have the wrong shape or are not finite.
    """
    for number, axis in enumerate(table.axes):
        _check_axis(f"{table.name} axis_{number}", axis)
    slack = 1e-6 * region_radius
    for axis in table.axes:
        if axis[0] > slack - region_radius or axis[-1] < region_radius - slack:
            raise FieldError(
                f"{table.name} covers [{axis[0]:g}, {axis[-1]:g}], the evaluation region needs "
                f"[{-region_radius:g}, {region_radius:g}]: "
                "widen the grid or lower active_dynamics.env.region_radius."
            )
    expected = (*map(len, table.axes), 2)
    if table.vectors.shape != expected:
        raise FieldError(
            f"{table.name} vectors has shape {table.vectors.shape}, expected {expected}: "
            "one 2-vector per grid node."
        )
    place = _first_outside(table.vectors)
    if place is not None:
        number = table.vectors[place]
        node = f"at node {place[:2]}"
        if math.isfinite(number):
            raise FieldError(
                f"{table.name} vectors is {number:g} {node}: "
                f"give numbers from {-LARGEST:g} to {LARGEST:g}."
            )
        raise FieldError(
            f"{table.name} vectors is not finite {node}: give a finite vector at each node."
        )


def _check_axis(name: str, axis: Any) -> None:
    if len(axis) < 2:
        raise FieldError(
            f"{name} has shape {axis.shape}, expected (n,) with n at least 2: give a grid."
        )
    place = _first_outside(axis)
    if place is not None:
        raise FieldError(
            f"{name} is {axis[place]:g} at node {place[0]}: "
            f"give coordinates from {-LARGEST:g} to {LARGEST:g}."
        )
    steps = axis[1:] - axis[:-1]
    if (steps <= 0).any():
        before, after = axis[int((steps <= 0).argmax()) :][:2]
        raise FieldError(f"{name} is not increasing ({before:g}, then {after:g}): sort the grid.")
    if steps.max() - steps.min() > EVENNESS * steps.mean():
        raise FieldError(
            f"{name} is not evenly spaced (steps {steps.min():.4g} to {steps.max():.4g}): "
            "resample the field on a regular grid."
        )


def _first_outside(values: Any) -> tuple[int, ...] | None:
    """Returns the index of the first number that is not finite or too large."""
    places = zip(*(~(abs(values) <= LARGEST)).nonzero(), strict=True)
    return next((tuple(map(int, place)) for place in places), None)
