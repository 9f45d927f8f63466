"""Plain references of active_dynamics are right, the proposal's changes are wrong where they say so."""

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from torch import Tensor

from benchmarks import repeat
from benchmarks.active_dynamics import beliefs, learning, measure, memory, parts, planning, vae
from benchmarks.reference import active_dynamics as plain
from benchmarks.reference import active_dynamics_planner as planner
from benchmarks.reference import active_dynamics_seed as seed
from benchmarks.reference.active_dynamics_rollout import RecentRollout, SeedRollout
from benchmarks.table import NotTheSame, render
from benchmarks.torch_rows import measure_growth
from benchmarks.torch_threads import threads
from quatrain.models.active_dynamics.seq_vae.trainer import SeqVaeTrainer
from quatrain.replay import windows
from tests.conftest import ROOT, shapes_unchecked

SHAPE = plain.Shape(obs=7, action=2, d=2, hidden=5, head=6, dynamics_hidden=8)
CLAIMS = ("encoder", "clone", "pool", "mask", "memory", "kl", "variance", "device", "transfer")


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    torch.manual_seed(0)
    with threads(1):
        yield


@pytest.fixture(scope="module", params=["mlp", "rbf"])
def vaes(request) -> vae.Vaes:
    return vae.vaes_of(ROOT, request.param, 3, 5)


@pytest.fixture
def few(monkeypatch):
    """Shrinks all work, and starts no process."""
    for module, names in {
        repeat: {"MOST": 1},
        planning: {"SIDE": 5, "ROWS": (1, 16), "TIMED": 1, "THREADS": (1,)},
        beliefs: {"LEARNED": 3},
        learning: {"SIDE": 5, "AGENT_STEPS": 20, "THREADS": (1,), "ENVIRONMENTS": 3},
        memory: {"TRANSITIONS": 30},
    }.items():
        for name, value in names.items():
            monkeypatch.setattr(module, name, value)
    monkeypatch.setattr(planning, "SAME", planning.SAME | {"candidates": 12, "iterations": 2})
    monkeypatch.setattr(
        memory,
        "measure_growth",
        lambda _, works: {side: memory.allocated(works[side]) for side in works},
    )


@pytest.mark.usefixtures("few")
def test_rows_answer_all_claims_and_goals():
    with shapes_unchecked():
        rows = measure.measure(ROOT, 1).rows
    assert len(render(rows).splitlines()) == 2 + len(rows)
    claims = dict.fromkeys(claim for row in rows for claim in row.claims)
    assert claims.keys() == {f"dynamics-{name}" for name in CLAIMS}
    assert [str(row.goal).split()[1] for row in rows if row.goal] == (
        ["150x"] * 2 + ["0.01", "0.004"] + ["3x"] * 2 + ["1.5x", "20x", "1.3x"]
    )
    assert [row.point.at for row in rows if row.point] == [1, 16]
    assert all(row.tried for row in rows if row.goal and row.goal.number == 150)
    assert all(row.ours.median > 0 for row in rows)
    assert all(row.seed_way and row.before for row in rows if row.claims)


# Rows whose sides differ.


@pytest.fixture(scope="module")
def learner():
    network, settings = {"rbf": {"side": 5, "length": 0.9}}, planning.SAME | {"hold": 1}
    weights = {"variance": 0.0, "fisher_a": 1.0}
    train = {"planner": settings | {"replan_every": 1}, "acquisition": {"weights": weights}}
    return beliefs.beliefs_of(beliefs.config_of(ROOT, 2, network=network, train=train))


def test_values_of_a_plan_are_those_of_plain_loops(learner, monkeypatch):
    planning.refuse_another_value(learner)
    monkeypatch.setattr(planner, "of_noise", planner.of_projection)
    with pytest.raises(NotTheSame, match="planner: fisher_a"):
        planning.refuse_another_value(learner)


def test_terms_and_gradients_are_those_of_plain_loops(vaes, monkeypatch):
    vae.refuse_another_loss(vaes)
    with monkeypatch.context() as patch:
        patch.setattr(plain, "horizon_weights", lambda *args: seed.KlWeights()(*args))
        with pytest.raises(NotTheSame, match="learning: terms"):
            vae.refuse_another_loss(vaes)
    original = vae.plain_params

    def skewed(network, of):
        return {name: 1.1 * value for name, value in original(network, of).items()}

    monkeypatch.setattr(vae, "plain_params", skewed)
    with pytest.raises(NotTheSame, match="learning: gradient of"):
        vae.refuse_another_loss(vaes)


