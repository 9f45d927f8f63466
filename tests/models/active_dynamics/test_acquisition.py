"""Values of imagined actions: worked numbers, plain loops, determinants by brute force, the exact
recursion.
"""

import pytest
import torch
from scipy import stats
from torch import Tensor

from quatrain.models.active_dynamics import acquisition, config
from quatrain.models.active_dynamics.acquisition import Imagined, imagine, responses, scorer
from quatrain.models.active_dynamics.config import Acquisition
from quatrain.models.active_dynamics.learner import FieldValue, Surrogate
from tests.models.active_dynamics import surrogates
from tests.models.active_dynamics.surrogates import actions, features, known, single

ROWS, CANDIDATES, DECISIONS, HOLD = 3, 5, 4, 2
STEPS = DECISIONS * HOLD
SCALAR = torch.ones(1, 1)


def weighing(margin: float = 0.2, **weights: float) -> Acquisition:
    return Acquisition(weights=weights, margin=margin)


def of_features(*points: tuple[float, float]) -> Imagined:
    """One candidate of one row, whose decisions fall on these features."""
    seen = torch.tensor([[points]])
    return Imagined(torch.zeros(1, 1, len(points) + 1, 1), seen, torch.zeros(*seen.shape[:3], 1))


def unit() -> Surrogate:
    """One dimension, two features that are known alike: Σ = Γ = I, and q = .5 of a decision held
    once.
    """
    return known(1).surrogate._replace(
        state=torch.zeros(1, 1),
        covariance=torch.eye(2)[None],
        region=torch.eye(2),
        dt=0.1,
        step_variance=torch.tensor([0.005]),
    )


SAME, OTHER = (1.0, 0.0), (0.0, 1.0)


@pytest.mark.parametrize(
    ("points", "nats"), [([SAME], 0.549306), ([SAME, SAME], 0.804719), ([SAME, OTHER], 1.098612)]
)
def test_worked_information(points, nats):
    found = acquisition.information(unit(), 1)(of_features(*points))
    assert float(found) == pytest.approx(nats, abs=1e-6)


@pytest.mark.parametrize(
    ("points", "drop"), [([SAME], 2 / 3), ([SAME, SAME], 0.8), ([SAME, OTHER], 4 / 3)]
)
def test_worked_variance(points, drop):
    found = acquisition.variance(unit(), 1)(of_features(*points))
    assert float(found) == pytest.approx(drop, abs=1e-6)


def test_a_decision_that_is_held_twice_shows_the_field_with_half_the_noise():
    """ln(1 + 1/.25)/2."""
    found = acquisition.information(unit(), 2)(of_features(SAME))
    assert float(found) == pytest.approx(0.804719, abs=1e-6)


def sensitivities(jacobians: Tensor, seen: Tensor, dt: float) -> Tensor:
    """∂z_{t+1}/∂(weights) [step, d, d·C] of one path."""
    led = responses(jacobians[None], dt)[0]
    return torch.einsum("tksi,sc->tkic", led, seen).flatten(2)


def test_worked_sensitivities():
    """f = w z with w = -1 from z = 1: the features are z itself, and J = w."""
    path = torch.tensor([[1.0], [0.9], [0.81]])
    found = sensitivities(torch.full((3, 1, 1), -1.0), path, 0.1)
    torch.testing.assert_close(found.flatten(), torch.tensor([0.1, 0.18, 0.243]))


def final_state(weights: Tensor, row: int, of_row: Tensor) -> Tensor:
    """Where the plainest loop over steps ends."""
    surrogate, _, at = known(ROWS)
    state = surrogate.state[row]
    for action in of_row:
        for _ in range(HOLD):
            state = state + (weights @ features(state, at) + action) * surrogate.dt
    return state


def test_sensitivities_are_those_that_autograd_finds():
    surrogate, weights, at = known(ROWS)
    taken = actions(ROWS, 1, DECISIONS)
    paths = imagine(surrogate, taken, HOLD).states[:, 0, :-1]
    jacobians = surrogate.jacobian(paths)
    for row in range(ROWS):
        found = sensitivities(jacobians[row], features(paths[row], at), surrogate.dt)[-1]
        exact = torch.autograd.functional.jacobian(
            lambda w, row=row: final_state(w, row, taken[row, 0]), weights[row]
        )
        torch.testing.assert_close(found, exact.flatten(1), rtol=1e-5, atol=1e-12)


