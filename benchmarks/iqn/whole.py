"""sides -> rows about whole trainings of iqn: the original's schedule, equal work, compiling"""

import jax
import numpy as np

from benchmarks.harness import Contestant, Measured, race
from benchmarks.iqn.sides import FEW, GREEDY, Sides, changed, society_of
from benchmarks.jax_work import Continued
from benchmarks.reference.iqn_training import Society
from benchmarks.table import Goal, Row
from quatrain.envs.treasurehunt.world import make_world
from quatrain.models.iqn import train
from quatrain.models.iqn.collect import collect
from quatrain.models.iqn.config import IqnConfig

PART = 16
COMPILE_SECONDS = 20.0


def program_of(config: IqnConfig, state: train.State) -> Continued:
    """Returns the project's training, a call of its compiled program at a time."""
    world = make_world(config.env.rules)

    def advance(state):
        state, recorded = train.run_chunk(config, world, config.train.cycles_per_record, state)
        return state, jax.device_get(recorded)

    return Continued(advance, state)


def schedule_row(sides: Sides, rounds: int) -> Row:
    """Measures an episode of the original without exploring: 250 agent-steps, 5 gradient steps."""
    config = changed(sides.config, acting=FEW | GREEDY)
    program = program_of(config, jax.tree.map(lambda leaf: leaf[None], sides.state))
    contestants = {
        "before": Contestant(society_of(sides, sides.agents).episode),
        "seed_way": Contestant(society_of(sides, sides.seed_agents).episode),
        "ours": Contestant(program, config.train.cycles_per_record),
    }
    return Row(
        f"episode and a train step each, B={config.train.batch_size}; ours: 32 quantiles",
        "s",
        **race(contestants, rounds),
        goal=Goal(2.4, "before"),
        claims=("agents-overall",),
    )


def equal_work_row(sides: Sides, config: IqnConfig, rounds: int) -> Row:
    """Measures 4000 agent-steps and 16 gradient steps per agent, the project's in 32 envs.

    The others do a `PART` of it and are counted so.
    """
    selected, rules = config.train, config.env.rules
    turns, updates = config.env.worlds * selected.turns_per_cycle, selected.updates_per_cycle

    def part(society: Society) -> Contestant:
        def run() -> None:
            for _ in range(turns // rules.max_turns // PART):
                society.play()
            for _ in range(updates // PART):
                society.learn()

        return Contestant(run, 1 / PART)

    state = train.init_state(config, collect(config, 0), 0)
    program = program_of(changed(config, acting=GREEDY), state)
    contestants = {
        "before": part(society_of(sides, sides.agents)),
        "seed_way": part(society_of(sides, sides.seed_agents)),
        "ours": Contestant(program, selected.cycles_per_record),
    }
    steps = f"{turns * rules.agents} agent-steps and {updates * rules.agents} train steps"
    return Row(
        f"{steps}, B={selected.batch_size}",
        "s",
        **race(contestants, rounds),
        goal=Goal(6, "before"),
        claims=("agents-overall",),
    )


def compile_row(schedule: Row, step: Row) -> Row:
    """Returns what compiling cost in two rows: a whole training, and the jitted gradient step."""
    assert step.seed_way is not None
    ours, proposed = (
        Measured(np.array([measured.compile_seconds]))
        for measured in (schedule.ours, step.seed_way)
    )
    goal = Goal(COMPILE_SECONDS, "value")
    name = "compile the whole training; seed's way: a gradient step"
    return Row(name, "s", ours, seed_way=proposed, goal=goal, claims=("agents-compile",))
