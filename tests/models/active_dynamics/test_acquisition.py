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
from tests.models.active_dynamics.surrogates import actions, features, latent_surrogate, single

ROWS, CANDIDATES, DECISIONS, HOLD = 3, 5, 4, 2
STEPS = DECISIONS * HOLD
SCALAR = torch.ones(1, 1)


def weighing(margin: float = 0.2, **weights: float) -> Acquisition:
    return Acquisition(weights=weights, margin=margin)


def of_features(*points: tuple[float, float]) -> Imagined:
    """One candidate of one row, whose decisions fall on these features."""
    recorded = torch.tensor([[points]])
    return Imagined(
        torch.zeros(1, 1, len(points) + 1, 1), recorded, torch.zeros(*recorded.shape[:3], 1)
    )


def unit() -> Surrogate:
    """One dimension, two features that are known alike: Σ = Γ = I, and q = .5 of a decision held
    once.
    """
    return latent_surrogate(1).surrogate._replace(
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
    result = acquisition.information(unit(), 1)(of_features(*points))
    assert float(result) == pytest.approx(nats, abs=1e-6)


@pytest.mark.parametrize(
    ("points", "drop"), [([SAME], 2 / 3), ([SAME, SAME], 0.8), ([SAME, OTHER], 4 / 3)]
)
def test_worked_variance(points, drop):
    result = acquisition.variance(unit(), 1)(of_features(*points))
    assert float(result) == pytest.approx(drop, abs=1e-6)


def test_a_decision_that_is_held_twice_shows_the_field_with_half_the_noise():
    """ln(1 + 1/.25)/2."""
    result = acquisition.information(unit(), 2)(of_features(SAME))
    assert float(result) == pytest.approx(0.804719, abs=1e-6)


def sensitivities(jacobians: Tensor, recorded: Tensor, dt: float) -> Tensor:
    """∂z_{t+1}/∂(weights) [step, d, d·C] of one path."""
    led = responses(jacobians[None], dt)[0]
    return torch.einsum("tksi,sc->tkic", led, recorded).flatten(2)


def test_worked_sensitivities():
    """f = w z with w = -1 from z = 1: the features are z itself, and J = w."""
    path = torch.tensor([[1.0], [0.9], [0.81]])
    result = sensitivities(torch.full((3, 1, 1), -1.0), path, 0.1)
    torch.testing.assert_close(result.flatten(), torch.tensor([0.1, 0.18, 0.243]))


def final_state(weights: Tensor, row: int, of_row: Tensor) -> Tensor:
    """Where the plainest loop over steps ends."""
    surrogate, _, at = latent_surrogate(ROWS)
    state = surrogate.state[row]
    for action in of_row:
        for _ in range(HOLD):
            state = state + (weights @ features(state, at) + action) * surrogate.dt
    return state


def test_sensitivities_are_those_that_autograd_finds():
    surrogate, weights, at = latent_surrogate(ROWS)
    used = actions(ROWS, 1, DECISIONS)
    paths = imagine(surrogate, used, HOLD).states[:, 0, :-1]
    jacobians = surrogate.jacobian(paths)
    for row in range(ROWS):
        result = sensitivities(jacobians[row], features(paths[row], at), surrogate.dt)[-1]
        exact = torch.autograd.functional.jacobian(
            lambda w, row=row: final_state(w, row, used[row, 0]), weights[row]
        )
        torch.testing.assert_close(result, exact.flatten(1), rtol=1e-5, atol=1e-12)


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
    surrogate = latent_surrogate(ROWS).surrogate._replace(
        control=torch.tensor([[0.5, 0, -1], [0.2, 2, 0.3]]).double()
    )
    used = actions(ROWS, CANDIDATES, DECISIONS, size=3)
    result = imagine(surrogate, used, HOLD)
    for row in range(ROWS):
        for n in range(CANDIDATES):
            path = plain_path(surrogate, row, used[row, n], HOLD)
            torch.testing.assert_close(result.states[row, n], path)
            decided = surrogate.field(path[:-1:HOLD].expand(ROWS, -1, -1)).features[row]
            torch.testing.assert_close(result.features[row, n], decided)


def test_paths_have_no_noise():
    surrogate, used = latent_surrogate(ROWS).surrogate, actions(ROWS, CANDIDATES, DECISIONS)
    calm, wild = (
        surrogate._replace(step_variance=torch.full((ROWS,), scale).double())
        for scale in (0.0, 100.0)
    )
    assert torch.equal(imagine(calm, used, HOLD).states, imagine(wild, used, HOLD).states)


def observed(covariance: Tensor, recorded: Tensor, noise: Tensor) -> Tensor:
    """Covariance of weights after observations of them through features, in the plain form."""
    return torch.linalg.inv(torch.linalg.inv(covariance) + recorded.T @ recorded / noise)


def noise_of(surrogate: Surrogate, hold: int) -> Tensor:
    return surrogate.step_variance / (hold * surrogate.dt**2)


def plain_value(name: str, surrogate: Surrogate, row: int, of_candidate: Tensor) -> Tensor:
    """Of one candidate, with matrices as large as the weights are many."""
    path = plain_path(surrogate, row, of_candidate, HOLD)
    if name == "action_cost":
        return -of_candidate.square().sum()
    if name.startswith("fisher"):
        return plain_fisher(name, surrogate, row, path[:-1])
    recorded = surrogate.field(path[:-1:HOLD].expand(ROWS, -1, -1)).features[row]
    before = surrogate.covariance[row]
    after = observed(before, recorded, noise_of(surrogate, HOLD)[row])
    if name == "variance":
        return (surrogate.region * (before - after)).sum()
    if name != "information":
        raise KeyError(f"{name}: write its plain form here")
    both = [torch.block_diag(*[part] * surrogate.state.shape[1]) for part in (before, after)]
    return (torch.logdet(both[0]) - torch.logdet(both[1])) / 2


def plain_fisher(name: str, surrogate: Surrogate, row: int, path: Tensor) -> Tensor:
    """By the recursion of sensitivities, each with its identity, and the information about all
    weights.
    """
    here = path.expand(ROWS, -1, -1)
    field_value, jacobians = surrogate.field(here).features[row], surrogate.jacobian(here)[row]
    before, item = surrogate.full_covariance[row], torch.eye(surrogate.state.shape[1]).double()
    carried, information = torch.zeros(len(item), len(before)).double(), torch.zeros_like(before)
    for phi, jacobian in zip(field_value, jacobians, strict=True):
        carried = (item + surrogate.dt * jacobian) @ carried + surrogate.dt * torch.kron(
            item, phi[None]
        )
        information = information + carried.T @ surrogate.precision[row] @ carried
    after = torch.linalg.inv(torch.linalg.inv(before) + information)
    if name == "fisher_a":
        return (before - after).trace()
    return (torch.logdet(before) - torch.logdet(after)) / 2


def plain_values(name: str, surrogate: Surrogate, used: Tensor) -> Tensor:
    """[row, n]"""
    result = [
        [plain_value(name, surrogate, row, item) for item in used[row]] for row in range(ROWS)
    ]
    return torch.stack([torch.stack(of_row) for of_row in result])


POSTERIORS = [name for name, need in config.VALUE_NEEDS.items() if need.endswith("covariance")]


@pytest.mark.parametrize("d", [2, 3])
@pytest.mark.parametrize("name", POSTERIORS)
def test_values_are_what_the_covariance_of_all_weights_says(name, d):
    """Full covariances with correlated outputs, precisions that are not isotropic, rows that
    differ.
    """
    surrogate, used = (
        latent_surrogate(ROWS, side=6 - d, d=d).surrogate,
        actions(ROWS, CANDIDATES, DECISIONS, size=d),
    )
    result = acquisition.VALUES[name](surrogate, HOLD)(imagine(surrogate, used, HOLD))
    torch.testing.assert_close(result, plain_values(name, surrogate, used), rtol=1e-8, atol=1e-10)


def test_each_row_may_have_a_region_of_its_own():
    """As networks have, whose features differ."""
    surrogate, used = latent_surrogate(ROWS).surrogate, actions(ROWS, CANDIDATES, DECISIONS)
    scales = torch.tensor([1.0, 2.0, 3.0]).double()
    several = surrogate._replace(region=surrogate.region * scales[:, None, None])
    shared, local = (
        acquisition.variance(each, HOLD)(imagine(each, used, HOLD)) for each in (surrogate, several)
    )
    torch.testing.assert_close(local, shared * scales[:, None])


@pytest.mark.parametrize("name", ["fisher_d", "fisher_a"])
def test_channels_that_see_one_direction_alone_are_no_special_case(name):
    looks = torch.randn(ROWS, 1, 3, generator=torch.Generator().manual_seed(3)).double()
    surrogate = latent_surrogate(ROWS, side=3, d=3).surrogate._replace(precision=looks.mT @ looks)
    assert (torch.linalg.eigvalsh(surrogate.precision) < 0).any()  # by rounding
    used = actions(ROWS, CANDIDATES, DECISIONS, size=3)
    result = acquisition.VALUES[name](surrogate, HOLD)(imagine(surrogate, used, HOLD))
    torch.testing.assert_close(result, plain_values(name, surrogate, used), rtol=1e-8, atol=1e-10)
    assert (result > 0).all()


@pytest.mark.parametrize("name", ["fisher_d", "fisher_a"])
def test_who_sees_nothing_learns_nothing(name):
    surrogate = latent_surrogate(ROWS).surrogate._replace(
        precision=torch.zeros(ROWS, 2, 2).double()
    )
    result = acquisition.VALUES[name](surrogate, HOLD)(
        imagine(surrogate, actions(ROWS, CANDIDATES, DECISIONS), HOLD)
    )
    assert torch.equal(result, torch.zeros(ROWS, CANDIDATES).double())


@pytest.mark.parametrize("name", POSTERIORS)
def test_single_precision_is_enough(name):
    surrogate, used = latent_surrogate(ROWS).surrogate, actions(ROWS, CANDIDATES, DECISIONS)
    exact, result = (
        acquisition.VALUES[name](recorded, HOLD)(imagine(recorded, selected, HOLD))
        for recorded, selected in ((surrogate, used), (single(surrogate), used.float()))
    )
    assert result.dtype == torch.float32
    torch.testing.assert_close(result.double(), exact, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("name", ["variance", "information"])
def test_states_that_are_seen_without_noise_still_have_values(name):
    """The features of a path overlap: without noise, rounding would leave no Cholesky factor."""
    surrogate = single(latent_surrogate(ROWS, side=9).surrogate)._replace(
        step_variance=torch.zeros(ROWS)
    )
    imagined = imagine(surrogate, actions(ROWS, CANDIDATES, 10).float() * 0.01, 1)
    result = acquisition.VALUES[name](surrogate, 1)(imagined)
    assert ((result > 0) & result.isfinite()).all()


def ensemble(members: int) -> Surrogate:
    """Linear fields x -> A_m x, which differ by row and member."""
    generator = torch.Generator().manual_seed(4)
    matrices = torch.randn(ROWS, members, 2, 2, dtype=torch.float64, generator=generator)

    def each(x: Tensor) -> Tensor:
        return torch.einsum("rmij,rnj->rnmi", matrices, x)

    return latent_surrogate(ROWS).surrogate._replace(
        field=lambda x: FieldValue(each(x).mean(2), x[..., :0]),
        members=each,
        covariance=None,
        full_covariance=None,
        region=None,
    )


def test_disagreement_is_the_variance_of_the_members_along_the_mean_path():
    surrogate, used = ensemble(7), actions(ROWS, CANDIDATES, DECISIONS)
    result = acquisition.disagreement(surrogate, HOLD)(imagine(surrogate, used, HOLD))
    for row in range(ROWS):
        for n in range(CANDIDATES):
            path = plain_path(surrogate, row, used[row, n], HOLD)[:-1]
            lines = surrogate.members(path.expand(ROWS, -1, -1))[row]
            expected = torch.stack([at.var(0, correction=0).mean() for at in lines]).mean()
            torch.testing.assert_close(result[row, n], expected)


def plain_score(surrogate: Surrogate, used: Tensor, selected: Acquisition) -> Tensor:
    """Row by row, each value divided by its largest size, less what the farthest state costs."""
    result = []
    for row in range(ROWS):
        total = torch.zeros(used.shape[1]).double()
        for name, weight in selected.weights.items():
            values = torch.stack([plain_value(name, surrogate, row, item) for item in used[row]])
            total = total + weight * values / max(abs(float(value)) for value in values)
        for n, item in enumerate(used[row]):
            farthest = max(
                float(state.norm()) for state in plain_path(surrogate, row, item, HOLD)[1:]
            )
            total[n] -= 10 * max(0.0, farthest - surrogate.region_radius - selected.margin)
        result.append(total)
    return torch.stack(result)


def test_the_score_of_all_is_that_of_plain_loops_over_candidates():
    surrogate = latent_surrogate(ROWS).surrogate
    surrogate = surrogate._replace(state=surrogate.state * 3)  # near the region's edge
    used = actions(ROWS, CANDIDATES, DECISIONS)
    selected = weighing(margin=0.1, variance=1.0, information=0.5, fisher_a=0.3, action_cost=0.25)
    expected = plain_score(surrogate, used, selected)
    torch.testing.assert_close(scorer(surrogate, selected, HOLD)(used), expected)
    assert (expected < -0.3).any()
    assert (expected > 1).any()


def still() -> Surrogate:
    """Nothing moves but by actions."""
    return latent_surrogate(ROWS).surrogate._replace(
        state=torch.zeros(ROWS, 2).double(),
        field=lambda x: FieldValue(torch.zeros_like(x), x[..., :0]),
    )


def test_a_path_that_leaves_the_region_pays_for_its_farthest_step():
    """0.1 to the right in each of 8 steps, from 1.1: to 1.9, .2 beyond region and margin."""
    surrogate = still()._replace(state=torch.tensor([[1.1, 0.0], [0.9, 0.0], [0.0, -1.0]]).double())
    right = torch.tensor([1.0, 0.0]).double().expand(ROWS, 1, DECISIONS, 2)
    costs = float(STEPS * right.square().sum())
    assert costs > 0
    result = scorer(surrogate, weighing(action_cost=1.0), HOLD)(right)
    torch.testing.assert_close(result[:, 0], torch.tensor([-3.0, -1.0, -1.0]).double())


def test_where_a_row_stands_already_costs_nothing():
    surrogate = still()._replace(state=torch.tensor([[1.75, 0.0]]).double().expand(ROWS, 2))
    left = torch.tensor([-1.0, 0.0]).double().expand(ROWS, 1, DECISIONS, 2)
    result = scorer(surrogate, weighing(action_cost=1.0), HOLD)(left)
    torch.testing.assert_close(result, torch.full_like(result, -1.0))


def test_values_that_are_all_zero_stay_zero():
    result = scorer(still(), weighing(action_cost=1.0), HOLD)(
        torch.zeros(ROWS, CANDIDATES, DECISIONS, 2).double()
    )
    assert torch.equal(result, torch.zeros(ROWS, CANDIDATES).double())


def test_a_value_without_weight_is_not_computed():
    """An ensemble has no posterior of weights."""
    result = scorer(ensemble(3), weighing(variance=0.0, disagreement=2.0), HOLD)
    assert result(actions(ROWS, CANDIDATES, DECISIONS)).amax() == 2


def test_a_candidate_that_is_not_finite_is_the_worst_and_no_other_feels_it():
    surrogate, used = latent_surrogate(ROWS).surrogate, actions(ROWS, CANDIDATES, DECISIONS)
    score = scorer(surrogate, weighing(variance=1.0), HOLD)
    sound = score(used)
    best, other = int(sound[1].argmax()), int(sound[1].argmin())
    broken = used.clone()
    broken[1, other, 2] = torch.nan
    result = score(broken)
    assert result[1, other] == acquisition.WORST
    assert result[1, best] == sound[1, best]
    assert torch.equal(result[[0, 2]], sound[[0, 2]])


@pytest.mark.parametrize("name", ["variance", "information"])
def test_a_covariance_that_is_none_has_no_values(name):
    """Cholesky's factor breaks off and leaves finite numbers behind."""
    surrogate, used = latent_surrogate(ROWS).surrogate, actions(ROWS, CANDIDATES, DECISIONS)
    signs = torch.tensor([1.0, -1.0, 1.0]).double()[:, None, None]
    broken = surrogate._replace(covariance=surrogate.covariance * signs)
    sound, result = (
        scorer(each, weighing(**{name: 1.0}), HOLD)(used) for each in (surrogate, broken)
    )
    assert (result[1] == acquisition.WORST).all()
    assert torch.equal(result[[0, 2]], sound[[0, 2]])


def test_rows_do_not_influence_each_other():
    whole, used = latent_surrogate(ROWS), actions(ROWS, CANDIDATES, DECISIONS)
    order = torch.tensor([2, 0, 1])
    selected = weighing(variance=1.0, fisher_d=1.0)
    result = scorer(whole.surrogate, selected, HOLD)(used)
    weights, at = whole.weights[order], whole.centres
    parts = {
        name: getattr(whole.surrogate, name)[order]
        for name in ("state", "covariance", "full_covariance", "step_variance", "precision")
    }
    permuted = whole.surrogate._replace(
        **parts,
        field=lambda x: surrogates.mean_and_features(x, weights, at),
        jacobian=lambda x: surrogates.jacobian(x, weights, at),
    )
    torch.testing.assert_close(scorer(permuted, selected, HOLD)(used[order]), result[order])


def test_the_values_are_those_that_a_config_knows():
    assert tuple(acquisition.VALUES) == config.VALUES


SIDE, NOISE, DT = 9, 0.0018, 0.1
LOOKS = 1250.0
"""Of a state that is seen through 50 channels of the default."""


def after_exploring(transitions: int, seed: int) -> Surrogate:
    """What is believed of a limit cycle after random actions."""
    generator = torch.Generator().manual_seed(seed)
    at = surrogates.centres(SIDE)
    state, recorded, targets = torch.tensor([0.5, 0.0]).double(), [], []
    for _ in range(transitions):
        action = torch.rand(2, dtype=torch.float64, generator=generator) * 2 - 1
        velocity = 0.76 * (state * (1 - state.square().sum()) + torch.stack([-state[1], state[0]]))
        shaken = (
            velocity
            + torch.randn(2, dtype=torch.float64, generator=generator) * (NOISE / DT**2) ** 0.5
        )
        recorded.append(features(state, at))
        targets.append(shaken)
        state = state + (velocity + action) * DT
    lines, noise = torch.stack(recorded), NOISE / DT**2
    covariance = observed(torch.eye(len(at)).double() * 0.2217, lines, torch.tensor(noise))
    weights = (covariance @ lines.T @ torch.stack(targets) / noise).T[None]
    return latent_surrogate(1).surrogate._replace(
        state=state[None],
        field=lambda x: surrogates.mean_and_features(x, weights, at),
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
    item, weights = torch.eye(2).double(), surrogate.full_covariance[0]
    joint = torch.block_diag(item / LOOKS, weights).repeat(len(paths), 1, 1)
    for states in paths.unbind(1):
        recorded, jacobians = (
            surrogate.field(states[None]).features[0],
            surrogate.jacobian(states[None])[0],
        )
        local = torch.stack([torch.kron(item, phi[None]) for phi in recorded])
        moved = torch.cat([item + DT * jacobians, DT * local], 2) @ joint
        predicted = joint.clone()
        predicted[:, :2], predicted[:, :, :2] = moved, moved.mT
        predicted[:, :2, :2] = moved @ torch.cat(
            [item + DT * jacobians, DT * local], 2
        ).mT + item * (NOISE - 1 / LOOKS)
        gain = predicted[:, :, :2] @ torch.linalg.inv(predicted[:, :2, :2] + item / LOOKS)
        joint = predicted - gain @ predicted[:, :2]
    return joint[:, 2:, 2:]


@pytest.mark.parametrize("transitions", [50, 200])
def test_closed_forms_rank_candidates_as_the_joint_filter_does(transitions):
    """48 candidates of the default's length, judged by the covariance that the filter would have at
    the end.
    """
    surrogate = after_exploring(transitions, seed=transitions)
    used = actions(1, 48, 10)
    imagined = imagine(surrogate, used, 2)
    before = surrogate.full_covariance[0]
    after = recursion(surrogate, imagined.states[0, :, :-1])
    blocks = (before - after).unflatten(1, (2, -1)).unflatten(3, (2, -1))
    drops = (surrogate.region * (blocks[:, 0, :, 0] + blocks[:, 1, :, 1])).sum((1, 2))
    nats = (torch.logdet(before) - torch.logdet(after)) / 2
    for name, exact in (("variance", drops), ("information", nats)):
        result = acquisition.VALUES[name](surrogate, 2)(imagined)[0]
        assert stats.spearmanr(result, exact).statistic > 0.9