def plain_path(surrogate: Surrogate, row: int, of_candidate: Tensor, hold: int) -> Tensor:
    """[moment, d]"""
    states = [surrogate.state[row]]
    for action in of_candidate:
        for _ in range(hold):
            here = states[-1].expand(len(surrogate.state), 1, -1)
            velocity = surrogate.field(here).value[row, 0]
            states.append(states[-1] + (velocity + surrogate.control @ action) * surrogate.dt)
    return torch.stack(states)


def test_paths_are_those_of_the_mean_one_candidate_after_another():
    surrogate = known(ROWS).surrogate._replace(
        control=torch.tensor([[0.5, 0, -1], [0.2, 2, 0.3]]).double()
    )
    taken = actions(ROWS, CANDIDATES, DECISIONS, size=3)
    found = imagine(surrogate, taken, HOLD)
    for row in range(ROWS):
        for n in range(CANDIDATES):
            path = plain_path(surrogate, row, taken[row, n], HOLD)
            torch.testing.assert_close(found.states[row, n], path)
            decided = surrogate.field(path[:-1:HOLD].expand(ROWS, -1, -1)).features[row]
            torch.testing.assert_close(found.features[row, n], decided)


def test_paths_have_no_noise():
    surrogate, taken = known(ROWS).surrogate, actions(ROWS, CANDIDATES, DECISIONS)
    calm, wild = (
        surrogate._replace(step_variance=torch.full((ROWS,), scale).double())
        for scale in (0.0, 100.0)
    )
    assert torch.equal(imagine(calm, taken, HOLD).states, imagine(wild, taken, HOLD).states)


def observed(covariance: Tensor, seen: Tensor, noise: Tensor) -> Tensor:
    """Covariance of weights after observations of them through features, in the plain form."""
    return torch.linalg.inv(torch.linalg.inv(covariance) + seen.T @ seen / noise)


def noise_of(surrogate: Surrogate, hold: int) -> Tensor:
    return surrogate.step_variance / (hold * surrogate.dt**2)


def plain_value(name: str, surrogate: Surrogate, row: int, of_candidate: Tensor) -> Tensor:
    """Of one candidate, with matrices as large as the weights are many."""
    path = plain_path(surrogate, row, of_candidate, HOLD)
    if name == "action_cost":
        return -of_candidate.square().sum()
    if name.startswith("fisher"):
        return plain_fisher(name, surrogate, row, path[:-1])
    seen = surrogate.field(path[:-1:HOLD].expand(ROWS, -1, -1)).features[row]
    before = surrogate.covariance[row]
    after = observed(before, seen, noise_of(surrogate, HOLD)[row])
    if name == "variance":
        return (surrogate.region * (before - after)).sum()
    both = [torch.block_diag(*[part] * surrogate.state.shape[1]) for part in (before, after)]
    return (torch.logdet(both[0]) - torch.logdet(both[1])) / 2


def plain_fisher(name: str, surrogate: Surrogate, row: int, path: Tensor) -> Tensor:
    """By the recursion of sensitivities, each with its identity, and the information about all
    weights.
    """
    here = path.expand(ROWS, -1, -1)
    felt, jacobians = surrogate.field(here).features[row], surrogate.jacobian(here)[row]
    before, one = surrogate.full_covariance[row], torch.eye(surrogate.state.shape[1]).double()
    carried, information = torch.zeros(len(one), len(before)).double(), torch.zeros_like(before)
    for phi, jacobian in zip(felt, jacobians, strict=True):
        carried = (one + surrogate.dt * jacobian) @ carried + surrogate.dt * torch.kron(
            one, phi[None]
        )
        information = information + carried.T @ surrogate.precision[row] @ carried
    after = torch.linalg.inv(torch.linalg.inv(before) + information)
    if name == "fisher_a":
        return (before - after).trace()
    return (torch.logdet(before) - torch.logdet(after)) / 2


def plain_values(name: str, surrogate: Surrogate, taken: Tensor) -> Tensor:
    """[row, n]"""
    found = [[plain_value(name, surrogate, row, one) for one in taken[row]] for row in range(ROWS)]
    return torch.stack([torch.stack(of_row) for of_row in found])


POSTERIORS = ("variance", "information", "fisher_d", "fisher_a")


@pytest.mark.parametrize("d", [2, 3])
@pytest.mark.parametrize("name", POSTERIORS)
def test_values_are_what_the_covariance_of_all_weights_says(name, d):
    """Full covariances with correlated outputs, precisions that are not isotropic, rows that
    differ.
    """
    surrogate, taken = (
        known(ROWS, side=6 - d, d=d).surrogate,
        actions(ROWS, CANDIDATES, DECISIONS, size=d),
    )
    found = acquisition.VALUES[name](surrogate, HOLD)(imagine(surrogate, taken, HOLD))
    torch.testing.assert_close(found, plain_values(name, surrogate, taken), rtol=1e-8, atol=1e-10)


