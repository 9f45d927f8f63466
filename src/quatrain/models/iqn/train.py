"""replay -> weights: cycles of playing turns in all envs and updating every agent"""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing
from functools import cached_property, lru_cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float, Key, Shaped

from quatrain.errors import DataError
from quatrain.frameworks.jax import from_template, over_devices, over_seeds
from quatrain.frameworks.jax import to_arrays as to_arrays
from quatrain.models.iqn import compiled, learn, network
from quatrain.models.iqn.collect import NO_RETURN, check
from quatrain.models.iqn.config import LearnerConfig
from quatrain.models.iqn.learn import Best, State, purpose_keys
from quatrain.progress import Progress, TrainingDiverged, by_seed
from quatrain.replay.frames.ring import Transitions

WEIGHTS = ("params/", "target_params/", "best/", "scale/")
# Metrics that must be finite, in the order in which they are reported.
WATCHED = ("loss", "grad_norm", "q_mean")
# Metrics with one value per cycle and seed.
COUNTS = ("epsilon", "agent_steps", "replay_valid")


class Cycle(NamedTuple):
    """Holds the record of one cycle of one seed; stacked records begin with seeds and cycles.

    update_metrics: name -> (update, agent). play_metrics: name -> (agent,). epsilon: in the last
    turn. agent_steps: since the beginning, with the prefill, without final turns. replay_valid:
    number of transitions that can be sampled.
    """

    update_metrics: dict[str, Any]
    play_metrics: dict[str, Any]
    epsilon: Any
    agent_steps: Any
    replay_valid: Any


def headline(config: LearnerConfig) -> tuple[str, str]:
    return "episode_return", "greedy_return"


# In compiled programs.


def run_cycle(config: LearnerConfig, world: Any, state: State) -> tuple[State, Cycle]:
    """Plays, stores the turns and updates the agents, of one seed."""
    explore = partial(network.explore, config, state.params)
    key = jax.random.fold_in(state.base_key, learn.PLAY)
    world = compiled.with_inputs(world, state.scale)
    play_state, turns, played = compiled.play(config, world, explore, state.play_state, key)
    state, learned = learn.learn(config, state._replace(play_state=play_state), turns)
    return state, Cycle(**played, **learned)


@partial(jax.jit, static_argnums=(0, 1, 2))
def run_chunk(config: LearnerConfig, world: Any, cycles: int, state: State) -> tuple[State, Cycle]:
    """Runs this number of cycles of every seed; records are (seed, cycle, ...).

    The state is not donated: it stays valid when the next chunk diverges. Inside, the replay is
    written in place.
    """

    def run(first: State) -> tuple[State, Cycle]:
        return jax.lax.scan(lambda state, _: run_cycle(config, world, state), first, length=cycles)

    return over_seeds(run, config.train.seed_parallelism)(state)


@partial(jax.jit, static_argnums=(0, 1))
def greedy_returns(
    config: LearnerConfig, world: Any, seeds: tuple[network.Params, Key[Array, " seed"], Any]
) -> Float[Array, "seed agent"]:
    """Computes the mean return of a greedy episode in the envs of an evaluation, always the same.

    seeds: parameters, base key and scale of each.
    """

    def evaluate_seed(seed: tuple[network.Params, Array, Any]) -> Array:
        params, key, scale = seed
        purposes = (learn.EVALUATION_WORLDS, learn.EVALUATION_PLAY)
        env_key, play_key = (jax.random.fold_in(key, purpose) for purpose in purposes)
        policy = network.greedy_policy(config, params)
        inputs = compiled.with_inputs(world, scale)
        return config.world.greedy_returns(config, inputs, policy, env_key, play_key)

    return over_seeds(evaluate_seed, config.train.seed_parallelism)(seeds)


