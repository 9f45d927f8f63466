"""config -> both sides from nothing to one greedy return: iqn and its plain reference, on their own
schedules.
"""

import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import torch

from benchmarks.harness import Measured
from benchmarks.iqn.acting import acting
from benchmarks.iqn.sides import SAME_TARGET, config_of, dump, memory_of, settings_of
from benchmarks.iqn.whole import Program
from benchmarks.reference import iqn as reference
from benchmarks.reference.iqn_training import Society
from benchmarks.reference.iqn_world import ObjectWorld
from benchmarks.table import Goal, NotTheSame, Report, Row
from pipeline.runtime import console
from quatrain.envs.treasurehunt.world import make_world
from quatrain.models.iqn import train
from quatrain.models.iqn.collect import collect
from quatrain.models.iqn.config import IqnConfig

RETURN = 100.0
"""Greedy, of an agent and episode: 0.94 of what an oracle with the agents' view earns."""
JUDGING_WORLDS = 256
EPISODES_A_JUDGEMENT = 50
"""Of the reference: 12,500 agent-steps."""
MOST_EPISODES = 2000


class Reached(NamedTuple):
    """Holds when a run first reached RETURN: seconds (with compiling, without evaluating),
    agent-steps.
    """

    seconds: float
    agent_steps: int


class Evaluation(NamedTuple):
    """Holds a state of learning: its agent-steps, and a function for its greedy return."""

    agent_steps: int
    greedy: Callable[[], float]


def measure(root: Path, runs: int) -> Report:
    """Measures each side on its own schedule, runs alternating, each with another seed."""
    config, plain_config = (
        config_of(root, preset=None),
        config_of(root, train={"loss": SAME_TARGET}),
    )
    reached: dict[str, list[Reached]] = {"before": [], "ours": []}
    for number in range(runs):
        jax.clear_caches()  # so that every run compiles
        reached["ours"].append(until_return("ours", own_run(config, number)))
        reached["before"].append(until_return("before", plain_run(plain_config, number)))
    seconds = {
        name: Measured(np.array([run.seconds for run in each])) for name, each in reached.items()
    }
    row = Row(
        f"greedy return {RETURN:g} from nothing",
        "s",
        seconds["ours"],
        seconds["before"],
        goal=Goal(4, "before"),
        claims=("agents-overall",),
    )
    steps = ", ".join(
        f"{name} {[run.agent_steps for run in each]}" for name, each in reached.items()
    )
    notes = [
        f"agent-steps of each run: {steps}; {JUDGING_WORLDS} worlds judge both; ours "
        "compiles anew in each run"
    ]
    return Report([row], notes, jax.devices()[0].device_kind)


def until_return(name: str, run: Iterator[Evaluation]) -> Reached:
    """Trains until the return is reached; evaluations are not timed.

    Raises:
        NotTheSame: the run ended before.
    """
    seconds, begin = 0.0, time.perf_counter()
    for evaluation in run:
        seconds += time.perf_counter() - begin
        earned = evaluation.greedy()
        console.info(
            f"{name}: {seconds:.0f} s, {evaluation.agent_steps:,} agent-steps: greedy return "
            f"{earned:.1f}"
        )
        if earned >= RETURN:
            return Reached(seconds, evaluation.agent_steps)
        begin = time.perf_counter()
    raise NotTheSame(f"time to a return: {name} ended without a greedy return of {RETURN:g}")


def own_run(config: IqnConfig, number: int) -> Iterator[Evaluation]:
    """Yields the project's training, evaluated as often as its config says."""
    program, agents = (
        Program(config, collect(config, number), number),
        config.env.agents * config.env.worlds,
    )
    while int(program.state.updates[0]) < config.train.steps:
        program()
        if int(program.state.updates[0]) % config.train.evaluate_every == 0:
            turns = config.collect.turns + int(program.state.play_state.turns[0])
            yield Evaluation(
                turns * agents,
                partial(judge, config, train.evaluation_params(config, program.state)),
            )


def plain_run(config: IqnConfig, number: int) -> Iterator[Evaluation]:
    """Yields the reference's training."""
    rules, rng = config.env.rules, np.random.default_rng(number)
    generator = torch.Generator().manual_seed(number)
    agents = [reference.Agent(settings_of(config), generator) for _ in range(rules.agents)]
    memories = [memory_of(config, rng) for _ in agents]
    society = Society(ObjectWorld(rules, rng), agents, memories, rng, config.train.batch_size)
    for episode in range(1, MOST_EPISODES + 1):
        society.episode()
        if episode % EPISODES_A_JUDGEMENT == 0:
            steps = episode * rules.max_turns * rules.agents
            yield Evaluation(steps, lambda: judge(config, together(agents)))


def together(agents: list[reference.Agent]) -> Any:
    """Returns the reference's weights in the project's form, of one seed."""
    return jax.tree.map(
        lambda *leaves: jnp.stack(leaves)[None], *(dump(agent.online) for agent in agents)
    )


def judge(config: IqnConfig, params: Any) -> float:
    """Computes the mean return of a greedy episode, in the same envs for both sides."""
    train_section = config.train.model_copy(update={"evaluation_worlds": JUDGING_WORLDS})
    judging = acting(
        config.model_copy(update={"train": train_section}), quantiles=32, taus="midpoints"
    )
    keys = train.base_keys(judging, 0)
    return float(train.greedy_returns(judging, make_world(config.env.rules), params, keys).mean())
