"""a step of the plain colony -> dictionaries of reward components, added up cell by cell."""

import math
from collections.abc import Callable

from benchmarks.reference.colony import (
    EXTINCT,
    LEFT_DRIFT,
    OVERFLOW,
    SUCCESS,
    State,
    Step,
    goal_control,
    hull,
)

RAW_TERMINAL = {SUCCESS: 500.0, OVERFLOW: -15.0, EXTINCT: -100.0, LEFT_DRIFT: -50.0}
MILESTONES = ((0.25, 50.0), (0.50, 150.0), (0.75, 300.0), (0.90, 500.0))
EVEN = 1e-5
"""Relative: rounding may lift the mean of equal intensities by as much above them."""


def centroid_distance_only(step: Step) -> dict[str, float]:
    return {
        "distance": 5 * _moved(step) / (step.rules.width - 1),
        "terminal_scaled": scaled_terminal(step),
    }


def full(step: Step) -> dict[str, float]:
    """Sums all components of the original's normal mode, with weights of 1."""
    late = 1 + min(1.0, step.t / (0.8 * step.rules.max_steps))
    return {
        "growth_full": growth(step),
        "action": 0.01 * step.before.size,
        "centroid": 5 * _moved(step),
        "spawn": sum(_spawned(step, *child) for child in step.children),
        "delete": deletion(step),
        "efficiency": efficiency(step),
        "edge": edges(step.after),
        "node": nodes(step),
        "survival": (0.01 + (0.02 if step.t >= 100 else 0.0)) * late,
        "milestone": milestones(step),
        "terminal_raw": RAW_TERMINAL.get(step.reason, 0.0),
    }


def goal_control_safe(step: Step) -> dict[str, float]:
    """Takes time and lane of the steps that were left from a colony that dies or drifts back."""
    early = step.reason in (OVERFLOW, EXTINCT, LEFT_DRIFT)
    left = step.rules.max_steps - step.t if early else 0
    parts = goal_control(step)
    return parts | {"forfeit": left * (0.02 * parts["time"] + 0.4 * parts["lane"])}


PRESETS: dict[str, Callable[[Step], dict[str, float]]] = {
    "goal_control": goal_control,
    "goal_control_safe": goal_control_safe,
    "centroid_distance_only": centroid_distance_only,
    "full": full,
}


def marked(step: Step) -> set[int]:
    """Returns ids of surplus cells: old ones on soft ground, the rightmost first."""
    before, rules = step.before, step.rules
    surplus = before.size - rules.target_nodes
    if surplus <= 0:
        return set()
    softer = before.mean_intensity * (1 - EVEN)
    candidates = [
        index
        for index in range(before.size)
        if before.age[index] >= rules.delta_time and before.intensity[index] < softer
    ]
    candidates.sort(key=lambda index: before.x[index], reverse=True)
    return {before.pid[index] for index in candidates[: max(1, math.floor(0.15 * surplus))]}


def growth(step: Step) -> float:
    size, target = step.after.size, step.rules.target_nodes
    if size < 2:
        return -5.0
    return -3.0 * (1 + (size - target) / target) if size > target else 0.1


def deletion(step: Step) -> float:
    """Rewards the deletion of marked cells, and penalises that of others."""
    selected, earned = marked(step), 0.0
    for pid in step.before.pid:
        gone = pid in step.deleted
        if pid in selected:
            earned += 2.0 if gone else -2.0
        elif gone:
            earned -= 2.0
    return earned


def efficiency(step: Step) -> float:
    """Rewards the deletion of old cells."""
    cells = zip(step.before.pid, step.before.age, strict=True)
    ages = [age for pid, age in cells if pid in step.deleted]
    return sum(0.05 * max(0, age - 50) + 0.1 * max(0, age - 20) for age in ages)


def _spawned(step: Step, x: float, y: float, intensity: float) -> float:
    """Rewards a child on stiffer ground than the nearest previous cell's, away from the edges."""
    before, height = step.before, step.rules.height
    nearest = min(
        range(before.size), key=lambda index: math.dist((x, y), (before.x[index], before.y[index]))
    )
    earned = 2.5 if intensity - before.intensity[nearest] >= step.rules.delta_intensity else -1.0
    edge = min(y, height - y) / height
    if edge < 0.08:
        return earned - 8.0
    return earned - 3.0 if edge < 0.15 else earned


def edges(after: State) -> float:
    """Rewards edges that point to the right."""
    pairs = [(index, parent) for index, parent in enumerate(after.parent) if parent >= 0]
    lengths = [after.x[index] - after.x[parent] for index, parent in pairs]
    return sum(0.5 if each > 0.01 else -0.05 if each < -0.01 else 0.0 for each in lengths)


def nodes(step: Step) -> float:
    """Rewards the positions of cells after the step."""
    after, height = step.after, step.rules.height
    mean = after.mean_intensity * (1 - EVEN)
    earned = 0.1 * len(hull(list(zip(after.x, after.y, strict=True))).vertices)
    for x, y, intensity, age in zip(after.x, after.y, after.intensity, after.age, strict=True):
        earned += 0.3 * intensity - _zone(min(y, height - y) / height)
        if x < 0.1 * step.rules.width:
            earned -= 0.2
        if abs(y - height / 2) / (height / 2) < 0.3:
            earned += 0.05
        if age >= step.rules.delta_time:
            earned += -0.3 if intensity < mean else 1.5
    return earned


def _zone(edge: float) -> float:
    """What a cell pays that near to the upper or lower edge."""
    zones = ((0.03, 5.0), (0.08, 2.0), (0.15, 0.5))
    return next((penalty for limit, penalty in zones if edge < limit), 0.0)


def milestones(step: Step) -> float:
    """Rewards each milestone in the step that reaches it first."""
    before, after, width = step.furthest_before, step.furthest, step.rules.width
    return sum(bonus for share, bonus in MILESTONES if before < share * width <= after)


def scaled_terminal(step: Step) -> float:
    return min(max(0.02 * RAW_TERMINAL.get(step.reason, 0.0), -10.0), 10.0)


def _moved(step: Step) -> float:
    return step.centroid[0] - step.centroid_before[0]
