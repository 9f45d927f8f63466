"""environments of users, which Python steps: turns of all of them, as the replay stores them"""

from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from typing import Any, NamedTuple, TypeVar

import numpy as np
from jax import Array
from jaxtyping import Float32, Int, Int8, Int32, Int64, Shaped

from quatrain.envs.host.convolutions import BRIGHTEST
from quatrain.envs.host.envs import MOST_ENVS as MOST_ENVS
from quatrain.envs.host.envs import (
    Begin,
    EnvStates,
    HostEnvs,
    check_interface,
    empty_states,
    play_range,
)
from quatrain.envs.host.references import random_policy
from quatrain.envs.host.spaces import Interface, SavedInterface
from quatrain.errors import DataError
from quatrain.models.iqn.collect import (
    EXAMPLES,
    LAYOUT,
    NO_RETURN,
    Scale,
    Sizes,
    check_arrays,
    scaled,
)
from quatrain.models.iqn.config import IqnUserEnvConfig
from quatrain.replay.frames.ring import Transitions

# Purposes of the randomness of a dataset.
ENVS, ACTIONS, HELD_OUT = range(3)
# Actions and turns of the replay are small integers.
MAX_ACTIONS = np.iinfo(np.int8).max
MAX_TURN = np.iinfo(np.int16).max
INPUT = "observations"
LARGEST = float(np.finfo(np.float32).max)
# Whether compiled programs step the world.
COMPILED = False
# What steps environments between compiled programs.
Envs = HostEnvs
# Smallest standard deviation by which observations are divided.
LEAST_DEVIATION = 1e-6

Columns = TypeVar("Columns", bound=tuple)
# (turns, transitions, episodes, stacks) -> actions (seed, agent, env), and epsilon.
Explore = Callable[..., tuple[Array, Array]]


class HeldOut(NamedTuple):
    """Holds what repeats the held-out episodes, the seed of their envs, and how the first begin."""

    seed: Int64[np.ndarray, "1"]
    obs: Shaped[np.ndarray, "env agent obs"]


class Dataset(NamedTuple):
    """Holds the prefill of each seed's replay (leading axis seed), the held-out episodes, and the
    sizes of the environment. Observations are not scaled.
    """

    train: Transitions
    held_out: HeldOut
    interface: SavedInterface


class Final(NamedTuple):
    """Holds the final observations that come next, of envs whose episode was truncated.

    turn: number of the turn in the episode; 0 where no final observation comes next.
    """

    turn: Int64[np.ndarray, "*seed env"]
    obs: Shaped[np.ndarray, "*seed env agent obs"]


class ReplayEnvs:
    """Steps environments for a replay: a truncated episode has a turn more, without effect, for its
    final observation.
    """

    def __init__(self, envs: HostEnvs) -> None:
        self.envs = envs
        self.final = Final(np.zeros(len(envs.obs), np.int64), np.zeros_like(envs.obs))

    @property
    def obs(self) -> Shaped[np.ndarray, "env agent obs"]:
        """Returns what the agents observe in the next turn."""
        is_final = self.final.turn > 0
        return np.where(is_final[:, None, None], self.final.obs, self.envs.obs)

    def step(self, actions: Int[np.ndarray, "env agent"]) -> Transitions:
        """Steps all envs, in place; returns the turn in the columns that the replay stores, without
        their first axis.
        """
        obs = self.obs
        is_final = self.final.turn > 0
        number = np.where(is_final, self.final.turn, self.envs.elapsed)
        turn = self.envs.step(actions, active=~is_final)
        self.final = Final(np.where(turn.truncated, number + 1, 0), turn.next_obs)
        return Transitions(
            frames=obs.swapaxes(0, 1),
            actions=turn.actions.T.astype(np.int8),
            rewards=turn.rewards.T,
            terminated=turn.terminated,
            final=is_final,
            turn=np.minimum(number, MAX_TURN).astype(np.int16),
        )


