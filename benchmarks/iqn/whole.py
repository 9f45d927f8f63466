"""config -> rows about whole trainings of iqn: an episode of the original's schedule, equal work, time to a return."""

import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import torch

from benchmarks.harness import Contestant, Times, race
from benchmarks.iqn.playing import acting, seed_agents
from benchmarks.iqn.sides import SAME_TARGET, Sides, config_of, dump, memory_of, settings_of
from benchmarks.reference import iqn as reference
from benchmarks.reference.iqn_training import Society
from benchmarks.reference.iqn_world import ObjectWorld
from benchmarks.table import Goal, NotTheSame, Row
from quatrain.envs.treasurehunt.world import make_world
from quatrain.models.iqn import train
from quatrain.models.iqn.collect import collect
from quatrain.models.iqn.config import GeometricEpsilon, IqnConfig
from quatrain.models.iqn.train import Learner

RETURN = 100.0
"""Greedy, of an agent and episode: 0.94 of what an oracle with the agents' view earns."""
RUNS_TO_RETURN = 1
"""Of each side; one of the reference takes many minutes."""
JUDGING_WORLDS = 256
EPISODES_A_JUDGEMENT = 50
"""Of the reference: 12,500 agent-steps."""
MOST_EPISODES = 2000
COMPILE_SECONDS = 20.0


class Program:
    """The project's training, which goes on: each call is one of the compiled program."""

    def __init__(self, config: IqnConfig) -> None:
        self.config, self.world = config, make_world(config.env.rules)
        self.learner = fresh(config, 0)

    def __call__(self) -> None:
        self.learner, recorded = train.run_chunk(self.config, self.world, self.learner)
        jax.device_get(recorded)


def fresh(config: IqnConfig, number: int) -> Learner:
    """A learner before its first step."""
    world, keys = make_world(config.env.rules), train.base_keys(config, number)
    return train.init_learner(config, world, collect(config, number), keys)


def without_exploring(config: IqnConfig) -> IqnConfig:
    return acting(config, epsilon=GeometricEpsilon(kind="geometric", start=0.0, end=0.0, decay=0.0))


def schedule_rows(sides: Sides, rounds: int) -> list[Row]:
    """250 agent-steps and 5 gradient steps: an episode of the original, exploring no more."""
    config = without_exploring(sides.config)
    chunk = config.train.cycles_per_record
    times = race(
        {
            "before": Contestant(society_of(sides, sides.agents).episode),
            "seed": Contestant(society_of(sides, seed_agents(sides)).episode),
            "few": Contestant(Program(acting(config, quantiles=32, taus="midpoints")), chunk),
            "equal": Contestant(Program(config), chunk),
        },
        rounds,
    )
    size = config.train.batch_size
    row = partial(
        Row, unit="s", before=times["before"], seed_way=times["seed"], seed_item="004 overall", claimed="2-4x"
    )
    return [
        row(f"episode and a train step each, B={size}, 256 quantiles", ours=times["equal"]),
        row("  ours: 32 quantiles", ours=times["few"], goal=Goal(2.4, "before")),
    ]


def society_of(sides: Sides, agents: list[Any]) -> Society:
    """The reference, exploring no more."""
    rng = np.random.default_rng(0)
    world = ObjectWorld(sides.config.env.rules, rng)
    society = Society(world, agents, sides.memories, rng, sides.config.train.batch_size)
    society.epsilon = 0.0
    return society