def test_a_carried_belief_is_that_of_the_whole_window_until_it_is_full(vaes, monkeypatch):
    learning.refuse_another_belief(vaes)
    monkeypatch.setattr(learning, "RecentRollout", lambda _: SeedRollout(3))
    with pytest.raises(NotTheSame, match="agent step 3: belief"):
        learning.refuse_another_belief(vaes)


def test_both_sides_of_a_gradient_step_learn_on_one_thread(vaes, monkeypatch):
    used, original = [], SeqVaeTrainer.update

    def update(*args):
        used.append(torch.get_num_threads())
        return original(*args)

    monkeypatch.setattr(SeqVaeTrainer, "update", update)
    sides = (vaes.worker.network, vaes.plain)
    before = [side.raw_noise.detach().clone() for side in sides]
    with threads(2):
        vaes.worker.learn(vaes.ring, 0)
    learning.plain_update(vaes)()
    assert used == [1]
    assert not any(
        torch.equal(side.raw_noise, old) for side, old in zip(sides, before, strict=True)
    )


@pytest.mark.usefixtures("few")
def test_another_variance_is_refused(monkeypatch):
    monkeypatch.setattr(parts, "to_variance", torch.exp)
    with pytest.raises(NotTheSame, match="variance of a step"):
        parts.rows(1)


def test_another_window_is_refused(monkeypatch):
    before, after = (memory.stored_by(kind, 25)[0] for kind in (RecentRollout, SeedRollout))
    ring = memory.ring_of(25, 40)
    memory.refuse_another_window(before, after, ring)
    view = windows.last(ring, memory.LENGTH)
    with monkeypatch.context() as patch:
        patch.setattr(windows, "last", lambda *_: type(view)(*(part.clone() for part in view)))
        with pytest.raises(NotTheSame, match="the project's window is a copy"):
            memory.refuse_another_window(before, after, ring)
    after.add(memory.transition_of(torch.Generator()))
    with pytest.raises(NotTheSame, match="rollout copy: the sides"):
        memory.refuse_another_window(before, after, ring)


# Memory.


def test_bytes_are_counted():
    tensors = 4 * memory.LENGTH * (2 * memory.CHANNELS + memory.ACTION + 2 * memory.D + 1)
    for kind in (RecentRollout, SeedRollout):
        assert memory.of_tensors(memory.stored_by(kind, 25)[0].copy) == tensors
    drawn = seed.Mask(20)
    assert memory.of_tensors(lambda: seed.mask_before(20, 0.1)) == 3 * 4 * 20
    assert memory.of_tensors(lambda: drawn(0.1)) == 2 * 4 * 20
    assert memory.of_python(lambda: bytearray(10**5)) == pytest.approx(10**5, rel=0.01)
    assert memory.stored_bytes() == 2 * (4 * (memory.CHANNELS + memory.ACTION) + 1) + 8


@pytest.mark.full
def test_growth_is_that_of_a_process_and_a_failure_is_raised():
    grown = measure_growth(memory.warm_up, {"few": hundred_megabytes, "none": int})
    assert grown["few"].median == pytest.approx(10**8, rel=0.1)
    assert grown["none"].median < 10**6
    with pytest.raises(ZeroDivisionError):
        measure_growth(int, {"failing": divide_by_zero})


def hundred_megabytes():
    return b"1" * 10**8


def divide_by_zero():
    return 1 / 0


# The proposal's changes.


def test_the_conditional_clone_copies_as_much_and_loses_what_is_no_tensor():
    copies = []
    for rollout in (RecentRollout(4), SeedRollout(4)):
        for number in range(6):
            state = torch.full((3,), float(number), requires_grad=True)
            rollout.add({"state": state, "info": {"truncated": False}})
        stored, copied = rollout.data["state"], rollout.copy().data
        assert copied["state"][:, 0].tolist() == [2, 3, 4, 5]
        assert copied["state"].data_ptr() != stored.data_ptr()
        copies.append(copied)
    assert "info" in copies[0]
    assert "info" not in copies[1]
    rollout.add({"state": torch.randn(3)})
    assert rollout.pool == {}
    assert rollout.data["state"].data_ptr() != stored.data_ptr()


