"""environments of users that are written in JAX, with gymnax's signature -> a world that is stepped
and stored inside compiled programs, and the same between them

Prefill, held-out episodes and their policies are those of user_env.py, which steps all environments
by one compiled program.
"""

import dataclasses
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium.spaces import Box, Discrete
from jax import Array
from jaxtyping import Bool, Float, Float32, Int, Int32, Key, Shaped

from quatrain.envs.host.config import MAX_EPISODE_STEPS, thawed
from quatrain.envs.host.envs import HostEnvs, Transition
from quatrain.envs.host.sizes import MOST
from quatrain.envs.host.spaces import Interface, describe
from quatrain.envs.host.user_code import AGENT, called, imported, user_code
from quatrain.envs.treasurehunt import turns
from quatrain.envs.treasurehunt.turns import ActionResult, Policy, TurnEnd, World
from quatrain.errors import DataError
from quatrain.models.iqn import compiled, user_env
from quatrain.models.iqn.collect import NO_RETURN
from quatrain.models.iqn.compiled import PlayState
from quatrain.models.iqn.compiled import event_rates as event_rates
from quatrain.models.iqn.compiled import play_template as play_template
from quatrain.models.iqn.config import IqnJaxEnvConfig, JaxEnv

COMPILED = True
# Environments that play held-out episodes together, in one program.
MOST_ENVS = MOST
# Number folded into the key of an episode, in place of a turn, for its beginning.
RESET = np.uint32(2**32 - 1)


def __getattr__(name: str) -> Any:
    """Returns what is the same in environments that step in Python."""
    return getattr(user_env, name)


class State(NamedTuple):
    """Holds one env. leaves: of its own state. terminated, truncated: by the last action."""

    leaves: tuple[Array, ...]
    obs: Float32[Array, " obs"]
    terminated: Bool[Array, ""]
    truncated: Bool[Array, ""]
    turn: Int32[Array, ""]
    episode: Int32[Array, ""]
    key: Key[Array, ""]


class Playable(NamedTuple):
    """Holds an environment as the loop plays it, and its sizes."""

    world: World
    interface: Interface


class Step(NamedTuple):
    """Holds what an environment returned. truncated: None where it does not tell."""

    obs: Any
    state: Any
    reward: Any
    terminated: Any
    truncated: Any


# key -> (obs, state), and (key, state, action) -> Step, which begins no next episode.
Functions = tuple[Callable[[Array], Any], Callable[[Array, Any, Array], Step]]


def make(config: JaxEnv) -> Playable:
    """Makes the environment; equal configs have the same one, to compile only once, until `import`
    names another callable.

    Raises:
        DataError: it cannot be imported or made, or does not return what gymnax's signature says.
    """
    with _making(config):
        factory = imported(*str(config.import_).split(":"))
    return _make(config, factory)


def _making(config: JaxEnv) -> Any:
    return user_code(lambda reason: f"env {config.name} cannot be made: {reason}")


@lru_cache(maxsize=8)
def _make(config: JaxEnv, factory: Callable[..., Any]) -> Playable:
    with _making(config):
        env = called(factory, **thawed(config.kwargs))
    with user_code(lambda reason: f"env {config.name}: {reason}"):
        env, params = env if isinstance(env, tuple) else (env, env.default_params)
        params, limit = _limited(config, params)
        reset, step = _functions(env, params)
        key = jax.random.key(0)
        begun = jax.eval_shape(reset, key)
        _check(begun, jax.eval_shape(step, key, begun[1], jnp.int32(0)))
        actions = getattr(env.action_space(params), "n", None)
        if actions is None:
            raise DataError("it has continuous actions, and iqn needs Discrete ones; wrap it")
        size = sum(leaf.size for leaf in jax.tree.leaves(begun[0]))
        spaces = (Box(-np.inf, np.inf, (size,), np.float32), Discrete(int(actions)))
        world = _world((reset, step), size, limit)
        return Playable(world, describe({AGENT: spaces}, limit))


def _limited(config: JaxEnv, params: Any) -> tuple[Any, int]:
    """Returns the parameters with the limit of steps, and the limit."""
    own_limit = getattr(params, "max_steps_in_episode", None)
    limit = config.max_episode_steps or own_limit
    if limit is None or not 1 <= int(limit) <= MAX_EPISODE_STEPS:
        raise DataError(
            f"its parameters have max_steps_in_episode {own_limit}, and 1 to {MAX_EPISODE_STEPS} "
            "are taken; set max_episode_steps, which changes no episode that ends before"
        )
    if own_limit is not None and dataclasses.is_dataclass(params) and not isinstance(params, type):
        params = dataclasses.replace(params, max_steps_in_episode=int(limit))
    return params, int(limit)


