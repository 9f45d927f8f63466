"""Plain references of active_dynamics are right, the proposal's changes wrong where they say so."""

from collections.abc import Iterator
from functools import partial
from operator import mul, truediv

import pytest
import torch
from torch import Tensor

from benchmarks import harness
from benchmarks.active_dynamics import learning, measure, memory, parts, planning, vae
from benchmarks.harness import NotComparable
from benchmarks.reference import active_dynamics as plain
from benchmarks.reference import active_dynamics_planner as planner
from benchmarks.reference import active_dynamics_seed as seed
from benchmarks.reference.active_dynamics import RecentRollout
from benchmarks.reference.active_dynamics_seed import SeedRollout
from benchmarks.torch_rows import measure_growth
from quatrain.frameworks.torch.threads import threads
from quatrain.replay import windows
from tests.conftest import ROOT, shapes_unchecked

SHAPE = plain.Shape(obs=7, action=2, d=2, hidden=5, head=6, dynamics_hidden=8)
CLAIMS = ("encoder", "clone", "pool", "mask", "memory", "kl", "variance", "device", "transfer")


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    torch.manual_seed(0)
    with threads(1):
        yield


@pytest.fixture(params=["mlp", "rbf"])
def vaes(request) -> vae.Vaes:
    return vae.vaes_of(ROOT, request.param, 3, 5)


@pytest.fixture
def few(monkeypatch):
    """Shrinks all work, and starts no process."""
    plans = {"SIDE": 5, "TIMED": 1, "THREADS": (1,), "LEARNED": 3}
    agents = {"SIDE": 5, "AGENT_STEPS": 20, "THREADS": (1,)}
    same = planning.SAME | {"candidates": 12, "iterations": 2}

    def in_process(_, works):
        return {side: memory.allocated(work) for side, work in works.items()}

    for module, names in {
        harness: {"MOST": 1},
        planning: plans | {"SAME": same},
        learning: agents,
        memory: {"TRANSITIONS": 30, "measure_growth": in_process},
    }.items():
        for name, value in names.items():
            monkeypatch.setattr(module, name, value)


@pytest.mark.usefixtures("few")
def test_rows_answer_all_claims():
    with shapes_unchecked():
        rows = measure.measure(ROOT, 1).rows
    assert {claim for row in rows for claim in row.claims} == {f"dynamics-{it}" for it in CLAIMS}
    assert len([row for row in rows if row.goal]) == 9
    assert all(row.ours.median > 0 for row in rows)
    assert all(row.seed_way and row.before for row in rows if row.claims)


# Rows whose sides differ.


@pytest.mark.usefixtures("few")
def test_values_of_a_plan_are_those_of_plain_loops(monkeypatch):
    learner = planning.many_weights(ROOT, "fisher_a")
    planning.refuse_another_value(learner)
    monkeypatch.setattr(planner, "of_noise", planner.of_projection)
    with pytest.raises(NotComparable, match="planner: fisher_a"):
        planning.refuse_another_value(learner)


def test_terms_and_gradients_are_those_of_plain_loops(vaes, monkeypatch):
    vae.refuse_another_loss(vaes)
    with monkeypatch.context() as patch:
        patch.setattr(plain, "horizon_weights", lambda *args: seed.KlWeights()(*args))
        with pytest.raises(NotComparable, match="learning: terms"):
            vae.refuse_another_loss(vaes)
    original = vae.plain_params

    def skewed(network, of):
        return {name: 1.1 * value for name, value in original(network, of).items()}

    monkeypatch.setattr(vae, "plain_params", skewed)
    with pytest.raises(NotComparable, match="learning: gradient of"):
        vae.refuse_another_loss(vaes)


def test_a_carried_belief_is_that_of_the_whole_window_until_it_is_full(vaes, monkeypatch):
    learning.refuse_another_belief(vaes)
    monkeypatch.setattr(learning, "RecentRollout", lambda _: SeedRollout(3))
    with pytest.raises(NotComparable, match="agent step 3: belief"):
        learning.refuse_another_belief(vaes)