def test_transfers_and_device_checks_change_nothing_on_a_cpu():
    batch = torch.randn(4, 3)
    assert seed.moved(batch, torch.device("cpu")).data_ptr() == batch.data_ptr()
    for name in ("cpu", "cuda:1"):
        checks = seed.DeviceChecks(torch.device(name))
        assert checks.before() == checks.seed() == (name != "cpu")


def test_cached_weights_make_the_first_divergence_several_times_as_large():
    model, cached = plain.Model(SHAPE), seed.KlWeights()
    window = plain.Window(torch.randn(1, 20, SHAPE.obs), torch.randn(1, 20, SHAPE.action))
    result = []
    for weights in (plain.horizon_weights(5, 0.8), cached(5, 0.8), cached(5, 0.8)):
        torch.manual_seed(3)
        settings = plain.Settings(samples=2)
        result.append(plain.terms(model, window, settings, torch.randn, weights).kl_steps.item())
    assert result[1] / result[0] == pytest.approx((1 - 0.8**5) / 0.2, rel=1e-4)
    assert result[2] == pytest.approx(result[0], rel=1e-6)
    torch.testing.assert_close(cached(5, 0.5), plain.horizon_weights(5, 0.8))


def test_a_mask_in_one_buffer_breaks_two_losses_with_one_backward():
    x, masked = torch.randn(9, 2, requires_grad=True), seed.Mask(9)
    sum((seed.mask_before(9, 0.3) * x).square().sum() for _ in range(2)).backward()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        sum((masked(0.3) * x).square().sum() for _ in range(2)).backward()
    for mask in (seed.Mask(4000)(0.3), seed.mask_before(4000, 0.3)):
        assert set(mask.unique().tolist()) == {0.0, 1.0}
        assert mask.mean().item() == pytest.approx(0.7, abs=0.03)


def test_a_cached_variance_cannot_learn_and_stays_where_its_parameter_moves():
    cached = seed.CachedVariance(2)
    first = cached().detach().clone()
    cached().sum().backward()
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        cached().sum().backward()
    with torch.no_grad():
        cached.raw += 1
    torch.testing.assert_close(cached(), first)
    assert not torch.allclose(plain.Model.variance(cached.raw), first)


def test_fewer_encoder_calls_hear_no_observation_but_the_first():
    def encode(window: plain.Window) -> plain.Gaussian:
        return plain.Gaussian(window.observations, torch.ones_like(window.observations))

    def predict(x: Tensor, u: Tensor) -> plain.Gaussian:
        return plain.Gaussian(x + 0.1 * u, torch.ones_like(x))

    agents = [
        plain.Agent(encode, predict, RecentRollout(20)),
        seed.PredictingAgent(encode, predict, SeedRollout(20)),
    ]
    for agent in agents:
        agent.step(torch.zeros(2), torch.zeros(2))
    beliefs = [agent.step(torch.full((2,), 5.0), torch.ones(2)).tolist() for agent in agents]
    assert beliefs[0] == [5, 5]
    assert beliefs[1] == pytest.approx([0.1, 0.1])


# Plain learning.


def test_divergence_is_the_one_worked_out_by_hand():
    q = plain.Gaussian(torch.tensor([0.2]), torch.tensor([0.04]))
    for variance, expected in ((0.05, 0.111572), (0.5, 0.812864)):
        result = plain.kl(q, plain.Gaussian(torch.tensor([0.1]), torch.tensor([variance])))
        assert result.item() == pytest.approx(expected, abs=1e-6)


def test_horizons_have_fewer_transitions_one_after_another():
    model = plain.Model(SHAPE)
    window = plain.Window(torch.randn(3, 6, SHAPE.obs), torch.randn(3, 6, SHAPE.action))
    q = model.encoder(window)
    result = list(plain.horizons(model, window, q, q.mean.expand(4, -1, -1, -1), torch.zeros))
    assert [tuple(each.shape) for each in result] == [(4, 3, times) for times in (5, 4, 3, 2, 1)]
    x = q.mean[:, 0]
    for time in (1, 2):
        x = model.predicted(x, window.actions[:, time]).mean
    second = plain.Gaussian(q.mean[:, 2], q.variance[:, 2])
    expected = plain.kl(second, plain.Gaussian(x, model.step_variance))
    torch.testing.assert_close(result[1][0, :, 0], expected)


