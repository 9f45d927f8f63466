"""Values of imagined actions: worked numbers, plain loops."""

import pytest
import torch
from torch import Generator, Tensor

from quatrain.envs.vector_field.fields import region_grid
from quatrain.models.active_dynamics import acquisition, config
from quatrain.models.active_dynamics.acquisition import imagine, scorer
from quatrain.models.active_dynamics.config import Acquisition
from quatrain.models.active_dynamics.family import FieldValue, Surrogate
from quatrain.models.active_dynamics.network import region_products
from tests.models.active_dynamics.filters import drawn, rbf

LEARNERS, CANDIDATES, DECISIONS, HOLD = 3, 5, 4, 2
POSTERIORS = [name for name, need in config.VALUE_NEEDS.items() if need.endswith("covariance")]


def rbf_surrogate(learners: int = 3, side: int = 4, d: int = 2) -> Surrogate:
    """Returns learners with different fields and correlated weights."""
    functions = rbf(side, d, length=0.6)
    count = d * functions.size
    weights = 0.5 * drawn(learners, d, functions.size)
    root = drawn(learners, count, count, seed=1) / count**0.5
    spread = 0.1 * drawn(learners, count, seed=2).square()
    full = root @ root.mT * 0.2 + torch.diag_embed(spread)
    blocks = full.unflatten(1, (d, -1)).unflatten(3, (d, -1))
    rows = 3 * drawn(learners, d + 1, d, seed=3)

    def field(x: Tensor) -> FieldValue:
        features = functions.features(x)
        return FieldValue(features @ weights.mT, features)

    return Surrogate(
        state=0.2 * drawn(learners, d, seed=4),
        control=torch.eye(d).double(),
        dt=0.1,
        region_radius=1.5,
        field=field,
        jacobian=lambda x: weights[:, None] @ functions.with_derivatives(x).derivatives,
        members=None,
        covariance=blocks.diagonal(dim1=1, dim2=3).mean(-1),
        full_covariance=full,
        region=region_products(functions.features(region_grid(1.5, d).double())),
        step_variance=0.001 + 0.005 * drawn(learners, seed=5).square(),
        precision=rows.mT @ rows,
    )


def single(surrogate: Surrogate) -> Surrogate:
    """Returns the surrogate in single precision."""
    parts = {
        name: part.float() for name, part in surrogate._asdict().items() if isinstance(part, Tensor)
    }
    return surrogate._replace(
        **parts,
        field=lambda x: FieldValue(*(part.float() for part in surrogate.field(x.double()))),
        jacobian=lambda x: surrogate.jacobian(x.double()).float(),
    )


def actions(learners: int, n: int, decisions: int, size: int = 2) -> Tensor:
    """Returns uniform actions in the box."""
    generator = Generator().manual_seed(1)
    shape = (learners, n, decisions, size)
    return torch.rand(shape, dtype=torch.float64, generator=generator) * 2 - 1


def weighing(margin: float = 0.2, **weights: float) -> Acquisition:
    return Acquisition(weights=weights, margin=margin)


def value_of(name: str, surrogate: Surrogate, used: Tensor, hold: int = HOLD) -> Tensor:
    return acquisition.VALUES[name](surrogate, hold)(imagine(surrogate, used, hold))


def plain_path(surrogate: Surrogate, row: int, candidate: Tensor) -> Tensor:
    """Returns the states [moment, d] of one candidate."""
    states = [surrogate.state[row]]
    for action in candidate.repeat_interleave(HOLD, 0):
        velocity = surrogate.field(states[-1].expand(LEARNERS, 1, -1)).value[row, 0]
        states.append(states[-1] + (velocity + surrogate.control @ action) * surrogate.dt)
    return torch.stack(states)


def plain_value(name: str, surrogate: Surrogate, row: int, candidate: Tensor) -> Tensor:
    """Computes the value of one candidate by matrices as large as the weights are many."""
    states = plain_path(surrogate, row, candidate)[:-1].expand(LEARNERS, -1, -1)
    phi, jacobians = surrogate.field(states).features[row], surrogate.jacobian(states)[row]
    d = states.shape[2]
    if name == "variance":
        before = surrogate.covariance[row]
        noise = surrogate.step_variance[row] / (HOLD * surrogate.dt**2)
        gained = phi[::HOLD].T @ phi[::HOLD] / noise
    else:
        before, identity = surrogate.full_covariance[row], torch.eye(d).double()
        sensitivity, gained = torch.zeros(d, len(before)).double(), torch.zeros_like(before)
        for feature, jacobian in zip(phi, jacobians, strict=True):
            sensitivity = (identity + surrogate.dt * jacobian) @ sensitivity
            sensitivity = sensitivity + surrogate.dt * torch.kron(identity, feature[None])
            gained = gained + sensitivity.T @ surrogate.precision[row] @ sensitivity
    after = torch.linalg.inv(torch.linalg.inv(before) + gained)
    region = surrogate.region if name == "variance" else torch.eye(len(before)).double()
    return (region * (before - after)).sum()


