"""sides -> rows about whole trainings of iqn: the original's schedule, equal work, compiling; and
a benchmark of its own: both sides from nothing to one greedy return, on their own schedules
"""

import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
import torch

from benchmarks.harness import Contestant, Goal, Measured, NotComparable, Report, Row, race
from benchmarks.iqn.sides import (
    FEW,
    GREEDY,
    SAME_TARGET,
    SEED,
    Sides,
    changed,
    config_of,
    params_of,
    ring_of,
    settings_of,
    society_of,
)
from benchmarks.jax_work import Continued
from benchmarks.reference import iqn as reference
from benchmarks.reference.iqn_training import Society
from benchmarks.reference.iqn_world import ObjectWorld
from pipeline.runtime import console
from quatrain.envs.treasurehunt.world import make_world
from quatrain.models.iqn import train
from quatrain.models.iqn.collect import collect
from quatrain.models.iqn.config import IqnConfig

RETURN = 100.0
"""Greedy, of an agent and episode: 0.94 of what an oracle with the agents' view earns."""
WORLDS = 256
EPISODES = 50
"""Of the reference between evaluations: 12,500 agent-steps."""
MOST_EPISODES = 2000
Run = Iterator[Callable[[], float]]
"""A training that yields what evaluates it: the greedy return."""


def program_of(config: IqnConfig, state: train.State) -> Continued:
    """Returns the project's training, a call of its compiled program at a time."""
    world = make_world(config.env.rules)

    def advance(state):
        state, recorded = train.run_chunk(config, world, config.train.cycles_per_record, state)
        return state, jax.device_get(recorded)

    return Continued(advance, state)


def schedule_row(sides: Sides, rounds: int) -> Row:
    """Measures an episode of the original, 250 agent-steps, and a gradient step of each agent."""
    state = jax.tree.map(lambda leaf: leaf[None], sides.state)
    row = training_row(sides, changed(sides.config, acting=FEW), state, rounds)
    name = f"episode and a train step each, B={sides.config.train.batch_size}"
    return row._replace(name=f"{name}; ours: 32 quantiles", goal=Goal(2.4, "before"))


def equal_work_row(sides: Sides, config: IqnConfig, rounds: int) -> Row:
    """Measures 4000 agent-steps and 16 gradient steps per agent, the project's in 32 envs.

    That is 16 episodes of the others, who play one.
    """
    agents, updates = config.env.agents, config.train.updates_per_cycle
    turns = config.env.worlds * config.train.turns_per_cycle
    assert turns == updates * config.env.max_turns
    state = train.init_state(config, collect(config, SEED), SEED)
    row = training_row(sides, config, state, rounds, episodes=updates)
    name = f"{turns * agents} agent-steps and {updates * agents} train steps"
    return row._replace(name=f"{name}, B={config.train.batch_size}", goal=Goal(6, "before"))


def training_row(
    sides: Sides, config: IqnConfig, state: train.State, rounds: int, episodes: int = 1
) -> Row:
    """Measures cycles of the project and episodes of the others, none of them exploring."""
    program = program_of(changed(config, acting=GREEDY), state)
    contestants = {
        "before": Contestant(society_of(sides, sides.agents).episode, 1 / episodes),
        "seed_way": Contestant(society_of(sides, sides.seed_agents).episode, 1 / episodes),
        "ours": Contestant(program, config.train.cycles_per_record),
    }
    return Row("", "s", **race(contestants, rounds), claims=("agents-overall",))


def compile_row(schedule: Row, step: Row) -> Row:
    """Returns what compiling cost in two rows: a whole training, and the jitted gradient step."""
    sides = schedule.ours, step.seed_way
    ours, proposed = (Measured(np.array([side.compile_seconds])) for side in sides if side)
    name, goal = "compile the whole training; seed's way: a gradient step", Goal(20, "value")
    return Row(name, "s", ours, seed_way=proposed, goal=goal, claims=("agents-compile",))


# From nothing to a return.


def measure(root: Path, runs: int) -> Report:
    """Measures each side on its own schedule, runs alternating, each with another seed."""
    config = config_of(root, preset=None)
    plain_config = config_of(root, train={"loss": SAME_TARGET})
    seconds: dict[str, list[float]] = {"ours": [], "before": []}
    for number in range(runs):
        jax.clear_caches()  # so that every run compiles
        seconds["ours"].append(until_return("ours", own_run(config, number)))
        seconds["before"].append(until_return("before", plain_run(plain_config, number)))
    times = {name: Measured(np.array(each)) for name, each in seconds.items()}
    name, goal = f"greedy return {RETURN:g} from nothing", Goal(4, "before")
    row = Row(name, "s", **times, goal=goal, claims=("agents-overall",))
    notes = [f"{WORLDS} worlds evaluate both, which is not timed; ours compiles anew in each run"]
    return Report([row], notes, jax.devices()[0].device_kind)


def until_return(name: str, run: Run) -> float:
    """Trains until the return is reached; returns the seconds without evaluations."""
    seconds, begin = 0.0, time.perf_counter()
    for greedy in run:
        seconds += time.perf_counter() - begin
        earned = greedy()
        console.info(f"{name}: {seconds:.0f} s: greedy return {earned:.1f}")
        if earned >= RETURN:
            return seconds
        begin = time.perf_counter()
    raise NotComparable(f"time to a return: {name} ended without a greedy return of {RETURN:g}")


def own_run(config: IqnConfig, number: int) -> Run:
    """Yields the project's training, evaluated as often as its config says."""
    state = train.init_state(config, collect(config, number), number)
    program = program_of(config, state)
    for chunk in range(1, config.train.steps // config.train.record_every + 1):
        program()
        if chunk * config.train.record_every % config.train.evaluate_every == 0:
            params = train.evaluation_params(config, program.state)
            yield partial(evaluate, config, params)


def plain_run(config: IqnConfig, number: int) -> Run:
    """Yields the reference's training."""
    rules, rng = config.env.rules, np.random.default_rng(number)
    generator = torch.Generator().manual_seed(number)
    agents = [reference.Agent(settings_of(config), generator) for _ in range(rules.agents)]
    rings = [ring_of(config) for _ in agents]
    society = Society(ObjectWorld(rules, rng), agents, rings, rng, config.train.batch_size)
    for episode in range(1, MOST_EPISODES + 1):
        society.episode()
        if episode % EPISODES == 0:
            yield lambda: evaluate(config, jax.tree.map(lambda leaf: leaf[None], params_of(agents)))


def evaluate(config: IqnConfig, params: Any) -> float:
    """Computes the mean return of a greedy episode, in the same envs for both sides."""
    config = changed(config, acting=FEW, evaluation_worlds=WORLDS)
    world, keys = make_world(config.env.rules), train.base_keys(config, 0)
    return float(train.greedy_returns(config, world, params, keys).mean())
