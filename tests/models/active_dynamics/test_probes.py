"""Where it is known what can be learned, it is learned; active learners learn it sooner."""

from functools import cache
from typing import Any

import torch
from torch import Tensor

from quatrain.models.active_dynamics.collect import collect, world_of
from quatrain.models.active_dynamics.references import reference_errors
from quatrain.replay.windows import Transition
from tests.conftest import shapes_unchecked
from tests.models.active_dynamics.small_trials import PLANNED, Run, begun, configured, run

LINEAR: dict[str, Any] = {"field": {"kind": "linear", "matrix": [[-0.5, -1.0], [1.0, -0.5]]}}
"""A whirl that draws in: a learner that does not push sees only its middle."""
GRID = {"rbf": {"side": 9, "length": 0.6}}


@cache
def learned() -> Run:
    brief = {"transitions": 300, "record_every": 300, "checkpoints": 2, "planner": PLANNED}
    return run(configured(seeds=3, env=LINEAR, network=GRID, train=brief))


def errors(result: Run, arm: str) -> Tensor:
    return result.of(arm, torch.tensor(result.estimate.nrmse[-1]))


def test_the_active_arm_knows_a_linear_field_after_300_transitions():
    assert errors(learned(), "active").max() < 0.2
    assert errors(learned(), "random").min() > 0.3
    scores = learned().scores
    assert scores["displacement_r2_20.active"] > 0.97 > scores["displacement_r2_20.random"]
    assert scores["innovation_nll.active"] < scores["innovation_nll.random"]
    assert scores["information_gained.active"] > 1.5 * scores["information_gained.random"]


def test_another_value_gains_more_than_random_actions_too():
    brief = {
        "transitions": 120,
        "record_every": 120,
        "checkpoints": 2,
        "planner": PLANNED | {"candidates": 10, "iterations": 1},
        "acquisition": {"weights": {"variance": 0.0, "fisher_a": 1.0}},
    }
    result = run(configured(seeds=3, env=LINEAR, train=brief))
    assert errors(result, "active").max() < errors(result, "random").min()


def test_the_field_is_surest_where_it_was_seen():
    grid = torch.tensor(learned().dataset.held_out.grid)
    deviation = torch.tensor(learned().estimate.variance).sqrt().mean(2)
    paths = learned().of("random", learned().state.path)
    for path, local in zip(paths, learned().of("random", deviation), strict=True):
        nearest = torch.cdist(grid, path).amin(1)
        assert local[nearest < 0.1].mean() < local[nearest > 0.6].mean() / 3


def test_with_nearly_no_noise_the_filter_reaches_the_best_that_its_features_can():
    """It observes where the field leads from each point of the grid, an episode each."""
    noise = {"observation": {"kind": "identity", "channels": 2, "noise_sd": 1e-3}}
    env = noise | {"process_noise": 0.0, "dt": 0.4}
    assumed = {"bayes_filter": {"noise_sd": 1e-3, "process_noise": 0.0}}
    config = configured(seeds=1, env=env, network=GRID | assumed, train={"arms": ("random",)})
    dataset = collect(config, 0)
    learner, world = begun(config, dataset).learner, world_of(config, dataset)
    grid, still = torch.tensor(dataset.held_out.grid), torch.zeros(1, 2)
    points = torch.cat([torch.tensor(dataset.train.states[:, 0]), grid])
    with shapes_unchecked():
        for point, following in zip(points.split(1), points.roll(-1, 0).split(1), strict=True):
            moved, ended = point + world.field(point) * 0.4, torch.tensor([True])
            learner.observe(Transition(moved, still, ended, following))
    moments = learner.moments(grid.double()[None])
    truth = torch.tensor(dataset.held_out.grid_field)
    error = float((moments.mean - truth).norm() / truth.norm())
    assert 0.999 < error / reference_errors(config, dataset)["projection_floor"] < 1.06
    assert moments.variance.sqrt().max() < 0.005
