"""a world's pure functions, policies -> the turns of a cycle, played inside a compiled program, and
counts that span cycles

Worlds (envs/treasurehunt/turns.py) that are stepped and stored there: treasurehunt.py, jax_env.py.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float, Int, Key

from quatrain.envs.treasurehunt import turns
from quatrain.envs.treasurehunt.turns import EnvStates, Policy, Turn, World
from quatrain.frameworks.jax import over_seeds
from quatrain.models.iqn.collect import Scale, scaled
from quatrain.models.iqn.config import LearnerConfig
from quatrain.replay.frames.ring import Transitions

# (transitions, episodes) -> the policy of all agents, and its epsilon.
Explore = Callable[[Array, Array], tuple[Policy, Array]]


class PlayState(NamedTuple):
    """Holds everything that changes while playing: the envs, and counts that span cycles.

    turns: of each env, without the prefill. transitions: of an agent in all envs, with the prefill:
    turns but for final ones. episodes: finished in all envs, with the prefill. reward_sums: in the
    current episodes. episode_return: mean over the episodes that ended in the last turn in which
    any ended.
    """

    envs: EnvStates
    turns: Int[Array, ""]
    transitions: Int[Array, ""]
    episodes: Int[Array, ""]
    reward_sums: Float[Array, "agent env"]
    episode_return: Float[Array, " agent"]


@partial(jax.jit, static_argnums=(0, 1))
def begin_play(
    config: LearnerConfig, world: World, prefill: Transitions, env_keys: Key[Array, " seed"]
) -> PlayState:
    """Returns the states of all seeds before the first turn, with the prefill's counts."""

    def begin_seed(prefill_and_key: tuple[Transitions, Array]) -> PlayState:
        prefill, key = prefill_and_key
        keys = jax.random.split(key, config.env.worlds)
        finished = (prefill.terminated | prefill.final).sum(dtype=jnp.int32)
        return PlayState(
            envs=turns.start(world, keys, config.network.frames),
            turns=jnp.int32(0),
            transitions=(~prefill.final).sum(dtype=jnp.int32),
            episodes=finished,
            reward_sums=jnp.zeros(prefill.rewards.shape[1:], jnp.float32),
            episode_return=prefill.rewards.sum((0, 2)) / jnp.maximum(finished, 1),
        )

    return over_seeds(begin_seed, config.train.seed_parallelism)((prefill, env_keys))


def play_template(config: LearnerConfig, dataset: Any, shapes: PlayState) -> PlayState:
    """Returns what a saved state is restored by: the shapes that JAX knows."""
    return shapes


def with_inputs(world: World, scale: Any) -> World:
    """Returns the world whose observations are scaled as a seed's inputs, if there is a scale."""
    if not isinstance(scale, Scale):
        return world
    return world._replace(
        observe=lambda state, agent: jnp.asarray(scaled(scale, world.observe(state, agent)))
    )


def play(
    config: LearnerConfig,
    world: World,
    explore: Explore,
    play_state: PlayState,
    key: Key[Array, ""],
) -> tuple[PlayState, Transitions, dict[str, Any]]:
    """Plays the turns of a cycle of a seed; returns them with columns of the cycle's record."""
    play_state, played, epsilon = play_turns(config, world, explore, play_state, key)
    returns = {"episode_return": play_state.episode_return}
    record = {
        "play_metrics": config.world.event_rates(config, played) | returns,
        "epsilon": epsilon[-1],
        "agent_steps": world.agents * play_state.transitions,
    }
    return play_state, to_transitions(played), record


def play_turns(
    config: LearnerConfig,
    world: World,
    explore: Explore,
    play_state: PlayState,
    key: Key[Array, ""],
) -> tuple[PlayState, Turn, Float[Array, " turn"]]:
    """Plays `turns_per_cycle` turns of a seed; returns them with the epsilon of each."""

    def one_turn(state: PlayState, keys: Array) -> tuple[PlayState, tuple[Turn, Array]]:
        policy, epsilon = explore(state.transitions, state.episodes)
        envs, turn = turns.play_turn(world, state.envs, policy, keys)
        return _count_turn(state, envs, turn), (turn, epsilon)

    keys = turns.turn_keys(world, key, play_state.turns, config.train.turns_per_cycle)
    end, (played, epsilon) = jax.lax.scan(one_turn, play_state, keys)
    return end, played, epsilon


def _count_turn(play_state: PlayState, envs: EnvStates, turn: Turn) -> PlayState:
    ended = turn.terminated | turn.final
    finished = ended.sum(dtype=jnp.int32)
    sums = play_state.reward_sums + turn.rewards
    mean = jnp.where(ended, sums, 0.0).sum(-1) / jnp.maximum(finished, 1)
    return PlayState(
        envs=envs,
        turns=play_state.turns + 1,
        transitions=play_state.transitions + (~turn.final).sum(dtype=jnp.int32),
        episodes=play_state.episodes + finished,
        reward_sums=jnp.where(ended, 0.0, sums),
        episode_return=jnp.where(finished > 0, mean, play_state.episode_return),
    )


def to_transitions(turn: Turn) -> Transitions:
    """Returns the columns of turns that the replay stores."""
    return Transitions(*(getattr(turn, name) for name in Transitions._fields))


def event_rates(_config: LearnerConfig, turn: Turn) -> dict[str, Float[Array, " agent"]]:
    """Computes each agent's mean reward of a turn, of which final ones do not count; without others
    0.
    """
    number = jnp.maximum((~turn.final).sum(), 1)
    return {"reward_per_turn": turn.rewards.sum((0, 2)) / number}
