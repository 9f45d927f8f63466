"""rows about rollouts: colonies alone, with observations, and with a policy."""

from functools import partial

import torch
from torch import Generator, Tensor
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.actor_critic.sides import (
    Sides,
    colonies_of,
    plain_colony,
    plain_scale,
    refuse_another_policy,
    refuse_another_step,
    sized,
    steady,
    with_images,
)
from benchmarks.harness import Contestant, Measured, race
from benchmarks.reference import actor_critic as reference
from benchmarks.reference import colony_features
from benchmarks.reference.colony import RUNNING, Colony
from benchmarks.repeat import repeat
from benchmarks.table import Goal, Point, Row, Without
from benchmarks.torch_threads import threads
from quatrain.envs.colony.dynamics import Colonies, World
from quatrain.envs.colony.episodes import select
from quatrain.envs.colony.features import observe
from quatrain.envs.colony.world import step
from quatrain.models.actor_critic.ppo import acting

UNIT = "ms/step"
CLAIM = "colony-environments"
COUNTS = (64, 1, 16, 256, 1024)
COLONIES, CELLS = 64, 40
SIZES = (10, 20, 40, 80)
OWN_STEPS = 1024
"""Of all colonies together, in a call; of each between LEAST_STEPS and MOST_STEPS."""
LEAST_STEPS, MOST_STEPS = 4, 32
PLAIN_STEPS, SOME_STEPS, IMAGE_STEPS = 40, 5, 1
"""Of one plain colony, in a call: alone, with a policy, and with one that passes cells through
residual networks.
"""
THREADS = (1, 2)
TRIED = (
    "a sixth of the calls into torch is gone (positions moved as complex numbers, one gather of "
    "cells and children in "
    "place of masks), bit for bit: 1.3 times as fast; the same by NumPy was no faster. What is "
    "left are some 160 "
    "calls of a few microseconds each, as many for 1 colony as for 64: 256 colonies are beyond the "
    "goal"
)
"""Where 64 colonies miss their goal."""


def rows(sides: Sides, rounds: int) -> list[Row]:
    """Steps are counted by colony; all colonies hold 40 cells, and begin again with as many."""
    world = sized(sides.world, CELLS)
    refuse_another_step(world)
    refuse_another_policy(sides, CELLS)
    result = [*env_rows(world, rounds), *seeing_rows(world, rounds)]
    with threads(1):
        result += size_rows(sides, rounds)
    for count in THREADS:
        with threads(count):
            result += acting_rows(sides, rounds, count)
    return result


def env_rows(world: World, rounds: int) -> list[Row]:
    """Measures constant actions, rewards and resets, without observations."""
    with threads(1):
        sides = {"before": plain_steps(world), "limit": copied(world)}
        times = race(sides | {str(count): own_steps(world, count) for count in COUNTS}, rounds)
    return [env_row(times, count) for count in COUNTS]


def env_row(times: dict[str, Measured], count: int) -> Row:
    """Measures one number of colonies; that of the headline represents all."""
    name, point = f"environment, {count} x {CELLS} cells", Point("environment", "colonies", count)
    row = Row(name, UNIT, times[str(count)], times["before"], point=point)
    if count != COLONIES:
        return row._replace(name=f"  {name}")
    item = Without("the batch: one colony at a time", times["1"])
    name = f"{name}; limit: a copy of the state"
    return row._replace(
        name=name,
        limit=times["limit"],
        without=item,
        goal=Goal(10, "before"),
        claims=(CLAIM,),
        tried=TRIED,
    )


def own_steps(world: World, count: int) -> Contestant:
    """Steps the project's colonies, which continue from the last call."""
    generator, action = Generator().manual_seed(0), steady(world.rules, count)
    state, steps = {"colonies": colonies_of(world, count)}, steps_of(count)

    def run() -> None:
        for _ in range(steps):
            state["colonies"] = step(world, state["colonies"], action, generator).colonies

    return Contestant(run, steps * count)


