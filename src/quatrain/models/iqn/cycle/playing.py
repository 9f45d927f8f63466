"""parameters, worlds -> some turns of all worlds, and what they brought: the first half of a cycle."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float, Int, Key

from quatrain.envs.treasurehunt import turns
from quatrain.envs.treasurehunt.config import Env
from quatrain.envs.treasurehunt.turns import Lanes, Turn, World
from quatrain.envs.treasurehunt.world import AGENT, WALL
from quatrain.models.iqn import network
from quatrain.models.iqn.config import Acting, IqnConfig, LinearEpsilon
from quatrain.models.iqn.cycle.acting import epsilon_greedy_policy
from quatrain.replay.frames import Transitions


class Player(NamedTuple):
    """Everything that changes while playing: the worlds, and counts that span cycles."""

    lanes: Lanes
    turns: Int[Array, ""]
    """Of each world, prefill not counted."""
    episodes: Int[Array, ""]
    """Finished, over all worlds, prefill counted."""
    reward_sums: Float[Array, "agents lanes"]
    """Of the episodes that run."""
    episode_return: Float[Array, " agents"]
    """Mean over the episodes that ended in the last turn in which any did."""


class CyclePlayed(NamedTuple):
    """The player afterwards, what the replay and the records need of the turns (leading axis turns), and epsilon."""

    player: Player
    turns: Turn
    epsilon: Float[Array, " turns"]


def epsilon_at(
    acting: Acting, transitions: Int[Array, ""], episodes: Int[Array, ""] | Float[Array, ""]
) -> Float[Array, ""]:
    """Epsilon after so many transitions and finished episodes of an agent, over all worlds and with the prefill."""
    chosen = acting.epsilon
    if isinstance(chosen, LinearEpsilon):
        elapsed = transitions.astype(jnp.float32) / chosen.over_transitions
        falling = chosen.start - (chosen.start - chosen.end) * elapsed
    else:
        falling = chosen.start * (1 - chosen.decay) ** episodes.astype(jnp.float32)
    return jnp.maximum(jnp.float32(chosen.end), falling)


def play(
    config: IqnConfig, world: World, params: network.Params, player: Player, key: Key[Array, ""]
) -> CyclePlayed:
    """`turns_per_cycle` turns; epsilon falls with every one of them."""

    def one_turn(player: Player, keys: Array) -> tuple[Player, tuple[Turn, Array]]:
        transitions = config.env.worlds * (config.collect.turns + player.turns)
        epsilon = epsilon_at(config.train.acting, transitions, player.episodes)
        policy = epsilon_greedy_policy(config, params, epsilon)
        lanes, turn = turns.play_turn(world, player.lanes, policy, keys)
        return _after(player, lanes, turn), (turn, epsilon)

    keys = turns.keys_of(world, key, player.turns, config.train.turns_per_cycle)
    end, (played, epsilon) = jax.lax.scan(one_turn, player, keys)
    return CyclePlayed(end, played, epsilon)


def _after(player: Player, lanes: Lanes, turn: Turn) -> Player:
    """The counts after one more turn."""
    ended = turn.terminated | turn.truncated
    sums, finished = player.reward_sums + turn.rewards, ended.sum(dtype=jnp.int32)
    mean = jnp.where(ended, sums, 0.0).sum(-1) / jnp.maximum(finished, 1)
    return Player(
        lanes=lanes,
        turns=player.turns + 1,
        episodes=player.episodes + finished,
        reward_sums=jnp.where(ended, 0.0, sums),
        episode_return=jnp.where(finished > 0, mean, player.episode_return),
    )


def first_player(lanes: Lanes, prefill: Transitions) -> Player:
    """A player before its first turn, with the prefill's counts."""
    finished = (prefill.terminated | prefill.truncated).sum(dtype=jnp.int32)
    return Player(
        lanes=lanes,
        turns=jnp.int32(0),
        episodes=finished,
        reward_sums=jnp.zeros(prefill.rewards.shape[1:], jnp.float32),
        episode_return=prefill.rewards.sum((0, 2)) / jnp.maximum(finished, 1),
    )


def named_events(env: Env) -> dict[str, int]:
    """Name of a metric -> the event that it counts; `items_NAME` for each kind of item."""
    items = {f"items_{entity.name}": kind for kind, entity in enumerate(env.entities, start=1)}
    return {"wall_bumps": WALL, "blocked": AGENT, **items}


def happenings(config: IqnConfig, turn: Turn) -> dict[str, Float[Array, " agents"]]:
    """Of turns, per agent-step: the reward, and the share of each event."""
    shares = {
        name: (turn.events == event).mean((0, 2))
        for name, event in named_events(config.env).items()
    }
    return {"reward_per_turn": turn.rewards.mean((0, 2))} | shares