def checked(config: IqnUserEnvConfig, interface: Interface) -> Interface:
    """Returns the sizes of the environment.

    Raises:
        DataError: its actions are not few and discrete, or its observations fill the memory.
    """
    try:
        config.check_memory(interface)
    except ValueError as error:
        raise DataError(f"env {config.env.name}: {error}") from None
    counts = interface.action_counts
    if len(counts) != 1 or counts[0] > MAX_ACTIONS:
        several = f"actions of {len(counts)} indices" if counts else "continuous actions"
        actions = f"{counts[0]} actions" if len(counts) == 1 else several
        other = (
            "or train actor_critic in it"
            if len(interface.agents) == 1
            else ("for no other learner here takes several agents")
        )
        raise DataError(
            f"env {config.env.name} has {actions}; iqn needs Discrete ones, at most {MAX_ACTIONS}: "
            f"wrap the environment, {other}"
        )
    return interface


def check(config: IqnUserEnvConfig, dataset: Dataset) -> None:
    """Makes the environment, and raises unless the dataset is of this one, and iqn can act in it.

    Raises:
        DatasetMismatch: the dataset was collected in another environment.
        DataError: the environment cannot be made, or has actions that are not few and discrete.
    """
    check_interface(config.env, dataset.interface, config.world.Envs)
    space = checked(config, dataset.interface.restored)
    obs = (EXAMPLES, len(space.agents), space.observation_size)
    held_out = {"held_out/seed": (1,), "held_out/obs": obs}
    check_arrays(config, dataset, config.env.name, held_out, impossible_value)


def sizes(config: IqnUserEnvConfig, dataset: Dataset) -> Sizes:
    interface = dataset.interface.restored
    (actions,), size = interface.action_counts, interface.observation_size
    begin, end = interface.vector
    layout: tuple[int, ...] = (*(interface.image or (0, 0, 0)), end - begin, size - end)
    if layout[3] == size:
        layout = ()
    return Sizes(len(interface.agents), size, actions, layout)


def collect(config: IqnUserEnvConfig, seed: int) -> Dataset:
    """Plays `collect.turns` turns of a uniform random policy per env, and begins the first held-out
    episodes.
    """
    train = prefill(config, seed)
    held_out_seed = draw_seed(seed, HELD_OUT)
    with closing(config.world.Envs(config.env, EXAMPLES, held_out_seed)) as envs:
        held_out = HeldOut(np.array([held_out_seed]), envs.obs)
        return Dataset(train, held_out, envs.interface.saved)


def draw_seed(*entropy: int) -> int:
    """Returns a seed that depends on all these numbers."""
    return int(np.random.SeedSequence(entropy).generate_state(1)[0])


def prefill(config: IqnUserEnvConfig, seed: int) -> Transitions:
    """Returns transitions of a uniform random policy, (seed, turn, ...)."""
    seeds = []
    for learner in range(config.seeds):
        rng = np.random.default_rng((seed, ACTIONS, learner))
        envs_seed = draw_seed(seed, ENVS, learner)
        with closing(config.world.Envs(config.env, config.env.worlds, envs_seed)) as host_envs:
            envs = ReplayEnvs(host_envs)
            act = random_policy(checked(config, host_envs.interface), rng)
            turns = [envs.step(act(envs.obs)) for _ in range(config.collect.turns)]
        seeds.append(stack(turns))
    transitions = stack(seeds)
    transitions.final[:, -1] |= ~transitions.terminated[:, -1]
    return transitions


def stack(items: Sequence[Transitions], axis: int = 0) -> Transitions:
    return Transitions(*(np.stack(column, axis) for column in zip(*items, strict=True)))


def scale_of(config: IqnUserEnvConfig, dataset: Dataset) -> Scale:
    """Returns the scale of each seed, from its prefill or neutral, as of images and masks."""
    frames = dataset.train.frames
    mean, deviation = np.zeros((2, len(frames), frames.shape[-1]), np.float32)
    deviation += 1
    if config.collect.observation_norm != "none":
        vector = slice(*dataset.interface.restored.vector)
        vectors = np.asarray(frames[..., vector], np.float64)
        spread = vectors.std((1, 2, 3))
        mean[:, vector] = vectors.mean((1, 2, 3))
        # A number that never changed stays as it is, less its mean.
        deviation[:, vector] = np.where(spread < LEAST_DEVIATION, 1, spread)
    return Scale(mean, deviation)


