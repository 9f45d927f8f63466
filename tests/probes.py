"""Worlds so small that what must be learned in them is known exactly."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from quatrain.envs.treasurehunt.turns import ActionResult, TurnEnd, World
from quatrain.envs.treasurehunt.world import MOVES, State
from quatrain.models.iqn import learn, network
from quatrain.models.iqn.collect import Sizes
from quatrain.models.iqn.compiled import begin_play
from quatrain.models.iqn.config import IqnConfig
from quatrain.models.iqn.learn import State as TrainState
from quatrain.models.iqn.train import CompiledLoop, train_in
from quatrain.models.iqn.treasurehunt import prefill
from quatrain.validation import overlaid
from tests.conftest import params_with

FRAME = 36
"""Numbers in a frame: four channels of 3x3 cells. Probes use the first ones."""
DISCOUNT = 0.5
MIDPOINTS = (np.arange(16, dtype=np.float32) + 0.5) / 16
SIZE = {"height": 5, "width": 5}
EPSILON = {"kind": "linear", "start": 1.0, "end": 0.2, "over_transitions": 3000}

CONFIG: dict[str, Any] = {
    "env": {**SIZE, "worlds": 16, "max_turns": 12, "vision_radius": 1, "ground": "plain"},
    "collect": {"turns": 96, "held_out_worlds": 2},
    "network": {"frames": 1, "hidden": 32, "cosines": 16},
    "train": {
        "turns": 120,
        "turns_per_cycle": 12,
        "updates_per_cycle": 100,
        "batch_size": 32,
        "capacity": 16 * 216,
        "learning_rate": 3e-3,
        "target": {"kind": "polyak", "rate": 0.05},
        "record_every": 500,
        "evaluate_every": 0,
        "loss": {"discount": DISCOUNT},
        "acting": {"epsilon": EPSILON},
    },
}


def config(world: World, **changes: Any) -> IqnConfig:
    """The small learner for a world, with sections changed."""
    of_world = overlaid(CONFIG, {"env": {"agents": world.agents}})
    return params_with({"iqn": overlaid(of_world, changes)}).iqn


def coin(state: State, number: int) -> jax.Array:
    """The number-th coin of an episode: 0 or 1, whatever the turn."""
    key = jax.random.fold_in(jax.random.fold_in(state.key, state.episode), number)
    return jax.random.bernoulli(key).astype(jnp.int32)


def shown(*places: Any) -> jax.Array:
    """A frame with ones in these places; a place behind its end shows nothing."""
    where = jnp.stack(jnp.broadcast_arrays(*places))
    return jnp.zeros(FRAME, jnp.int8).at[where].set(1, mode="drop")


def build(
    agents: int,
    observe: Callable[[State, jax.Array], jax.Array],
    reward: Callable[[State, jax.Array, jax.Array], jax.Array],
    end: Callable[[State], tuple[Any, Any]],
) -> World:
    """The world of agents that change nothing: what they see and are paid, and whether a turn is
    the last (terminated, truncated). What is hidden follows from the key and the episode's number.
    """

    def reset(key: jax.Array, episode: jax.Array) -> State:
        items, positions = jnp.zeros((0, 0), jnp.int8), jnp.zeros((agents, 2), jnp.int16)
        return State(items, positions, jnp.int32(0), jnp.asarray(episode, jnp.int32), key)

    def end_turn(state: State) -> TurnEnd:
        terminated, truncated = end(state)
        later = state._replace(turn=state.turn + 1)
        return TurnEnd(later, jnp.asarray(terminated), jnp.asarray(truncated))

    def act(state: State, agent: jax.Array, action: jax.Array) -> ActionResult:
        paid = reward(state, agent, action).astype(jnp.float32)
        return ActionResult(state, paid, action.astype(jnp.int8))

    return World(agents, FRAME, False, reset, lambda state: state, observe, act, end_turn)


# One turn, then the end. Each agent has a task of its own and sees the same coin: heads or tails.

TAILS, HEADS = 0, 1
PAYOFFS = {  # task -> reward of each action with tails and with heads
    "always": [[1, 1, 1, 1], [1, 1, 1, 1]],
    "seen": [[-1, -1, -1, -1], [1, 1, 1, 1]],
    "done": [[0, 0, 1, 0], [0, 0, 1, 0]],
    "seen and done": [[1, 0, 0, -1], [-1, 0, 1, 0]],
    "upward": [[1, 0, 0, -1], [1, 0, 0, -1]],
    "rightward": [[-1, 0, 0, 1], [-1, 0, 0, 1]],
    "lottery": [[0, 0, 0, 0], [0, 0, 0, 0]],  # and a second coin, which nobody sees
}
TASKS = tuple(PAYOFFS)
SIDES = np.stack([np.eye(FRAME, dtype=np.int8)[side] for side in (TAILS, HEADS)])
"""What is seen with tails and with heads."""


def _paid_once(state: State, agent: jax.Array, action: jax.Array) -> jax.Array:
    paid = jnp.array(list(PAYOFFS.values()), jnp.int32)[agent, coin(state, 0), action]
    return jnp.where(agent == TASKS.index("lottery"), coin(state, 1), paid)


ONE_TURN = build(
    len(TASKS),
    lambda state, _: shown(coin(state, 0)),
    _paid_once,
    lambda _: (jnp.bool_(True), jnp.bool_(False)),
)

# Three turns. A coin decides: the episode terminates and shows its turns, or it is cut off.

TURNS = 3
ERRANDS = ("paid", "delayed", "cued")
"""Paid 1 in each turn; in the last; in the last for the action that was shown in the first."""
CUT, FIRST, CUE = 0, 1, 4
"""Places: the episode will be cut; it is in turn 1, 2, 3; the shown action is 0, is 1."""


def _seen_in_turn(state: State, agent: jax.Array) -> jax.Array:
    cut, cued = coin(state, 0) == 1, (agent == ERRANDS.index("cued")) & (state.turn == 0)
    cue = jnp.where(cued, CUE + coin(state, 1), FRAME)
    return jnp.where(cut, shown(CUT), shown(FIRST + state.turn, cue))


def _paid_in_turn(state: State, agent: jax.Array, action: jax.Array) -> jax.Array:
    last = (state.turn == TURNS - 1) & (coin(state, 0) == 0)
    return jnp.stack([jnp.bool_(True), last, last & (action == coin(state, 1))])[agent]


def _last_of_three(state: State) -> tuple[jax.Array, jax.Array]:
    over, cut = state.turn == TURNS - 1, coin(state, 0) == 1
    return over & ~cut, over & cut


THREE_TURNS = build(len(ERRANDS), _seen_in_turn, _paid_in_turn, _last_of_three)


# Laps of three turns, of which the last is paid. An episode is one lap; another one would follow.

LAPS = build(
    1,
    lambda state, _: shown(FIRST + state.turn % TURNS),
    lambda state, _agent, _action: state.turn % TURNS == TURNS - 1,
    lambda state: (jnp.bool_(False), state.turn == TURNS - 1),
)


def fresh(config: IqnConfig, world: World) -> TrainState:
    """An untrained learner whose replay holds what a random policy met."""
    experience = prefill(config, world, jax.random.key(0))
    return begun(config, world, experience, learn.base_keys(config, 0))


def begun(config: IqnConfig, world: World, prefill: Any, base_key: jax.Array) -> TrainState:
    """What `init_state` returns, in any world and with a base key per seed."""
    sizes = Sizes(world.agents, world.frame_size, len(MOVES))
    state = learn.init(config, sizes, prefill, base_key)
    keys = learn.purpose_keys(base_key, learn.WORLDS)
    return state._replace(play_state=begin_play(config, world, prefill, keys))


def learned(config: IqnConfig, world: World, state: TrainState) -> TrainState:
    """After the whole training."""
    *_, end = train_in(config, CompiledLoop(config, world), state)
    return end.state


def quantiles(config: IqnConfig, state: TrainState, agent: int, frames: np.ndarray) -> np.ndarray:
    """Z of the stacks of these frames (..., frame), oldest first: (stack, quantile, action)."""
    params = jax.tree.map(lambda leaf: leaf[0, agent], learn.evaluation_params(config, state))
    stack = jnp.asarray(np.reshape(frames, (-1, config.inputs)))
    apply = jax.jit(network.apply, static_argnums=0)
    return np.asarray(apply(config.network, params, stack, jnp.asarray(MIDPOINTS)[None]))
