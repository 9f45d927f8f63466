"""rollouts -> rows: colonies with constant actions, and with a policy"""

from collections.abc import Callable
from functools import partial

from torch import Generator, Tensor

from benchmarks.actor_critic import sides
from benchmarks.harness import Goal, Row
from benchmarks.reference import actor_critic as reference
from benchmarks.reference.colony import RUNNING, Colony, Step
from benchmarks.torch_rows import Work, measured_row, products
from quatrain.envs.colony.dynamics import Colonies, World
from quatrain.envs.colony.world import step
from quatrain.frameworks.torch.threads import threads
from quatrain.models.actor_critic.ppo.acting import Actor, observe, stochastic_policy

CLAIM = "colony-environments"
COLONIES, CELLS = 64, 40
THREADS = (1, 2)
ALONE = "the batch: one colony at a time"
TRIED = (
    "fewer calls into torch, bit for bit: 1.3 times as fast. What is left are some 160 calls of a"
    " few microseconds, as many for 1 colony as for 64: 1024 colonies are beyond the goal"
)


def rows(actor: Actor, rounds: int) -> list[Row]:
    """Counts steps by colony; all colonies hold 40 cells, and begin again with as many."""
    row = partial(measured_row, "ms/step", rounds)
    actor = sides.sized(actor, CELLS)
    sides.refuse_another_step(actor.world)
    sides.refuse_another_policy(actor)
    with threads(1):
        result = [env_row(row, actor.world)]
    for count in THREADS:
        with threads(count):
            result += acting_rows(row, actor, count)
    return result


def env_row(row: partial[Row], world: World) -> Row:
    """Measures constant actions, rewards and resets, without observations."""
    begun = sides.colonies_of(world, COLONIES)
    action = sides.steady(world, COLONIES)
    works = {
        "ours": stepping(world, COLONIES, lambda _: action),
        "before": plain_stepping(
            world, begun, partial(reference.rewarded_step, action=action[0].tolist())
        ),
        "without": stepping(world, 1, lambda _: action[:1]),
        "limit": lambda: [leaf.clone() for leaf in begun],
    }
    units = {"ours": COLONIES, "limit": COLONIES}
    name = f"environment, {COLONIES} x {CELLS} cells; limit: a copy of the state"
    goal = Goal(10, "before")
    return row(name, works, ALONE, units, goal=goal, claims=(CLAIM,), tried=TRIED)


def acting_rows(row: partial[Row], actor: Actor, thread_count: int) -> list[Row]:
    """Measures features, network, a drawn action and the step. The original passes all cells
    through residual networks, twice.
    """
    begun = sides.colonies_of(actor.world, COLONIES)
    act = stochastic_policy(actor, Generator().manual_seed(0))
    players = [sides.plain_player(actor, passes) for passes in (1, 2)]
    once, twice = (plain_stepping(actor.world, begun, player.act) for player in players)
    ours, alone = (
        stepping(actor.world, count, lambda colonies: act(colonies.n, colonies))
        for count in (COLONIES, 1)
    )
    d, graphs = actor.config.network.d, observe(actor, begun)
    limit, share = products(lambda: actor.eager(graphs), COLONIES * CELLS, d, 2 * d)
    name = f"environment and policy, `{actor.config.env.features}`, {COLONIES} x {CELLS} cells"
    name = f"{name}, {thread_count} thread(s); before: ResNet18, twice"
    name = f"{name}; limit: the policy's products"
    works = {"ours": ours, "before": twice, "without": alone, "limit": limit}
    units = {"ours": COLONIES, "limit": COLONIES * share}
    goal = Goal(100, "before")
    return [
        row(name, works, ALONE, units, goal=goal, claims=(CLAIM,)),
        row("  before: ResNet18, once", {"ours": ours, "before": once}, "", units, goal=goal),
    ]


def stepping(world: World, count: int, act: Callable[[Colonies], Tensor]) -> Work:
    """Steps the project's colonies, which continue from the last call."""
    generator = Generator().manual_seed(0)
    state = [sides.colonies_of(world, count)]

    def work() -> None:
        state[0] = step(world, state[0], act(state[0]), generator).colonies

    return work


def plain_stepping(world: World, begun: Colonies, advance: Callable[[Colony], Step]) -> Work:
    """Steps the first of these colonies, which begins again where its episode ends."""
    colony = sides.plain_colony(world, begun, 0)

    def work() -> None:
        if advance(colony).reason != RUNNING:
            colony.start(begun.pos[0, : begun.n[0]].tolist())

    return work