def impossible_value(config: IqnUserEnvConfig, dataset: Dataset) -> str | None:
    """Returns what of a dataset of the right shapes this environment never shows, or None."""
    actions, (count,) = dataset.train.actions, dataset.interface.restored.action_counts
    if 0 <= actions.min() <= actions.max() < count:
        return None
    return f"it has actions outside 0..{count - 1}"


# Playing.


class PlayState(NamedTuple):
    """Holds everything that changes while playing, as numpy arrays.

    history: the scaled observations before the next one, oldest first, zeros before the episode.
    turns: of each env, without the prefill. transitions: of an agent in all envs, with the prefill:
    turns but for final ones. episodes: finished in all envs, with the prefill. reward_sums: in the
    current episodes. episode_return: mean over the episodes that ended in the last cycle in which
    any ended; NO_RETURN before.
    """

    envs: EnvStates
    final: Final
    history: Shaped[np.ndarray, "seed agent env past_inputs"]
    turns: Int32[np.ndarray, " seed"]
    transitions: Int32[np.ndarray, " seed"]
    episodes: Int32[np.ndarray, " seed"]
    reward_sums: Float32[np.ndarray, "seed agent env"]
    episode_return: Float32[np.ndarray, "seed agent"]


def init_play_state(
    config: IqnUserEnvConfig, dataset: Dataset, _env_keys: Array | None = None
) -> PlayState:
    """Returns the state before the first turn, with the number of the prefill's episodes."""
    interface, prefill = dataset.interface.restored, dataset.train
    empty = empty_states(interface, config.env.worlds)
    envs = EnvStates(*(np.stack([column] * config.seeds) for column in empty))
    per_agent = (config.seeds, len(interface.agents), config.env.worlds)
    past_inputs = (config.network.frames - 1) * interface.observation_size
    return PlayState(
        envs=envs,
        final=Final(np.zeros_like(envs.elapsed), np.zeros_like(envs.obs)),
        history=np.zeros((*per_agent, past_inputs), interface.observation_dtype),
        turns=np.zeros(config.seeds, np.int32),
        transitions=np.asarray(~prefill.final).sum((1, 2), np.int32),
        episodes=np.asarray(prefill.terminated | prefill.final).sum((1, 2), np.int32),
        reward_sums=np.zeros(per_agent, np.float32),
        episode_return=np.full(per_agent[:2], NO_RETURN, np.float32),
    )


def play_template(config: IqnUserEnvConfig, dataset: Dataset, _shapes: PlayState) -> PlayState:
    """Returns what a saved state is restored by: counters of environments keep their 64 bits, as
    numpy arrays.
    """
    return init_play_state(config, dataset)


def replay_inputs(config: IqnUserEnvConfig, dataset: Dataset) -> Transitions:
    """Returns the prefill as the replay stores it: with scaled observations."""
    scales = by_seed(scale_of(config, dataset))
    frames = [scaled(*each) for each in zip(scales, dataset.train.frames, strict=True)]
    return dataset.train._replace(frames=np.stack(frames))


def open_envs(
    config: IqnUserEnvConfig, count: int, seeds: Sequence[int], opened: ExitStack
) -> list[HostEnvs]:
    """Makes so many environments of each seed, which `opened` closes.

    Raises:
        DataError: they cannot be made.
    """
    return [opened.enter_context(closing(HostEnvs(config.env, count, seed))) for seed in seeds]


