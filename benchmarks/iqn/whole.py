"""sides -> rows about whole trainings of iqn: the original's schedule, equal work, compiling"""

import jax
import numpy as np

from benchmarks.harness import Contestant, Goal, Measured, Row, race
from benchmarks.iqn.sides import FEW, GREEDY, SEED, Sides, changed, society_of
from benchmarks.jax_work import Continued
from quatrain.envs.treasurehunt.world import make_world
from quatrain.models.iqn import train
from quatrain.models.iqn.collect import collect
from quatrain.models.iqn.config import IqnConfig


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
