"""Where it is known what can be learned, it is learned; and who asks learns it sooner than who does
not.
"""

from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from quatrain.models.active_dynamics.collect import collect, world_of
from quatrain.models.active_dynamics.evaluate import (
    FieldEstimate,
    estimate_field,
    evaluate,
    reference_errors,
)
from quatrain.models.active_dynamics.learner import Observation
from quatrain.models.active_dynamics.network import make_rbf
from quatrain.models.active_dynamics.state import TrainingState
from tests.models.active_dynamics.small_trials import PLANNED, Run, configured, run

LINEAR: dict[str, Any] = {"field": {"kind": "linear", "matrix": [[-0.5, -1.0], [1.0, -0.5]]}}
"""A whirl that draws in: who does not push sees its middle alone."""
GRID = {"rbf": {"side": 9, "length": 0.6}}
REPLICATES = 3


@cache
def learned(value: str = "variance", kind: str = "icem") -> Run:
    """After 300 transitions in the whirl."""
    train = {
        "transitions": 300,
        "record_every": 300,
        "checkpoints": 2,
        "planner": PLANNED | {"kind": kind},
        "acquisition": {"weights": {"variance": 0.0, value: 1.0}},
    }
    return run(configured(seeds=REPLICATES, env=LINEAR, network=GRID, train=train))


def known_of(result: Run) -> FieldEstimate:
    rows = TrainingState.from_state(result.config, result.dataset, result.state).learner
    return estimate_field(result.config, rows, result.state, result.dataset)


def errors(result: Run, arm: str) -> np.ndarray:
    return result.of(arm, torch.tensor(known_of(result).nrmse[-1])).numpy()


def test_a_linear_field_is_known_after_300_transitions_to_who_asks():
    assert (errors(learned(), "active") < 0.2).all()
    assert errors(learned(), "random").min() > 0.3
    scores = evaluate(learned().config, learned().state, learned().dataset, 0)
    assert scores["displacement_r2_20.active"] > 0.97 > scores["displacement_r2_20.random"]
    assert scores["innovation_nll.active"] < scores["innovation_nll.random"]
    assert scores["information_gained.active"] > 1.5 * scores["information_gained.random"]


@pytest.mark.parametrize("value", ["information", "fisher_a"])
def test_whatever_is_looked_for_tells_more_than_random_actions(value: str):
    """With plans of a third of the transitions."""
    train = {
        "transitions": 120,
        "record_every": 120,
        "checkpoints": 2,
        "planner": PLANNED | {"candidates": 10, "iterations": 1},
        "acquisition": {"weights": {"variance": 0.0, value: 1.0}},
    }
    result = run(configured(seeds=3, env=LINEAR, train=train))
    assert errors(result, "active").max() < errors(result, "random").min()


def cells(path: Tensor) -> int:
    """Squares of a quarter that were entered."""
    return len((path / 0.25).floor().int().unique(dim=0))


def test_who_asks_sees_more_of_the_plane_than_who_does_not():
    active, random = (
        [cells(path) for path in learned().of(arm, learned().state.path)]
        for arm in ("active", "random")
    )
    assert min(active) > 2 * max(random)


def test_who_asks_stays_where_it_matters():
    """The region has the radius 1.5; nothing is lost up to 1.7, and the edge is where random
    actions do not lead.
    """
    path = learned().of("active", learned().state.path)[:, 20:]
    distance = path.norm(dim=2)
    assert (distance < 1.9).float().mean() > 0.98
    assert (distance > 1.2).float().mean() > 0.2


def test_the_field_is_surest_where_it_was_seen():
    result = learned()
    grid, deviation = (
        torch.tensor(result.dataset.held_out.grid),
        torch.tensor(known_of(result).variance).sqrt(),
    )
    paths = result.of("random", result.state.path)
    for path, local in zip(paths, result.of("random", deviation).mean(2), strict=True):
        nearest = torch.cdist(grid, path).amin(1)
        assert local[nearest < 0.1].mean() < local[nearest > 0.6].mean() / 3


def test_with_nearly_no_noise_the_filter_reaches_the_best_its_functions_can():
    """Shown each point of the grid and where the field leads from there, an episode each."""
    env = {
        "observation": {"kind": "identity", "channels": 2, "noise_sd": 1e-3},
        "process_noise": 0.0,
        "dt": 0.4,
    }
    config = configured(seeds=1, env=env, network=GRID, train={"arms": ("random",)})
    dataset = collect(config, 0)
    rows, world = TrainingState.init(config, dataset, 0).learner, world_of(config, dataset)
    grid = torch.tensor(dataset.held_out.grid)
    points = torch.cat([torch.tensor(dataset.train.states[:, 0]), grid])
    for point, following in zip(points, points.roll(-1, 0), strict=True):
        show(rows, point + world.field(point) * config.env.dt, following)
    moments = rows.moments(grid.double()[None])
    truth = torch.tensor(dataset.held_out.grid_field)
    error = float((moments.mean - truth).norm() / truth.norm())
    assert 0.999 < error / reference_errors(config, dataset)["projection_floor"] < 1.06
    assert moments.variance.sqrt().max() < 0.005


def show(rows: Any, observation: Tensor, begun: Tensor) -> None:
    """Where a state that was left alone has gone, and where the next one begins."""
    nothing = torch.zeros(1, 2)
    rows.observe(
        Observation(nothing, nothing, observation[None], torch.tensor([True]), begun[None])
    )


def test_the_prior_holds_where_nothing_was_seen():
    """At the corners, beyond where an undriven path leads, velocities stay near 0 and as uncertain
    as at first.
    """
    config = configured(seeds=1, env=LINEAR, train={"arms": ("off",), "transitions": 40})
    result = run(config)
    rows = TrainingState.from_state(config, result.dataset, result.state).learner
    corners = torch.cartesian_prod(torch.tensor([-2.0, 2.0]), torch.tensor([-2.0, 2.0])).double()[
        None
    ]
    before = TrainingState.init(config, result.dataset, 0).learner.moments(corners)
    after = rows.moments(corners)
    assert (after.mean.abs() < before.variance.sqrt()).all()
    assert (after.variance > 0.5 * before.variance).all()
    assert make_rbf(config.network.rbf, 2).axis[-1] == 2
