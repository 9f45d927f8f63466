"""Rows of filters at work: dense algebra, causality, what is known, what a planner sees, held-out
scores.
"""

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import Generator, Tensor

from quatrain.envs.vector_field.fields import region_grid
from quatrain.models.active_dynamics.bayes_filter import filter as beliefs
from quatrain.models.active_dynamics.bayes_filter.channels import LearnedChannels
from quatrain.models.active_dynamics.bayes_filter.filter import Belief, Filter
from quatrain.models.active_dynamics.bayes_filter.learner import (
    BayesFilterLearner,
    frozen_innovation,
    weight_variance,
)
from quatrain.models.active_dynamics.collect import (
    Dataset,
    Rollouts,
    collect,
    emission_of,
    world_of,
)
from quatrain.models.active_dynamics.config import ActiveDynamicsConfig
from quatrain.models.active_dynamics.learner import Observation
from quatrain.replay import windows
from tests.conftest import small
from tests.models.active_dynamics import filters
from tests.models.active_dynamics.filters import Dense, copied, drawn, row_of

REPLICATES, CHANNELS, D, ROWS = 3, 7, 2, 6
CONTROL = [[0.8, 0.3, -0.2], [-0.5, 0.9, 0.1]]
"""B of three numbers of an action."""
OBSERVED: dict[str, dict[str, Any]] = {
    "linear": {"kind": "linear"},
    "identity": {"kind": "identity", "channels": 2},
    "loglinear": {"kind": "loglinear"},
    "counts": {"kind": "loglinear", "noise": "poisson"},
}
"""Observations by name."""


@cache
def configured(observed: str = "linear", episode: int | None = None) -> Any:
    return small(
        "active_dynamics",
        seeds=REPLICATES,
        env={
            "control": CONTROL,
            "episode_transitions": episode,
            "observation": {"channels": CHANNELS} | OBSERVED[observed],
        },
        network={"rbf": {"side": 4, "length": 1.1}},
        train={"acquisition": {"weights": {"fisher_d": 1.0}}},
    )


@cache
def collected(observed: str = "linear", episode: int | None = None) -> Dataset:
    return collect(configured(observed, episode), 3)


def rows_at_work(observed: str = "linear", dataset: Dataset | None = None) -> BayesFilterLearner:
    return BayesFilterLearner.init(
        configured(observed), dataset or collected(observed), np.random.SeedSequence(0)
    )


def transitions(
    rows: BayesFilterLearner, count: int, ends: dict[int, int] | None = None
) -> Iterator[Observation]:
    """Of states near 0; ends: time -> row whose episode ended."""
    channels, draws = rows.emission, Generator().manual_seed(1)
    for time in range(count):
        action = 2 * torch.rand(ROWS, 3, generator=draws) - 1
        y, begun = (
            channels.sample(torch.rand(ROWS, D, generator=draws) - 0.5, None, draws)
            for _ in range(2)
        )
        truncated = torch.arange(ROWS) == (ends or {}).get(time, -1)
        begun = torch.where(truncated[:, None], begun, y)
        yield Observation(action, action @ torch.tensor(CONTROL).T, y, truncated, begun)


def experienced(observed: str = "linear", count: int = 12) -> BayesFilterLearner:
    rows = rows_at_work(observed)
    for item in transitions(rows, count, {4: 1}):
        rows.observe(item)
    return rows


# Learning.


def first_of(rows: BayesFilterLearner, dataset: Dataset, row: int) -> Dense:
    """The prior, and the first observation of the replicate."""
    channels = rows.emission.double()
    prior = beliefs.prior(rows.filter.rbf, ROWS, weight_variance(rows.config, rows.filter))
    y = torch.tensor(dataset.train.observations[row % REPLICATES, 0]).double()
    return filters.corrected(channels, y, row_of(prior, row))


def assert_row(rows: BayesFilterLearner, row: int, expected: Dense) -> None:
    near = filters.trusted(rows.emission, 1e-7)
    torch.testing.assert_close(rows.belief.mean[row], expected.mean, **near)
    torch.testing.assert_close(rows.belief.covariance[row], expected.covariance, **near)