def _functions(env: Any, params: Any) -> Functions:
    """Returns the functions that begin no episode by themselves where the class has them: those of
    what a wrapper wraps would skip it.
    """
    if not hasattr(type(env), "step_env"):
        return lambda key: env.reset(key, params), partial(_call, env.step, params)

    def step(key: Array, state: Any, action: Array) -> Step:
        obs, state, reward, terminated, _ = env.step_env(key, state, action, params)
        truncated = env.is_truncated(state, params) if hasattr(env, "is_truncated") else None
        return Step(obs, state, jnp.float32(reward), terminated, truncated)

    return lambda key: env.reset_env(key, params), step


def _call(step: Callable[..., Any], params: Any, key: Array, state: Any, action: Array) -> Step:
    obs, state, reward, terminated, *truncated, info = step(key, state, action, params)
    if isinstance(info, Mapping):
        obs = info.get("final_observation", obs)
    return Step(obs, state, jnp.float32(reward), terminated, *(truncated or [None]))


def _check(begun: tuple[Any, Any], step: Step) -> None:
    """Raises DataError unless these shapes are of steps that can be repeated in a compiled loop."""
    number, flag = (jax.ShapeDtypeStruct((), dtype) for dtype in (jnp.float32, jnp.bool_))
    names = ("obs", "state", "reward", "done")
    expected = dict(zip(names, (*begun, number, flag), strict=True))
    stepped = dict(zip(names, step, strict=False))
    if str(jax.tree.structure(expected)) != str(jax.tree.structure(stepped)):
        raise DataError("reset and step return observations or states of other parts; mend one")
    pairs = zip(jax.tree.leaves_with_path(expected), jax.tree.leaves(stepped), strict=True)
    for (path, old), new in pairs:
        if (old.shape, old.dtype) != (new.shape, new.dtype):
            name = jax.tree_util.keystr(path, simple=True, separator=".")
            raise DataError(
                f"step returns a {name} that is {new.dtype}{new.shape}; return "
                f"{old.dtype}{old.shape}, as reset does or a loop needs"
            )


def _world(functions: Functions, size: int, limit: int) -> World:
    """Returns the pure functions of one agent's world.

    An env that does not tell a time limit from another end has ended by it in the last step.
    """
    reset_own, step_own = functions
    tree = jax.tree.structure(jax.eval_shape(reset_own, jax.random.key(0))[1])

    def reset(key: Array, episode: Array) -> State:
        obs, state = reset_own(_key(key, episode, RESET))
        leaves = tuple(map(jnp.asarray, jax.tree.leaves(state)))
        never = jnp.bool_(False)
        episode = jnp.asarray(episode, jnp.int32)
        return State(leaves, _flat(obs), never, never, jnp.int32(0), episode, key)

    def act(state: State, _agent: Array, action: Array) -> ActionResult:
        key = _key(state.key, state.episode, state.turn)
        user_state = jax.tree.unflatten(tree, state.leaves)
        step = step_own(key, user_state, action.astype(jnp.int32))
        is_last = state.turn + 1 >= limit
        terminated, truncated = step.terminated, step.truncated
        if truncated is None:
            terminated, truncated = terminated & ~is_last, is_last
        state = state._replace(
            leaves=tuple(map(jnp.asarray, jax.tree.leaves(step.state))),
            obs=_flat(step.obs),
            terminated=jnp.asarray(terminated),
            truncated=~jnp.asarray(terminated) & (truncated | is_last),
        )
        return ActionResult(state, step.reward, jnp.int8(0))

    return World(
        agents=1,
        frame_size=size,
        shuffled=False,
        reset=reset,
        begin_turn=lambda state: state,
        observe=lambda state, _agent: state.obs,
        act=act,
        end_turn=_end_turn,
        dtype=jnp.float32,
    )


def _key(key: Key[Array, ""], episode: Array, turn: Array | np.uint32) -> Key[Array, ""]:
    return jax.random.fold_in(jax.random.fold_in(key, episode), turn)


def _flat(obs: Any) -> Float32[Array, " obs"]:
    return jnp.concatenate([jnp.float32(leaf).reshape(-1) for leaf in jax.tree.leaves(obs)])


def _end_turn(state: State) -> TurnEnd:
    return TurnEnd(state._replace(turn=state.turn + 1), state.terminated, state.truncated)


# In compiled programs.


def make_world(config: JaxEnv) -> World:
    return make(config).world


