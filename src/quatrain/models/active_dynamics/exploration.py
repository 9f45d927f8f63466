"""a system that acts -> a filter that has learned its field, from actions of one arm"""

from collections.abc import Callable
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Generator, Tensor

from quatrain.envs.vector_field import policies
from quatrain.envs.vector_field.policies import PolicySpec
from quatrain.errors import DataError
from quatrain.frameworks.torch.rng import generator_from_seed
from quatrain.models.active_dynamics import planner, recorded
from quatrain.models.active_dynamics.acquisition import scorer
from quatrain.models.active_dynamics.bayes_filter.learner import BayesFilterLearner
from quatrain.models.active_dynamics.config import ActiveDynamicsConfig
from quatrain.models.active_dynamics.recorded import Recording

# Transitions of binary actions, after the others, that scores are computed on.
HELD_OUT = 500
HELD_OUT_ARM = "prbs"

Act = Callable[[int], Tensor]


@runtime_checkable
class Acting(Protocol):
    """Describes a system: `quatrain.envs.adapters.systems.System`."""

    name: str
    actions: int

    def reset(self, seed: int | None) -> np.ndarray:
        """Starts a run; returns its first observation."""

    def step(self, action: np.ndarray) -> tuple[np.ndarray, bool]:
        """Returns the next observation, and whether the run ended."""


class Transition(NamedTuple):
    """Holds one transition, and the observation that the next one starts from."""

    observation: np.ndarray
    next_observation: np.ndarray
    action: np.ndarray
    ended: bool
    start: np.ndarray


class Session:
    """Runs a system, from one episode to the next."""

    def __init__(self, system: Acting, seed: int) -> None:
        self._system = system
        self._observation = system.reset(seed)

    def step(self, action: Tensor) -> Transition:
        before = self._observation
        values = action.numpy(force=True)
        following, ended = self._system.step(values)
        self._observation = self._system.reset(None) if ended else following
        return Transition(before, following, values, ended, self._observation)

    def record(self, act: Act, count: int) -> Recording:
        """Records transitions of a policy, which is given the number of each."""
        transitions = [self.step(act(time)) for time in range(count)]
        return Recording(
            np.stack([transition.observation for transition in transitions]),
            np.stack([transition.next_observation for transition in transitions]),
            np.stack([transition.action for transition in transitions]),
            np.array([transition.ended for transition in transitions]),
            np.stack([transition.start for transition in transitions]),
        )


def explore(
    config: ActiveDynamicsConfig,
    system: Acting,
    arm: str,
    seed: int,
) -> tuple[BayesFilterLearner, Recording]:
    """Learns from `train.transitions`: random ones identify the channels, then the arm acts.

    Returns: the learner, and held-out transitions.

    Raises:
        DataError: the field cannot be identified from these actions and channels.
    """
    if system.actions != config.env.action_size:
        raise DataError(
            f"an action is a vector of {config.env.action_size}; {system.name} takes"
            f" {system.actions}: set active_dynamics.env.control to B of dx/dt = f(x) + B a"
        )
    generators = map(generator_from_seed, np.random.SeedSequence(seed).spawn(4))
    random, chosen_arm, plan, held_out = generators
    session = Session(system, seed)
    warmup = session.record(_policy(config, "random", random), config.collect.warmup)
    recorded.check_recording(config, system.name, warmup, learned=config.collect.warmup)
    learner = recorded.learn(config, warmup)
    act = _planned(config, learner, plan) if arm == "active" else _policy(config, arm, chosen_arm)
    for time in range(config.train.transitions - config.collect.warmup):
        _learn_from(learner, session.step(act(time)))
    return learner, session.record(_policy(config, HELD_OUT_ARM, held_out), HELD_OUT)


def _learn_from(learner: BayesFilterLearner, transition: Transition) -> None:
    recorded.observe(
        learner,
        torch.tensor(transition.action),
        torch.tensor(transition.next_observation),
        transition.ended,
        torch.tensor(transition.start),
    )


def _policy(config: ActiveDynamicsConfig, arm: str, rng: Generator) -> Act:
    policy = config.train.policies
    spec = PolicySpec(
        config.env.action_bound,
        config.env.dt,
        config.train.transitions,
        policy.step_hold,
        policy.prbs_hold,
        policy.chirp,
    )
    state = policies.init_policy_state(1, config.env.action_size, rng)

    def act(time: int) -> Tensor:
        nonlocal state
        state = policies.act(arm, spec, state, time, rng)
        return state.action[0]

    return act


def _planned(config: ActiveDynamicsConfig, learner: BayesFilterLearner, rng: Generator) -> Act:
    settings = config.train.planner
    plan = planner.first_plan(settings, 1, config.env.action_size)

    def act(time: int) -> Tensor:
        nonlocal plan
        age = time % settings.replan_every
        if age == 0:
            surrogate = learner.surrogate(slice(0, 1))
            score = scorer(surrogate, config.train.acquisition, settings.hold)
            plan = planner.replan(settings, config.env.action_bound, score, plan, rng)
        return planner.decision(settings, plan, age)[0]

    return act
