"""config -> rows about acting: in a world, by itself, and the stack of frames that an agent
sees.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.harness import Contestant, race
from benchmarks.iqn.playing import UNIT, playing
from benchmarks.iqn.sides import SEED, Sides, as_reference, drawn, params_of, refuse_other_values
from benchmarks.reference import iqn_seed as seed
from benchmarks.reference.iqn import Agent
from benchmarks.reference.iqn_training import Memory, Society
from benchmarks.reference.iqn_world import ObjectWorld
from benchmarks.table import Goal, NotTheSame, Row, Without
from benchmarks.torch_threads import threads
from quatrain.models.iqn.config import IqnConfig
from quatrain.models.iqn.cycle.acting import agent_params, greedy_actions, greedy_policy, midpoints

ACTED_AGENT_STEPS = 500  # of a call
STACKS, ACTS = 500, 4
PLAIN_TURNS = 20  # of the reference in a call


def acting_rows(sides: Sides, rounds: int) -> list[Row]:
    """Measures greedy play with the original's network: at equal quantiles, and at as many as
    needed.
    """
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
    row = partial(Row, unit=UNIT, before=times["before"], seed_way=times["seed"])
    drawn = Without("32 midpoints: 256 random quantiles", times["equal"])
    return [
        row(
            "world and acting, greedy, 256 quantiles, 1 world",
            ours=times["equal"],
            goal=Goal(2, "before"),
        ),
        row("  ours: 32 quantiles", ours=times["one"], goal=Goal(5, "before"), without=drawn),
        row(
            "  ours: 32 quantiles, 32 worlds",
            ours=times["many"],
            goal=Goal(20, "before"),
            without=Without("32 worlds: 1", times["one"]),
        ),
    ]


def inference_rows(sides: Sides, rounds: int) -> list[Row]:
    """Measures an action of each agent without a world: in sequence, and all at once."""
    stacks = [
        as_reference(drawn(sides, index, jax.random.key(SEED))).stack
        for index in range(len(sides.agents))
    ]
    seeds, together = seed_agents(sides), np.stack([stack[:1] for stack in stacks])
    keys = jax.random.split(jax.random.key(2), len(seeds))
    params = jax.tree.map(
        lambda *leaves: jnp.stack(leaves), *(agent.state.params for agent in seeds)
    )
    few, all_stacks = (
        acting(sides.config, quantiles=32, taus="midpoints"),
        jnp.asarray(np.stack(stacks), jnp.int8),
    )

    def one_by_one(agents: list[Any]) -> None:
        with threads(1):
            for agent, stack in zip(agents, together, strict=True):
                agent.act(stack)

    def at_once() -> None:
        np.asarray(seed.act_of_all(sides.plan, params, together, keys))

    def repeated(once: Callable[[], None]) -> Contestant:
        return Contestant(partial(_often, once, ACTS), ACTS * len(seeds))

    times = race(
        {
            "before": repeated(partial(one_by_one, sides.agents)),
            "seed": repeated(partial(one_by_one, seeds)),
            "together": repeated(at_once),
            "called": repeated(lambda: _call_each(few, params, all_stacks[:, :1])),
            "ours": scanned_acts(few, params, all_stacks),
        },
        rounds,
    )
    row = partial(Row, unit=UNIT, ours=times["ours"], before=times["before"])
    called = Without(f"{all_stacks.shape[1]} stacks in a call: 1", times["called"])
    return [
        row(
            "inference alone; ours: 32 quantiles, many stacks at once",
            seed_way=times["seed"],
            without=called,
            claims=("agents-infer",),
        ),
        row(
            "  seed's way: all agents at once (vmap), where none sees what the others just "
            "did: another game",
            seed_way=times["together"],
            claims=("agents-act-together",),
        ),
    ]


_best_actions = jax.jit(greedy_actions, static_argnums=0)


def _call_each(config: IqnConfig, params: Any, stacks: jax.Array) -> None:
    taus = midpoints(config.train.acting.quantiles)
    for index in range(len(stacks)):
        _best_actions(
            config, agent_params(params, jnp.int32(index)), stacks[index], taus
        ).block_until_ready()


def scanned_acts(config: IqnConfig, params: Any, stacks: jax.Array) -> Contestant:
    """Computes an action of each stack of each agent, agent by agent, as in a turn of many envs."""
    taus, count = midpoints(config.train.acting.quantiles), len(stacks)

    @jax.jit
    def program(params: Any, stacks: jax.Array) -> jax.Array:
        return jax.lax.map(lambda each: greedy_actions(config, *each, taus), (params, stacks))

    return Contestant(lambda: program(params, stacks).block_until_ready(), count * stacks.shape[1])


def acting(config: IqnConfig, **changes: Any) -> IqnConfig:
    """Returns the config with keys of train.acting changed."""
    selected = config.train.acting.model_copy(update=changes)
    return config.model_copy(update={"train": config.train.model_copy(update={"acting": selected})})


def seed_agents(sides: Sides) -> list[seed.Agent]:
    keys = jax.random.split(jax.random.key(1), len(sides.agents))
    return [
        seed.Agent(sides.plan, params_of(sides.state, index), key) for index, key in enumerate(keys)
    ]


def greedy_plain(sides: Sides, agents: list[Agent] | list[seed.Agent]) -> Contestant:
    """Returns the reference's loop without exploring."""
    rules, rng = sides.config.env.rules._replace(max_turns=PLAIN_TURNS), np.random.default_rng(SEED)
    society = Society(
        ObjectWorld(rules, rng), agents, sides.memories, rng, sides.config.train.batch_size
    )
    society.epsilon = 0.0

    def play() -> None:
        with threads(1):
            society.play()

    return Contestant(play, rules.max_turns * rules.agents)