@pytest.mark.parametrize("observed", OBSERVED)
def test_rows_begin_with_the_prior_and_their_replicate_s_first_observation(observed: str):
    rows = rows_at_work(observed)
    for row in range(ROWS):
        assert_row(rows, row, first_of(rows, collected(observed), row))
    for part in rows.belief:
        torch.testing.assert_close(part[REPLICATES:], part[:REPLICATES])
    assert not torch.equal(rows.belief.mean[0], rows.belief.mean[1])


@pytest.mark.parametrize("observed", OBSERVED)
def test_a_transition_is_a_prediction_a_correction_and_where_an_episode_ended_a_beginning(
    observed: str,
):
    rows = rows_at_work(observed)
    channels, size, env = rows.emission.double(), rows.belief.mean.shape[1], rows.config.env
    assert (env.dt, env.process_noise) == (filters.DT, 0.01)
    noise = filters.process_noise(D, size) * 0.01 / filters.PROCESS_NOISE
    now = [row_of(rows.belief, row) for row in range(ROWS)]
    for item in transitions(rows, 4, {2: 4}):
        u, y, begun = (
            part.double() for part in (item.control, item.observation, item.reset_observation)
        )
        for row in range(ROWS):
            ahead = filters.predicted(filters.joint_step(rows.filter.rbf, u[row]), noise, now[row])
            now[row] = filters.corrected(channels, y[row], ahead)
        nll = rows.observe(item)
        torch.testing.assert_close(
            nll, torch.stack([dense.nll for dense in now]), **filters.trusted(rows.emission, 1e-6)
        )
        for row in item.truncated.nonzero().flatten().tolist():
            now[row] = filters.begun(channels, begun[row], now[row])
        for row in range(ROWS):
            assert_row(rows, row, now[row])


def beliefs_along(observed: list[Observation]) -> list[Belief]:
    rows, result = rows_at_work(), []
    for item in observed:
        rows.observe(item)
        result.append(copied(rows.belief))
    return result


def changed(which: str, item: Observation) -> Observation:
    """Of row 2 something else."""
    row = (torch.arange(ROWS) == 2)[:, None]
    inputs = {
        name: torch.where(row, value + 0.3, value)
        for name, value in item._asdict().items()
        if name == which
    }
    return item._replace(**inputs)


@pytest.mark.parametrize("which", ["observation", "control"])
def test_what_is_seen_changes_the_belief_from_then_on_and_nothing_before(which: str):
    observed = list(transitions(rows_at_work(), 8))
    other = [changed(which, item) if time == 5 else item for time, item in enumerate(observed)]
    for time, (item, now) in enumerate(
        zip(beliefs_along(observed), beliefs_along(other), strict=True)
    ):
        same = torch.arange(ROWS) != 2 if time >= 5 else torch.ones(ROWS, dtype=torch.bool)
        assert torch.equal(item.mean[same], now.mean[same])
        assert (item.mean[~same] != now.mean[~same]).any(1).all()


def test_an_episode_s_last_observation_teaches_and_the_next_first_one_locates_the_state():
    observed = list(transitions(rows_at_work(), 6, {5: 2}))
    last, first = (
        [*observed[:-1], changed(which, observed[-1])]
        for which in ("observation", "reset_observation")
    )
    plain, by_last, by_first = (beliefs_along(each)[-1].mean[2] for each in (observed, last, first))
    assert torch.equal(by_last[:D], plain[:D])
    assert (by_last[D:] != plain[D:]).any()
    assert (by_first[:D] != plain[:D]).all()
    assert torch.equal(by_first[D:], plain[D:])


def test_arms_that_see_the_same_believe_the_same():
    rows = rows_at_work()
    for item in transitions(rows, 5):
        rows.observe(
            Observation(*(part[:REPLICATES].repeat(2, *[1] * (part.ndim - 1)) for part in item))
        )
    for part in rows.belief:
        torch.testing.assert_close(part[REPLICATES:], part[:REPLICATES], rtol=1e-12, atol=1e-12)


class State(NamedTuple):
    """As far as rows are concerned."""

    params: Any
    decoder: Any
    family_state: Any


