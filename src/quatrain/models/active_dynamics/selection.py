"""a pilot run -> settings of bayes_filter that expect its observations best

The negative log likelihood of innovations, summed over a run, is the negative log evidence of the
settings: it needs no true field, and is no better for features that are too many. All candidates
are given the same transitions, those of planned actions, which lead all over the region; those of
other actions stay where coarse features suffice. The pilot's transitions come on top of those of
the training. Settings are chosen one after the other, with the rest as they are: first the noise of
channels, which transitions show best and all else depends on.
"""

from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from quatrain.models.active_dynamics.collect import Dataset
from quatrain.models.active_dynamics.config import ActiveDynamicsConfig
from quatrain.models.active_dynamics.state import TrainingState
from quatrain.models.active_dynamics.train import step_environment, train

# Section of `network` -> candidates; each changes one setting, or two that go together.
CANDIDATES: tuple[tuple[str, tuple[dict[str, float | int], ...]], ...] = (
    ("bayes_filter", tuple({"noise_sd": noise} for noise in (0.02, 0.05, 0.1, 0.2, 0.5))),
    (
        "rbf",
        (
            {"side": 7, "length": 0.8},
            {"side": 9, "length": 0.6},
            {"side": 11, "length": 0.45},
            {"side": 13, "length": 0.35},
        ),
    ),
    ("bayes_filter", tuple({"process_noise": noise} for noise in (0.001, 0.003, 0.01, 0.03, 0.1))),
    ("rbf", tuple({"prior_field_sd": deviation} for deviation in (0.5, 1.0, 2.0, 4.0))),
)


class ScoredSettings(NamedTuple):
    """Holds settings, by section, and their negative log evidence in nats per transition."""

    changes: dict[str, dict[str, float | int]]
    nats: float


def choose(
    config: ActiveDynamicsConfig,
    dataset: Dataset,
    seed: int,
    transitions: int,
) -> list[ScoredSettings]:
    """Tries all candidates on the same transitions; the last ones returned are the best.

    Raises:
        TrainingDiverged: something is not finite.
    """
    config = _brief(config, transitions)
    actions = pilot_actions(config, dataset, seed)
    best = ScoredSettings({}, evidence(config, dataset, seed, actions))
    scored = [best]
    for section, candidates in CANDIDATES:
        for candidate in candidates:
            changes = best.changes | {section: best.changes.get(section, {}) | candidate}
            if not _differs(config, section, candidate):
                continue
            scored.append(
                ScoredSettings(changes, evidence(changed(config, changes), dataset, seed, actions))
            )
        best = min(scored, key=lambda settings: settings.nats)
    return [*scored, best]


def _brief(config: ActiveDynamicsConfig, transitions: int) -> ActiveDynamicsConfig:
    changes = {"arms": ("active",), "transitions": transitions, "record_every": transitions}
    brief = config.train.model_copy(update=changes | {"checkpoints": 2})
    return config.model_copy(update={"train": brief})


def pilot_actions(
    config: ActiveDynamicsConfig, dataset: Dataset, seed: int
) -> Float[Tensor, "replicate transition action"]:
    """Returns the actions of a run of the only arm.

    Raises:
        TrainingDiverged: something is not finite.
    """
    *_, last = train(config, dataset, seed)
    return last.state.replay.actions[:, : config.train.transitions]


def evidence(
    config: ActiveDynamicsConfig,
    dataset: Dataset,
    seed: int,
    actions: Float[Tensor, "replicate transition action"],
) -> float:
    """Computes the nats per transition of all channels where these actions lead.

    With the same seed, the transitions are those of the run that the actions are of.
    """
    training = TrainingState.init(config, dataset, seed)
    nll = []
    for time, action in enumerate(actions.unbind(1)):
        warm = time < config.collect.warmup
        record = training.warmup_step() if warm else step_environment(training, action)
        nll.append(training.learner.observe(record.observed).mean())
        training.environment = record.environment
        training.transitions += 1
    return float(torch.stack(nll).mean()) * config.env.observation.channels


def changed(
    config: ActiveDynamicsConfig, changes: dict[str, dict[str, float | int]]
) -> ActiveDynamicsConfig:
    """Returns the config with settings of `network` replaced, checked anew.

    Raises:
        ValueError: the settings do not go together.
    """
    values: dict[str, Any] = config.model_dump()
    for section, settings in changes.items():
        values["network"][section] |= settings
    return ActiveDynamicsConfig.model_validate(values)


def _differs(config: ActiveDynamicsConfig, section: str, candidate: dict[str, float | int]) -> bool:
    settings = getattr(config.network, section)
    return any(getattr(settings, name) != value for name, value in candidate.items())
