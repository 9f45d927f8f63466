"""config -> rows about whole trainings of iqn: an episode of the original's schedule, equal work,
compiling.
"""

import time
from functools import partial
from typing import Any

import jax
import numpy as np

from benchmarks.harness import Contestant, Measured, race
from benchmarks.iqn.acting import acting, seed_agents
from benchmarks.iqn.sides import Sides
from benchmarks.reference.iqn_training import Society
from benchmarks.reference.iqn_world import ObjectWorld
from benchmarks.table import Goal, Row
from quatrain.envs.treasurehunt.world import make_world
from quatrain.models.iqn import train
from quatrain.models.iqn.collect import Dataset, collect
from quatrain.models.iqn.config import GeometricEpsilon, IqnConfig

PART = 16
COMPILE_SECONDS = 20.0


class Program:
    """Continues the project's training by one call of the compiled program per call."""

    def __init__(self, config: IqnConfig, dataset: Dataset, number: int = 0) -> None:
        self.config, self.world = config, make_world(config.env.rules)
        self.state = train.init_state(config, dataset, number)

    def __call__(self) -> None:
        cycles = self.config.train.cycles_per_record
        self.state, recorded = train.run_chunk(self.config, self.world, cycles, self.state)
        jax.device_get(recorded)


def without_exploring(config: IqnConfig) -> IqnConfig:
    return acting(config, epsilon=GeometricEpsilon(kind="geometric", start=0.0, end=0.0, decay=0.0))


def schedule_row(sides: Sides, rounds: int) -> Row:
    """Measures 250 agent-steps and 5 gradient steps: an episode of the original, without
    exploring.
    """
    config = without_exploring(sides.config)
    few = acting(config, quantiles=32, taus="midpoints")
    times = race(
        {
            "before": Contestant(society_of(sides, sides.agents).episode),
            "seed": Contestant(society_of(sides, seed_agents(sides)).episode),
            "few": Contestant(Program(few, sides.dataset), config.train.cycles_per_record),
        },
        rounds,
    )
    return Row(
        f"episode and a train step each, B={config.train.batch_size}; ours: 32 quantiles",
        "s",
        times["few"],
        times["before"],
        times["seed"],
        goal=Goal(2.4, "before"),
        claims=("agents-overall",),
    )


def society_of(sides: Sides, agents: list[Any]) -> Society:
    """Returns the reference, without exploring."""
    rng = np.random.default_rng(0)
    world = ObjectWorld(sides.config.env.rules, rng)
    society = Society(world, agents, sides.memories, rng, sides.config.train.batch_size)
    society.epsilon = 0.0
    return society


def equal_work_row(sides: Sides, config: IqnConfig, rounds: int) -> Row:
    """Measures 4000 agent-steps and 16 gradient steps per agent; the project's (`config`) in 32
    envs.

    The others do a `PART` of it and are counted so.
    """
    society, state = society_of(sides, sides.agents), society_of(sides, seed_agents(sides))
    turns, updates = (
        config.env.worlds * config.train.turns_per_cycle,
        config.train.updates_per_cycle,
    )
    episodes = turns // society.world.rules.max_turns

    def work(society: Society) -> None:
        for _ in range(episodes // PART):
            society.play()
        for _ in range(updates // PART):
            society.learn()

    program = Program(without_exploring(config), collect(config, 0))
    times = race(
        {
            "before": Contestant(partial(work, society), 1 / PART),
            "seed": Contestant(partial(work, state), 1 / PART),
            "ours": Contestant(program, config.train.cycles_per_record),
        },
        rounds,
    )
    agents = config.env.agents
    steps = f"{turns * agents} agent-steps and {updates * agents} train steps"
    name = f"{steps}, B={config.train.batch_size}"
    return Row(
        name,
        "s",
        times["ours"],
        times["before"],
        times["seed"],
        goal=Goal(6, "before"),
        claims=("agents-overall",),
    )


def compile_row(config: IqnConfig, jitted: float) -> Row:
    """Measures the first call of a training's program minus its second; `jitted`: those of step and
    act.
    """
    jax.clear_caches()
    program, seconds = Program(config, collect(config, 0)), []
    for _ in range(2):
        begin = time.perf_counter()
        program()
        seconds.append(time.perf_counter() - begin)
    ours, proposed = Measured(np.array([seconds[0] - seconds[1]])), Measured(np.array([jitted]))
    return Row(
        "compile the whole training; seed's way: a gradient step",
        "s",
        ours,
        seed_way=proposed,
        goal=Goal(COMPILE_SECONDS, "value"),
        claims=("agents-compile",),
    )
