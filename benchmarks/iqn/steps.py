"""config -> rows about a gradient step of iqn: the plain reference, the seed's way, this project's,
and the limit.
"""

from collections.abc import Callable
from functools import partial
from operator import itemgetter
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch

from benchmarks.harness import Contestant, race
from benchmarks.iqn.sides import Sides, params_of, refuse_another_gradient
from benchmarks.reference import iqn as reference
from benchmarks.reference import iqn_seed as seed
from benchmarks.table import Goal, Point, Row, Without
from benchmarks.torch_threads import threads
from quatrain.models.iqn.config import IqnConfig
from quatrain.models.iqn.network import ACTIONS
from quatrain.models.iqn.train import Agent, update_agent, update_agents

MATMULS = 20  # of a turn
BATCHES = ("a train step of iqn and its batch", "batch")
TRIED_STEP = (
    "whole stacks gathered at once: draws take a quarter of the time; the rest was not profiled"
)


class Arm:
    """Updates the project's agents, `updates_per_cycle` times per call."""

    def __init__(self, config: IqnConfig, sides: Sides) -> None:
        self.experience, self.state = sides.experience, sides.state
        self.program, self.updates = (
            jax.jit(partial(update_agents, config)),
            config.train.updates_per_cycle,
        )

    def __call__(self) -> None:
        agents, recorded = self.program(self.state, self.experience)
        jax.block_until_ready(recorded)
        self.state = self.state._replace(
            **agents._asdict(), updates=self.state.updates + self.updates
        )


def changed(config: IqnConfig, noisy: str | None = None, **train: Any) -> IqnConfig:
    """Keys that a made learner does not depend on, changed without another check."""
    network = (
        config.network if noisy is None else config.network.model_copy(update={"noisy": noisy})
    )
    return config.model_copy(
        update={"network": network, "train": config.train.model_copy(update=train)}
    )


def train_rows(sides: Sides, rounds: int) -> list[Row]:
    """Measures the original's network, noise and batch."""
    refuse_another_gradient(sides)
    more = {
        "quiet": own_arm(changed(sides.config, noisy="none"), sides),
        "limit": limit(sides.config),
    }
    arms = plain_arms(sides) | seed_arms(sides) | {"ours": own_arm(sides.config, sides)} | more
    times = race(arms, rounds)
    size = sides.config.train.batch_size
    row = partial(Row, unit="ms/step", before=times["two threads"], ours=times["ours"])
    return [
        row(
            f"train step, {_shape(sides.config)}",
            seed_way=times["one by one"],
            limit=times["limit"],
            goal=Goal(1.4, "before"),
            claims=("agents-train",),
            point=Point(*BATCHES, size),
        ),
        row(
            f"  B={size}, before: 1 thread",
            before=times["one thread"],
            goal=Goal(2.4, "before"),
            tried=TRIED_STEP,
        ),
        row(
            "  seed's way: all agents side by side (vmap)",
            seed_way=times["side by side"],
            claims=("agents-train-together",),
        ),
        row(
            "  the same against the jitted step of one agent after the other",
            before=times["one by one"],
            seed_way=times["side by side"],
            against="jitted, one by one",
            claims=("agents-train-together",),
        ),
        row(
            f"  B={size}, no noise",
            before=None,
            ours=times["quiet"],
            limit=times["limit"],
            goal=Goal(0.65, "limit"),
            tried=TRIED_STEP,
        ),
    ]


def batch_rows(sides: Sides, rounds: int) -> list[Row]:
    """Measures the same network with smaller batches."""
    result = []
    for size in (32, 64):
        selected = sides._replace(config=changed(sides.config, batch_size=size))
        arms = plain_arms(selected) | {
            "ours": own_arm(selected.config, selected),
            "limit": limit(selected.config),
        }
        if size == 64:
            arms["quiet"] = own_arm(changed(selected.config, noisy="none"), selected)
        times = race(arms, rounds)
        row = partial(Row, unit="ms/step", before=times["two threads"], ours=times["ours"])
        name = f"train step, {_shape(selected.config)}"
        goal = Goal(1.5, "before") if size == 64 else None
        result.append(row(name, limit=times["limit"], goal=goal, point=Point(*BATCHES, size)))
        if size == 64:
            item, quiet = times["one thread"], times["quiet"]
            result.append(
                row(
                    f"  B={size}, before: 1 thread",
                    before=item,
                    goal=Goal(2.2, "before"),
                    tried=TRIED_STEP,
                )
            )
            limited = {"limit": times["limit"], "goal": Goal(0.5, "limit"), "tried": TRIED_STEP}
            result.append(row(f"  B={size}, no noise", before=None, ours=quiet, **limited))
    return result


