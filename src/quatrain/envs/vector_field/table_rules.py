"""a user's table -> nothing, or one line that says why it is no field: what a config checks without
numpy.
"""

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

from quatrain.envs.vector_field.kinds import FieldError, Table

# Largest coordinate and velocity.
LARGEST = 1e6
# Largest difference between two steps of an axis, relative to their mean; float32 rounds steps.
EVENNESS = 1e-3


def check_table(table: Table, region_radius: float) -> None:
    """Checks that a table is a field on a grid that covers the region.

    Raises:
        FieldError: not two axes; an axis is not finite, increasing and even, or does not span the
            region; vectors have the wrong shape or are not finite.
    """
    if len(table.axes) != 2:
        raise FieldError(
            f"{table.name} has {len(table.axes)} axes, expected axis_0 and axis_1: "
            "fields have 2 dimensions."
        )
    for number, axis in enumerate(table.axes):
        _check_axis(f"{table.name} axis_{number}", axis)
    for axis in table.axes:
        _check_span(table.name, axis, region_radius)
    _check_vectors(table)


def _check_axis(name: str, axis: Sequence[Any]) -> None:
    shape = _shape(axis)
    if len(shape) != 1 or len(axis) < 2:
        raise FieldError(f"{name} has shape {shape}, expected (n,) with n at least 2: give a grid.")
    for place, node in enumerate(axis):
        if not abs(node) <= LARGEST:
            raise FieldError(
                f"{name} is {node:g} at node {place}: "
                f"give coordinates from {-LARGEST:g} to {LARGEST:g}."
            )
    for before, after in pairwise(axis):
        if not after > before:
            raise FieldError(
                f"{name} is not increasing ({before:g}, then {after:g}): sort the grid."
            )
    steps = [after - before for before, after in pairwise(axis)]
    if max(steps) - min(steps) > EVENNESS * sum(steps) / len(steps):
        sizes = f"steps {min(steps):.4g} to {max(steps):.4g}"
        raise FieldError(
            f"{name} is not evenly spaced ({sizes}): resample the field on a regular grid."
        )


def _check_span(name: str, axis: Sequence[float], radius: float) -> None:
    slack = 1e-6 * radius
    if axis[0] > slack - radius or axis[-1] < radius - slack:
        raise FieldError(
            f"{name} covers [{axis[0]:g}, {axis[-1]:g}], "
            f"the evaluation region needs [{-radius:g}, {radius:g}]: "
            "widen the grid or lower active_dynamics.env.region_radius."
        )


def _check_vectors(table: Table) -> None:
    shape = _shape(table.vectors)
    expected = (*map(len, table.axes), 2)
    if shape != expected:
        raise FieldError(
            f"{table.name} vectors has shape {shape}, expected {expected}: "
            "one 2-vector per grid node."
        )
    for node, number in _numbers(table.vectors):
        if not math.isfinite(number):
            raise FieldError(
                f"{table.name} vectors is not finite at node {node}: "
                "give a finite vector at each node."
            )
        if abs(number) > LARGEST:
            raise FieldError(
                f"{table.name} vectors is {number:g} at node {node}: "
                f"give numbers from {-LARGEST:g} to {LARGEST:g}."
            )


def _numbers(vectors: Sequence[Any]) -> Iterator[tuple[tuple[int, int], float]]:
    """Yields the numbers of [node of axis 0][node of axis 1][component], with their node."""
    for first, row in enumerate(vectors):
        for second, vector in enumerate(row):
            for number in vector:
                yield (first, second), number


def _shape(values: Any) -> tuple[int, ...]:
    """Returns the shape of nested sequences of equal lengths."""
    shape = []
    while isinstance(values, Sequence):
        shape.append(len(values))
        values = values[0] if len(values) else None
    return tuple(shape)
