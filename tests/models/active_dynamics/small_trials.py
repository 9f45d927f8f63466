"""Small runs of both families, whole or one transition at a time."""

from functools import cache
from itertools import islice
from typing import Any, NamedTuple

import pytest
from torch import Tensor

from quatrain.models.active_dynamics import config as configs
from quatrain.models.active_dynamics import losses, train
from quatrain.models.active_dynamics.collect import Dataset, collect
from quatrain.models.active_dynamics.config import ActiveDynamicsConfig
from quatrain.models.active_dynamics.evaluate import FieldEstimate, estimate_field, evaluate
from quatrain.models.active_dynamics.family import FieldLearner
from quatrain.models.active_dynamics.figures.study import Study, make_study
from quatrain.models.active_dynamics.state import State, TrainingState, init_state, learners_of
from quatrain.progress import Evaluation, History, Progress, history, rows
from tests.conftest import shapes_unchecked, small

both_families = pytest.mark.parametrize("family", losses.TERMS)
PLANNED = {"candidates": 16, "iterations": 2, "horizon": 6, "elites": 4, "keep": 2}
"""Plans that are better than random actions."""
VAE = {"family": "seq_vae"}
ENSEMBLE = {"family": "seq_vae", "seq_vae": {"dynamics": "ensemble", "members": 2}}
DISAGREEMENT = {"weights": {"disagreement": 1.0, "variance": 0.0}}
RUNS: dict[str, dict[str, Any]] = {
    "default": {},
    "one arm on a line": {
        "env": {"field": {"kind": "linear", "matrix": [[-0.5]]}},
        "train": {"arms": ["step"]},
    },
    "space": {
        "env": {"field": {"kind": "linear", "matrix": [[-0.5, -1, 0], [1, -0.5, 0], [0, 0, -0.3]]}},
        "network": {"rbf": {"side": 3}},
    },
    "learned channels": {"collect": {"warmup": 40}, "network": {"decoder": "linear"}},
    "seq_vae": {"network": VAE, "train": {"transitions": 40}},
    "ensemble": {"network": ENSEMBLE, "train": {"transitions": 40, "acquisition": DISAGREEMENT}},
}
"""Changes of the small config by name."""


class Run(NamedTuple):
    """Holds a config, its dataset and what a training yielded."""

    config: ActiveDynamicsConfig
    dataset: Dataset
    yields: list[Progress]

    @property
    def state(self) -> State:
        return self.yields[-1].state

    @property
    def learner(self) -> FieldLearner:
        return TrainingState(self.config, self.dataset, self.state).learner

    @property
    def estimate(self) -> FieldEstimate:
        return estimate_field(self.config, self.learner, self.state, self.dataset)

    @property
    def evaluation(self) -> Evaluation:
        with shapes_unchecked():
            return evaluate(self.config, self.state, self.dataset, 0)

    @property
    def scores(self) -> dict[str, float]:
        return self.evaluation.scores

    @property
    def study(self) -> Study:
        with shapes_unchecked():
            return make_study(self.config, self.state, self.dataset, self.estimate)

    @property
    def history(self) -> History:
        starts = [0, *(item.step for item in self.yields)]
        parts = zip(self.yields, starts, strict=False)
        return history([row for item, start in parts for row in rows(item, start)])

    def of(self, arm: str, values: Tensor) -> Tensor:
        return values[learners_of(self.config, arm)]


def configured(family: str = "bayes_filter", **sections: Any) -> ActiveDynamicsConfig:
    """Returns the small config of a family with changed sections; a warm-up may be short."""
    network = {"family": family} | sections.get("network", {})
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(configs, "LEARNED_WARMUP", 10)
        return small("active_dynamics", **sections | {"network": network})


def run(config: ActiveDynamicsConfig, seed: int = 0, yields: int | None = None) -> Run:
    with shapes_unchecked():
        dataset = collect(config, seed)
        return Run(config, dataset, list(islice(train.train(config, dataset, seed), yields)))


@cache
def named(name: str) -> Run:
    """Returns one of RUNS, trained once."""
    return run(configured(**RUNS[name]))


def at(
    config: ActiveDynamicsConfig, transitions: int, dataset: Dataset | None = None
) -> TrainingState:
    """Returns a training after some transitions."""
    return advanced(begun(config, dataset or collect(config, 0)), transitions)


def begun(config: ActiveDynamicsConfig, dataset: Dataset) -> TrainingState:
    """Returns a training before its first transition."""
    return TrainingState(config, dataset, init_state(config, dataset, 0))


def advanced(training: TrainingState, transitions: int) -> TrainingState:
    with shapes_unchecked():
        for _ in range(transitions):
            train.advance(training)
    return training