def test_what_was_saved_stays_so_and_goes_on_where_it_was_to_the_bit():
    rows = rows_at_work()
    observed = list(transitions(rows, 9, {6: 0}))
    for item in observed[:4]:
        rows.observe(item)
    saved = State(**rows.to_state())
    before = copied(saved.params)
    again = BayesFilterLearner.from_state(rows.config, collected(), saved)
    for item in observed[4:]:
        torch.testing.assert_close(rows.observe(item), again.observe(item), rtol=0, atol=0)
    for part, other, kept, was in zip(rows.belief, again.belief, saved.params, before, strict=True):
        assert torch.equal(part, other)
        assert torch.equal(kept, was)
        assert not torch.equal(kept, part)


def test_nothing_is_left_to_improve():
    rows = experienced()
    before = copied(rows.belief)
    rows.improve(windows.allocate(ROWS, 4, CHANNELS, 3))
    assert rows.last_update_metrics == {}
    assert all(torch.equal(*pair) for pair in zip(rows.belief, before, strict=True))


# What is known of the field.


def blocks_of(rows: BayesFilterLearner) -> Tensor:
    """P_ww,ii, by slices."""
    count, covariance = rows.filter.rbf.size, rows.belief.covariance
    cuts = [slice(D + i * count, D + (i + 1) * count) for i in range(D)]
    return torch.stack([covariance[:, cut, cut] for cut in cuts], 1)


def test_moments_of_the_field_by_brute_force():
    rows = experienced()
    x = drawn(ROWS, 4, D)
    result, blocks, count = rows.moments(x), blocks_of(rows), rows.filter.rbf.size
    for row in range(ROWS):
        for point in range(4):
            field_value = rows.filter.rbf.features(x[row, point])
            for i in range(D):
                weight = rows.belief.mean[row, D + i * count : D + (i + 1) * count]
                torch.testing.assert_close(result.mean[row, point, i], weight @ field_value)
                torch.testing.assert_close(
                    result.variance[row, point, i], field_value @ blocks[row, i] @ field_value
                )


def test_moments_are_those_of_fields_drawn_from_the_belief():
    rows, x = experienced(), drawn(ROWS, 2, D)
    result, field_value = rows.moments(x), rows.filter.rbf.features(x)
    root = torch.linalg.cholesky(rows.belief.covariance[0])
    sampled = rows.belief.mean[0] + drawn(20_000, len(root)) @ root.T
    fields = torch.einsum("sic,pc->spi", sampled[:, D:].unflatten(1, (D, -1)), field_value[0])
    torch.testing.assert_close(fields.mean(0), result.mean[0], atol=0.02, rtol=0)
    torch.testing.assert_close(fields.var(0), result.variance[0], rtol=0.04, atol=0)


def test_before_anything_is_seen_the_field_has_the_deviation_of_the_prior():
    rows = rows_at_work()
    grid = region_grid(1.5, D).double().expand(ROWS, -1, -1)
    assert float(rows.moments(grid).variance.mean().sqrt()) == pytest.approx(1, abs=1e-3)


def test_drift_is_the_mean_field_in_the_precision_of_the_weights():
    rows, x = experienced(), drawn(ROWS, 4, D)
    expected = rows.moments(x).mean
    single = rows.drift(rows.weights, x.float())
    assert single.dtype == torch.float32
    torch.testing.assert_close(single.double(), expected, rtol=1e-4, atol=1e-5)
    exact = {"weight": rows.belief.mean[:, D:].unflatten(1, (D, -1))}
    torch.testing.assert_close(rows.drift(exact, x), expected)
    other = {"weight": rows.weights["weight"] * 2}
    torch.testing.assert_close(rows.drift(other, x.float()), 2 * single)


def test_information_is_the_log_determinant_that_weights_lost():
    rows = experienced()
    prior = beliefs.prior(
        rows.filter.rbf, ROWS, weight_variance(rows.config, rows.filter)
    ).covariance[:, D:, D:]
    now = rows.belief.covariance[:, D:, D:]
    expected = (torch.linalg.slogdet(prior).logabsdet - torch.linalg.slogdet(now).logabsdet) / 2
    torch.testing.assert_close(rows.information(), expected, rtol=1e-9, atol=1e-9)
    assert (expected > 0.1).all()


def test_information_begins_with_none_and_grows_with_each_transition():
    rows = rows_at_work()
    lines = [rows.information()]
    for item in transitions(rows, 6, {3: 2}):
        rows.observe(item)
        lines.append(rows.information())
    torch.testing.assert_close(lines[0], torch.zeros(ROWS, dtype=torch.float64), atol=1e-6, rtol=0)
    assert (torch.stack(lines).diff(dim=0) > 0).all()


