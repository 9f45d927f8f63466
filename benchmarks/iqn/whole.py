"""sides -> rows about whole trainings of iqn: the original's schedule, equal work, compiling; and
a benchmark of its own: both sides from nothing to one greedy return, on their own schedules
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

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
MOST_AGENT_STEPS = 30_000
"""Goal of the project's training."""
WORLDS = 256
EPISODES = 50
"""Of the reference between evaluations: 12,500 agent-steps."""
MOST_EPISODES = 2000
Run = Iterator[tuple[int, Callable[[], float]]]
"""A training that yields its agent-steps, and what evaluates it: the greedy return."""


class Reached(NamedTuple):
    """Holds what a training took to reach the return; prefill included, evaluations not."""

    seconds: float
    agent_steps: int


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
    reached: dict[str, list[Reached]] = {"ours": [], "before": []}
    for number in range(runs):
        jax.clear_caches()  # so that every run compiles
        reached["ours"].append(until_return("ours", own_run(config, number)))
        reached["before"].append(until_return("before", plain_run(plain_config, number)))
    notes = [f"{WORLDS} worlds evaluate both, which is not timed; ours compiles anew in each run"]
    return Report(return_rows(reached), notes, jax.devices()[0].device_kind)


def return_rows(reached: Mapping[str, Sequence[Reached]]) -> list[Row]:
    """Returns the row of seconds, and below it that of agent-steps, a value per run."""

    def measured(field: str) -> dict[str, Measured]:
        return {
            side: Measured(np.array([getattr(run, field) for run in runs], float))
            for side, runs in reached.items()
        }

    name, goal = f"greedy return {RETURN:g} from nothing", Goal(4, "before")
    return [
        Row(name, "s", **measured("seconds"), goal=goal, claims=("agents-overall",)),
        Row(
            "agent-steps, with the prefill",
            "agent-steps",
            **measured("agent_steps"),
            goal=Goal(MOST_AGENT_STEPS, "value"),
            part_of=name,
        ),
    ]


def until_return(name: str, run: Run) -> Reached:
    """Trains until the return is reached; the seconds are those without evaluations."""
    seconds, begin = 0.0, time.perf_counter()
    for agent_steps, greedy in run:
        seconds += time.perf_counter() - begin
        earned = greedy()
        console.info(f"{name}: {seconds:.0f} s, {agent_steps:,}: greedy return {earned:.1f}")
        if earned >= RETURN:
            return Reached(seconds, agent_steps)
        begin = time.perf_counter()
    raise NotComparable(f"time to a return: {name} ended without a greedy return of {RETURN:g}")


def own_run(config: IqnConfig, number: int) -> Run:
    """Yields the project's training after each record."""
    state = train.init_state(config, collect(config, number), number)
    program = program_of(config, state)
    per_turn = config.env.agents * config.env.worlds
    for _ in range(config.train.steps // config.train.record_every):
        program()
        turns = config.collect.turns + int(program.state.play_state.turns[0])
        yield (
            per_turn * turns,
            partial(evaluate, config, train.evaluation_params(config, program.state)),
        )


def plain_run(config: IqnConfig, number: int) -> Run:
    """Yields the reference's training every `EPISODES` episodes."""
    rules, rng = config.env.rules, np.random.default_rng(number)
    generator = torch.Generator().manual_seed(number)
    agents = [reference.Agent(settings_of(config), generator) for _ in range(rules.agents)]
    rings = [ring_of(config) for _ in agents]
    society = Society(ObjectWorld(rules, rng), agents, rings, rng, config.train.batch_size)
    per_episode = rules.agents * rules.max_turns
    for episode in range(1, MOST_EPISODES + 1):
        society.episode()
        if episode % EPISODES == 0:
            params = jax.tree.map(lambda leaf: leaf[None], params_of(agents))
            yield per_episode * episode, partial(evaluate, config, params)


def evaluate(config: IqnConfig, params: Any) -> float:
    """Computes the mean return of a greedy episode, in the same envs for both sides."""
    config = changed(config, acting=FEW, evaluation_worlds=WORLDS)
    world, keys = make_world(config.env.rules), train.base_keys(config, 0)
    return float(train.greedy_returns(config, world, (params, keys)).mean())