def greedy(config: IqnConfig, sides: Sides, worlds: int) -> Contestant:
    """Returns the project's greedy play."""
    rules, frames = config.env.rules, config.network.frames
    count = max(20, ACTED_AGENT_STEPS // (worlds * rules.agents))
    return playing(rules, worlds, frames, count, partial(greedy_policy, config), sides.state.params)


# Stacks.


def stacking_row(sides: Sides, rounds: int) -> Row:
    """Measures stacking frames: from the replay's newest, the same jitted, and from a carried
    history.
    """
    memory, frames = sides.memories[0], sides.config.network.frames
    size = sides.config.inputs // frames
    frame = np.random.default_rng(SEED).integers(0, 3, (1, size)).astype(np.float32)
    stacks = {
        "before": lambda: stacked(memory, frame),
        "seed": lambda: seed.stacked(memory.latest(), frame[0]),
    }
    if not np.array_equal(stacks["before"](), stacks["seed"]()):
        raise NotTheSame("stack: the jitted one is another")
    times = race(
        {name: Contestant(partial(_often, stack, STACKS), STACKS) for name, stack in stacks.items()}
        | {"ours": carrying(frames, size)},
        rounds,
    )
    return Row(
        f"stack of {frames} frames",
        UNIT,
        times["ours"],
        times["before"],
        times["seed"],
        goal=Goal(1.5, "before"),
        claims=("agents-stack",),
    )


def stacked(memory: Memory, frame: np.ndarray) -> np.ndarray:
    """Returns an agent's current stack, built as in the original."""
    return np.vstack((memory.latest(), frame)).reshape(1, -1)


def _often(make: Callable[[], Any], times: int) -> None:
    for _ in range(times):
        jax.block_until_ready(make())


def carrying(frames: int, size: int) -> Contestant:
    """Stacks of 16 worlds as `turns.play` makes them, every one of them written out."""
    envs, count = 16, 10 * STACKS // 16

    def turn(history: jax.Array, frame: jax.Array) -> tuple[jax.Array, jax.Array]:
        stack = jnp.concatenate([history, frame[:, None]], 1)
        return stack[:, 1:], stack.reshape(envs, -1)

    views = jax.random.bits(jax.random.key(SEED), (count, envs, size), jnp.uint8).astype(jnp.int8)
    program = jax.jit(lambda history, views: jax.lax.scan(turn, history, views))
    history = jnp.zeros((envs, frames - 1, size), jnp.int8)
    return Contestant(lambda: jax.block_until_ready(program(history, views)), count * envs)
