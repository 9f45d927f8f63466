"""config -> rows about playing: the world with observations, acting in it, an observation and a stack by themselves."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.harness import Contestant, race
from benchmarks.iqn.sides import SEED, Sides, params_of, refuse_other_values
from benchmarks.reference import iqn_seed as seed
from benchmarks.reference.iqn import Agent
from benchmarks.reference.iqn_training import Memory, Society
from benchmarks.reference.iqn_world import ObjectWorld, play_randomly
from benchmarks.table import Goal, NotTheSame, Row
from quatrain.envs.treasurehunt import turns
from quatrain.envs.treasurehunt.policies import random_policy
from quatrain.envs.treasurehunt.rules import Rules
from quatrain.envs.treasurehunt.turns import Lanes, Policy, Turn
from quatrain.envs.treasurehunt.world import make_world, sprouts
from quatrain.models.iqn.config import IqnConfig
from quatrain.models.iqn.cycle.acting import greedy_policy

UNIT = "us/agent-step"
WORLDS = 256
PLAIN_TURNS = 20
OWN_AGENT_STEPS = 64_000  # of a call without networks
ACTED_AGENT_STEPS = 2_000  # of a call with them
STACKS = 1000


def env_rows(config: IqnConfig, rounds: int) -> list[Row]:
    """Random play with an observation before each act: many worlds, one, and the observation alone."""
    rules = config.env.rules
    refuse_another_world(rules)
    plain = ObjectWorld(rules, np.random.default_rng(SEED))
    times = race(
        {
            "before": Contestant(lambda: play_randomly(plain, PLAIN_TURNS), PLAIN_TURNS * rules.agents),
            "many": own(rules, WORLDS, OWN_AGENT_STEPS),
            "one": own(rules, 1, OWN_AGENT_STEPS),
        }
        | observers(rules),
        rounds,
    )
    row = partial(Row, seed_item="004 observation", claimed="1.2-1.5x", unit=UNIT)
    name = f"world and observation, random, {WORLDS} worlds"
    return [
        row(name, ours=times["many"], before=times["before"], goal=Goal(500, "before")),
        row("  1 world", ours=times["one"], before=times["before"], goal=Goal(70, "before")),
        row("  the observation alone", ours=times["watching"], before=times["looking"], seed_way=times["jitted"]),
    ]


def own(rules: Rules, worlds: int, agent_steps: int) -> Contestant:
    """The project's world under a random policy."""
    count = agent_steps // (worlds * rules.agents)
    return playing(rules, worlds, 1, count, lambda _: random_policy(rules), None)


@partial(jax.jit, static_argnums=(0, 2, 3))
def begun(rules: Rules, key: jax.Array, worlds: int, frames: int) -> Lanes:
    """Worlds at their start."""
    return turns.start(make_world(rules), jax.random.split(key, worlds), frames)


def playing(
    rules: Rules, worlds: int, frames: int, count: int, policy_of: Callable[[Any], Policy], params: Any
) -> Contestant:
    """`count` turns a call, which go on where the last ones ended; everything that training stores comes out."""
    world = make_world(rules)
    program = jax.jit(lambda lanes, params, key: turns.play(world, lanes, policy_of(params), key, jnp.int32(0), count))
    state = {"lanes": begun(rules, jax.random.key(SEED), worlds, frames), "calls": 0}

    def run() -> None:
        played = program(state["lanes"], params, jax.random.key(state["calls"]))
        state.update(lanes=jax.block_until_ready(played).lanes, calls=state["calls"] + 1)

    return Contestant(run, count * worlds * rules.agents)


def observers(rules: Rules) -> dict[str, Contestant]:
    """An observation: by loops over objects, jitted after a loop that turns objects to numbers, and compiled whole."""
    plain, world = ObjectWorld(rules, np.random.default_rng(SEED)), make_world(rules)
    plain.reset()
    lanes = begun(rules, jax.random.key(SEED), WORLDS, 1)
    agents = jnp.arange(rules.agents)
    program = jax.jit(jax.vmap(jax.vmap(world.observe, (None, 0)), (0, None)))
    return {
        "looking": Contestant(lambda: [plain.observe(agent) for agent in range(rules.agents)], rules.agents),
        "jitted": Contestant(lambda: [jitted_view(plain, agent) for agent in range(rules.agents)], rules.agents),
        "watching": Contestant(lambda: jax.block_until_ready(program(lanes.state, agents)), WORLDS * rules.agents),
    }


def jitted_view(world: ObjectWorld, agent: int) -> np.ndarray:
    """The seed's way of `ObjectWorld.observe`."""
    location = world.agents[agent].location
    assert location is not None
    seen = seed.observe(seed.kinds_of(world), *location[:2], len(world.kinds), world.rules.vision_radius)
    return np.asarray(seen)


def refuse_another_world(rules: Rules) -> None:
    """One episode with the same starts, growth and actions must look and pay the same, in every way to observe.

    Raises:
        NotTheSame: it does not.
    """
    starts, growth, played = jax.tree.map(np.asarray, an_episode(rules, jax.random.key(SEED)))
    plain = ObjectWorld(rules, np.random.default_rng(SEED))
    plain.reset(starts)
    for turn, grown in enumerate(growth):
        plain.begin_turn(grown)
        for agent in range(rules.agents):
            seen = played.frames[turn, agent, 0]
            same = np.array_equal(plain.observe(agent), seen) and np.array_equal(jitted_view(plain, agent), seen)
            reward = plain.act(agent, int(played.actions[turn, agent, 0]))
            if not same or reward != played.rewards[turn, agent, 0]:
                raise NotTheSame(f"world: turn {turn}, agent {agent}: another observation or reward")
        plain.end_turn()


