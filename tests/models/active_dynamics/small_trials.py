"""Small runs of both families, and trials that go on a transition at a time."""

from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

from quatrain.models.active_dynamics import train
from quatrain.models.active_dynamics.collect import Dataset, collect
from quatrain.models.active_dynamics.config import ActiveDynamicsConfig
from quatrain.models.active_dynamics.state import State, TrainingState, learners_of
from quatrain.progress import Progress
from tests.conftest import small

FAMILIES = ("bayes_filter", "seq_vae")
both_families = pytest.mark.parametrize("family", FAMILIES)
PLANNED = {"candidates": 16, "iterations": 2, "horizon": 6, "elites": 4, "keep": 2}
"""Plans that are worth their transitions."""


class Run(NamedTuple):
    """A config that was learned by."""

    config: ActiveDynamicsConfig
    dataset: Dataset
    yields: list[Progress]

    @property
    def state(self) -> State:
        """At the end."""
        return self.yields[-1].state

    def of(self, arm: str, by_row: Tensor) -> Tensor:
        """Of that arm."""
        return by_row[learners_of(self.config, arm)]


def configured(family: str = "bayes_filter", **sections: Any) -> ActiveDynamicsConfig:
    """The small config of a family; sections are changed, `network` beside the family."""
    return small(
        "active_dynamics",
        **sections | {"network": {"family": family} | sections.get("network", {})},
    )


def run(config: ActiveDynamicsConfig, seed: int = 0) -> Run:
    """From collecting to the end."""
    dataset = collect(config, seed)
    return Run(config, dataset, list(train.train(config, dataset, seed)))


def at(
    config: ActiveDynamicsConfig, transitions: int, dataset: Dataset | None = None
) -> TrainingState:
    """A trial after so many transitions."""
    training = TrainingState.init(config, collect(config, 0) if dataset is None else dataset, 0)
    return advanced(training, transitions)


def advanced(training: TrainingState, transitions: int) -> TrainingState:
    """The same, so many transitions later."""
    for _ in range(transitions):
        train.advance(training)
    return training


def wave(*shape: int, start: float) -> Tensor:
    """Numbers from -1 to 1 that no generator of random numbers has to repeat."""
    place = torch.arange(torch.Size(shape).numel(), dtype=torch.float64)
    return (start + 1.7 * place + 0.37 * place.square()).sin().float().view(shape)
