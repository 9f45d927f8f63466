"""config -> rows about the world: random play with observations, and an observation by itself."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.harness import Contestant, race
from benchmarks.iqn.sides import SEED
from benchmarks.reference import iqn_seed as seed
from benchmarks.reference.iqn_world import ObjectWorld, play_randomly
from benchmarks.table import Goal, NotTheSame, Point, Row, Without
from quatrain.envs.treasurehunt import turns
from quatrain.envs.treasurehunt.policies import random_policy
from quatrain.envs.treasurehunt.rules import Rules
from quatrain.envs.treasurehunt.turns import EnvStates, Policy, Turn
from quatrain.envs.treasurehunt.world import make_world, spawn_items
from quatrain.models.iqn.config import IqnConfig

UNIT = "us/agent-step"
WORLDS, MANY = (1, 16, 64, 256, 1024), 256
PLAIN_TURNS = 20
OWN_AGENT_STEPS = 32_000  # of a call


def env_rows(config: IqnConfig, rounds: int) -> list[Row]:
    """Measures random play in more and more envs, and the observation alone."""
    rules = config.env.rules
    refuse_another_world(rules)
    plain = ObjectWorld(rules, np.random.default_rng(SEED))
    before = {
        "before": Contestant(lambda: play_randomly(plain, PLAIN_TURNS), PLAIN_TURNS * rules.agents)
    }
    many = {str(count): project_world(rules, count, OWN_AGENT_STEPS) for count in WORLDS}
    times = race(before | many | observers(rules), rounds)

    def row(worlds: int, **more: Any) -> Row:
        name = f"world and observation, random, {worlds} world(s)"
        point = Point("worlds of iqn at once", "worlds", worlds)
        return Row(name, UNIT, times[str(worlds)], times["before"], point=point, **more)

    alone = partial(Row, unit=UNIT, ours=times["watching"], before=times["looking"])
    return [
        row(MANY, goal=Goal(500, "before"), without=Without("many worlds: 1", times["1"])),
        row(1, goal=Goal(70, "before")),
        *(row(count) for count in WORLDS if count not in (1, MANY)),
        alone("  the observation alone", seed_way=times["jitted"], claims=("agents-observe",)),
        alone(
            "  the same; seed's way: all agents at once (vmap), where none sees what the "
            "others just did: another game",
            seed_way=times["together"],
            claims=("agents-observe-together",),
        ),
    ]


def project_world(rules: Rules, worlds: int, agent_steps: int) -> Contestant:
    """Returns the project's world under a random policy."""
    count = max(2, agent_steps // (worlds * rules.agents))
    return playing(rules, worlds, 1, count, lambda _: random_policy(rules), None)


@partial(jax.jit, static_argnums=(0, 2, 3))
def begun(rules: Rules, key: jax.Array, worlds: int, frames: int) -> EnvStates:
    """Worlds at their start."""
    return turns.start(make_world(rules), jax.random.split(key, worlds), frames)


def playing(
    rules: Rules,
    worlds: int,
    frames: int,
    count: int,
    policy_of: Callable[[Any], Policy],
    params: Any,
) -> Contestant:
    """Plays `count` turns per call, continuing the last call; returns everything that training
    stores.
    """
    world = make_world(rules)
    program = jax.jit(
        lambda envs, params, key: turns.play(
            world, envs, policy_of(params), key, jnp.int32(0), count
        )
    )
    state = {"envs": begun(rules, jax.random.key(SEED), worlds, frames), "calls": 0}

    def run() -> None:
        played = program(state["envs"], params, jax.random.key(state["calls"]))
        state.update(envs=jax.block_until_ready(played).envs, calls=state["calls"] + 1)

    return Contestant(run, count * worlds * rules.agents)


def observers(rules: Rules) -> dict[str, Contestant]:
    """Measures an observation: loops over objects, jitted after a loop to numbers, compiled
    whole.
    """
    plain, world = ObjectWorld(rules, np.random.default_rng(SEED)), make_world(rules)
    plain.reset()
    envs = begun(rules, jax.random.key(SEED), MANY, 1)
    agents = jnp.arange(rules.agents)
    program = jax.jit(jax.vmap(jax.vmap(world.observe, (None, 0)), (0, None)))
    return {
        "looking": Contestant(
            lambda: [plain.observe(agent) for agent in range(rules.agents)], rules.agents
        ),
        "jitted": Contestant(
            lambda: [jitted_view(plain, agent) for agent in range(rules.agents)], rules.agents
        ),
        "together": Contestant(lambda: jitted_views(plain), rules.agents),
        "watching": Contestant(
            lambda: jax.block_until_ready(program(envs.state, agents)), MANY * rules.agents
        ),
    }


def jitted_view(world: ObjectWorld, agent: int) -> np.ndarray:
    """Observes as `ObjectWorld.observe`, in the way of the seed."""
    location = world.agents[agent].location
    assert location is not None
    views = seed.observe(
        seed.kinds_of(world), *location[:2], len(world.kinds), world.rules.vision_radius
    )
    return np.asarray(views)


def jitted_views(world: ObjectWorld) -> np.ndarray:
    """Observes for all agents in one call."""
    places = np.array([agent.location[:2] for agent in world.agents if agent.location is not None])
    radius = world.rules.vision_radius
    return np.asarray(seed.observe_all(seed.kinds_of(world), *places.T, len(world.kinds), radius))


def refuse_another_world(rules: Rules) -> None:
    """Raises unless an episode with the same starts, spawns and actions gives the same observations
    and rewards.

    Raises:
        NotTheSame: it does not.
    """
    starts, growth, played = jax.tree.map(np.asarray, an_episode(rules, jax.random.key(SEED)))
    plain = ObjectWorld(rules, np.random.default_rng(SEED))
    plain.reset(starts)
    for turn, grown in enumerate(growth):
        plain.begin_turn(grown)
        if not np.array_equal(jitted_views(plain)[0], plain.observe(0)):
            raise NotTheSame(f"world: turn {turn}: another observation of all agents at once")
        for agent in range(rules.agents):
            views = played.frames[turn, agent, 0]
            same = np.array_equal(plain.observe(agent), views) and np.array_equal(
                jitted_view(plain, agent), views
            )
            reward = plain.act(agent, int(played.actions[turn, agent, 0]))
            if not same or reward != played.rewards[turn, agent, 0]:
                raise NotTheSame(
                    f"world: turn {turn}, agent {agent}: another observation or reward"
                )
        plain.end_turn()


class Episode(NamedTuple):
    """Holds the start cells, the items that spawn in each turn if the cell is free, and the
    turns.
    """

    starts: Any
    growth: Any
    turns: Turn


@partial(jax.jit, static_argnums=0)
def an_episode(rules: Rules, key: jax.Array) -> Episode:
    """Plays an episode of a random policy in one env of the project."""
    world = make_world(rules)
    envs = turns.start(world, key[None], 1)
    played = turns.play(world, envs, random_policy(rules), key, jnp.int32(0), rules.max_turns)
    growth = jax.vmap(lambda turn: spawn_items(rules, key, jnp.int32(0), turn))(
        jnp.arange(rules.max_turns)
    )
    return Episode(envs.state.positions[0], growth, played.turns)