def small_rows(sides: Sides, rounds: int) -> list[Row]:
    """Measures 64 units; the reference uses one thread, which is faster there."""
    refuse_another_gradient(sides)
    ways = {
        way: own_arm(changed(sides.config, agent_parallelism=way), sides)
        for way in ("vmap", "scan")
    }
    times = race(plain_arms(sides) | seed_arms(sides) | ways | {"called": called(sides)}, rounds)
    without = Without("the scan: each step called from Python", times["called"])
    row = partial(Row, unit="ms/step", before=times["one thread"], ours=times["vmap"])
    return [
        row(
            f"train step, {_shape(sides.config)}",
            seed_way=times["one by one"],
            without=without,
            goal=Goal(1.5, "before"),
            claims=("agents-train",),
            tried=TRIED_STEP,
        ),
        row(
            "  64 units, before: jitted, one agent after the other",
            before=times["one by one"],
            against="jitted, one by one",
            seed_way=times["side by side"],
            goal=Goal(1.3, "before"),
            claims=("agents-train-together",),
        ),
        row(
            "  64 units, without vmap: agents in turn",
            without=Without("vmap over agents", times["scan"]),
        ),
    ]


def large_rows(sides: Sides, rounds: int) -> list[Row]:
    """Measures 256 units, where matmuls dominate on either side."""
    refuse_another_gradient(sides)
    arms = (
        plain_arms(sides)
        | seed_arms(sides)
        | {"ours": own_arm(sides.config, sides), "limit": limit(sides.config)}
    )
    times = race({name: each for name, each in arms.items() if name != "side by side"}, rounds)
    row = partial(
        Row, unit="ms/step", ours=times["ours"], before=times["two threads"], limit=times["limit"]
    )
    return [
        row(
            f"train step, {_shape(sides.config)}",
            seed_way=times["one by one"],
            goal=Goal(0.9, "before"),
            claims=("agents-train",),
        ),
        row(
            "  256 units, its share of the matmul rate",
            before=None,
            goal=Goal(0.3, "limit"),
            tried=TRIED_STEP,
        ),
    ]


def _shape(config: IqnConfig) -> str:
    train = config.train
    return f"{config.network.hidden} units, B={train.batch_size}, Q={train.loss.quantiles}"


# The contestants; all count gradient steps of one agent, and all but the limit sample them.


def plain_arms(sides: Sides) -> dict[str, Contestant]:
    """Returns PyTorch, agent by agent, with the threads of the process and with one."""

    def steps(count: int) -> Callable[[], None]:
        def run() -> None:
            with threads(count):
                for agent, memory in zip(sides.agents, sides.memories, strict=True):
                    agent.learn(memory.sample(sides.config.train.batch_size))

        return run

    agents = len(sides.agents)
    return {
        "two threads": Contestant(steps(torch.get_num_threads()), agents),
        "one thread": Contestant(steps(1), agents),
    }


def seed_arms(sides: Sides) -> dict[str, Contestant]:
    """Returns a jitted step called from Python, agent by agent and for all under a vmap."""
    keys = jax.random.split(jax.random.key(1), len(sides.agents))
    agents = [
        seed.Agent(sides.plan, params_of(sides.state, index), key) for index, key in enumerate(keys)
    ]
    together = _together(agents)

    def batches() -> list[reference.Batch]:
        return [memory.sample(sides.config.train.batch_size) for memory in sides.memories]

    def one_by_one() -> None:
        for agent, batch in zip(agents, batches(), strict=True):
            agent.learn(batch)

    def vectorised() -> None:
        nonlocal together
        stacked = reference.Batch(*(np.stack(column) for column in zip(*batches(), strict=True)))
        together, values = seed.step_of_all(sides.plan, together, stacked, keys)
        jax.block_until_ready(values)

    return {
        "one by one": Contestant(one_by_one, len(agents)),
        "side by side": Contestant(vectorised, len(agents)),
    }


def _together(agents: list[seed.Agent]) -> seed.State:
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *(agent.state for agent in agents))


def called(sides: Sides) -> Contestant:
    """Updates without the scan: a jitted call from Python for each step of each agent."""
    program, key = jax.jit(partial(update_agent, sides.config)), jax.random.key(1)
    state, count = sides.state, sides.config.env.agents
    whole = Agent(state.params, state.target_params, state.optimizer)
    agents = [jax.tree.map(itemgetter(index), whole) for index in range(count)]

    def run() -> None:
        for index in range(count):
            agents[index], recorded = program(
                sides.experience, agents[index], jnp.int32(index), key
            )
            jax.block_until_ready(recorded)

    return Contestant(run, count)


def own_arm(config: IqnConfig, sides: Sides) -> Contestant:
    return Contestant(Arm(config, sides), config.train.updates_per_cycle * config.env.agents)


def limit(config: IqnConfig) -> Contestant:
    """Computes as many FLOP as a gradient step by PyTorch, all in its largest matmul."""
    rows, hidden = config.train.batch_size * config.train.loss.quantiles, config.network.hidden
    left, right = torch.randn(rows, hidden), torch.randn(hidden, hidden)

    def run() -> None:
        for _ in range(MATMULS):
            left @ right

    return Contestant(run, MATMULS * 2 * rows * hidden**2 / flop(config))


def flop(config: IqnConfig) -> float:
    """Counts the FLOP of a gradient step: three forward passes, and a backward one without input
    gradients.
    """
    hidden, rows = config.network.hidden, config.train.batch_size * config.train.loss.quantiles
    trunk = (
        config.train.batch_size * config.inputs * hidden + rows * config.network.cosines * hidden
    )
    behind = rows * hidden * (hidden + ACTIONS + 1)
    return 2 * (3 * (trunk + behind) + trunk + 2 * behind)