class Player:
    """Plays the training environments of all seeds; `state` holds everything that it changes."""

    def __init__(
        self, config: IqnUserEnvConfig, scale: Scale, envs: Sequence[HostEnvs], state: PlayState
    ) -> None:
        """Restores the environments of each seed.

        Raises:
            DataError: they do not repeat their running episodes.
        """
        self.config = config
        self.scales = by_seed(scale)
        self._state = state
        self._envs = [ReplayEnvs(each) for each in envs]
        parts = (self._envs, by_seed(state.envs), by_seed(state.final))
        for replayed, states, final in zip(*parts, strict=True):
            replayed.envs.restore(states)
            replayed.final = final

    @property
    def validation_episodes(self) -> int:
        """Returns how many episodes an evaluation while training plays."""
        return self.config.validation.count(self._envs[0].envs.interface.max_episode_steps)

    @property
    def state(self) -> PlayState:
        """Returns a copy of everything that playing changes."""
        states = zip(*(envs.envs.states for envs in self._envs), strict=True)
        final = zip(*(envs.final for envs in self._envs), strict=True)
        return self._state._replace(
            envs=EnvStates(*map(np.stack, states)), final=Final(*map(np.stack, final))
        )

    def play(self, explore: Explore) -> tuple[Transitions, dict[str, Any]]:
        """Plays the turns of a cycle; returns them, (seed, turn, ...) with scaled observations, and
        columns of the cycle's record.
        """
        before = self._state
        turns = []
        returns = np.zeros_like(before.episode_return)
        for _ in range(self.config.train.turns_per_cycle):
            stacks = self._stacks()
            counts = (self._state.turns, self._state.transitions, self._state.episodes)
            actions, epsilon = explore(*counts, stacks)
            steps = map(ReplayEnvs.step, self._envs, np.asarray(actions).swapaxes(1, 2))
            past_inputs = self._state.history.shape[-1]
            turn = stack(list(steps))._replace(frames=stacks[..., past_inputs:])
            returns += self._count(turn, stacks)
            turns.append(turn)
        finished = (self._state.episodes - before.episodes)[:, None]
        means = (returns / np.maximum(finished, 1)).astype(np.float32)
        mean_return = np.where(finished > 0, means, before.episode_return)
        self._state = self._state._replace(episode_return=mean_return)
        played = stack(turns, axis=1)
        number = np.maximum((~played.final).sum((1, 2), np.float32), 1)
        rates = {"reward_per_turn": played.rewards.sum((1, 3)) / number[:, None]}
        return played, {
            "play_metrics": rates | {"episode_return": mean_return},
            "epsilon": epsilon,
            "agent_steps": mean_return.shape[1] * self._state.transitions,
        }

    def _count(self, turn: Transitions, stacks: np.ndarray) -> Float32[np.ndarray, "seed agent"]:
        """Counts a turn; returns the sum of the returns of the episodes that ended with it."""
        state = self._state
        ended = turn.terminated | turn.final
        ended_agents = ended[:, None]
        sums = state.reward_sums + turn.rewards
        size = stacks.shape[-1] - state.history.shape[-1]
        self._state = state._replace(
            history=np.where(ended_agents[..., None], stacks.dtype.type(0), stacks[..., size:]),
            turns=state.turns + np.int32(1),
            transitions=state.transitions + (~turn.final).sum(1, dtype=np.int32),
            episodes=state.episodes + ended.sum(1, dtype=np.int32),
            reward_sums=np.where(ended_agents, np.float32(0), sums),
        )
        return np.where(ended_agents, sums, np.float32(0)).sum(-1)

    def _stacks(self) -> Shaped[np.ndarray, "seed agent env inputs"]:
        seeds = zip(self._state.history, self.scales, self._envs, strict=True)
        return np.stack([stacked(history, scale, envs.obs) for history, scale, envs in seeds])


def stacked(
    history: Shaped[np.ndarray, "agent env past_inputs"],
    scale: Scale,
    obs: Shaped[np.ndarray, "env agent obs"],
) -> Shaped[np.ndarray, "agent env inputs"]:
    """Returns the inputs of one seed's networks: what was seen before, and scaled what is seen."""
    return np.concatenate([history, scaled(scale, obs).swapaxes(0, 1)], -1)