def test_each_row_may_have_a_region_of_its_own():
    """As networks have, whose features differ."""
    surrogate, taken = known(ROWS).surrogate, actions(ROWS, CANDIDATES, DECISIONS)
    scales = torch.tensor([1.0, 2.0, 3.0]).double()
    several = surrogate._replace(region=surrogate.region * scales[:, None, None])
    shared, own = (
        acquisition.variance(each, HOLD)(imagine(each, taken, HOLD))
        for each in (surrogate, several)
    )
    torch.testing.assert_close(own, shared * scales[:, None])


@pytest.mark.parametrize("name", ["fisher_d", "fisher_a"])
def test_channels_that_see_one_direction_alone_are_no_special_case(name):
    looks = torch.randn(ROWS, 1, 3, generator=torch.Generator().manual_seed(3)).double()
    surrogate = known(ROWS, side=3, d=3).surrogate._replace(precision=looks.mT @ looks)
    assert (torch.linalg.eigvalsh(surrogate.precision) < 0).any()  # by rounding
    taken = actions(ROWS, CANDIDATES, DECISIONS, size=3)
    found = acquisition.VALUES[name](surrogate, HOLD)(imagine(surrogate, taken, HOLD))
    torch.testing.assert_close(found, plain_values(name, surrogate, taken), rtol=1e-8, atol=1e-10)
    assert (found > 0).all()


@pytest.mark.parametrize("name", ["fisher_d", "fisher_a"])
def test_who_sees_nothing_learns_nothing(name):
    surrogate = known(ROWS).surrogate._replace(precision=torch.zeros(ROWS, 2, 2).double())
    found = acquisition.VALUES[name](surrogate, HOLD)(
        imagine(surrogate, actions(ROWS, CANDIDATES, DECISIONS), HOLD)
    )
    assert torch.equal(found, torch.zeros(ROWS, CANDIDATES).double())