def equal_work_row(sides: Sides, config: IqnConfig, rounds: int) -> Row:
    """4000 agent-steps and 16 gradient steps of each agent; the project's (`config`) in 32 worlds at once."""
    society, learner = society_of(sides, sides.agents), society_of(sides, seed_agents(sides))
    turns, updates = config.env.worlds * config.train.turns_per_cycle, config.train.updates_per_cycle

    def work(society: Society) -> None:
        for _ in range(turns // society.world.rules.max_turns):
            society.play()
        for _ in range(updates):
            society.learn()

    times = race(
        {
            "before": Contestant(partial(work, society)),
            "seed": Contestant(partial(work, learner)),
            "ours": Contestant(Program(without_exploring(config)), config.train.cycles_per_record),
        },
        rounds,
    )
    agents = config.env.agents
    name = f"{turns * agents} agent-steps and {updates * agents} train steps, B={config.train.batch_size}"
    return Row(
        name, "004 overall", "4-12x", "s", times["ours"], times["before"], times["seed"], Goal(6, "before")
    )  # fmt: skip


# From nothing to a return.


class Reached(NamedTuple):
    """When a run first earned RETURN: seconds of training (compiling counts, judging does not) and agent-steps."""

    seconds: float
    agent_steps: int


class Judged(NamedTuple):
    """A state of learning: its agent-steps and what its agents would earn greedily."""

    agent_steps: int
    greedy: Callable[[], float]


def return_rows(root: Path, runs: int) -> tuple[list[Row], str]:
    """Each side on its own schedule, run after run in turn, every one with a seed of its own."""
    config, plain_config = config_of(root, preset=None), config_of(root, train={"loss": SAME_TARGET})
    reached: dict[str, list[Reached]] = {"before": [], "ours": []}
    for number in range(runs):
        jax.clear_caches()  # so that every run compiles
        reached["ours"].append(until_return("ours", own_run(config, number)))
        reached["before"].append(until_return("before", plain_run(plain_config, number)))
    seconds = {name: Times(np.array([run.seconds for run in each])) for name, each in reached.items()}
    rows = [
        Row(f"greedy return {RETURN:g} from nothing", "004 overall", "4-12x", "s",
            seconds["ours"], seconds["before"], goal=Goal(4, "before")),
    ]  # fmt: skip
    steps = ", ".join(f"{name} {[run.agent_steps for run in each]}" for name, each in reached.items())
    return rows, f"greedy return {RETURN:g}: agent-steps of each run: {steps}; {JUDGING_WORLDS} worlds judge both"


def until_return(name: str, run: Iterator[Judged]) -> Reached:
    """Train until the return is there; the clock stands still while it is looked for.

    Raises:
        NotTheSame: the run ended before.
    """
    seconds, begin = 0.0, time.perf_counter()
    for judged in run:
        seconds += time.perf_counter() - begin
        if judged.greedy() >= RETURN:
            return Reached(seconds, judged.agent_steps)
        begin = time.perf_counter()
    raise NotTheSame(f"time to a return: {name} ended without a greedy return of {RETURN:g}")


def own_run(config: IqnConfig, number: int) -> Iterator[Judged]:
    """The project's training, judged where its config says."""
    program, agents = Program(config), config.env.agents * config.env.worlds
    program.learner = fresh(config, number)
    while int(program.learner.updates[0]) < config.train.steps:
        program()
        if int(program.learner.updates[0]) % config.train.evaluate_every == 0:
            turns = config.collect.turns + int(program.learner.player.turns[0])
            yield Judged(turns * agents, partial(judge, config, train.judged_params(config, program.learner)))


def plain_run(config: IqnConfig, number: int) -> Iterator[Judged]:
    """The reference's training."""
    rules, rng = config.env.rules, np.random.default_rng(number)
    generator = torch.Generator().manual_seed(number)
    agents = [reference.Agent(settings_of(config), generator) for _ in range(rules.agents)]
    memories = [memory_of(config, rng) for _ in agents]
    society = Society(ObjectWorld(rules, rng), agents, memories, rng, config.train.batch_size)
    for episode in range(1, MOST_EPISODES + 1):
        society.episode()
        if episode % EPISODES_A_JUDGEMENT == 0:
            steps = episode * rules.max_turns * rules.agents
            yield Judged(steps, lambda: judge(config, together(agents)))


def together(agents: list[reference.Agent]) -> Any:
    """The reference's weights as the project has them, of one seed."""
    return jax.tree.map(lambda *leaves: jnp.stack(leaves)[None], *(dump(agent.online) for agent in agents))


def judge(config: IqnConfig, params: Any) -> float:
    """Mean return of a greedy episode, by the same worlds for both sides."""
    train_section = config.train.model_copy(update={"evaluation_worlds": JUDGING_WORLDS})
    judging = acting(config.model_copy(update={"train": train_section}), quantiles=32, taus="midpoints")
    keys = train.base_keys(judging, 0)
    return float(train.greedy_returns(judging, make_world(config.env.rules), params, keys).mean())


def compile_row(config: IqnConfig) -> Row:
    """The first call of a training's program beyond its second."""
    jax.clear_caches()
    program, seconds = Program(config), []
    for _ in range(2):
        begin = time.perf_counter()
        program()
        seconds.append(time.perf_counter() - begin)
    return Row("compile the training", "004 networks", "0.1-0.2 s", "s",
        Times(np.array([seconds[0] - seconds[1]])), goal=Goal(COMPILE_SECONDS, "limit"))  # fmt: skip
