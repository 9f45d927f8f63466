"""recorded rollouts, or a user's environment that acts -> a filter that has learned its field

Channels are identified from the transitions, in coordinates that the effect B of actions fixes up
to the origin (`decoder_identification`). Nothing is known of a true field.
"""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

import numpy as np
import torch
from gymnasium.spaces import Box
from jaxtyping import Float
from torch import Generator, Tensor

from quatrain.envs.host.spaces import reader, to_flag
from quatrain.envs.host.user_code import make_env, user_code
from quatrain.envs.vector_field import policies
from quatrain.envs.vector_field.config import LARGEST
from quatrain.envs.vector_field.world import Emission, Transition, control_effect
from quatrain.errors import DataError
from quatrain.frameworks.torch import generator_from_seed
from quatrain.models.active_dynamics import planner
from quatrain.models.active_dynamics.bayes_filter.innovation import (
    expected_intervals,
    frozen_innovation,
)
from quatrain.models.active_dynamics.bayes_filter.learner import (
    BayesFilterLearner,
    identify_channels,
)
from quatrain.models.active_dynamics.collect import Rollouts, record
from quatrain.models.active_dynamics.config import LEARNED_WARMUP, ActiveDynamicsConfig

NAMES = ("observations", "actions")
# Part of recorded transitions, the last ones, that scores are computed on.
HELD_OUT = 0.2
# Transitions of binary actions that scores of a system are computed on.
HELD_OUT_TRANSITIONS = 500
# Least deviation of an action that can be told from the field.
LEAST_DEVIATION = 1e-6

Act = Callable[[int], Tensor]


def split(rollouts: Rollouts) -> tuple[Rollouts, Rollouts]:
    """Returns the transitions to learn from, and the held-out ones."""
    count = rollouts.transitions
    border = count - round(HELD_OUT * count)
    return rollouts.part(0, border), rollouts.part(border, count)


def read_recording(
    config: ActiveDynamicsConfig, name: str, arrays: Mapping[str, np.ndarray]
) -> Rollouts:
    """Returns runs as the episodes of one rollout.

    arrays: observations [run, time + 1, obs], actions [run, time, action].

    Raises:
        DataError: names the file, the array, what is wrong with it, and how to mend it.
    """
    if sorted(arrays) != sorted(NAMES):
        actual = ", ".join(arrays) or "nothing"
        raise DataError(f"{name} holds {actual}; numpy.savez it with exactly {', '.join(NAMES)}")
    for array, values in arrays.items():
        _check_numbers(f"{name}: {array}", values)
    y, actions = (np.asarray(arrays[array], np.float32) for array in NAMES)
    runs, times, _ = actions.shape
    if y.shape[:2] != (runs, times + 1):
        raise DataError(
            f"{name}: observations has shape {y.shape}, expected ({runs}, {times + 1}, channels):"
            " one more in time than actions"
        )
    ended = np.zeros((runs, times), bool)
    ended[:, -1] = True
    before, after, flat_actions = (
        part.reshape(1, runs * times, -1) for part in (y[:, :-1], y[:, 1:], actions)
    )
    unknown = np.zeros((1, runs * times + 1, 0), np.float32)
    rollouts = Rollouts(
        observations=np.concatenate([before, after[:, -1:]], 1),
        next_observations=after,
        actions=flat_actions,
        states=unknown,
        next_states=unknown[:, 1:],
        truncated=ended.reshape(1, -1),
    )
    check_rollouts(config, name, rollouts, split(rollouts)[0].transitions)
    return rollouts


def _check_numbers(name: str, values: np.ndarray) -> None:
    if values.dtype.kind != "f" or values.ndim != 3 or 0 in values.shape:
        raise DataError(
            f"{name} is {values.dtype} of shape {values.shape}; save floats with the axes run,"
            " time, channel"
        )
    faulty = np.argwhere(~(np.abs(values) <= LARGEST))
    if len(faulty):
        run, time, channel = faulty[0].tolist()
        raise DataError(
            f"{name} is {values[run, time, channel]} in run {run}, time {time}, channel {channel},"
            f" not from {-LARGEST:g} to {LARGEST:g}; leave that run out, or end it before"
        )


