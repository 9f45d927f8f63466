"""rows about playing: colonies alone, with what is seen of them, and with a policy that acts on it."""

from functools import partial

import torch
from torch import Generator

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
from benchmarks.harness import Contestant, race
from benchmarks.reference import actor_critic as reference
from benchmarks.reference import colony_features
from benchmarks.reference.colony import RUNNING, Colony
from benchmarks.table import Goal, Row
from benchmarks.torch_threads import threads
from quatrain.envs.colony.dynamics import Colonies, World
from quatrain.envs.colony.features import observe
from quatrain.envs.colony.world import step
from quatrain.models.actor_critic.ppo.acting import see

UNIT = "ms/step"
SEED_ITEM = "002 vectorised environments"
COUNTS = (64, 1, 16, 256, 1024)
COLONIES, CELLS = 64, 40
OWN_STEPS = 2048
"""Of all colonies together, in a call."""
PLAIN_STEPS = 10
IMAGE_STEPS = 2
THREADS = (1, 2)


def rows(sides: Sides, rounds: int) -> list[Row]:
    """Steps are counted by colony; all colonies hold 40 cells, and begin again with as many."""
    world = sized(sides.world, CELLS)
    refuse_another_step(world)
    refuse_another_policy(sides, CELLS)
    found = [*env_rows(world, rounds), *seeing_rows(world, rounds)]
    for count in THREADS:
        with threads(count):
            found += acting_rows(sides, rounds, count)
    return found


def env_rows(world: World, rounds: int) -> list[Row]:
    """Constant actions, reward, beginning anew; nothing is observed."""
    with threads(1):
        sides = {"before": plain_steps(world)} | {str(count): own_steps(world, count) for count in COUNTS}
        times = race(sides, rounds)
    return [
        Row(
            f"{'  ' if count != COLONIES else ''}environment, {count} x {CELLS} cells", SEED_ITEM, "10x", UNIT,
            times[str(count)], times["before"], goal=Goal(10, "before") if count == COLONIES else None,
        )
        for count in COUNTS
    ]  # fmt: skip


def own_steps(world: World, count: int) -> Contestant:
    """The project's colonies, which go on where the last call left them."""
    generator, action = Generator().manual_seed(0), steady(world.rules, count)
    state, steps = {"colonies": colonies_of(world, count)}, max(1, OWN_STEPS // count)

    def run() -> None:
        for _ in range(steps):
            state["colonies"] = step(world, state["colonies"], action, generator).colonies

    return Contestant(run, steps * count)


def plain_steps(world: World) -> Contestant:
    """One plain colony."""
    begun = colonies_of(world, 1)
    colony, action = plain_colony(world, begun, 0), steady(world.rules, 1)[0].tolist()

    def run() -> None:
        for _ in range(PLAIN_STEPS):
            taken = colony.step(action)
            reference.rewarded(taken)
            if taken.reason != RUNNING:
                begin_again(colony, begun)

    return Contestant(run, PLAIN_STEPS)


def begin_again(colony: Colony, begun: Colonies) -> None:
    n = int(begun.n[0])
    colony.start(begun.pos[0, :n].tolist())


def seeing_rows(world: World, rounds: int) -> list[Row]:
    """Features of colonies that stand still, both kinds."""
    found = []
    begun = colonies_of(world, COLONIES)
    for kind in ("light", "full"):
        kind_world = world._replace(rules=world.rules._replace(features=kind))
        colony = plain_colony(kind_world, begun, 0)
        with threads(1):
            times = race(
                {
                    "before": Contestant(partial(seen_plainly, colony)),
                    "ours": Contestant(partial(observe, kind_world, begun, CELLS), COLONIES),
                },
                rounds,
            )
        name = f"features `{kind}`, {COLONIES} x {CELLS} cells"
        found.append(Row(name, SEED_ITEM, "-", UNIT, times["ours"], times["before"]))
    return found


def seen_plainly(colony: Colony) -> colony_features.Seen:
    state = colony.state()
    if colony.rules.features == "light":
        return colony_features.light(state, colony.rules, colony.left)
    return colony_features.full(state)


# With a policy.


def acting_rows(sides: Sides, rounds: int, thread_count: int) -> list[Row]:
    """Features, network, a drawn action, the step. The original passes all cells through residual networks, twice."""
    world = sized(sides.world, CELLS)
    costly = with_images(sides)
    times = race(
        {
            "two passes": plain_acting(sides, world, costly, 2, IMAGE_STEPS),
            "one pass": plain_acting(sides, world, costly, 1, IMAGE_STEPS),
            "no images": plain_acting(sides, world, sides.plain, 1, PLAIN_STEPS),
            "ours": own_acting(sides, world),
        },
        rounds,
    )
    row = partial(Row, seed_item=SEED_ITEM, claimed="10x", unit=UNIT, ours=times["ours"])
    features = sides.config.env.features
    name = f"environment and policy, `{features}`, {COLONIES} x {CELLS} cells, {thread_count} thread(s)"
    return [
        row(f"{name}; before: ResNet18, twice", before=times["two passes"], goal=Goal(100, "before")),
        row("  before: ResNet18, once", before=times["one pass"], goal=Goal(100, "before")),
        row("  before: no ResNet18", before=times["no images"]),
    ]


@torch.no_grad()
def acted(sides: Sides, world: World, colonies: Colonies, draws: Generator) -> Colonies:
    """One step as training takes it."""
    actor = sides.actor._replace(world=world)
    chosen = actor.policy.distribution(actor.forward(see(actor, colonies)).raw)
    return step(world, colonies, actor.policy.action(actor.policy.sample(chosen, draws)), draws).colonies


def own_acting(sides: Sides, world: World) -> Contestant:
    """The project's colonies and its network."""
    draws, state = Generator().manual_seed(0), {"colonies": colonies_of(world, COLONIES)}
    steps = max(1, OWN_STEPS // COLONIES)

    def run() -> None:
        for _ in range(steps):
            state["colonies"] = acted(sides, world, state["colonies"], draws)

    return Contestant(run, steps * COLONIES)


def plain_acting(sides: Sides, world: World, plain: reference.GraphNetwork, passes: int, steps: int) -> Contestant:
    """One plain colony and the plain network."""
    begun = colonies_of(world, 1)
    colony = plain_colony(world, begun, 0)
    acting = reference.Acting(plain, colony, plain_scale(sides.actor), sides.box, passes)

    def run() -> None:
        for _ in range(steps):
            if acting.step().reason != RUNNING:
                begin_again(colony, begun)

    return Contestant(run, steps)
