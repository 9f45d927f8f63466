"""transitions of any system -> a filter that has learned its field, and scores without a true one

Channels are identified from the transitions, in coordinates that the effect B of actions fixes up
to the origin (`decoder_identification`).
"""

from collections.abc import Mapping
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float32
from torch import Tensor

from quatrain.envs.vector_field.fields import region_grid
from quatrain.envs.vector_field.observation import Emission
from quatrain.envs.vector_field.table_rules import LARGEST
from quatrain.errors import DataError
from quatrain.models.active_dynamics.bayes_filter import filter as bayes
from quatrain.models.active_dynamics.bayes_filter.channels import LearnedChannels
from quatrain.models.active_dynamics.bayes_filter.filter import Filter
from quatrain.models.active_dynamics.bayes_filter.innovation import (
    expected_intervals,
    frozen_innovation,
)
from quatrain.models.active_dynamics.bayes_filter.learner import (
    BayesFilterLearner,
    control_effect,
    weight_variance,
)
from quatrain.models.active_dynamics.collect import Rollouts
from quatrain.models.active_dynamics.config import LEARNED_WARMUP, ActiveDynamicsConfig
from quatrain.models.active_dynamics.decoder_identification import (
    WarmupTransitions,
    identify_decoder,
)
from quatrain.models.active_dynamics.learner import Observation
from quatrain.models.active_dynamics.network import make_rbf, region_products

NAMES = ("observations", "actions")
# Part of the transitions, the last ones, that scores are computed on.
HELD_OUT = 0.2
# Least deviation of an action that can be told from the field.
LEAST_DEVIATION = 1e-6


class Recording(NamedTuple):
    """Holds consecutive transitions.

    starts: the observation that the next transition starts from; after one that `ended` its run,
    the next run's first.
    """

    observations: Float32[np.ndarray, "transition obs"]
    next_observations: Float32[np.ndarray, "transition obs"]
    actions: Float32[np.ndarray, "transition action"]
    ended: Bool[np.ndarray, " transition"]
    starts: Float32[np.ndarray, "transition obs"]

    def part(self, first: int, last: int) -> "Recording":
        return Recording(*(column[first:last] for column in self))

    def split(self) -> tuple["Recording", "Recording"]:
        """Returns the transitions to learn from, and the held-out ones."""
        count = len(self.actions)
        border = count - round(HELD_OUT * count)
        return self.part(0, border), self.part(border, count)


def read_recording(
    config: ActiveDynamicsConfig,
    name: str,
    arrays: Mapping[str, np.ndarray],
) -> Recording:
    """Returns runs as transitions: observations [run, time + 1, obs], actions [run, time, action].

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
        part.reshape(runs * times, -1) for part in (y[:, :-1], y[:, 1:], actions)
    )
    starts = np.concatenate([before[1:], after[-1:]])
    recording = Recording(before, after, flat_actions, ended.ravel(), starts)
    check_recording(config, name, recording, len(recording.split()[0].actions))
    return recording


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


def check_recording(
    config: ActiveDynamicsConfig, name: str, recording: Recording, learned: int
) -> None:
    """Checks that the field can be identified from the first `learned` of these transitions.

    Raises:
        DataError: says why not, and how to mend it.
    """
    count, actions = recording.actions.shape
    d = config.env.d
    channels = recording.observations.shape[1]
    spread = recording.actions.std(0)
    for fails, problem in (
        (
            actions != config.env.action_size,
            f"has {actions} actions; active_dynamics.env.control has {config.env.action_size}:"
            " set it to B of dx/dt = f(x) + B a",
        ),
        (
            np.linalg.matrix_rank(control_effect(config).numpy()) < d,
            f"needs actions that push each dimension; give active_dynamics.env.control rank {d}",
        ),
        (
            channels <= d,
            f"has {channels} channels; noise is told from {d} states by more than {d}",
        ),
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


def learn(config: ActiveDynamicsConfig, recording: Recording) -> BayesFilterLearner:
    """Identifies channels, and filters the transitions one after the other."""
    learner = new_learner(config, recording)
    first = torch.tensor(recording.observations[:1])
    bayes.correct(learner.filter, learner.belief, first.double())
    columns = (recording.actions, recording.next_observations, recording.ended, recording.starts)
    for transition in zip(*map(torch.tensor, columns), strict=True):
        observe(learner, *transition)
    return learner


def observe(
    learner: BayesFilterLearner,
    action: Tensor,
    observation: Tensor,
    ended: Tensor | bool,
    start: Tensor,
) -> None:
    """Updates the belief by a transition. start: the first observation of the next run."""
    truncated = torch.as_tensor(ended)[None]
    reset = torch.where(truncated[:, None], start[None], observation[None])
    effect = control_effect(learner.config).float()
    learner.observe(
        Observation(action[None], action[None] @ effect.T, observation[None], truncated, reset)
    )


def new_learner(config: ActiveDynamicsConfig, recording: Recording) -> BayesFilterLearner:
    """Returns the prior, with channels identified from the transitions."""
    effect = control_effect(config)
    y, following, actions = (torch.tensor(part).double() for part in recording[:3])
    intact = torch.ones(len(actions), dtype=torch.bool)
    decoder = identify_decoder(
        WarmupTransitions(y, following, actions @ effect.T, intact), config.env.dt
    )
    channels = LearnedChannels(*(part[None] for part in decoder))
    rbf = make_rbf(config.network.rbf, config.env.d).to(torch.float64)
    noise = config.network.bayes_filter.process_noise
    filter = Filter(rbf, channels, config.env.dt, noise)
    grid = region_grid(config.env.region_radius, config.env.d)
    return BayesFilterLearner(
        config=config,
        emission=Emission("linear", "gaussian", *(part.float() for part in decoder)),
        filter=filter,
        belief=bayes.prior(rbf, 1, weight_variance(config, filter)),
        decoder=channels,
        region=region_products(rbf.to(torch.float32).features(grid)),
    )


def evaluate(learner: BayesFilterLearner, held_out: Recording) -> dict[str, float]:
    """Computes the innovation on held-out transitions, beside that of a filter without a field.

    `..._expected_low`, `..._expected_high`: see `expected_intervals`; channels are learned with all
    directions of the state.
    """
    rollouts = _as_rollout(held_out, learner.filter.d)
    u = torch.tensor(rollouts.actions).double() @ control_effect(learner.config).T
    weights = {"weight": bayes.weights(learner.filter.d, learner.belief)}
    fit = frozen_innovation(learner.filter, partial(learner.drift, weights), rollouts, u, 1)
    still = frozen_innovation(learner.filter, torch.zeros_like, rollouts, u, 1)
    return {
        **{name: float(value) for name, value in fit._asdict().items()},
        **{f"{name}_zero_field": float(value) for name, value in still._asdict().items()},
        **expected_intervals(rollouts, learner.filter.d),
    }


def _as_rollout(recording: Recording, d: int) -> Rollouts:
    """Returns one rollout whose episodes are the runs; its states, which are unknown, are 0."""
    count = len(recording.actions)
    states = np.zeros((1, count + 1, d), np.float32)
    return Rollouts(
        observations=np.concatenate([recording.observations[:1], recording.starts])[None],
        next_observations=recording.next_observations[None],
        actions=recording.actions[None],
        states=states,
        next_states=states[:, 1:],
        truncated=recording.ended[None],
    )
