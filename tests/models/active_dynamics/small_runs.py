"""Small trained runs with everything their figures need."""

import functools
from typing import Any, NamedTuple

from matplotlib.figure import Figure

from quatrain.models.active_dynamics import plots as room
from quatrain.models.active_dynamics.collect import Dataset, collect
from quatrain.models.active_dynamics.config import ActiveDynamicsConfig
from quatrain.models.active_dynamics.evaluate import evaluate
from quatrain.models.active_dynamics.figures import study as studies
from quatrain.models.active_dynamics.figures.study import Study
from quatrain.models.active_dynamics.state import State
from quatrain.models.active_dynamics.train import train
from quatrain.progress import History, history, rows
from tests.conftest import small

RUNS: dict[str, dict[str, Any]] = {
    "as it is": {},
    "one replicate, one record": {"seeds": 1, "train": {"record_every": 1000}},
    "six replicates": {"seeds": 6, "train": {"arms": ["random", "active", "prbs"]}},
    "all arms, and episodes that end": {
        "env": {"episode_transitions": 7},
        "train": {"arms": ["active", "random", "step", "prbs", "chirp", "off"]},
    },
    "one arm, which is not active": {"train": {"arms": ["step"]}},
    "a line": {"env": {"field": {"kind": "linear", "matrix": [[-0.5]]}}},
    "a space": {
        "env": {"field": {"kind": "linear", "matrix": [[-0.5, -1, 0], [1, -0.5, 0], [0, 0, -0.3]]}},
        "network": {"rbf": {"side": 3}},
    },
    "counts": {"env": {"observation": {"kind": "loglinear", "noise": "poisson"}}},
    "learned channels": {
        "collect": {"warmup": 1000},
        "network": {"decoder": "linear"},
        "train": {"transitions": 1040},
    },
    "seq_vae": {"network": {"family": "seq_vae"}, "train": {"transitions": 40}},
    "an ensemble": {
        "network": {"family": "seq_vae", "seq_vae": {"dynamics": "ensemble", "members": 2}},
        "train": {
            "transitions": 40,
            "acquisition": {"weights": {"disagreement": 1.0, "variance": 0.0}},
        },
    },
}
"""Changes to the small config."""


class Run(NamedTuple):
    """Holds a trained active_dynamics and what its figures need."""

    config: ActiveDynamicsConfig
    dataset: Dataset
    state: State
    history: History
    scores: dict[str, float]

    @property
    def study(self) -> Study:
        return studies.make_study(self.config, self.state, self.dataset)

    def figures(self) -> dict[str, Figure]:
        return room.plots(self.config, self.state, self.dataset, self.history, self.scores)


def run(**sections: Any) -> Run:
    """Trains and evaluates the small config with changed sections."""
    config = small("active_dynamics", **sections)
    dataset, records, last = collect(config, 0), [], 0
    for progress in train(config, dataset, 1):
        records += rows(progress, last)
        last = progress.step
    return Run(
        config,
        dataset,
        progress.state,
        history(records),
        evaluate(config, progress.state, dataset, 0),
    )


@functools.cache
def named(name: str) -> Run:
    """Returns one of RUNS, trained once."""
    return run(**RUNS[name])


@functools.cache
def studied(name: str) -> Study:
    """Returns the study of one of RUNS."""
    return named(name).study