class CompiledLoop:
    """Runs cycles and evaluations in a world whose turns are part of the compiled programs."""

    def __init__(self, config: LearnerConfig, world: Any) -> None:
        self._config = config
        self._world = world

    def run(self, state: State, cycles: int) -> tuple[State, Cycle]:
        """Runs this number of cycles of all seeds; records are (seed, cycle, ...)."""
        run = partial(run_chunk, self._config, self._world, cycles)
        state, record = over_devices(run, self._config.seeds)(state)
        return state, jax.device_get(record)

    def evaluate(self, params: network.Params, state: State) -> Float[np.ndarray, "seed agent"]:
        """Computes the mean return of greedy episodes, always the same."""
        evaluate = partial(greedy_returns, self._config, self._world)
        return np.asarray(
            over_devices(evaluate, self._config.seeds)((params, state.base_key, state.scale))
        )

    def close(self) -> None:
        """Holds nothing that needs closing."""


# In environments on the host.


@lru_cache(maxsize=4)
def learning_program(config: LearnerConfig) -> Any:
    """Returns the compiled `learn` of all seeds, which takes the memory of the state that it is
    given.
    """
    mapped = over_seeds(lambda seed: learn.learn(config, *seed), config.train.seed_parallelism)
    return jax.jit(lambda *seeds: mapped(seeds), donate_argnums=0)


class HostLoop:
    """Runs cycles and evaluations in environments that step in Python, between compiled programs of
    acting and learning.
    """

    def __init__(self, config: LearnerConfig, state: State) -> None:
        self._config = config
        self._scale = state.scale
        self._base_key = state.base_key
        act = network.exploring_program(config)
        keys = purpose_keys(state.base_key, learn.PLAY)
        self._explore = lambda params, *arguments: act(params, keys, *arguments)
        with ExitStack() as opened:
            envs = self._open(config.env.worlds, learn.WORLDS, opened)
            self._player = config.world.Player(config, state.scale, envs, state.play_state)
            self._opened = opened.pop_all()

    def _open(self, count: int, purpose: int, opened: ExitStack) -> Any:
        """Returns so many environments of each seed, which `opened` closes."""
        bits = np.asarray(jax.vmap(jax.random.bits)(purpose_keys(self._base_key, purpose)))
        return self._config.world.open_envs(self._config, count, bits.tolist(), opened)

    def run(self, state: State, cycles: int) -> tuple[State, Cycle]:
        """Runs this number of cycles of all seeds; records are (seed, cycle, ...)."""
        # Programs must not take the memory of the state that was given.
        learner = jax.tree.map(jnp.copy, state._replace(play_state=(), scale=(), best=()))
        cycle_records = []
        for _ in range(cycles):
            explore = partial(self._explore, learner.params)
            turns, played = self._player.play(explore)
            learner, learned = learning_program(self._config)(learner, turns)
            cycle_records.append(Cycle(**played, **learned))
        record = jax.tree.map(lambda *rows: np.stack(rows, 1), *jax.device_get(cycle_records))
        kept = {name: getattr(state, name) for name in ("scale", "best")}
        return learner._replace(**kept, play_state=self._player.state), record

    @cached_property
    def _greedy_envs(self) -> Any:
        count = min(self._player.validation_episodes, self._config.world.MOST_ENVS)
        return self._open(count, learn.EVALUATION_WORLDS, self._opened)

    def evaluate(self, params: network.Params, _state: State) -> Float[np.ndarray, "seed agent"]:
        """Computes the mean return of greedy episodes, always the same."""
        policies = [
            partial(host_policy, self._config, self._scale, seed, network.pick(params, seed))
            for seed in range(self._config.seeds)
        ]
        count = self._player.validation_episodes
        return self._config.world.mean_returns(self._greedy_envs, policies, count)

    def close(self) -> None:
        self._opened.close()


def host_policy(config: LearnerConfig, scale: Any, seed: int, params: network.Params) -> Any:
    """Returns the greedy policy of these parameters (axis agent), with the scale of a seed."""
    world = config.world
    act = partial(network.greedy_program(config), params)
    return world.GreedyPolicy(config.network.frames, world.by_seed(scale)[seed], act)


