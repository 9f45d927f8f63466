"""iqn: gradient steps, acting, the world and training, against the original and its proposal"""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.iqn.sides import SAME_TARGET, SEED, Sides, config_of, sides_of
from benchmarks.reference import iqn as reference
from benchmarks.reference import iqn_seed as proposal
from benchmarks.reference.iqn_training import episode
from benchmarks.reference.iqn_world import ObjectWorld, play_randomly
from benchmarks.rows import ORIGINAL, OURS, PROPOSAL, Claim, Row
from benchmarks.timing import Continued, Work, race, ready
from quatrain.envs.treasurehunt import turns
from quatrain.envs.treasurehunt.config import Env
from quatrain.envs.treasurehunt.policies import random_policy
from quatrain.envs.treasurehunt.world import make_world
from quatrain.frameworks.torch import threads
from quatrain.models.iqn import train
from quatrain.models.iqn.collect import collect
from quatrain.models.iqn.config import IqnConfig
from quatrain.models.iqn.learn import State, update_agents
from quatrain.models.iqn.network import greedy_actions, midpoints

FEW: dict[str, Any] = {"quantiles": 32, "taus": "midpoints"}
"""Of acting: as many quantiles as it needs."""
STEPS = {"updates_per_cycle": 1, "record_every": 1, "evaluate_every": 0, "loss": SAME_TARGET}
"""Of train: the programs of a whole cycle are as short as they can be."""
EQUAL_WORK = STEPS | {
    "turns": 50_000,
    "turns_per_cycle": 25,
    "updates_per_cycle": 16,
    "record_every": 16,
    "batch_size": 64,
    "capacity": 16_000,
    "acting": FEW | {"epsilon": {"start": 0.0}},
}
"""Of train, with 32 worlds: 4000 agent-steps and 80 gradient steps a cycle, without exploring."""
WORLDS, TURNS, PLAIN_TURNS = 256, 25, 20
"""Random play in a call of ours; turns in one of the other sides."""


def measure(root: Path, rounds: int) -> list[Row]:
    """Measures five agents that learn separately, as the original program."""
    sides = sides_of(config_of(root, train=STEPS))
    work = config_of(root, env={"worlds": 32}, collect={"turns": 50}, train=EQUAL_WORK)
    return [
        *step_rows(sides, rounds),
        acting_row(sides, rounds),
        world_row(sides.config.env, rounds),
        training_row(sides, work, rounds),
    ]


# Gradient steps.


def step_rows(sides: Sides, rounds: int) -> list[Row]:
    """Measures a gradient step of one agent, with sampling and noise: the proposal's one after
    the other, and all together.
    """
    config, count = sides.config, len(sides.agents)
    keys = jax.random.split(jax.random.key(1), count)
    rng, size = np.random.default_rng(SEED), config.train.batch_size

    def batches() -> list[reference.Batch]:
        return [ring.sample(rng, ring.starts(), size) for ring in sides.rings]

    def learn(agents: list[Any]) -> None:
        for agent, batch in zip(agents, batches(), strict=True):
            agent.learn(batch)

    def learn_together(states: Any) -> Any:
        stacked = reference.Batch(*(np.stack(column) for column in zip(*batches(), strict=True)))
        return proposal.step_of_all(config, states, stacked, keys)

    states = jax.tree.map(lambda *leaves: jnp.stack(leaves), *(a.state for a in sides.proposed))
    works: dict[str, Work] = {
        ORIGINAL: lambda: learn(sides.agents),
        PROPOSAL: lambda: learn(sides.proposed),
        "together": Continued(learn_together, states),
        OURS: own_steps(sides),
    }
    units = dict.fromkeys(works, count) | {OURS: count * config.train.updates_per_cycle}
    times = race(works, rounds, units)
    together = {ORIGINAL: times[ORIGINAL], PROPOSAL: times["together"], OURS: times[OURS]}
    del times["together"]
    name = f"gradient step, {config.network.hidden} units, batch {size}"
    jitted = Claim("agents", "2-5x for training", 2.0)
    all_agents = Claim("agents", "2-4x by vmap over agents", 2.0)
    return [
        Row(f"{name}, jitted", "ms/step", times, jitted),
        Row(f"{name}, all agents at once", "ms/step", together, all_agents),
    ]


def own_steps(sides: Sides) -> Work:
    """Returns the project's updates of all agents, `updates_per_cycle` times per call."""
    config, update = sides.config, jax.jit(update_agents, static_argnums=0)

    def advance(state: State) -> Any:
        arguments = sides.experience, state.base_key, state.updates
        agents, recorded = update(config, state.agents, *arguments)
        updates = state.updates + config.train.updates_per_cycle
        return state._replace(**agents._asdict(), updates=updates), recorded

    return Continued(advance, sides.state)