def test_information_of_a_covariance_that_is_none_is_no_number():
    rows = experienced()
    rows.belief.covariance[2, D + 1, D + 1] = -1
    assert rows.information().isnan().tolist() == [row == 2 for row in range(ROWS)]


# What a planner sees.


def test_a_surrogate_is_the_belief_in_single_precision():
    rows = experienced()
    result, count = rows.surrogate(slice(0, ROWS)), rows.filter.rbf.size
    blocks = blocks_of(rows)
    assert (result.dt, result.region_radius, result.members) == (0.1, 1.5, None)
    assert torch.equal(result.control, torch.tensor(CONTROL))
    expected = {
        "state": rows.belief.mean[:, :D],
        "covariance": (blocks[:, 0] + blocks[:, 1]) / 2,
        "full_covariance": rows.belief.covariance[:, D:, D:],
    }
    for name, value in expected.items():
        assert getattr(result, name).dtype == torch.float32
        torch.testing.assert_close(getattr(result, name).double(), value, rtol=1e-6, atol=1e-7)
    assert result.full_covariance.shape == (ROWS, D * count, D * count)


@pytest.mark.parametrize(("fisher", "there"), [(None, False), (0.0, False), (0.5, True)])
def test_a_surrogate_has_the_covariance_of_all_weights_where_a_value_asks_for_it(
    fisher: float | None, there: bool
):
    weights = {"variance": 1.0} if fisher is None else {"variance": 1.0, "fisher_a": fisher}
    rows = experienced()
    acquisition = rows.config.train.acquisition.model_copy(update={"weights": weights})
    train = rows.config.train.model_copy(update={"acquisition": acquisition})
    rows.config = rows.config.model_copy(update={"train": train})
    assert (rows.surrogate(slice(0, ROWS)).full_covariance is not None) == there


def test_a_surrogate_s_field_and_its_slopes_are_those_of_the_mean_weights():
    rows = experienced()
    result, x = rows.surrogate(slice(0, ROWS)), drawn(ROWS, 5, D).float()
    field_value = result.field(x)
    torch.testing.assert_close(field_value.value, rows.drift(rows.weights, x))
    torch.testing.assert_close(
        field_value.features.double(), rows.filter.rbf.features(x.double()), atol=1e-6, rtol=0
    )
    slopes = result.jacobian(x)
    for row, point in ((0, 1), (4, 3)):

        def at(place: Tensor, row: int = row, point: int = point) -> Tensor:
            moved = x.double().clone()
            moved[row, point] = place
            return rows.moments(moved).mean[row, point]

        expected = torch.stack(
            [
                (at(x[row, point] + e) - at(x[row, point] - e)) / 2e-4
                for e in 1e-4 * torch.eye(D).double()
            ],
            1,
        )
        torch.testing.assert_close(slopes[row, point].double(), expected, rtol=1e-3, atol=1e-4)