@pytest.mark.parametrize("centres", [0, 5])
def test_each_plain_step_has_the_length_of_a_first_step_of_adam(centres):
    model = plain.Model(SHAPE._replace(centres=centres))
    window = plain.Window(torch.randn(1, 8, SHAPE.obs), torch.randn(1, 8, SHAPE.action))
    before = [param.detach().clone() for param in model.parameters()]
    settings = plain.Settings(samples=2, horizons=3, max_grad_norm=1e9)
    plain.train_step(model, window, settings, torch.randn)
    for param, old in zip(model.parameters(), before, strict=True):
        assert (param.detach() - old).abs().max().item() == pytest.approx(3e-3, rel=0.02)


# Plain planning.


def model_of(side: int = 3, obs: int = 7) -> planner.Model:
    axis = torch.linspace(-2, 2, side)
    count = 2 * side**2
    prior = torch.randn(count, count)
    return planner.Model(
        centres=torch.cartesian_prod(axis, axis),
        weight=0.3 * torch.randn(2, side**2),
        length=0.8,
        dt=0.1,
        observation_matrix=torch.randn(obs, 2),
        covariance=torch.diag(torch.rand(obs) + 0.1),
        prior=prior @ prior.T / count + 0.1 * torch.eye(count),
    )


def test_sensitivities_are_the_gradients():
    model, actions, start = model_of(), torch.randn(4, 2), torch.tensor([0.3, -0.2])

    def ends(weight: Tensor) -> Tensor:
        rollout = planner.imagined(model._replace(weight=weight), start, actions)
        return torch.stack([step["state"] for step in rollout])

    expected = torch.autograd.functional.jacobian(ends, model.weight).flatten(2)
    result = planner.sensitivities(model, planner.imagined(model, start, actions))
    torch.testing.assert_close(torch.stack(result), expected, rtol=1e-4, atol=1e-6)


def test_what_the_original_inverts_is_the_identity_whatever_the_noise():
    model = model_of()
    torch.testing.assert_close(planner.of_projection(model), torch.eye(2), rtol=0, atol=1e-3)
    inverse = torch.diag(1 / model.covariance.diagonal())
    expected = model.observation_matrix.T @ inverse @ model.observation_matrix
    torch.testing.assert_close(planner.of_noise(model), expected)
    assert not torch.allclose(expected, torch.eye(2), atol=0.5)


def test_weights_one_by_one_promise_more_than_all_together():
    model = model_of()
    rollout = planner.imagined(model, torch.zeros(2), torch.randn(5, 2))
    independent = model._replace(prior=torch.diag(model.prior.diagonal()))
    each = planner.diagonal_drop(model, rollout, planner.of_noise)
    assert each > 1.05 * planner.full_drop(independent, rollout, planner.of_noise)
    variances = torch.full((18,), 1e-9)
    variances[4] = 1.0
    single = model._replace(prior=torch.diag(variances))
    expected = planner.full_drop(single, rollout, planner.of_noise)
    result = planner.diagonal_drop(single, rollout, planner.of_noise)
    assert result == pytest.approx(expected, rel=1e-3)


def test_plain_search_approaches_the_best_action():
    settings = planner.Settings(candidates=48, iterations=12, horizon=3, elites=8, keep=2)

    def score(rollout):
        return -sum((step["action"] - 0.5).square().sum().item() for step in rollout)

    result = planner.plan(model_of(), torch.zeros(2), score, settings, np.random.default_rng(0))
    torch.testing.assert_close(result.mean, torch.full((3, 2), 0.5), atol=0.2, rtol=0)
    assert result.scores == sorted(result.scores, reverse=True)


@pytest.mark.parametrize("times", [7, 10])
def test_coloured_noise_has_unit_variance_at_each_time(times):
    rng = np.random.default_rng(0)
    draws = np.concatenate([planner.coloured((times, 2), 1.0, rng) for _ in range(2000)], 1)
    np.testing.assert_allclose(draws.std(1), 1, atol=0.06)