@pytest.mark.parametrize("name", POSTERIORS)
def test_single_precision_is_enough(name):
    surrogate, taken = known(ROWS).surrogate, actions(ROWS, CANDIDATES, DECISIONS)
    exact, found = (
        acquisition.VALUES[name](seen, HOLD)(imagine(seen, chosen, HOLD))
        for seen, chosen in ((surrogate, taken), (single(surrogate), taken.float()))
    )
    assert found.dtype == torch.float32
    torch.testing.assert_close(found.double(), exact, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("name", ["variance", "information"])
def test_states_that_are_seen_without_noise_still_have_values(name):
    """The features of a path overlap: without noise, rounding would leave no Cholesky factor."""
    surrogate = single(known(ROWS, side=9).surrogate)._replace(step_variance=torch.zeros(ROWS))
    imagined = imagine(surrogate, actions(ROWS, CANDIDATES, 10).float() * 0.01, 1)
    found = acquisition.VALUES[name](surrogate, 1)(imagined)
    assert ((found > 0) & found.isfinite()).all()


def ensemble(members: int) -> Surrogate:
    """Linear fields x -> A_m x, which differ by row and member."""
    generator = torch.Generator().manual_seed(4)
    matrices = torch.randn(ROWS, members, 2, 2, dtype=torch.float64, generator=generator)

    def each(x: Tensor) -> Tensor:
        return torch.einsum("rmij,rnj->rnmi", matrices, x)

    return known(ROWS).surrogate._replace(
        field=lambda x: FieldValue(each(x).mean(2), x[..., :0]),
        members=each,
        covariance=None,
        full_covariance=None,
        region=None,
    )


def test_disagreement_is_the_variance_of_the_members_along_the_mean_path():
    surrogate, taken = ensemble(7), actions(ROWS, CANDIDATES, DECISIONS)
    found = acquisition.disagreement(surrogate, HOLD)(imagine(surrogate, taken, HOLD))
    for row in range(ROWS):
        for n in range(CANDIDATES):
            path = plain_path(surrogate, row, taken[row, n], HOLD)[:-1]
            told = surrogate.members(path.expand(ROWS, -1, -1))[row]
            expected = torch.stack([at.var(0, correction=0).mean() for at in told]).mean()
            torch.testing.assert_close(found[row, n], expected)


def plain_score(surrogate: Surrogate, taken: Tensor, chosen: Acquisition) -> Tensor:
    """Row by row, each value divided by its largest size, less what the farthest state costs."""
    found = []
    for row in range(ROWS):
        total = torch.zeros(taken.shape[1]).double()
        for name, weight in chosen.weights.items():
            values = torch.stack([plain_value(name, surrogate, row, one) for one in taken[row]])
            total = total + weight * values / max(abs(float(value)) for value in values)
        for n, one in enumerate(taken[row]):
            farthest = max(
                float(state.norm()) for state in plain_path(surrogate, row, one, HOLD)[1:]
            )
            total[n] -= 10 * max(0.0, farthest - surrogate.region_radius - chosen.margin)
        found.append(total)
    return torch.stack(found)


def test_the_score_of_all_is_that_of_plain_loops_over_candidates():
    surrogate = known(ROWS).surrogate
    surrogate = surrogate._replace(state=surrogate.state * 3)  # near the region's edge
    taken = actions(ROWS, CANDIDATES, DECISIONS)
    chosen = weighing(margin=0.1, variance=1.0, information=0.5, fisher_a=0.3, action_cost=0.25)
    expected = plain_score(surrogate, taken, chosen)
    torch.testing.assert_close(scorer(surrogate, chosen, HOLD)(taken), expected)
    assert (expected < -0.3).any()
    assert (expected > 1).any()


def still() -> Surrogate:
    """Nothing moves but by actions."""
    return known(ROWS).surrogate._replace(
        state=torch.zeros(ROWS, 2).double(),
        field=lambda x: FieldValue(torch.zeros_like(x), x[..., :0]),
    )


def test_a_path_that_leaves_the_region_pays_for_its_farthest_step():
    """0.1 to the right in each of 8 steps, from 1.1: to 1.9, .2 beyond region and margin."""
    surrogate = still()._replace(state=torch.tensor([[1.1, 0.0], [0.9, 0.0], [0.0, -1.0]]).double())
    right = torch.tensor([1.0, 0.0]).double().expand(ROWS, 1, DECISIONS, 2)
    costs = float(STEPS * right.square().sum())
    assert costs > 0
    found = scorer(surrogate, weighing(action_cost=1.0), HOLD)(right)
    torch.testing.assert_close(found[:, 0], torch.tensor([-3.0, -1.0, -1.0]).double())


def test_where_a_row_stands_already_costs_nothing():
    surrogate = still()._replace(state=torch.tensor([[1.75, 0.0]]).double().expand(ROWS, 2))
    left = torch.tensor([-1.0, 0.0]).double().expand(ROWS, 1, DECISIONS, 2)
    found = scorer(surrogate, weighing(action_cost=1.0), HOLD)(left)
    torch.testing.assert_close(found, torch.full_like(found, -1.0))


def test_values_that_are_all_zero_stay_zero():
    found = scorer(still(), weighing(action_cost=1.0), HOLD)(
        torch.zeros(ROWS, CANDIDATES, DECISIONS, 2).double()
    )
    assert torch.equal(found, torch.zeros(ROWS, CANDIDATES).double())


def test_a_value_without_weight_is_not_computed():
    """An ensemble has no posterior of weights."""
    found = scorer(ensemble(3), weighing(variance=0.0, disagreement=2.0), HOLD)
    assert found(actions(ROWS, CANDIDATES, DECISIONS)).amax() == 2


def test_a_candidate_that_is_not_finite_is_the_worst_and_no_other_feels_it():
    surrogate, taken = known(ROWS).surrogate, actions(ROWS, CANDIDATES, DECISIONS)
    score = scorer(surrogate, weighing(variance=1.0), HOLD)
    sound = score(taken)
    best, other = int(sound[1].argmax()), int(sound[1].argmin())
    broken = taken.clone()
    broken[1, other, 2] = torch.nan
    found = score(broken)
    assert found[1, other] == acquisition.WORST
    assert found[1, best] == sound[1, best]
    assert torch.equal(found[[0, 2]], sound[[0, 2]])


@pytest.mark.parametrize("name", ["variance", "information"])
def test_a_covariance_that_is_none_has_no_values(name):
    """Cholesky's factor breaks off and leaves finite numbers behind."""
    surrogate, taken = known(ROWS).surrogate, actions(ROWS, CANDIDATES, DECISIONS)
    signs = torch.tensor([1.0, -1.0, 1.0]).double()[:, None, None]
    broken = surrogate._replace(covariance=surrogate.covariance * signs)
    sound, found = (
        scorer(each, weighing(**{name: 1.0}), HOLD)(taken) for each in (surrogate, broken)
    )
    assert (found[1] == acquisition.WORST).all()
    assert torch.equal(found[[0, 2]], sound[[0, 2]])


def test_rows_do_not_influence_each_other():
    whole, taken = known(ROWS), actions(ROWS, CANDIDATES, DECISIONS)
    order = torch.tensor([2, 0, 1])
    chosen = weighing(variance=1.0, fisher_d=1.0)
    found = scorer(whole.surrogate, chosen, HOLD)(taken)
    weights, at = whole.weights[order], whole.centres
    parts = {
        name: getattr(whole.surrogate, name)[order]
        for name in ("state", "covariance", "full_covariance", "step_variance", "precision")
    }
    permuted = whole.surrogate._replace(
        **parts,
        field=lambda x: surrogates.felt(x, weights, at),
        jacobian=lambda x: surrogates.jacobian(x, weights, at),
    )
    torch.testing.assert_close(scorer(permuted, chosen, HOLD)(taken[order]), found[order])


def test_the_values_are_those_that_a_config_knows():
    assert tuple(acquisition.VALUES) == config.VALUES


SIDE, NOISE, DT = 9, 0.0018, 0.1
LOOKS = 1250.0
"""Of a state that is seen through 50 channels of the default."""


def after_exploring(transitions: int, seed: int) -> Surrogate:
    """What is believed of a limit cycle after random actions."""
    generator = torch.Generator().manual_seed(seed)
    at = surrogates.centres(SIDE)
    state, seen, targets = torch.tensor([0.5, 0.0]).double(), [], []
    for _ in range(transitions):
        action = torch.rand(2, dtype=torch.float64, generator=generator) * 2 - 1
        velocity = 0.76 * (state * (1 - state.square().sum()) + torch.stack([-state[1], state[0]]))
        shaken = (
            velocity
            + torch.randn(2, dtype=torch.float64, generator=generator) * (NOISE / DT**2) ** 0.5
        )
        seen.append(features(state, at))
        targets.append(shaken)
        state = state + (velocity + action) * DT
    told, noise = torch.stack(seen), NOISE / DT**2
    covariance = observed(torch.eye(len(at)).double() * 0.2217, told, torch.tensor(noise))
    weights = (covariance @ told.T @ torch.stack(targets) / noise).T[None]
    return known(1).surrogate._replace(
        state=state[None],
        field=lambda x: surrogates.felt(x, weights, at),
        jacobian=lambda x: surrogates.jacobian(x, weights, at),
        covariance=covariance[None],
        full_covariance=torch.block_diag(covariance, covariance)[None],
        region=surrogates.region(at),
        step_variance=torch.tensor([NOISE]).double(),
        precision=torch.eye(2).double()[None] * LOOKS,
    )


def recursion(surrogate: Surrogate, paths: Tensor) -> Tensor:
    """Covariances of all weights after paths [n, step, d] of the joint filter of state and weights,
    step by step.
    """
    one, weights = torch.eye(2).double(), surrogate.full_covariance[0]
    joint = torch.block_diag(one / LOOKS, weights).repeat(len(paths), 1, 1)
    for states in paths.unbind(1):
        seen, jacobians = (
            surrogate.field(states[None]).features[0],
            surrogate.jacobian(states[None])[0],
        )
        own = torch.stack([torch.kron(one, phi[None]) for phi in seen])
        moved = torch.cat([one + DT * jacobians, DT * own], 2) @ joint
        predicted = joint.clone()
        predicted[:, :2], predicted[:, :, :2] = moved, moved.mT
        predicted[:, :2, :2] = moved @ torch.cat([one + DT * jacobians, DT * own], 2).mT + one * (
            NOISE - 1 / LOOKS
        )
        gain = predicted[:, :, :2] @ torch.linalg.inv(predicted[:, :2, :2] + one / LOOKS)
        joint = predicted - gain @ predicted[:, :2]
    return joint[:, 2:, 2:]


@pytest.mark.parametrize("transitions", [50, 200])
def test_closed_forms_rank_candidates_as_the_joint_filter_does(transitions):
    """48 candidates of the default's length, judged by the covariance that the filter would have at
    the end.
    """
    surrogate = after_exploring(transitions, seed=transitions)
    taken = actions(1, 48, 10)
    imagined = imagine(surrogate, taken, 2)
    before = surrogate.full_covariance[0]
    after = recursion(surrogate, imagined.states[0, :, :-1])
    blocks = (before - after).unflatten(1, (2, -1)).unflatten(3, (2, -1))
    drops = (surrogate.region * (blocks[:, 0, :, 0] + blocks[:, 1, :, 1])).sum((1, 2))
    nats = (torch.logdet(before) - torch.logdet(after)) / 2
    for name, exact in (("variance", drops), ("information", nats)):
        found = acquisition.VALUES[name](surrogate, 2)(imagined)[0]
        assert stats.spearmanr(found, exact).statistic > 0.9
