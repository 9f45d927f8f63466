"""environment steps, drawn tables and filter steps -> rows"""

from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Generator

from benchmarks.active_dynamics.sides import (
    Walk,
    beliefs_of,
    config_of,
    plain_beliefs,
    plain_filter_of,
    plain_noise,
    plain_world_of,
    refuse_another_belief,
    refuse_another_step,
    sides_of,
)
from benchmarks.harness import Contestant, race
from benchmarks.reference import active_dynamics_filter as plain_filter
from benchmarks.reference import active_dynamics_world as plain_world
from benchmarks.repeat import repeat
from benchmarks.table import NotTheSame, Point, Row, Without
from quatrain.envs.vector_field import tables
from quatrain.envs.vector_field.kinds import KINDS
from quatrain.envs.vector_field.world import World, draw, step
from quatrain.models.active_dynamics.bayes_filter.learner import BayesFilterLearner

UNIT = "ms/step"
SEED = 0
ROWS = (30, 1, 120)
PLAIN_ROWS = 30
KINDS_TIMED = ("limit_cycle", "multi_attractor")
OWN_STEPS, PLAIN_STEPS = 20, 2
FILTER_STEPS = 5
NODES = 20
"""Nodes per axis of a drawn table."""
CHECKED_NODES, CHECKED_DRAWS = 5, 3000


def rows(root: Path, rounds: int) -> list[Row]:
    """Returns all rows; a unit is a step of one environment or of one belief."""
    result = []
    for kind in KINDS_TIMED:
        world = world_of_kind(root, kind)
        refuse_another_step(world, 4)
        result += step_rows(world, rounds)
    result.append(draw_row(rounds))
    return result + filter_rows(root, rounds)


def world_of_kind(root: Path, kind: str) -> World:
    """Returns the default world with another field."""
    field = config_of(root).env.field.model_dump() | {"kind": kind}
    return sides_of(root, 1, env={"field": field}).world


def step_rows(world: World, rounds: int) -> list[Row]:
    """Returns rows of environment steps; the plain loop gets the same random numbers."""
    ours = {str(count): own_steps(world, count) for count in ROWS}
    times = race({"before": plain_steps(world, PLAIN_ROWS), **ours}, rounds)
    how = "an interpolator each call" if world.field.table.numel() else "a point at a time"
    result = []
    for count in ROWS:
        name, main = f"environment, {count} x {world.field.kind}; before: {how}", count == ROWS[0]
        single = Without("the batch: one environment", times["1"]) if main else None
        point = Point(f"environment, {world.field.kind}", "environments", count)
        own_times = times[str(count)]
        result.append(
            Row(
                name if main else f"  {name}",
                UNIT,
                own_times,
                times["before"],
                without=single,
                point=point,
            )
        )
    return result


def own_steps(world: World, count: int) -> Contestant:
    """Times steps; each call continues from the states of the last."""
    walk, action = Walk(world, count), torch.full((count, world.spec.action_size), 0.1)

    def run() -> None:
        for _ in range(OWN_STEPS):
            draws = draw(world, count, [walk.generator])
            walk.state = step(world, walk.state, action, draws, [walk.generator]).state

    return Contestant(run, OWN_STEPS * count)


def plain_steps(world: World, count: int) -> Contestant:
    """Returns steps of one environment after another."""
    plain, begun, walk = plain_world_of(world), Walk(world, count), Walk(world, count)
    noise, action = plain_noise(walk.step().draws), [[0.1] * world.spec.action_size] * count
    states = {"x": begun.state.x.tolist()}

    def run() -> None:
        for _ in range(PLAIN_STEPS):
            states["x"] = [
                each.state for each in plain_world.step(plain, states["x"], action, noise)
            ]

    return Contestant(run, PLAIN_STEPS * count)