def steps_of(count: int) -> int:
    """Returns the number of steps per call for this number of colonies."""
    return max(LEAST_STEPS, min(MOST_STEPS, OWN_STEPS // count))


def copied(world: World) -> Contestant:
    """Copies all arrays of the colonies: the least work of a step."""
    begun = colonies_of(world, COLONIES)
    return repeat(lambda: [leaf.clone() for leaf in begun], COLONIES)


def plain_steps(world: World) -> Contestant:
    """Steps one plain colony."""
    begun = colonies_of(world, 1)
    colony, action = plain_colony(world, begun, 0), steady(world.rules, 1)[0].tolist()

    def run() -> None:
        for _ in range(PLAIN_STEPS):
            transition = colony.step(action)
            reference.rewarded(transition)
            if transition.reason != RUNNING:
                begin_again(colony, begun)

    return Contestant(run, PLAIN_STEPS)


def begin_again(colony: Colony, begun: Colonies) -> None:
    n = int(begun.n[0])
    colony.start(begun.pos[0, :n].tolist())


def seeing_rows(world: World, rounds: int) -> list[Row]:
    """Features of colonies that stand still, both kinds."""
    result = []
    begun = colonies_of(world, COLONIES)
    for kind in ("light", "full"):
        kind_world = world._replace(rules=world.rules._replace(features=kind))
        colony = plain_colony(kind_world, begun, 0)
        with threads(1):
            times = race(
                {
                    "before": repeat(partial(seen_plainly, colony)),
                    "ours": repeat(partial(observe, kind_world, begun, CELLS), COLONIES),
                    "one": repeat(
                        partial(observe, kind_world, select(begun, torch.tensor([0])), CELLS)
                    ),
                },
                rounds,
            )
        name = f"features `{kind}`, {COLONIES} x {CELLS} cells"
        item = Without("the batch: one colony at a time", times["one"])
        result.append(Row(name, UNIT, times["ours"], times["before"], without=item))
    return result


def seen_plainly(colony: Colony) -> colony_features.Observation:
    state = colony.state()
    if colony.rules.features == "light":
        return colony_features.light(state, colony.rules, colony.left)
    return colony_features.full(state)


# With a policy.


def acting_rows(sides: Sides, rounds: int, thread_count: int) -> list[Row]:
    """Features, network, a drawn action, the step. The original passes all cells through residual
    networks, twice.
    """
    world = sized(sides.world, CELLS)
    costly = with_images(sides)
    times = race(
        {
            "two passes": plain_acting(sides, world, costly, 2, IMAGE_STEPS),
            "one pass": plain_acting(sides, world, costly, 1, IMAGE_STEPS),
            "no images": plain_acting(sides, world, sides.plain, 1, SOME_STEPS),
            "ours": own_acting(sides, world, COLONIES),
            "one": own_acting(sides, world, 1),
            "limit": products(forward_flops(sides, world), sides.config.network.d, COLONIES),
        },
        rounds,
    )
    row = partial(Row, unit=UNIT, ours=times["ours"])
    features = sides.config.env.features
    name = (
        f"environment and policy, `{features}`, {COLONIES} x {CELLS} cells, {thread_count} "
        f"thread(s)"
    )
    item, goal = Without("the batch: one colony at a time", times["one"]), Goal(100, "before")
    return [
        row(
            f"{name}; before: ResNet18, twice; limit: the policy's products",
            before=times["two passes"],
            limit=times["limit"], without=item, goal=goal, claims=(CLAIM,),
        ),
        row("  before: ResNet18, once", before=times["one pass"], goal=goal),
        row("  before: no ResNet18", before=times["no images"]),
    ]  # fmt: skip


def size_rows(sides: Sides, rounds: int) -> list[Row]:
    """Measures acting by the size of colonies; the plain loop without residual networks, which
    would dominate.
    """
    result = []
    for cells in SIZES:
        world = sized(sides.world, cells)
        contestants = {
            "before": plain_acting(sides, world, sides.plain, 1, SOME_STEPS),
            "ours": own_acting(sides, world, COLONIES),
        }
        times = race(contestants, rounds)
        name = f"  environment and policy, {COLONIES} x {cells} cells; before: no ResNet18"
        point = Point("environment and policy", "cells", cells)
        result.append(Row(name, UNIT, times["ours"], times["before"], point=point))
    return result


def forward_flops(sides: Sides, world: World) -> float:
    """Returns the network's operations for all colonies."""
    observed = acting.observe(sides.actor._replace(world=world), colonies_of(world, COLONIES))
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        sides.actor.eager(observed)
    return float(counter.get_total_flops())


def products(flops: float, d: int, units: float) -> Contestant:
    """Computes as many operations as matrix products of a size that suits the network's width: a
    lower bound of the time.
    """
    rows: Tensor = torch.randn(COLONIES * CELLS, d)
    weight, item = torch.randn(d, 2 * d), 4.0 * COLONIES * CELLS * d * d
    return repeat(lambda: rows @ weight, units * item / flops)


@torch.no_grad()
def acted(sides: Sides, world: World, colonies: Colonies, draws: Generator) -> Colonies:
    """Takes one step as training does."""
    actor = sides.actor._replace(world=world)
    selected = actor.policy.distribution(actor.forward(acting.observe(actor, colonies)).raw)
    return step(
        world, colonies, actor.policy.action(actor.policy.sample(selected, draws)), draws
    ).colonies


def own_acting(sides: Sides, world: World, count: int) -> Contestant:
    """Acts with the project's colonies and network."""
    draws, state = Generator().manual_seed(0), {"colonies": colonies_of(world, count)}
    steps = steps_of(count)

    def run() -> None:
        for _ in range(steps):
            state["colonies"] = acted(sides, world, state["colonies"], draws)

    return Contestant(run, steps * count)


def plain_acting(
    sides: Sides, world: World, plain: reference.GraphNetwork, passes: int, steps: int
) -> Contestant:
    """Acts with one plain colony and the plain network."""
    begun = colonies_of(world, 1)
    colony = plain_colony(world, begun, 0)
    acting = reference.Acting(plain, colony, plain_scale(sides.actor), sides.box, passes)

    def run() -> None:
        for _ in range(steps):
            if acting.step().reason != RUNNING:
                begin_again(colony, begun)

    return Contestant(run, steps)