class Episode(NamedTuple):
    """Where agents start, what grows in each turn if there is room, and the turns."""

    starts: Any
    growth: Any
    turns: Turn


@partial(jax.jit, static_argnums=0)
def an_episode(rules: Rules, key: jax.Array) -> Episode:
    """Of a random policy in one world of the project."""
    world = make_world(rules)
    lanes = turns.start(world, key[None], 1)
    played = turns.play(world, lanes, random_policy(rules), key, jnp.int32(0), rules.max_turns)
    growth = jax.vmap(lambda turn: sprouts(rules, key, jnp.int32(0), turn))(jnp.arange(rules.max_turns))
    return Episode(lanes.state.positions[0], growth, played.turns)


# Acting.


def acting_rows(sides: Sides, rounds: int) -> list[Row]:
    """Greedy play with the original's network: at equal quantiles, and at as many as the mean needs."""
    refuse_other_values(sides)
    few = acting(sides.config, quantiles=32, taus="midpoints")
    times = race(
        {
            "before": greedy_plain(sides, sides.agents),
            "seed": greedy_plain(sides, seed_agents(sides)),
            "equal": greedy(acting(sides.config, quantiles=256, taus="uniform"), sides, 1),
            "one": greedy(few, sides, 1),
            "many": greedy(few, sides, 32),
        },
        rounds,
    )
    row = partial(
        Row, seed_item="004 networks", claimed="3-10x", unit=UNIT, before=times["before"], seed_way=times["seed"]
    )
    return [
        row("world and acting, greedy, 256 quantiles, 1 world", ours=times["equal"], goal=Goal(2, "before")),
        row("  ours: 32 quantiles", ours=times["one"], goal=Goal(5, "before")),
        row("  ours: 32 quantiles, 32 worlds", ours=times["many"], goal=Goal(20, "before")),
    ]


def acting(config: IqnConfig, **changes: Any) -> IqnConfig:
    """The config with keys of train.acting changed."""
    chosen = config.train.acting.model_copy(update=changes)
    return config.model_copy(update={"train": config.train.model_copy(update={"acting": chosen})})


def seed_agents(sides: Sides) -> list[seed.Agent]:
    keys = jax.random.split(jax.random.key(1), len(sides.agents))
    return [seed.Agent(sides.plan, params_of(sides.learner, index), key) for index, key in enumerate(keys)]


def greedy_plain(sides: Sides, agents: list[Agent] | list[seed.Agent]) -> Contestant:
    """The reference's loop without exploring."""
    rules, rng = sides.config.env.rules, np.random.default_rng(SEED)
    society = Society(ObjectWorld(rules, rng), agents, sides.memories, rng, sides.config.train.batch_size)
    society.epsilon = 0.0
    return Contestant(society.play, rules.max_turns * rules.agents)


def greedy(config: IqnConfig, sides: Sides, worlds: int) -> Contestant:
    """The project's."""
    rules, frames = config.env.rules, config.network.frames
    count = max(20, ACTED_AGENT_STEPS // (worlds * rules.agents))
    return playing(rules, worlds, frames, count, partial(greedy_policy, config), sides.learner.params)


# Stacks.


def stacking_row(sides: Sides, rounds: int) -> Row:
    """The last frames side by side: the replay's newest and this one, the same jitted, and a history carried along."""
    memory, frames = sides.memories[0], sides.config.network.frames
    size = sides.config.inputs // frames
    frame = np.random.default_rng(SEED).integers(0, 3, (1, size)).astype(np.float32)
    stacks = {"before": lambda: stacked(memory, frame), "seed": lambda: seed.stacked(memory.latest(), frame[0])}
    if not np.array_equal(stacks["before"](), stacks["seed"]()):
        raise NotTheSame("stack: the jitted one is another")
    times = race(
        {name: Contestant(partial(_often, stack), STACKS) for name, stack in stacks.items()}
        | {"ours": carrying(frames, size)},
        rounds,
    )
    return Row(
        f"stack of {frames} frames", "004 frame stacking", "1.5-2x", UNIT,
        times["ours"], times["before"], times["seed"], Goal(1.5, "before"),
    )  # fmt: skip


def stacked(memory: Memory, frame: np.ndarray) -> np.ndarray:
    """What an agent sees now, as the original makes it."""
    return np.vstack((memory.latest(), frame)).reshape(1, -1)


def _often(make: Callable[[], Any]) -> None:
    for _ in range(STACKS):
        jax.block_until_ready(make())


def carrying(frames: int, size: int) -> Contestant:
    """Stacks of 16 worlds as `turns.play` makes them, every one of them written out."""
    lanes, count = 16, 10 * STACKS // 16

    def turn(history: jax.Array, frame: jax.Array) -> tuple[jax.Array, jax.Array]:
        stack = jnp.concatenate([history, frame[:, None]], 1)
        return stack[:, 1:], stack.reshape(lanes, -1)

    seen = jax.random.bits(jax.random.key(SEED), (count, lanes, size), jnp.uint8).astype(jnp.int8)
    program = jax.jit(lambda history, seen: jax.lax.scan(turn, history, seen))
    history = jnp.zeros((lanes, frames - 1, size), jnp.int8)
    return Contestant(lambda: jax.block_until_ready(program(history, seen)), count * lanes)