def check_rollouts(
    config: ActiveDynamicsConfig, name: str, rollouts: Rollouts, learned: int
) -> None:
    """Checks that the field can be identified from the first `learned` of these transitions.

    Raises:
        DataError: says why not, and how to mend it.
    """
    _, count, actions = rollouts.actions.shape
    d = config.env.d
    channels = rollouts.observations.shape[2]
    spread = rollouts.actions[0].std(0)
    for fails, problem in (
        (
            actions != config.env.action_size,
            f"has {actions} actions; active_dynamics.env.control has {config.env.action_size}:"
            " set it to B of dx/dt = f(x) + B a",
        ),
        (
            np.linalg.matrix_rank(control_effect(config.env).double().numpy()) < d,
            f"needs actions that push each dimension; give active_dynamics.env.control rank {d}",
        ),
        (channels <= d, f"has {channels} channels; noise is told from {d} states by more than {d}"),
        (
            learned < LEARNED_WARMUP,
            f"leaves {learned} of {count} transitions to learn from; record at least"
            f" {int(np.ceil(LEARNED_WARMUP * count / learned))}",
        ),
        (
            spread.min(initial=np.inf) < LEAST_DEVIATION,
            f"has action {int(spread.argmin())} constant; vary it, or leave it out",
        ),
    ):
        if fails:
            raise DataError(f"{name} {problem}")


class UserSystem:
    """Makes a user's environment a `System`; rewards are ignored, true states are unknown.

    An action beyond the action space is clipped to it. The first episode has the seed, and the
    environment's own random numbers go on from there.
    """

    def __init__(self, name: str, env: Any, seed: int) -> None:
        self.name = name
        self.x = torch.zeros(1, 0)
        self._env = env
        self._seed: int | None = seed
        self._run = -1
        self._step = 0
        with user_code(lambda reason: f"{name}: {reason}"):
            for kind in ("observation", "action"):
                space = getattr(env, f"{kind}_space", None)
                if not isinstance(space, Box) or len(space.shape) != 1:
                    raise DataError(f"{kind}_space is {space}; it must be a Box with one axis")
            if env.action_space.dtype.kind != "f":
                raise DataError(f"action_space is {env.action_space}; it must hold floats")
            self._read = reader("the observation", env.observation_space)
            self.action_size = int(env.action_space.shape[0])
            self.observation = torch.zeros(1, env.observation_space.shape[0])

    def reset(self) -> None:
        """Starts an episode.

        Raises:
            DataError: the environment raised, or returned what its space does not allow.
        """
        self._run += 1
        self._step = 0
        with self._named_errors():
            values = self._read(self._env.reset(seed=self._seed)[0])
        self._seed = None
        self.observation = torch.tensor(values)[None]

    def step(self, action: Float[Tensor, "1 action"]) -> Transition:
        """Makes one transition, and starts the next episode where it ended one.

        Raises:
            DataError: the environment raised, or returned what its space does not allow.
        """
        self._step += 1
        with self._named_errors():
            space = self._env.action_space
            bounded = np.clip(action[0].numpy(force=True), space.low, space.high)
            values, _, terminated, truncated, _ = self._env.step(bounded.astype(space.dtype))
            ended = to_flag("terminated", terminated) | to_flag("truncated", truncated)
            following = torch.tensor(self._read(values))[None]
        self.observation = following
        if ended:
            self.reset()
        return Transition(following, action, torch.tensor([ended]), self.observation, self.x)

    def _named_errors(self) -> AbstractContextManager[None]:
        return user_code(
            lambda reason: f"{self.name} (episode {self._run}, step {self._step}): {reason}"
        )