def test_both_sides_of_a_gradient_step_learn(vaes):
    sides = (vaes.trainer.network, vaes.plain)
    before = [side.raw_noise.detach().clone() for side in sides]
    vaes.trainer.learn(vaes.ring, 0)
    learning.plain_update(vaes)()
    assert not any(map(torch.equal, before, [side.raw_noise for side in sides]))


@pytest.mark.usefixtures("few")
def test_another_variance_is_refused(monkeypatch):
    monkeypatch.setattr(parts, "to_variance", torch.exp)
    with pytest.raises(NotComparable, match="variance of a step"):
        parts.rows(1)


def test_another_window_is_refused(monkeypatch):
    before, after = (memory.stored_by(kind, 25)[0] for kind in (RecentRollout, SeedRollout))
    ring = memory.ring_of(25, 40)
    memory.refuse_another_window(before, after, ring)
    view = windows.last(ring, memory.LENGTH)
    monkeypatch.setattr(windows, "last", lambda *_: type(view)(*(part.clone() for part in view)))
    with pytest.raises(NotComparable, match="the project's window is a copy"):
        memory.refuse_another_window(before, after, ring)
    after.add(memory.transition_of(torch.Generator()))
    with pytest.raises(NotComparable, match="rollout copy: the sides"):
        memory.refuse_another_window(before, after, ring)


# Memory.


def test_bytes_are_counted():
    tensors = 4 * memory.LENGTH * (2 * memory.CHANNELS + memory.ACTION + 2 * memory.D + 1)
    for kind in (RecentRollout, SeedRollout):
        assert memory.of_tensors(memory.stored_by(kind, 25)[0].copy) == tensors
    assert memory.of_tensors(lambda: seed.mask_before(20, 0.1)) == 3 * 4 * 20
    assert memory.of_python(lambda: bytearray(10**5)) == pytest.approx(10**5, rel=0.01)


@pytest.mark.full
def test_growth_is_that_of_a_process_and_a_failure_is_raised():
    works = {"much": partial(mul, b"1", 10**8), "nothing": int}
    grown = measure_growth(memory.warm_up, works)
    assert grown["much"].median == pytest.approx(10**8, rel=0.1)
    assert grown["nothing"].median < 10**6
    with pytest.raises(ZeroDivisionError):
        measure_growth(int, {"failing": partial(truediv, 1, 0)})


# The proposal's changes.


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

    for kind, expected in ((plain.Agent, [5, 5]), (seed.PredictingAgent, [0.1, 0.1])):
        agent = kind(encode, predict, RecentRollout(20))
        agent.step(torch.zeros(2), torch.zeros(2))
        assert agent.step(torch.full((2,), 5.0), torch.ones(2)).tolist() == pytest.approx(expected)


# Plain planning.


def model_of(side: int = 3, obs: int = 7) -> planner.Model:
    axis, count = torch.linspace(-2, 2, side), 2 * side**2
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


def test_what_the_original_inverts_is_the_identity_whatever_the_noise():
    model = model_of()
    torch.testing.assert_close(planner.of_projection(model), torch.eye(2), rtol=0, atol=1e-3)
    assert not torch.allclose(planner.of_noise(model), torch.eye(2), atol=0.5)


def test_what_is_learned_of_a_single_weight_is_what_is_learned_of_all():
    model, variances = model_of(), torch.full((18,), 1e-9)
    variances[4] = 1.0
    model = model._replace(prior=torch.diag(variances))
    rollout = planner.imagined(model, torch.zeros(2), torch.randn(5, 2))
    each = planner.diagonal_drop(model, rollout, planner.of_noise)
    together = planner.full_drop(model, rollout, planner.of_noise)
    assert each == pytest.approx(together, rel=1e-3)


def test_plain_search_approaches_the_best_action():
    settings = planner.Settings(candidates=48, iterations=12, horizon=3, elites=8, keep=2)

    def score(rollout):
        return -sum((step["action"] - 0.5).square().sum().item() for step in rollout)

    mean = planner.plan(model_of(), torch.zeros(2), score, settings, torch.Generator())
    torch.testing.assert_close(mean, torch.full((3, 2), 0.5), atol=0.2, rtol=0)
