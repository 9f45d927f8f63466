"""Scores of learners whose knowledge is made by hand, so that it can be told in advance what they
are.
"""

from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from quatrain.envs.vector_field.fields import Field, make_field
from quatrain.models.active_dynamics import collect as collecting
from quatrain.models.active_dynamics import train
from quatrain.models.active_dynamics.bayes_filter.channels import LearnedChannels
from quatrain.models.active_dynamics.bayes_filter.learner import weight_variance
from quatrain.models.active_dynamics.collect import Dataset, collect, world_of
from quatrain.models.active_dynamics.config import ActiveDynamicsConfig
from quatrain.models.active_dynamics.evaluate import (
    GATED,
    HORIZONS,
    FieldEstimate,
    calibration,
    estimate_field,
    evaluate,
    ratio_interval,
    ratios,
    reached_at,
    reference_errors,
)
from quatrain.models.active_dynamics.network import make_rbf
from quatrain.models.active_dynamics.state import State, TrainingState, checkpoint_steps
from tests.conftest import params_with, small
from tests.models.active_dynamics.small_trials import Run, advanced, both_families, configured, run

FEW = {"held_out_rollouts": 8, "starts": 8}
BRIEF = {"transitions": 12, "record_every": 12, "checkpoints": 3}


def features(config: ActiveDynamicsConfig, x: Any) -> Tensor:
    return make_rbf(config.network.rbf, config.env.d).features(torch.as_tensor(x).double())


def best_weights(config: ActiveDynamicsConfig, dataset: Dataset) -> Tensor:
    """[d, feature]: least squares on the grid."""
    held_out = dataset.held_out
    return torch.linalg.lstsq(
        features(config, held_out.grid), torch.tensor(held_out.grid_field).double()
    ).solution.T


def knowing(state: State, weight: Tensor) -> State:
    """All rows, at all checkpoints."""
    mean = torch.cat(
        [state.params.mean[:, : len(weight)], weight.flatten().expand(len(state.path), -1)], 1
    )
    kept = state.snapshots["weight"]
    return state._replace(
        params=state.params._replace(mean=mean),
        snapshots={"weight": weight.float().expand_as(kept).clone()},
        transitions=torch.tensor(10**6),
    )


def built(**sections: Any) -> tuple[ActiveDynamicsConfig, Dataset, State]:
    """Before anything was learned."""
    config = small("active_dynamics", **sections)
    dataset = collect(config, 3)
    return config, dataset, train.init_state(config, dataset, 0)


# The field.


def test_the_best_weights_score_the_projection_floor():
    config, dataset, state = built()
    scores = evaluate(config, knowing(state, best_weights(config, dataset)), dataset, 0)
    floor = scores["projection_floor"]
    assert 0.01 < floor < scores["affine_field"] < scores["zero_field"] == 1
    for arm in config.train.arms:
        assert scores[f"field_nrmse.{arm}"] == pytest.approx(floor, rel=1e-4)
        assert scores[f"displacement_r2_1.{arm}"] > 0.99


def test_no_field_scores_1_and_explains_no_displacement():
    config, dataset, state = built(env={"control": [[0.0, 2.0, 0.5], [1.0, 0.0, 0.5]]})
    scores = evaluate(config, knowing(state, torch.zeros(2, 25).double()), dataset, 0)
    for arm in config.train.arms:
        assert scores[f"field_nrmse.{arm}"] == 1
        for k in HORIZONS:
            assert scores[f"displacement_r2_{k}.{arm}"] == pytest.approx(0, abs=1e-6)
    assert scores["position_r2_1.active"] > 0.9  # that nothing moves is nearly right at first
    assert (
        scores["position_r2_20.active"]
        < scores["position_r2_5.active"]
        < scores["position_r2_1.active"]
    )


TURN, SHIFT = torch.tensor([[0.0, -1.0], [1.0, 0.0]]).double(), torch.tensor([1.0, 0.0]).double()
"""A quarter, and the distance of two centres: what one grid can represent, the other can."""