def plain_values(name: str, surrogate: Surrogate, used: Tensor) -> Tensor:
    values = [
        plain_value(name, surrogate, row, candidate)
        for row in range(LEARNERS)
        for candidate in used[row]
    ]
    return torch.stack(values).view(LEARNERS, -1)


@pytest.mark.parametrize("shown", [0, 1, 3])
@pytest.mark.parametrize("name", POSTERIORS)
def test_values_are_those_of_plain_posteriors(name: str, shown: int):
    """Also where channels show one direction of three, or none."""
    rows = 3 * drawn(LEARNERS, 3, 3, seed=3)[:, :shown]
    surrogate = rbf_surrogate(LEARNERS, side=3, d=3)
    surrogate = surrogate._replace(precision=rows.mT @ rows, control=drawn(3, 4, seed=6))
    used = actions(LEARNERS, CANDIDATES, DECISIONS, size=4)
    expected = plain_values(name, surrogate, used)
    torch.testing.assert_close(value_of(name, surrogate, used), expected, rtol=1e-8, atol=1e-10)
    result = value_of(name, single(surrogate), used.float())
    assert result.dtype == torch.float32
    torch.testing.assert_close(result.double(), expected, rtol=1e-3, atol=1e-5)


def test_states_without_noise_still_have_values():
    """The features of a path overlap: without noise, rounding would leave no Cholesky factor."""
    surrogate = single(rbf_surrogate(LEARNERS, side=9))
    surrogate = surrogate._replace(step_variance=torch.zeros(LEARNERS))
    result = value_of("variance", surrogate, actions(LEARNERS, CANDIDATES, 10).float() * 0.01, 1)
    assert ((result > 0) & result.isfinite()).all()


def ensemble() -> Surrogate:
    """Returns linear fields x -> A_m x, which differ by learner and member."""
    matrices = drawn(LEARNERS, 7, 2, 2, seed=4)

    def members(x: Tensor) -> Tensor:
        return torch.einsum("rmij,rnj->rnmi", matrices, x)

    return rbf_surrogate(LEARNERS)._replace(
        field=lambda x: FieldValue(members(x).mean(2), x[..., :0]),
        members=members,
        covariance=None,
        full_covariance=None,
        region=None,
    )


def test_disagreement_is_the_variance_of_members_along_the_mean_path():
    """Values of no weight are not computed: an ensemble has no covariance."""
    surrogate, used = ensemble(), actions(LEARNERS, CANDIDATES, DECISIONS)
    result = value_of("disagreement", surrogate, used)
    for row in range(LEARNERS):
        for n in range(CANDIDATES):
            path = plain_path(surrogate, row, used[row, n])[:-1]
            members = surrogate.members(path.expand(LEARNERS, -1, -1))[row]
            expected = torch.stack([moment.var(0, correction=0).mean() for moment in members])
            torch.testing.assert_close(result[row, n], expected.mean())
    score = scorer(surrogate, weighing(margin=1e5, variance=0.0, disagreement=2.0), HOLD)
    assert score(used).amax() == 2


# Scores.


def test_the_score_is_that_of_plain_loops_over_candidates():
    """Each value is divided by the largest of its learner; leaving the region costs."""
    surrogate = rbf_surrogate(LEARNERS)
    surrogate = surrogate._replace(state=surrogate.state * 5)
    used = actions(LEARNERS, CANDIDATES, DECISIONS)
    weights = {"variance": 1.0, "fisher_a": 0.3}
    expected = torch.zeros(LEARNERS, CANDIDATES).double()
    for name, weight in weights.items():
        values = plain_values(name, surrogate, used)
        expected += weight * values / values.abs().amax(1, keepdim=True)
    for row in range(LEARNERS):
        for n in range(CANDIDATES):
            farthest = plain_path(surrogate, row, used[row, n])[1:].norm(dim=1).max()
            expected[row, n] -= 10 * max(0.0, float(farthest) - 1.5 - 0.1)
    actual = scorer(surrogate, weighing(margin=0.1, **weights), HOLD)(used)
    torch.testing.assert_close(actual, expected)
    assert (expected < -0.3).any()
    assert (expected > 0.5).any()


def test_a_candidate_or_a_covariance_without_a_value_is_the_worst_and_no_other_changes():
    """Cholesky's factor of a negative covariance breaks off and leaves finite numbers behind."""
    surrogate, used = rbf_surrogate(LEARNERS), actions(LEARNERS, CANDIDATES, DECISIONS)
    before, broken = scorer(surrogate, weighing(variance=1.0), HOLD)(used), used.clone()
    worst = int(before[1].argmin())
    broken[1, worst, 2] = torch.nan
    before[1, worst] = acquisition.WORST
    assert torch.equal(scorer(surrogate, weighing(variance=1.0), HOLD)(broken), before)
    surrogate.covariance[1] *= -1
    before[1] = acquisition.WORST
    assert torch.equal(scorer(surrogate, weighing(variance=1.0), HOLD)(used), before)


def test_the_values_are_those_of_the_config():
    assert tuple(acquisition.VALUES) == config.VALUES