def init_play_state(
    config: IqnJaxEnvConfig, dataset: user_env.Dataset, env_keys: Key[Array, " seed"]
) -> PlayState:
    """Returns the states of all seeds before the first turn, with the prefill's counts."""
    begun = compiled.begin_play(config, make_world(config.env), dataset.train, env_keys)
    return begun._replace(episode_return=jnp.full_like(begun.episode_return, NO_RETURN))


def greedy_returns(
    config: IqnJaxEnvConfig,
    world: World,
    policy: Policy,
    env_key: Key[Array, ""],
    play_key: Key[Array, ""],
) -> Float[Array, " agent"]:
    """Computes the mean return of an episode in as many envs as a validation has."""
    count = config.validation.count(make(config.env).interface.max_episode_steps)
    envs = turns.start(world, jax.random.split(env_key, count), config.network.frames)
    (keys,) = turns.turn_keys(world, play_key, 0, 1)  # a greedy policy draws nothing

    def play_on(played: tuple[turns.EnvStates, Array, Array]) -> tuple[Any, Array, Array]:
        envs, running, returns = played
        envs, turn = turns.play_turn(world, envs, policy, keys)
        returns += jnp.where(running, turn.rewards, 0)
        return envs, running & ~(turn.terminated | turn.final), returns

    first = (envs, jnp.ones(count, bool), jnp.zeros((1, count)))
    *_, returns = jax.lax.while_loop(lambda played: played[1].any(), play_on, first)
    return returns.mean(-1)


# Between them.


@partial(jax.jit, static_argnums=0)
def _reset(world: World, keys: Key[Array, " env"], episode: Shaped[Array, " env"]) -> State:
    return jax.vmap(world.reset)(keys, episode)


@partial(jax.jit, static_argnums=0)
def _step(
    world: World, states: State, actions: Shaped[Array, " env"], active: Bool[Array, " env"]
) -> tuple[State, State, Float32[Array, " env"]]:
    """Returns the next states, where an ended episode is followed by the next one and an env that
    is not active stays as it is, those that actions led to, and the rewards.
    """

    def step(state: State, action: Array, active: Array) -> tuple[State, State, Array]:
        result = world.act(state, jnp.int32(0), action)
        reached = world.end_turn(result.state).state
        ended = reached.terminated | reached.truncated
        begun = world.reset(state.key, state.episode + 1)
        following = jax.tree.map(partial(jnp.where, ended), begun, reached)
        return jax.tree.map(partial(jnp.where, active), following, state), reached, result.reward

    return jax.vmap(step)(states, actions, active)


class Envs(HostEnvs):
    """Steps environments as HostEnvs does, all by one compiled program."""

    config: JaxEnv

    def _begin_first(self, num_envs: int) -> None:
        self._world, self.interface = make(self.config)
        key = jax.random.key(self.seed)
        self._keys = jax.vmap(partial(jax.random.fold_in, key))(np.arange(num_envs))
        self.obs = np.zeros((num_envs, 1, self.interface.observation_size), np.float32)
        self.restart()

    def restart(self, episode: int = 0) -> None:
        """Begins the episode of this number in every environment, in place."""
        self._show(_reset(self._world, self._keys, np.full(len(self.obs), episode)))
        self._check_finite(self.obs[:, 0])

    def step(
        self, actions: Int[np.ndarray, "env agent"], active: Bool[np.ndarray, " env"] | None = None
    ) -> Transition:
        """Steps environments, in place; ended episodes are followed by their next ones.

        active: which ones, all if None; the others stay as they are, without a reward.

        Raises:
            DataError: an environment returned what is not finite.
        """
        obs = self.obs
        active = np.ones(len(obs), bool) if active is None else active
        states, reached, reward = _step(self._world, self._states, actions[:, 0], active)
        turn = Transition(
            obs=obs,
            actions=actions,
            rewards=np.where(active, reward, np.float32(0))[:, None],
            terminated=np.asarray(reached.terminated) & active,
            truncated=np.asarray(reached.truncated) & active,
            next_obs=np.where(active[:, None], reached.obs, obs[:, 0])[:, None],
        )
        self._elapsed += active
        self._check_finite(np.concatenate([turn.next_obs[:, 0], turn.rewards], 1))
        self._show(states)
        return turn

    def close(self) -> None:
        """Holds nothing that needs closing."""

    def _show(self, states: State) -> None:
        self._states = states
        self._episode, self._elapsed = np.array(states.episode), np.array(states.turn, np.int64)
        self.obs = np.array(states.obs)[:, None]

    def _check_finite(self, numbers: Float32[np.ndarray, "env number"]) -> None:
        for self._index in np.flatnonzero(~np.isfinite(numbers).all(-1)).tolist():
            with self._named_errors():
                raise DataError("it shows an observation or a reward that is not finite")