def turned(values: Tensor) -> Tensor:
    """Values [side, side, ...] at centres x, at the centres z of x = TURN z + SHIFT; on a grid of
    centres 0.5 apart.
    """
    side = len(values)
    result = torch.zeros_like(values)
    for i in range(side):
        for j in range(side):
            x = TURN @ torch.tensor([i - side // 2, j - side // 2]).double() + 2 * SHIFT
            to = (x + side // 2).round().long().tolist()
            if min(to) >= 0 and max(to) < side:
                result[i, j] = values[to[0], to[1]]
    return result


def test_a_turned_and_shifted_learner_scores_as_the_same_one_that_is_not(
    monkeypatch: pytest.MonkeyPatch,
):
    """Weights and variances of centres that both grids have; the others are 0."""
    monkeypatch.setattr("quatrain.models.active_dynamics.config.LEARNED_WARMUP", 10)
    sections = {"network": {"decoder": "linear", "rbf": {"side": 9, "length": 0.6}}, "seeds": 1}
    config, dataset, state = built(**sections)
    draws = torch.Generator().manual_seed(0)
    inner = torch.zeros(9, 9, 2).double()
    inner[2:7, 2:7] = torch.randn(5, 5, 2, generator=draws, dtype=torch.float64)
    spread = torch.zeros(9, 9, 1).double()
    spread[2:7, 2:7] = torch.rand(5, 5, 1, generator=draws, dtype=torch.float64)
    emission = [
        torch.tensor(part).double().expand(config.learners, *part.shape)
        for part in dataset.emission
    ]
    plain = LearnedChannels(*emission)
    other = plain._replace(weight=plain.weight @ TURN, bias=plain.bias + plain.weight @ SHIFT)
    scores = []
    for channels, weight, variance in (
        (plain, inner, spread),
        (other, turned(inner) @ TURN, turned(spread)),
    ):
        local = knowing(state, weight.flatten(0, 1).T)._replace(decoder=channels)
        covariance = torch.block_diag(torch.eye(2), *[variance.flatten().diag()] * 2).double()
        params = local.params._replace(
            covariance=covariance.expand(config.learners, -1, -1).contiguous()
        )
        scores.append(evaluate(config, local._replace(params=params), dataset, 0))
    item, same = scores
    names = [f"{name}_{k}" for name in ("displacement_r2", "position_r2") for k in HORIZONS]
    names += ["field_nrmse", "field_nlpd", "coverage_90", "calibration"]
    for name in names:
        assert same[f"{name}.active"] == pytest.approx(item[f"{name}.active"], rel=1e-4), name
    assert abs(item["field_nrmse.active"] - 1) > 0.1


def test_a_learner_on_its_way_is_judged_by_what_it_knows():
    result = run(small("active_dynamics", seeds=1, train={"record_every": 30}))
    early, late = (evaluate(result.config, item.state, result.dataset, 0) for item in result.yields)
    for name in ("active", "random"):
        assert late[f"field_nrmse.{name}"] < early[f"field_nrmse.{name}"] < 1
        lines = result.yields[0].metrics[f"monitor/field_nrmse.{name}"].item()
        assert early[f"field_nrmse.{name}"] == pytest.approx(
            lines, rel=0.05
        )  # of every fourth point


def test_errors_are_those_of_each_checkpoint():
    result = run(
        small("active_dynamics", train={"record_every": 2, "transitions": 24, "checkpoints": 4})
    )
    steps = checkpoint_steps(result.config)
    learners = {item.step: item.state for item in result.yields}
    errors = known_by(result, result.state).nrmse
    assert errors.shape == (4, 4)
    for place, step in enumerate(steps):
        if step in learners:
            assert known_by(result, learners[step]).nrmse[-1] == pytest.approx(
                errors[place], rel=1e-5
            )
    assert len({*errors.flatten().round(9)}) > 12


def known_by(result: Run, state: State) -> FieldEstimate:
    rows = TrainingState.from_state(result.config, result.dataset, state).learner
    return estimate_field(result.config, rows, state, result.dataset)


FIELDS = {
    "limit_cycle": (0.43, 0.0035),
    "double_limit_cycle": (0.39, 0.0035),
    "van_der_pol": (0.27, 0.0008),
    "duffing": (0.48, 0.0037),
    "snowman": (0.88, 0.041),
}


@pytest.mark.parametrize("kind", FIELDS)
def test_floors_of_the_committed_grid(kind: str):
    affine, projection = FIELDS[kind]
    (result,) = floors_of(kind=kind)
    assert result["zero_field"] == 1
    assert result["affine_field"] == pytest.approx(affine, abs=0.005)
    assert result["projection_floor"] == pytest.approx(projection, rel=0.05, abs=5e-5)


def test_of_an_affine_field_the_best_affine_one_is_no_floor():
    (result,) = floors_of(kind="linear", matrix=[[-0.5, -1.0], [1.0, -0.5]])
    assert result["affine_field"] == 1
    assert 0 < result["projection_floor"] < 0.01


def test_each_drawn_table_has_floors_of_its_own():
    """Of 64 of them: affine .73 (.60 to .88), projection .135 (.095 to .173), as medians and nine
    in ten.
    """
    drawn = floors_of(8, kind="multi_attractor")
    affine, projection = (
        np.array([item[name] for item in drawn]) for name in ("affine_field", "projection_floor")
    )
    assert np.median(affine) == pytest.approx(0.73, abs=0.12)
    assert np.median(projection) == pytest.approx(0.135, abs=0.03)
    assert len({*affine}) == 8


@cache
def any_dataset() -> Dataset:
    return collect(
        params_with({"active_dynamics": {"seeds": 1, "collect": FEW}}).active_dynamics, 0
    )


def floors_of(draws: int = 1, **field: Any) -> list[dict[str, float]]:
    """With the committed grid of functions."""
    config = params_with({"active_dynamics": {"env": {"field": field}}}).active_dynamics
    held_out, generator, result = any_dataset().held_out, torch.Generator().manual_seed(0), []
    for _ in range(draws):
        truth = make_field(config.env.world.field, generator)(torch.tensor(held_out.grid)).numpy()
        result.append(
            reference_errors(
                config, any_dataset()._replace(held_out=held_out._replace(grid_field=truth))
            )
        )
    return result


def test_without_radial_functions_any_field_can_be_represented():
    config = configured("seq_vae", network={"seq_vae": {"dynamics": "mlp"}})
    assert reference_errors(config, collect(config, 0))["projection_floor"] == 0


# Predictions.


def test_predictions_are_paths_of_the_mean_field_from_true_starts():
    """Which count until the true ones leave the region."""
    effect = np.array([[0.0, 4.0], [2.0, 1.0]])
    config, dataset, state = built(
        env={"control": effect.tolist()}, train={"arms": ("random",)}, seeds=1
    )
    weight = 0.7 * best_weights(config, dataset)
    scores = evaluate(config, knowing(state, weight), dataset, 0)
    held_out, paths = dataset.held_out, {k: [] for k in HORIZONS}
    for start, actions, truth in zip(
        held_out.starts, held_out.start_actions, held_out.clean_states, strict=True
    ):
        x, pushed = start.astype(float), np.zeros(2)
        for k, action in enumerate(actions, 1):
            x = x + 0.1 * (weight.numpy() @ features(config, x).numpy() + effect @ action)
            pushed = pushed + 0.1 * effect @ action
            if np.linalg.norm(truth[k]) > 1.5:
                break
            if k in HORIZONS:
                paths[k].append((x, truth[k], start + pushed))
    assert 8 == len(paths[1]) > len(paths[10]) > 1
    for k in HORIZONS:
        x, there, carried = (np.array(part) for part in zip(*paths[k], strict=True))
        error, moved = ((x - there) ** 2).sum(), ((there - carried) ** 2).sum()
        assert scores[f"displacement_r2_{k}.random"] == pytest.approx(1 - error / moved, rel=1e-4)
        if len(there) > 1:
            spread = ((there - there.mean(0)) ** 2).sum()
            assert scores[f"position_r2_{k}.random"] == pytest.approx(1 - error / spread, rel=1e-4)


@pytest.mark.parametrize("control", [[[0.0, 2.0], [1.0, 0.0]], [[1.0, 0.0, 1.0], [0.0, 1.0, -1.0]]])
def test_who_knows_the_field_is_hardly_more_surprised_than_the_oracle(control: list[list[float]]):
    """Whatever actions do: held-out rollouts are driven by them."""
    brief = {
        "seeds": 1,
        "train": {"arms": ("random",)},
        "network": {"rbf": {"side": 9, "length": 0.6}},
    }
    config, dataset, state = built(env={"control": control}, **brief)
    scores = evaluate(config, knowing(state, best_weights(config, dataset)), dataset, 0)
    ignorant = evaluate(config, knowing(state, torch.zeros(2, 81).double()), dataset, 0)
    oracle = scores["innovation_nll_oracle"]
    assert oracle == ignorant["innovation_nll_oracle"]
    assert oracle < scores["innovation_nll.random"] + 1e-3 < oracle + 0.02
    assert ignorant["innovation_nll.random"] > oracle + 0.02


def test_the_oracle_s_surprise_is_that_of_noise_alone():
    """Where states are seen well, what is left is the noise of channels, and that of a step seen
    through them.
    """
    noise = {"observation": {"kind": "identity", "channels": 2, "noise_sd": 1e-3}}
    config, dataset, state = built(env=noise)
    deviation = (0.01 * 0.1) ** 0.5
    expected = 0.5 * np.log(2 * np.pi * np.e * deviation**2)
    result = evaluate(config, state, dataset, 0)["innovation_nll_oracle"]
    assert result == pytest.approx(expected, abs=0.06)  # of 8 * 100 * 2 numbers


# Uncertainty.


def test_calibration_of_errors_that_are_as_large_as_said():
    truth = np.random.default_rng(0).normal(size=(5000, 2))
    dataset = collect(small("active_dynamics"), 0)
    held_out = dataset.held_out._replace(grid_field=truth)
    error = np.random.default_rng(1).normal(size=(5000, 2))
    deviation = np.array([0.3, 0.15, 0.6])[:, None, None]  # right, too sure, too unsure
    reference = FieldEstimate(
        truth + 0.3 * error[None].repeat(3, 0),
        np.broadcast_to(deviation**2, (3, 5000, 2)),
        np.zeros((1, 3)),
    )
    result = calibration(reference, held_out)
    inside = [0.9, 0.5892, 0.99899]
    np.testing.assert_allclose(result["coverage_90"], inside, atol=0.01)
    square = (error**2).mean()
    for row, (sd, ratio) in enumerate(((0.3, 1.0), (0.15, 4.0), (0.6, 0.25))):
        expected = 0.5 * (square * ratio + np.log(2 * np.pi * sd**2))
        assert result["field_nlpd"][row] == pytest.approx(expected)
    assert result["calibration"][0] < 0.01
    assert result["calibration"][1] == pytest.approx(0.2151, abs=0.005)
    assert result["calibration"][2] == pytest.approx(0.2257, abs=0.005)


def test_a_field_that_is_surely_right_is_covered():
    dataset = collect(small("active_dynamics"), 0)
    truth = dataset.held_out.grid_field.astype(float)[None]
    result = calibration(
        FieldEstimate(truth, np.zeros_like(truth), np.zeros((1, 1))), dataset.held_out
    )
    assert result["coverage_90"][0] == 1
    assert np.isfinite(result["field_nlpd"][0])


def test_fields_drawn_from_the_prior_are_covered_as_often_as_said():
    """Each replicate has a field of its own, in each dimension's box; both arms meet the
    same ones.
    """
    replicates = 32
    config = small(
        "active_dynamics", seeds=replicates, train={"transitions": 120}, collect={"warmup": 1}
    )
    dataset = collect(config, 0)
    inputs = TrainingState.init(config, dataset, 0).learner.filter
    draws = torch.Generator().manual_seed(7)
    weight = weight_variance(config, inputs) ** 0.5 * torch.randn(
        replicates, 2, 25, generator=draws
    )

    def raw(x: Tensor) -> Tensor:
        stored = weight.repeat(len(x) // replicates, 1, 1)
        return torch.einsum("rdc,rc->rd", stored, features(config, x).float())

    field = Field("drawn", raw, torch.tensor(1.0), torch.empty(0, 0, 0, 0))
    world = world_of(config, dataset)._replace(field=field)
    actions = collecting.random_actions(world, (replicates, 1), draws)
    local = dataset._replace(train=collecting.roll_out(world, None, actions, draws))
    training = TrainingState.init(config, local, 0)
    training.world = training.world._replace(field=field)
    advanced(training, 120)
    grid = torch.tensor(dataset.held_out.grid).double()
    result = training.learner.moments(grid.expand(config.learners, -1, -1))
    truth = (features(config, grid) @ weight.double().mT).repeat(2, 1, 1)
    reference = FieldEstimate(
        result.mean.numpy(), result.variance.numpy(), np.zeros((1, config.learners))
    )
    covered = calibration(reference, dataset.held_out._replace(grid_field=truth.numpy()))[
        "coverage_90"
    ]
    for arm, own_share in zip(config.train.arms, covered.reshape(2, replicates), strict=True):
        assert own_share.mean() == pytest.approx(0.9, abs=0.05), arm
    assert (result.variance.sqrt().mean() < 0.6).all()  # by now much is known


# How much sooner.


@pytest.mark.parametrize(
    ("errors", "target", "transitions"),
    [
        ((0.9, 0.4, 0.1), 0.2, 100.0 * 10**0.5),  # half-way between .4 and .1 in their logarithm
        ((0.9, 0.4, 0.1), 0.4, 100.0),
        ((0.9, 0.4, 0.1), 0.1, 1000.0),
        ((0.9, 0.4, 0.1), 0.95, 10.0),
        ((0.9, 0.4, 0.1), 0.09, None),
        (
            (0.9, 0.2, 0.5),
            0.3,
            10.0 ** (1 + np.log(0.9 / 0.3) / np.log(0.9 / 0.2)),
        ),  # the first time counts
    ],
)
def test_an_error_is_reached_along_logarithms(
    errors: tuple[float, ...], target: float, transitions: float | None
):
    result = reached_at((10, 100, 1000), np.array(errors), target)
    assert result is None if transitions is None else result == pytest.approx(transitions)


def test_ratios_compare_each_active_replicate_with_the_median_of_an_arm():
    """Checkpoints are at 10, 16, 24, 38, 60; the arms have three replicates, whose last errors
    count.
    """
    config = small("active_dynamics", seeds=3, train={"arms": ("random", "active", "prbs")})
    assert checkpoint_steps(config) == (10, 16, 24, 38, 60)
    random = np.array([[1, 1, 1]] * 4 + [[0.4, 0.1, 0.9]])
    active = np.array([[1, 0.4, 1], [0.4, 1, 1], [1, 1, 1], [1, 1, 1], [1, 1, 0.5]])
    prbs = np.array([[0.1, 0.1, 0.1]] * 4 + [[0.1, 0.2, 0.7]])
    result = ratios(config, np.concatenate([random, active, prbs], 1))
    assert result.keys() == {"transition_ratio.random", "transition_ratio.prbs"}
    np.testing.assert_allclose(result["transition_ratio.random"], [60 / 16, 6, 0])
    np.testing.assert_array_equal(result["transition_ratio.prbs"], [0, 0, 0])


def test_the_interval_of_a_ratio_is_drawn_over_replicates(monkeypatch: pytest.MonkeyPatch):
    """Errors fall as 1/transitions, those of the active arm twice as fast; each replicate by a
    factor of its own.
    """
    monkeypatch.setattr("quatrain.models.active_dynamics.evaluate.RESAMPLES", 200)
    config = small("active_dynamics", seeds=9)
    steps = np.array(checkpoint_steps(config))[:, None]
    luck = np.exp(0.3 * np.random.default_rng(0).normal(size=(2, 9)))
    alike, drawn = (
        np.concatenate([3 * local[0] / steps, 6 * local[1] / steps], 1)
        for local in (np.ones((2, 9)), luck)
    )
    name = "transition_ratio.random"
    assert ratio_interval(config, alike, name, 0) == pytest.approx((2, 2))
    low, high = ratio_interval(config, drawn, name, 0)
    assert low < np.median(ratios(config, drawn)[name]) < high
    assert 1.2 < low < high < 3.2
    assert ratio_interval(config, drawn, name, 0) == (low, high)
    few = np.concatenate([drawn[:, :5], drawn[:, 9:14]], 1)
    assert ratio_interval(small("active_dynamics", seeds=5), few, name, 0) is None


def test_without_an_active_arm_nothing_is_sooner():
    result = run(small("active_dynamics", train={"arms": ("random", "prbs"), **BRIEF}))
    scores = evaluate(result.config, result.state, result.dataset, 0)
    assert not [name for name in scores if name.startswith("transition_ratio")]
    assert "field_nrmse.prbs" in scores


# All together.


@pytest.mark.parametrize("seeds", [5, 10])
def test_scores_are_medians_with_order_statistics_from_six_replicates_on(seeds: int):
    result = run(small("active_dynamics", seeds=seeds, train=BRIEF))
    scores = evaluate(result.config, result.state, result.dataset, 0)
    errors = np.sort(known_by(result, result.state).nrmse[-1].reshape(2, seeds)[0])
    assert scores["field_nrmse.active"] == pytest.approx(np.median(errors))
    ends = {name for name in scores if name.endswith(("_low", "_high"))}
    if seeds == 5:
        assert not ends
    else:
        assert scores["field_nrmse.active_low"] == errors[1]
        assert scores["field_nrmse.active_high"] == errors[8]
        scored = {f"{gated.metric}{end}" for gated in GATED for end in ("_low", "_high")}
        assert scored <= ends


@both_families
def test_what_is_judged_is_scored_with_numbers(family: str):
    result = run(configured(family, seeds=1, train=BRIEF | {"transitions": 16}))
    scores = evaluate(result.config, result.state, result.dataset, 0)
    assert {
        name
        for gated in GATED
        for name in (gated.metric, *gated.lower_references, *gated.upper_references)
    } <= scores.keys()
    assert all(type(value) is float and np.isfinite(value) for value in scores.values())
    assert ("elbo.active" in scores) == (family == "seq_vae")
    again, other = (evaluate(result.config, result.state, result.dataset, seed) for seed in (0, 1))
    assert again == scores
    differing = {name.split(".")[0] for name in scores if other[name] != scores[name]}
    assert differing == ({"elbo"} if family == "seq_vae" else set())
    assert {gated.metric: gated.goals for gated in GATED if gated.goals} == {
        "transition_ratio.random": {"default": 5}
    }
