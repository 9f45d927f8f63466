"""parameters, envs -> some turns of all envs, and their counts: the first half of a cycle"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float, Int, Key

from quatrain.envs.treasurehunt import turns
from quatrain.envs.treasurehunt.config import Env
from quatrain.envs.treasurehunt.turns import EnvStates, Turn, World
from quatrain.envs.treasurehunt.world import AGENT, WALL
from quatrain.models.iqn import network
from quatrain.models.iqn.config import Acting, IqnConfig, LinearEpsilon
from quatrain.models.iqn.cycle.acting import epsilon_greedy_policy
from quatrain.replay.frames.ring import Transitions


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


def epsilon_at(
    acting: Acting,
    transitions: Int[Array, ""],
    episodes: Int[Array, ""] | Float[Array, ""],
) -> Float[Array, ""]:
    """Computes epsilon after an agent's transitions and finished episodes in all envs.

    Both counts include the prefill.
    """
    schedule = acting.epsilon
    if isinstance(schedule, LinearEpsilon):
        elapsed = transitions.astype(jnp.float32) / schedule.over_transitions
        epsilon = schedule.start - (schedule.start - schedule.end) * elapsed
    else:
        epsilon = schedule.start * (1 - schedule.decay) ** episodes.astype(jnp.float32)
    return jnp.maximum(jnp.float32(schedule.end), epsilon)


def play(
    config: IqnConfig,
    world: World,
    params: network.Params,
    play_state: PlayState,
    key: Key[Array, ""],
) -> tuple[PlayState, Turn, Float[Array, " turn"]]:
    """Plays `turns_per_cycle` turns; returns them with the epsilon of each."""

    def one_turn(state: PlayState, keys: Array) -> tuple[PlayState, tuple[Turn, Array]]:
        epsilon = epsilon_at(config.train.acting, state.transitions, state.episodes)
        policy = epsilon_greedy_policy(config, params, epsilon)
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


def init_play_state(envs: EnvStates, prefill: Transitions) -> PlayState:
    """Returns the state before the first turn, with the prefill's counts."""
    finished = (prefill.terminated | prefill.final).sum(dtype=jnp.int32)
    return PlayState(
        envs=envs,
        turns=jnp.int32(0),
        transitions=(~prefill.final).sum(dtype=jnp.int32),
        episodes=finished,
        reward_sums=jnp.zeros(prefill.rewards.shape[1:], jnp.float32),
        episode_return=prefill.rewards.sum((0, 2)) / jnp.maximum(finished, 1),
    )


def named_events(env: Env) -> dict[str, int]:
    """Returns metric name -> the event that it counts; `items_NAME` for each kind of item."""
    items = {f"items_{entity.name}": kind for kind, entity in enumerate(env.entities, start=1)}
    return {"wall_bumps": WALL, "blocked": AGENT, **items}


def event_rates(config: IqnConfig, turn: Turn) -> dict[str, Float[Array, " agent"]]:
    """Computes, per agent, the mean reward of a turn and the share of turns with each event.

    Final turns do not count; without others all are 0.
    """
    transitions = ~turn.final[:, None]
    number = jnp.maximum(transitions.sum(), 1)
    return {"reward_per_turn": turn.rewards.sum((0, 2)) / number} | {
        name: ((turn.events == event) & transitions).sum((0, 2)) / number
        for name, event in named_events(config.env).items()
    }