def draw_row(rounds: int) -> Row:
    """Returns the row of a drawn table: a product of two factors against eigenvectors."""
    refuse_another_process()
    generator, rng = Generator().manual_seed(SEED), np.random.default_rng(SEED)
    parameters = KINDS["multi_attractor"] | {"nodes": float(NODES)}
    times = race(
        {
            "before": Contestant(lambda: plain_world.multi_attractor(rng, NODES)),
            "ours": Contestant(lambda: tables.multi_attractor(generator, **parameters)),
        },
        rounds,
    )
    name = (
        f"table of multi_attractor, {NODES} x {NODES};"
        f" before: eigenvectors of {NODES**2} x {NODES**2}"
    )
    return Row(name, UNIT, times["ours"], times["before"])


def refuse_another_process() -> None:
    """Compares the covariance of draws with the kernel of the plain ones.

    Raises:
        NotTheSame: they have another.
    """
    generator, length, variance = Generator().manual_seed(SEED), 0.9, 0.5
    s = torch.linspace(-plain_world.SPAN, plain_world.SPAN, CHECKED_NODES, dtype=torch.float64)
    result = [
        tables.gaussian_process(s, length, variance, generator).flatten(1)
        for _ in range(CHECKED_DRAWS)
    ]
    nodes = torch.cartesian_prod(s, s).numpy()
    expected = variance * plain_world.kernel(nodes, length)
    if not np.allclose(np.cov(torch.cat(result).T), expected, atol=0.06 * variance):
        raise NotTheSame("table of multi_attractor: draws have another covariance than the kernel")


def filter_rows(root: Path, rounds: int) -> list[Row]:
    """Returns rows of filter steps; before: dense matrices over all channels, row by row."""
    contestants, beliefs = {}, beliefs_of(sides_of(root, 1), FILTER_STEPS)
    for count in ROWS:
        sides = sides_of(root, count)
        beliefs, walk = beliefs_of(sides, FILTER_STEPS), Walk(sides.world, count)
        refuse_another_belief(beliefs, walk)
        contestants[str(count)] = own_filtering(beliefs, walk)
        if count == ROWS[0]:
            contestants |= {"before": plain_filtering(beliefs, walk), "limit": touched(beliefs)}
    times, n = race(contestants, rounds), beliefs.belief.mean.shape[1]
    sizes = f"{n} numbers, {sides.config.env.observation.channels} channels; before: dense matrices"
    result = []
    for count in ROWS:
        main, point = count == ROWS[0], Point("filter step", "rows", count)
        row = Row(
            f"  filter step, {count} row(s), {sizes}",
            UNIT,
            times[str(count)],
            times["before"],
            point=point,
        )
        if main:
            single = Without("the batch: one row", times["1"])
            name = f"{row.name.strip()}; limit: covariances read and written twice"
            row = row._replace(name=name, limit=times["limit"], without=single)
        result.append(row)
    return result


def touched(beliefs: BayesFilterLearner) -> Contestant:
    """Times two passes over the covariances of all rows."""
    covariance = beliefs.belief.covariance.clone()

    def run() -> None:
        for _ in range(2):
            covariance.mul_(0.5)

    return repeat(run, len(covariance))


def own_filtering(beliefs: BayesFilterLearner, walk: Walk) -> Contestant:
    """Times repeated updates with one transition."""
    observed = walk.step().observed

    def run() -> None:
        for _ in range(FILTER_STEPS):
            beliefs.observe(observed)

    return Contestant(run, FILTER_STEPS * len(beliefs.belief.mean))


def plain_filtering(beliefs: BayesFilterLearner, walk: Walk) -> Contestant:
    model, observed, state = (
        plain_filter_of(beliefs),
        walk.step().observed,
        {"beliefs": plain_beliefs(beliefs)},
    )
    u, y = observed.control.double(), observed.observation.double()
    filtered = partial(plain_filter.step, model)

    def run() -> None:
        state["beliefs"] = [each.belief for each in filtered(state["beliefs"], u, y)]

    return Contestant(run, len(state["beliefs"]))