def make_system(name: str, seed: int) -> UserSystem:
    """Returns the environment of a class, "module:Name", or of a registered id, "Pendulum-v1".

    Raises:
        DataError: there is no such class or id, or its spaces are no Boxes with one axis.
    """
    module, _, attribute = name.partition(":")
    if not attribute.isidentifier():  # an id, which Gymnasium lets begin with a module, too
        module = attribute = ""
    with user_code(
        lambda reason: (
            f"{name}: {reason}; name an installed id of Gymnasium, or module:Name of a class "
            "without arguments"
        )
    ):
        env = make_env(module, attribute, name, {})
        env = env if attribute else env.unwrapped
    return UserSystem(name, env, seed)


def learn(config: ActiveDynamicsConfig, rollouts: Rollouts) -> BayesFilterLearner:
    """Identifies channels, and filters the transitions one after the other."""
    # The last transition of a run is as good as any other.
    channels = identify_channels(config, rollouts, np.ones_like(rollouts.truncated))
    emission = Emission("linear", "gaussian", *(part[0].float() for part in channels))
    learner = BayesFilterLearner.from_rollouts(config, rollouts, emission, channels)
    for time in range(rollouts.transitions):
        learner.observe(rollouts.transition(time))
    return learner


def explore(
    config: ActiveDynamicsConfig, system: UserSystem, arm: str, seed: int
) -> tuple[BayesFilterLearner, Rollouts]:
    """Learns from `train.transitions`: random ones identify the channels, then the arm acts.

    Returns: the learner, and held-out transitions.

    Raises:
        DataError: the field cannot be identified from these actions and channels.
    """
    if system.action_size != config.env.action_size:
        raise DataError(
            f"an action is a vector of {config.env.action_size}; {system.name} takes"
            f" {system.action_size}: set active_dynamics.env.control to B of dx/dt = f(x) + B a"
        )
    generators = map(generator_from_seed, np.random.SeedSequence(seed).spawn(4))
    random, chosen_arm, plan, held_out = generators
    system.reset()
    warmup = record(system, _policy(config, "random", random), config.collect.warmup)
    check_rollouts(config, system.name, warmup, learned=config.collect.warmup)
    learner = learn(config, warmup)
    act = _planned(config, learner, plan) if arm == "active" else _policy(config, arm, chosen_arm)
    for time in range(config.train.transitions - config.collect.warmup):
        learner.observe(system.step(act(time)))
    return learner, record(system, _policy(config, "prbs", held_out), HELD_OUT_TRANSITIONS)


def _policy(config: ActiveDynamicsConfig, arm: str, rng: Generator) -> Act:
    bound = config.env.action_bound
    hold = config.train.policies.hold(arm)
    state = policies.init_policy_state(1, config.env.action_size, rng)

    def act(_time: int) -> Tensor:
        nonlocal state
        state = policies.act(arm, bound, hold, state, rng)
        return state.action

    return act


def _planned(config: ActiveDynamicsConfig, learner: BayesFilterLearner, rng: Generator) -> Act:
    settings = config.train.planner
    plan = planner.first_plan(settings, 1, config.env.action_size)
    surrogate = partial(learner.surrogate, slice(0, 1))

    def act(time: int) -> Tensor:
        nonlocal plan
        plan = planner.next_plan(config, surrogate, plan, time, rng)
        return planner.decision(settings, plan, time)

    return act


def evaluate(learner: BayesFilterLearner, held_out: Rollouts) -> dict[str, float]:
    """Computes the innovation on held-out transitions, beside that of a filter without a field.

    `..._expected_low`, `..._expected_high`: see `expected_intervals`; channels are learned with all
    directions of the state.
    """
    u = torch.tensor(held_out.actions).double() @ learner.control.double().T
    still = frozen_innovation(learner.filter, torch.zeros_like, held_out, u, 1)
    fit = learner.innovation(held_out)
    return {
        **{name: float(value) for name, value in fit._asdict().items()},
        **{f"{name}_zero_field": float(value) for name, value in still._asdict().items()},
        **expected_intervals(held_out, learner.filter.d),
    }
