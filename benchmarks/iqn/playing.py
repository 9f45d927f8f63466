"""sides -> rows about the world and about acting: both together, and parts of them"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.harness import Contestant, Goal, Row
from benchmarks.iqn.sides import FEW, SEED, Sides, changed, society_of
from benchmarks.jax_work import Continued, declaring, refuse_difference, timed
from benchmarks.reference import iqn_seed as seed
from benchmarks.reference.iqn_world import ObjectWorld, play_randomly
from quatrain.envs.treasurehunt import turns
from quatrain.envs.treasurehunt.policies import random_policy
from quatrain.envs.treasurehunt.rules import Rules
from quatrain.envs.treasurehunt.turns import Policy
from quatrain.envs.treasurehunt.world import make_world, spawn_items
from quatrain.frameworks.torch.threads import threads
from quatrain.models.iqn.config import IqnConfig
from quatrain.models.iqn.cycle.acting import greedy_actions, greedy_policy, midpoints

UNIT = "us/agent-step"
MANY = 256
PLAIN_TURNS = 20
RANDOM_STEPS, GREEDY_STEPS = 32_000, 500  # of an agent in a call
ANOTHER_GAME = "all agents at once (vmap), where none sees what the others just did: another game"


def env_rows(rules: Rules, rounds: int) -> list[Row]:
    """Measures random play in one env and in many, and the observation alone."""
    refuse_another_world(rules)
    plain, world = ObjectWorld(rules, np.random.default_rng(SEED)), make_world(rules)
    plain.reset()
    agents, count = range(rules.agents), rules.agents
    states = start(world, env_keys(MANY), 1).state
    observe = jax.jit(jax.vmap(jax.vmap(world.observe, (None, 0)), (0, None)))
    works = {
        "before": Contestant(lambda: play_randomly(plain, PLAIN_TURNS), PLAIN_TURNS * count),
        "loops": lambda: [plain.observe(agent) for agent in agents],
        "jitted": lambda: [seed.view(plain, agent) for agent in agents],
        "at once": lambda: seed.views(plain),
        "compiled": lambda: observe(states, jnp.arange(count)),
    }
    units = {"loops": count, "jitted": count, "at once": count, "compiled": MANY * count}
    for envs in (1, MANY):
        steps = RANDOM_STEPS // (envs * count)
        works[str(envs)] = playing(rules, envs, 1, steps, lambda _: random_policy(rules))
    times = timed(works, rounds, **units)
    name = "world and observation, random,"
    row, alone = declaring(times, UNIT), declaring(times, UNIT, ours="compiled", before="loops")
    many = {"goal": Goal(500, "before"), "without": ("many worlds: 1", "1")}
    seed_way = f"  the same; seed's way: {ANOTHER_GAME}"
    return [
        row(f"{name} 256 world(s)", ours="256", **many),
        alone("  the observation alone", seed_way="jitted", claims=("agents-observe",)),
        alone(seed_way, seed_way="at once", claims=("agents-observe-together",)),
        row(f"{name} 1 world(s)", ours="1", goal=Goal(70, "before")),
    ]


start = jax.jit(turns.start, static_argnums=(0, 2))


def env_keys(count: int) -> jax.Array:
    return jax.random.split(jax.random.key(SEED), count)


def playing(
    rules: Rules,
    envs: int,
    frames: int,
    count: int,
    policy_of: Callable[[Any], Policy],
    params: Any = None,
) -> Contestant:
    """Plays `count` turns per call, with everything that training stores."""
    world = make_world(rules)

    @jax.jit
    def program(states, params, key):
        return turns.play(world, states, policy_of(params), key, jnp.int32(0), count)

    def advance(state):
        states, calls = state
        played = program(states, params, jax.random.key(calls))
        return (played.envs, calls + 1), None

    states = start(world, env_keys(envs), frames)
    return Contestant(Continued(advance, (states, 0)), count * envs * rules.agents)


def refuse_another_world(rules: Rules) -> None:
    """Raises NotComparable unless an episode of all sides has the same observations and rewards."""
    world, key, numbers = make_world(rules), jax.random.key(SEED), jnp.arange(rules.max_turns)

    @jax.jit
    def episode():
        envs = turns.start(world, key[None], 1)
        spawned = jax.vmap(lambda turn: spawn_items(rules, key, jnp.int32(0), turn))(numbers)
        policy = random_policy(rules)
        played = turns.play(world, envs, policy, key, jnp.int32(0), rules.max_turns)
        return envs.state.positions[0], spawned, played.turns

    starts, spawned, played = jax.tree.map(np.asarray, episode())
    plain = ObjectWorld(rules, np.random.default_rng(SEED))
    plain.reset(starts)
    for turn, grown in enumerate(spawned):
        plain.begin_turn(grown)
        refuse_difference("all views", {"before": plain.observe(0), "seed": seed.views(plain)[0]})
        for agent in range(rules.agents):
            frame, reward = played.frames[turn, agent, 0], played.rewards[turn, agent, 0]
            results = {"seed": (seed.view(plain, agent), reward), "ours": (frame, reward)}
            action = int(played.actions[turn, agent, 0])
            before = plain.observe(agent), plain.act(agent, action)
            refuse_difference(f"world: turn {turn}, agent {agent}", {"before": before} | results)
        plain.end_turn()


def acting_rows(sides: Sides, rounds: int) -> list[Row]:
    """Measures greedy play: at equal quantiles, and at as many as needed."""
    rules, few = sides.config.env.rules, changed(sides.config, acting=FEW)
    society = society_of(sides, sides.agents, PLAIN_TURNS)

    def plain() -> None:
        with threads(1):
            society.play()

    def ours(config: IqnConfig, envs: int) -> Contestant:
        count = max(20, GREEDY_STEPS // (envs * rules.agents))
        policy = partial(greedy_policy, config)
        return playing(rules, envs, config.network.frames, count, policy, sides.state.params)

    works = {
        "before": Contestant(plain, PLAIN_TURNS * rules.agents),
        "equal": ours(sides.config, 1),
        "few": ours(few, 1),
        "many": ours(few, 32),
    }
    row = declaring(timed(works, rounds), UNIT)
    name, quantiles = "world and acting, greedy, 256 quantiles, 1 world", "32 quantiles: 256"
    many = {"ours": "many", "without": ("32 worlds: 1", "few")}
    return [
        row(name, ours="equal", goal=Goal(2, "before")),
        row(
            "  ours: 32 quantiles", ours="few", goal=Goal(5, "before"), without=(quantiles, "equal")
        ),
        row("  ours: 32 quantiles, 32 worlds", **many, goal=Goal(20, "before")),
    ]


def inference_rows(sides: Sides, rounds: int) -> list[Row]:
    """Measures an action of each agent without a world: in sequence, and all at once."""
    count, rng = len(sides.agents), np.random.default_rng(SEED)
    shape = count, sides.config.train.batch_size, sides.config.inputs
    stacks = jnp.asarray(rng.integers(0, 2, shape), jnp.int8)
    first, keys = np.array(stacks[:, :1], np.float32), jax.random.split(jax.random.key(2), count)
    config, params = changed(sides.config, acting=FEW), sides.state.params
    taus = midpoints(config.train.acting.quantiles)

    def one_by_one(agents: list[Any]) -> None:
        with threads(1):
            for agent, stack in zip(agents, first, strict=True):
                agent.act(stack)

    @jax.jit
    def program(params, stacks):
        return jax.lax.map(lambda each: greedy_actions(config, *each, taus), (params, stacks))

    works = {
        "before": lambda: one_by_one(sides.agents),
        "jitted": lambda: one_by_one(sides.seed_agents),
        "at once": lambda: seed.act_of_all(sides.config, params, first, keys),
        "ours": lambda: program(params, stacks),
    }
    units = dict.fromkeys(works, count) | {"ours": count * stacks.shape[1]}
    row = declaring(timed(works, rounds, **units), UNIT)
    name = "inference alone; ours: 32 quantiles, many stacks at once"
    at_once = f"  seed's way: {ANOTHER_GAME}"
    return [
        row(name, seed_way="jitted", claims=("agents-infer",)),
        row(at_once, seed_way="at once", claims=("agents-act-together",)),
    ]


def stacking_row(sides: Sides, rounds: int) -> Row:
    """Measures stacking frames: from the replay's newest, jitted, and from a carried history."""
    ring, frames, envs, count = sides.rings[0], sides.config.network.frames, 16, 300
    rng, shape = np.random.default_rng(SEED), (count, envs, sides.config.inputs // frames)
    views = jnp.asarray(rng.integers(0, 2, shape), jnp.int8)
    frame = np.array(views[0, :1], np.float32)
    history = jnp.zeros((envs, frames - 1, shape[2]), jnp.int8)

    @jax.jit
    def program(history, views):
        """Stacks as `turns.play` does, every stack written out."""

        def turn(history, frame):
            stack = jnp.concatenate([history, frame[:, None]], 1)
            return stack[:, 1:], stack.reshape(envs, -1)

        return jax.lax.scan(turn, history, views)[1]

    works = {
        "before": lambda: np.vstack((ring.latest(), frame)).reshape(1, -1),
        "seed_way": lambda: seed.stacked(ring.latest(), frame[0]),
        "ours": lambda: program(history, views),
    }
    refuse_difference("stack", {name: works[name]() for name in ("before", "seed_way")})
    carried = works["ours"]()[frames - 1, 0]
    refuse_difference("stack", {"before": views[:frames, 0].ravel(), "ours": carried})
    times, goal = timed(works, rounds, ours=count * envs), Goal(1.5, "before")
    return Row(f"stack of {frames} frames", UNIT, **times, goal=goal, claims=("agents-stack",))