def test_a_surrogate_s_region_is_the_mean_of_products_of_features():
    rows = experienced()
    result = rows.surrogate(slice(0, ROWS)).region
    field_value = rows.filter.rbf.features(region_grid(1.5, D).double())
    expected = sum(torch.outer(item, item) for item in field_value) / len(field_value)
    torch.testing.assert_close(result.double(), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("observed", OBSERVED)
def test_a_surrogate_s_noise_is_the_process_s_and_what_an_observation_leaves(observed: str):
    rows = experienced(observed)
    result = rows.surrogate(slice(0, ROWS))
    for row in range(ROWS):
        x = rows.belief.mean[row, :D]
        slope, variance = rows.emission.double().jacobian(x), rows.emission.double().variance(x)
        precision = slope.T @ torch.diag(1 / variance) @ slope
        torch.testing.assert_close(result.precision[row].double(), precision, rtol=1e-5, atol=1e-5)
        left = torch.linalg.inv(precision).diagonal().mean()
        assert float(result.step_variance[row]) == pytest.approx(0.01 * 0.1 + float(left), rel=1e-5)


def test_dimensions_that_no_channel_shows_add_nothing_to_a_surrogate_s_noise():
    """The pseudo-inverse of a precision that is singular."""
    dataset = collected()
    blind = dataset.emission._replace(weight=dataset.emission.weight * np.array([1, 0], np.float32))
    rows = rows_at_work(dataset=dataset._replace(emission=blind))
    result = rows.surrogate(slice(0, ROWS))
    shown = (blind.weight[:, 0] ** 2 / blind.noise_variance).sum()
    assert not result.precision[:, 1].any()
    torch.testing.assert_close(
        result.step_variance, torch.full((ROWS,), float(0.001 + 1 / shown / 2))
    )


def same_surrogate(item: Any, other: Any, x: Tensor) -> None:
    for name in ("state", "covariance", "full_covariance", "step_variance", "precision"):
        torch.testing.assert_close(getattr(item, name), getattr(other, name), msg=name)
    torch.testing.assert_close(item.field(x).value, other.field(x).value)
    torch.testing.assert_close(item.jacobian(x), other.jacobian(x))


def cut(surrogate: Any, rows: slice) -> Any:
    """Some rows of a surrogate of all."""
    parts = ("state", "covariance", "full_covariance", "step_variance", "precision")
    local = {name: getattr(surrogate, name)[rows] for name in parts}

    def among_all(function: Callable[[Tensor], Any]) -> Callable[[Tensor], Any]:
        def at(x: Tensor) -> Any:
            whole = torch.zeros(ROWS, *x.shape[1:])
            whole[rows] = x
            result = function(whole)
            return (
                type(result)(*(part[rows] for part in result))
                if isinstance(result, tuple)
                else result[rows]
            )

        return at

    return surrogate._replace(
        **local, field=among_all(surrogate.field), jacobian=among_all(surrogate.jacobian)
    )


def learned_by_row() -> LearnedChannels:
    """Channels that differ in each row."""
    weight, bias = 0.5 * drawn(ROWS, CHANNELS, D, seed=1), 0.1 * drawn(ROWS, CHANNELS, seed=2)
    return LearnedChannels(weight, bias, 0.01 + 0.02 * drawn(ROWS, CHANNELS, seed=3).square())


@pytest.mark.parametrize("decoder", ["known", "learned"])
@pytest.mark.parametrize("some", [slice(0, 3), slice(3, 6), slice(2, 4)])
def test_a_surrogate_of_some_rows_is_that_part_of_all(some: slice, decoder: str):
    rows = experienced("loglinear")
    if decoder == "learned":
        rows.filter = rows.filter._replace(emission=learned_by_row())
    x = drawn(some.stop - some.start, 5, D).float()
    same_surrogate(rows.surrogate(some), cut(rows.surrogate(slice(0, ROWS)), some), x)


def test_a_surrogate_of_learned_channels_looks_through_those_of_each_row():
    rows, local = experienced(), learned_by_row()
    rows.filter = rows.filter._replace(emission=local)
    result = rows.surrogate(slice(2, 5))
    for place, row in enumerate(range(2, 5)):
        precision = (
            local.weight[row].T @ torch.diag(1 / local.noise_variance[row]) @ local.weight[row]
        )
        torch.testing.assert_close(
            result.precision[place].double(), precision, rtol=1e-5, atol=1e-4
        )
        left = float(torch.linalg.inv(precision).diagonal().mean())
        assert float(result.step_variance[place]) == pytest.approx(0.001 + left, rel=1e-5)


def test_a_surrogate_stays_as_it_was_while_its_rows_learn_on():
    rows = rows_at_work()
    result, x = rows.surrogate(slice(0, 3)), drawn(3, 4, D).float()
    before = result.state.clone(), result.covariance.clone(), result.field(x).value
    for item in transitions(rows, 3):
        rows.observe(item)
    after = result.state, result.covariance, result.field(x).value
    assert all(torch.equal(*pair) for pair in zip(before, after, strict=True))
    assert not torch.equal(rows.surrogate(slice(0, 3)).state, result.state)


# Held-out rollouts.


def plain_frozen(
    inputs: Filter, rollouts: Rollouts, u: Tensor, drift: Callable[[Tensor], Tensor]
) -> Tensor:
    """Mean over rollouts and times, one rollout after the other, with the field's slopes by
    autograd.
    """
    channels, lines = inputs.emission, []
    noise = inputs.process_noise * inputs.dt * torch.eye(D).double()
    nothing = Dense(torch.zeros(D).double(), torch.eye(D).double() / 3)
    for number in range(len(u)):
        y, next_y = (
            torch.tensor(part[number]).double()
            for part in (rollouts.observations, rollouts.next_observations)
        )
        now = filters.corrected(channels, y[0], nothing)
        for time in range(u.shape[1]):
            push = u[number, time]
            ahead = filters.predicted(
                lambda x, push=push: x + (drift(x) + push) * inputs.dt, noise, now
            )
            now = filters.corrected(channels, next_y[time], ahead)
            lines.append(now.nll)
            if rollouts.truncated[number, time]:
                now = filters.corrected(channels, y[time + 1], nothing)
    return torch.stack(lines).mean()


def shortened(rollouts: Rollouts, count: int, steps: int) -> Rollouts:
    """A few, of a few transitions."""
    return Rollouts(
        *(part[:count, : steps + (part.shape[1] > rollouts.actions.shape[1])] for part in rollouts)
    )


@pytest.mark.parametrize("observed", OBSERVED)
def test_held_out_scores_are_those_of_a_plain_filter_of_each_rollout_with_weights_as_they_are(
    observed: str,
):
    rows = experienced(observed)
    held_out = collected(observed, 5).held_out
    rollouts = shortened(held_out.rollouts, 3, 12)
    assert rollouts.truncated.any(0).sum() == 2
    result = rows.evaluate(held_out._replace(rollouts=rollouts), 0)
    assert result.keys() == {"innovation_nll"}
    u = torch.tensor(rollouts.actions).double() @ torch.tensor(CONTROL).double().T
    for row in range(ROWS):
        weight = rows.weights["weight"][row].double()
        expected = plain_frozen(
            rows.filter, rollouts, u, lambda x, weight=weight: weight @ rows.filter.rbf.features(x)
        )
        torch.testing.assert_close(result["innovation_nll"][row], expected, rtol=1e-5, atol=1e-6)


def test_held_out_scores_of_learned_channels_are_those_of_each_row_s_own():
    rows, local = experienced(), learned_by_row()
    rollouts = shortened(collected(episode=5).held_out.rollouts, 2, 7)
    u = torch.tensor(rollouts.actions).double() @ torch.tensor(CONTROL).double().T
    weight = rows.weights["weight"].double()
    inputs = rows.filter._replace(emission=local)
    result = frozen_innovation(
        inputs, lambda x: inputs.rbf.features(x) @ weight.mT, rollouts, u, ROWS
    )
    for row in range(ROWS):
        channels = rows.emission.double()._replace(
            weight=local.weight[row], bias=local.bias[row], noise_variance=local.noise_variance[row]
        )
        alone = inputs._replace(emission=channels)
        expected = plain_frozen(
            alone, rollouts, u, lambda x, row=row: weight[row] @ inputs.rbf.features(x)
        )
        torch.testing.assert_close(result[row], expected, rtol=1e-5, atol=1e-6)


def test_held_out_rollouts_leave_the_belief_as_it_is():
    rows = experienced()
    before = copied(rows.belief)
    rows.evaluate(collected().held_out, 0)
    assert all(torch.equal(*pair) for pair in zip(rows.belief, before, strict=True))


def test_the_true_field_foretells_held_out_rollouts_better_than_none():
    config: ActiveDynamicsConfig = configured()
    dataset = collected()
    world, rollouts = world_of(config, dataset), dataset.held_out.rollouts
    inputs = rows_at_work().filter
    u = torch.tensor(rollouts.actions).double() @ torch.tensor(CONTROL).double().T
    reference = frozen_innovation(inputs, world.field, rollouts, u, 1)
    none = frozen_innovation(inputs, torch.zeros_like, rollouts, u, 1)
    assert float(reference) < float(none) - 0.02


def test_with_the_true_field_the_score_is_little_above_the_entropy_of_the_channels_noise():
    config: ActiveDynamicsConfig = configured()
    dataset = collected()
    rollouts, emission = dataset.held_out.rollouts, emission_of(config, dataset)
    inputs = rows_at_work().filter
    u = torch.tensor(rollouts.actions).double() @ torch.tensor(CONTROL).double().T
    result = frozen_innovation(inputs, world_of(config, dataset).field, rollouts, u, 1)
    lowest = (1 + np.log(2 * np.pi * float(emission.noise_variance[0]))) / 2
    assert lowest < float(result) < lowest + 0.2