# Acting, and the world.


def acting_row(sides: Sides, rounds: int) -> Row:
    """Measures a greedy action without a world."""
    count, rng = len(sides.agents), np.random.default_rng(SEED)
    shape = count, sides.config.train.batch_size, sides.config.inputs
    stacks = jnp.asarray(rng.integers(0, 2, shape), jnp.int8)
    first = np.array(stacks[:, :1], np.float32)
    taus = midpoints(FEW["quantiles"])

    def one_by_one(agents: list[Any]) -> None:
        with threads(1):  # faster for one stack
            for agent, stack in zip(agents, first, strict=True):
                agent.act(stack)

    @jax.jit
    def program(params: Any, stacks: jax.Array) -> jax.Array:
        def of_agent(agent: Any) -> jax.Array:
            return greedy_actions(sides.config, agent[0], agent[1], taus)

        return jax.lax.map(of_agent, (params, stacks))

    works = {
        ORIGINAL: lambda: one_by_one(sides.agents),
        PROPOSAL: lambda: one_by_one(sides.proposed),
        OURS: ready(lambda: program(sides.state.params, stacks)),
    }
    units = {ORIGINAL: count, PROPOSAL: count, OURS: count * stacks.shape[1]}
    plain = sides.config.train.acting.quantiles
    note = f"ours acts in {stacks.shape[1]} worlds at once, by {FEW['quantiles']} fixed quantiles"
    return Row(
        "greedy action",
        "us/agent-step",
        race(works, rounds, units),
        Claim("agents", "3-10x for inference", 3.0),
        f"{note}; the others draw {plain}",
    )


def world_row(rules: Env, rounds: int) -> Row:
    """Measures random play: spawning, observations and moves. That ours and the plain world play
    the same is tested in tests/envs/treasurehunt.
    """
    plain = ObjectWorld(rules, np.random.default_rng(SEED))
    plain.reset()
    world = make_world(rules)
    start = jax.jit(turns.start, static_argnums=(0, 2))
    envs = start(world, jax.random.split(jax.random.key(SEED), WORLDS), 1)

    @jax.jit
    def program(envs: Any, key: jax.Array) -> Any:
        return turns.play(world, envs, random_policy(rules), key, jnp.int32(0), TURNS)

    def advance(state: Any) -> Any:
        envs, calls = state
        played = program(envs, jax.random.key(calls))
        return (played.envs, calls + 1), None

    works: dict[str, Work] = {
        ORIGINAL: lambda: play_randomly(plain, PLAIN_TURNS),
        OURS: Continued(advance, (envs, 0)),
    }
    steps = dict.fromkeys(works, PLAIN_TURNS * rules.agents) | {OURS: TURNS * WORLDS * rules.agents}
    note = f"ours plays {WORLDS} worlds at once"
    return Row("random play", "us/agent-step", race(works, rounds, steps), note=note)


# Whole trainings.


def training_row(sides: Sides, config: IqnConfig, rounds: int) -> Row:
    """Measures 4000 agent-steps and 16 gradient steps per agent: a cycle of the
    project in 32 worlds, 16 episodes of the others, who play one.
    """
    updates, agents = config.train.updates_per_cycle, config.env.agents
    played = config.env.worlds * config.train.turns_per_cycle
    assert played == updates * config.env.max_turns
    world = make_world(config.env)

    def advance(state: State) -> Any:
        state, recorded = train.run_chunk(config, world, config.train.cycles_per_record, state)
        return state, jax.device_get(recorded)

    rules, rng = config.env, np.random.default_rng(SEED)
    # The final observation of an episode counts as a turn.
    plain = ObjectWorld(rules.model_copy(update={"max_turns": rules.max_turns - 1}), rng)
    size = config.train.batch_size
    works: dict[str, Work] = {
        ORIGINAL: lambda: episode(plain, sides.agents, sides.rings, rng, size),
        PROPOSAL: lambda: episode(plain, sides.proposed, sides.rings, rng, size),
        OURS: Continued(advance, train.init_state(config, collect(config, SEED), SEED)),
    }
    units = {ORIGINAL: 1 / updates, PROPOSAL: 1 / updates, OURS: config.train.cycles_per_record}
    return Row(
        f"{played * agents} agent-steps and {updates * agents} gradient steps, batch {size}",
        "s",
        race(works, rounds, units),
        Claim("agents", "4-12x in all", 4.0),
        f"ours plays {config.env.worlds} worlds at once and acts by {FEW['quantiles']} quantiles",
    )