class GreedyPolicy:
    """Acts along one episode of each env, from their first turn on, with one seed's networks."""

    def __init__(self, frames: int, scale: Scale, act: Callable[[np.ndarray], Array]) -> None:
        """Takes the scale of one seed, and its policy: stacks (agent, env, inputs) -> actions."""
        self._frames = frames
        self._scale = scale
        self._act = act
        self.stacks = np.zeros(0, np.float32)
        """Inputs of the last turn, (agent, env, inputs); empty before the first."""

    def __call__(self, obs: Shaped[np.ndarray, "env agent obs"]) -> Int8[np.ndarray, "env agent"]:
        envs, agents, size = obs.shape
        if self.stacks.size == 0:
            self.stacks = np.zeros((agents, envs, self._frames * size), obs.dtype)
        self.stacks = stacked(self.stacks[..., size:], self._scale, obs)
        return np.asarray(self._act(self.stacks)).T


def mean_returns(
    envs: Sequence[HostEnvs], policies: Sequence[Begin], count: int
) -> Float32[np.ndarray, "seed agent"]:
    """Plays so many episodes in the environments of each seed; they are always the same."""
    episodes = [play_range(*each, 0, count) for each in zip(envs, policies, strict=True)]
    return np.stack([each.returns.mean(0) for each in episodes]).astype(np.float32)


def by_seed(columns: Columns) -> list[Columns]:
    """Returns a NamedTuple of each seed, from one whose columns begin with axis seed."""
    return [type(columns)(*rows) for rows in zip(*map(np.asarray, columns), strict=True)]


# Serving.

# Arrays that tell the numbers of agents, inputs and actions, and how many axes they have.
SIZED = {"params/hidden/kernel": 3, "params/advantage/bias": 2}


def input_sizes(config: IqnUserEnvConfig, arrays: dict[str, np.ndarray]) -> Sizes:
    """Returns the sizes of the networks, which only the arrays tell.

    Raises:
        ValueError: they are not the arrays of this config.
    """
    # One that is missing will not fit.
    kernel, bias = (
        np.shape(arrays.get(name, np.empty((1,) * axes))) for name, axes in SIZED.items()
    )
    if (len(kernel), len(bias)) != tuple(SIZED.values()):
        raise ValueError(f"not a learner of this config: differing arrays among {[*SIZED]}")
    layout = np.shape(arrays.get(f"params/{LAYOUT}", np.empty(())))[-5:]
    frame = max(1, kernel[1] // config.network.frames)
    if layout:
        frame = int(np.prod(layout[:3])) + sum(layout[3:])
    return Sizes(kernel[0], frame, bias[1], layout)


def empty_scale(frame: int) -> Scale:
    """Returns a scale of the type of `scale_of`, of one seed."""
    return Scale(np.zeros(frame, np.float32), np.zeros(frame, np.float32))


def example(config: IqnUserEnvConfig, dataset: Dataset) -> dict[str, np.ndarray]:
    """Returns what the first and the last agent see at the start of two held-out episodes."""
    obs = dataset.held_out.obs
    agents = np.array([0, obs.shape[1] - 1], np.int32)
    blank = scale_of(config, dataset).mean[0].astype(obs.dtype)
    stacks = np.tile(blank, (EXAMPLES, config.network.frames, 1))
    stacks[:, -1] = obs[np.arange(EXAMPLES), agents]
    return {INPUT: stacks, "agents": agents}


def input_limits(config: IqnUserEnvConfig, sizes: Sizes) -> Any:
    """Returns dtype, axes, least and most of what can be asked: an observation of each frame."""
    shape = (config.network.frames, sizes.frame)
    if any(sizes.layout[:3]) and not sizes.layout[3]:
        return np.uint8, shape, 0, BRIGHTEST
    return np.float32, shape, -LARGEST, LARGEST


def read(config: IqnUserEnvConfig, scale: Scale, observations: np.ndarray) -> np.ndarray:
    """Returns inputs of observations."""
    return np.asarray(scaled(Scale(*map(np.asarray, scale)), observations))