# In any world.


def loop_of(config: LearnerConfig, state: State) -> CompiledLoop | HostLoop:
    """Returns what runs cycles and evaluations from this state; close it afterwards.

    Raises:
        DataError: a user's environments cannot be made, or do not repeat their running episodes.
    """
    if config.world.COMPILED:
        return CompiledLoop(config, config.world.make_world(config.env))
    return HostLoop(config, state)


def init_state(config: LearnerConfig, dataset: Any, seed: int) -> State:
    """Returns untrained agents, envs at their start, and replays with the prefill."""
    world = config.world
    base_key = learn.base_keys(config, seed)
    prefill = world.replay_inputs(config, dataset)
    state = learn.init(config, world.sizes(config, dataset), prefill, base_key)
    play_state = world.init_play_state(config, dataset, purpose_keys(base_key, learn.WORLDS))
    best: Any = ()
    if config.brings_env:  # the best validation is kept
        best = Best(state.params, jnp.full(config.seeds, NO_RETURN, jnp.float32))
    scale = world.scale_of(config, dataset)
    return state._replace(play_state=play_state, scale=scale, best=best)


def from_arrays(config: LearnerConfig, dataset: Any, arrays: dict[str, np.ndarray]) -> State:
    """Returns the state that these arrays hold, the inverse of `to_arrays`.

    Raises:
        ValueError: names, shapes or dtypes are not those of a state of this config.
    """
    template = jax.eval_shape(partial(init_state, config, dataset, seed=0))
    play_state = config.world.play_template(config, dataset, template.play_state)
    return from_template(template._replace(play_state=play_state), arrays)


def update(
    config: LearnerConfig, dataset: Any, state: State
) -> tuple[State, Mapping[str, np.ndarray]]:
    """Runs one cycle of all seeds, with the compiled programs of `train`, without evaluations.

    Returns:
        The next state, and the metrics of the cycle, named as those of `train`.
    """
    with closing(loop_of(config, state)) as loop:
        state, record = loop.run(state, 1)
    return state, metrics(record, greedy=None)


def train(
    config: LearnerConfig, dataset: Any, seed: int, state: State | None = None
) -> Iterator[Progress]:
    """Trains until `train.turns` are played, from `state` if given.

    Yields at multiples of `train.record_every` updates, and at the end.

    Metrics are means over the updates or turns of a cycle; `NAME` is the mean over agents,
    `NAME/agent` has all agents.

    Raises:
        DatasetMismatch: the dataset was collected for another world.
        DataError: a user's environment raised, or does not repeat a saved episode.
        TrainingDiverged: something is not finite; raised before that state is yielded.
        ValueError: the state was trained with other cycles.
    """
    check(config, dataset)
    if state is None:
        state = init_state(config, dataset, seed)
    cycles = int(state.play_state.turns[0]) / config.train.turns_per_cycle
    if int(state.updates[0]) != cycles * config.train.updates_per_cycle:
        raise ValueError(
            "the learner was trained with other turns_per_cycle or updates_per_cycle; "
            "keep both to go on"
        )
    with closing(loop_of(config, state)) as loop:
        yield from train_in(config, loop, state)


def train_in(
    config: LearnerConfig, loop: CompiledLoop | HostLoop, state: State
) -> Iterator[Progress]:
    """Trains like `train`, in any world and from this state."""
    updates = int(state.updates[0])
    steps, record_every = config.train.steps, config.train.record_every
    evaluate_every = min(config.train.evaluate_every, steps)
    while updates < steps:
        end = min(updates - updates % record_every + record_every, steps)
        state, record = loop.run(state, (end - updates) // config.train.updates_per_cycle)
        raise_if_diverged(record, updates, state.ring.data)
        updates = end
        greedy = None
        if evaluate_every and updates % evaluate_every == 0:
            state, greedy = _evaluate(config, loop, state)
        yield Progress(updates, state, metrics(record, greedy))


def _evaluate(
    config: LearnerConfig, loop: CompiledLoop | HostLoop, state: State
) -> tuple[State, Float[np.ndarray, "1 seed agent"]]:
    """Returns the state, whose best parameters are at least as good, and the greedy returns."""
    params = learn.acting_params(config, state)
    greedy = loop.evaluate(params, state)
    if isinstance(state.best, Best):
        state = state._replace(best=learn.better(state.best, Best(params, greedy.mean(-1))))
    return state, greedy[None]


# Records.


def raise_if_diverged(cycles: Cycle, updates: int, stored: Transitions) -> None:
    """Raises for the first update after `updates` in which a watched metric is not finite.

    Raises:
        TrainingDiverged: names the update, seed, agent and value, and the keys to lower, or says
            that what was stored is not finite itself.
    """
    watched = np.stack([cycles.update_metrics[name] for name in WATCHED])
    # (name, seed, cycle, update, agent) -> (cycle, update, agent, name, seed)
    by_time = np.moveaxis(watched, (0, 1), (-2, -1))
    not_finite = np.argwhere(~np.isfinite(by_time))
    if not len(not_finite):
        return
    cycle, update, agent, name, seed = not_finite[0]
    number = updates + cycle * by_time.shape[1] + update + 1
    remedy = "Lower iqn.train.learning_rate or iqn.train.max_grad_norm."
    if not all(np.isfinite(column).all() for column in (stored.frames, stored.rewards)):
        remedy = "The environment returned an observation or a reward that is not finite: mend it."
    raise TrainingDiverged(
        f"iqn: {WATCHED[name]} of agent {agent}, seed {seed} became "
        f"{by_time[cycle, update, agent, name, seed]} "
        f"at update {number} (agent-steps {int(cycles.agent_steps[seed, cycle]):,}). "
        f"{remedy}"
    )


def metrics(
    cycles: Cycle, greedy: Float[np.ndarray, "evaluation seed agent"] | None
) -> dict[str, np.ndarray]:
    """Returns name -> one value per cycle, with several seeds also by seed.

    `NAME` is the mean over agents, `NAME/agent` has all agents. `episode_return` has no value until
    an episode of each seed has ended.

    Raises:
        DataError: there was nothing to learn from in a cycle.
    """
    seed, cycle = np.unravel_index(np.argmin(cycles.replay_valid), cycles.replay_valid.shape)
    if cycles.replay_valid[seed, cycle] == 0:
        raise DataError(
            f"iqn: the replay of seed {seed} holds no transition to learn from (agent-steps "
            f"{int(cycles.agent_steps[seed, cycle]):,}): each stored turn is a final observation, "
            "or lacks turns before or after it. Raise iqn.collect.turns and iqn.train.capacity."
        )
    agent_metrics = {
        name: values.mean(2, dtype=np.float64) for name, values in cycles.update_metrics.items()
    }
    returns = cycles.play_metrics["episode_return"]
    if (returns == NO_RETURN).any():
        returns = returns[:, :0]
    play_metrics = cycles.play_metrics | {"episode_return": returns}
    columns: dict[str, Shaped[np.ndarray, "seed cycle ..."]] = {}
    for name, values in (agent_metrics | play_metrics).items():
        columns[name] = values.mean(-1)
        columns[f"{name}/agent"] = values
    columns |= {name: getattr(cycles, name) for name in COUNTS}
    if greedy is None:
        greedy = np.zeros_like(returns[:, :0]).swapaxes(0, 1)
    return by_seed(
        {
            **{name: np.swapaxes(values, 0, 1) for name, values in columns.items()},
            "greedy_return": greedy.mean(-1),
            "greedy_return/agent": greedy,
        }
    )
