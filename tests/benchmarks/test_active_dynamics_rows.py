"""The project does the plain references' work, and the benchmark refuses where it does not."""

from collections.abc import Iterator

import pytest
import torch

from benchmarks.active_dynamics import learning, memory, parts, planning, sides, vae, world
from benchmarks.reference import active_dynamics as plain
from benchmarks.reference import active_dynamics_filter as plain_filter
from benchmarks.reference import active_dynamics_planner as plain_planner
from benchmarks.reference import active_dynamics_seed as seed
from benchmarks.reference import active_dynamics_world as plain_world
from benchmarks.table import NotTheSame, render
from quatrain.replay import windows
from tests.conftest import ROOT

FEW = {"rbf": {"side": 5, "length": 0.9}, "seq_vae": {"hidden": 5, "head": 6, "dynamics_hidden": [7]}}


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def few(monkeypatch):
    """Rows in no time."""
    for module, names in {
        planning: {"SIDE": 5, "LEARNED": 3, "THREADS": (1,), "ENVIRONMENTS": (1, 16)},
        learning: {"SIDE": 5, "AGENT_STEPS": 20, "UPDATES": 1, "THREADS": (1,), "ENVIRONMENTS": 3},
        parts: {"REPEATS": 1, "ROWS": 3},
        world: {"ROWS": (3, 1), "OWN_STEPS": 1, "PLAIN_STEPS": 1, "FILTER_STEPS": 1, "NODES": 6},
    }.items():
        for name, value in names.items():
            monkeypatch.setattr(module, name, value)
    monkeypatch.setitem(planning.MANY["rbf"], "side", 5)
    monkeypatch.setitem(planning.SAME, "candidates", 12)
    monkeypatch.setitem(planning.SAME, "iterations", 2)


@pytest.fixture(scope="module", params=["mlp", "rbf"])
def vaes(request) -> vae.Vaes:
    sections = vae.changed(request.param, 3, 5)
    own = FEW["seq_vae"] | {"dynamics": request.param}
    sections["network"] |= FEW | {"seq_vae": own}
    return vae.vaes_of(sides.sides_of(ROOT, 1, **sections))


@pytest.fixture(scope="module")
def beliefs():
    return sides.beliefs_of(sides.sides_of(ROOT, 2, network=FEW), 9)


def well_formed(rows) -> bool:
    return len(render(rows).splitlines()) == 2 + len(rows) and all(row.ours.median > 0 for row in rows)


# Plans.


def test_values_of_a_plan_are_those_of_plain_loops(beliefs, monkeypatch):
    planning.refuse_another_value(beliefs)
    monkeypatch.setattr(plain_planner, "of_noise", plain_planner.of_projection)
    with pytest.raises(NotTheSame, match="planner: fisher_a is"):
        planning.refuse_another_value(beliefs)


@pytest.mark.usefixtures("few")
def test_rows_of_plans_are_well_formed():
    rows = planning.rows(ROOT, 1)
    assert well_formed(rows)
    assert [str(row.goal) for row in rows] == [
        ">= 150x before", "None", ">= 150x before", "None", "<= 0.01 s", "<= 0.004 s",
    ]  # fmt: skip


# Beliefs and worlds.


def test_another_filter_is_refused(beliefs, monkeypatch):
    walk = sides.Walk(sides.sides_of(ROOT, 2).world, 2)
    for _ in range(5):
        sides.refuse_another_belief(beliefs, walk)
    original = plain_filter.correct

    def surer(model, belief, y):
        return original(model._replace(noise_variance=model.noise_variance / 2), belief, y)

    monkeypatch.setattr(plain_filter, "correct", surer)
    with pytest.raises(NotTheSame, match="filter: row 0 believes something else"):
        sides.refuse_another_belief(beliefs, walk)


@pytest.mark.parametrize("kind", world.KINDS_TIMED)
def test_another_world_is_refused(kind, monkeypatch):
    made = world.world_of_kind(ROOT, kind)
    sides.refuse_another_step(made, 7)
    monkeypatch.setattr(plain_world, "limit_cycle", lambda x: [x[1], -x[0]])
    monkeypatch.setattr(plain_world.Table, "__call__", lambda _, x: [x[1], -x[0]])
    with pytest.raises(NotTheSame, match="environment: row 0 goes elsewhere"):
        sides.refuse_another_step(made, 7)


def test_plain_world_knows_no_other_formula():
    with pytest.raises(ValueError, match="no formula for duffing"):
        sides.plain_world_of(world.world_of_kind(ROOT, "duffing"))


def test_another_draw_of_a_table_is_refused(monkeypatch):
    world.refuse_another_process()
    monkeypatch.setattr(plain_world, "kernel", lambda nodes, _: torch.eye(len(nodes)).numpy())
    with pytest.raises(NotTheSame, match="draws have another covariance"):
        world.refuse_another_process()


@pytest.mark.usefixtures("few")
def test_rows_of_worlds_and_filters_are_well_formed():
    rows = world.rows(ROOT, 1)
    assert well_formed(rows)
    assert len(rows) == 7


# The variational autoencoder.


def test_terms_and_gradients_are_those_of_plain_loops(vaes, monkeypatch):
    vae.refuse_another_loss(vaes)
    monkeypatch.setattr(plain, "horizon_weights", lambda count, decay: seed.KlWeights()(count, decay))
    with pytest.raises(NotTheSame, match="learning: kl_steps is"):
        vae.refuse_another_loss(vaes)


def test_another_gradient_is_refused(vaes, monkeypatch):
    original = vae.plain_params

    def skewed(network, of=lambda param: param):
        return {name: 1.1 * value for name, value in original(network, of).items()}

    monkeypatch.setattr(vae, "plain_params", skewed)
    with pytest.raises(NotTheSame, match="learning: the gradient of"):
        vae.refuse_another_loss(vaes)


def test_a_carried_belief_is_that_of_the_whole_window_until_it_is_full(vaes, monkeypatch):
    learning.refuse_another_belief(vaes)
    monkeypatch.setattr(learning, "RecentRollout", lambda _: learning.SeedRollout(3))
    with pytest.raises(NotTheSame, match="agent step 3: the carried belief"):
        learning.refuse_another_belief(vaes)


def test_both_sides_of_a_gradient_step_learn(vaes):
    own = vaes.worker.network.raw_noise.detach().clone()
    plainly = vaes.plain.raw_noise.detach().clone()
    learning.own_update(vaes).run()
    learning.plain_update(vaes).run()
    assert not torch.equal(vaes.worker.network.raw_noise, own)
    assert not torch.equal(vaes.plain.raw_noise, plainly)


@pytest.mark.usefixtures("few")
def test_rows_of_learning_are_well_formed():
    rows = learning.rows(ROOT, 1)
    assert well_formed(rows)
    assert [row.goal.number for row in rows if row.goal] == [3, 3, 1.5, 20, 1.3]


# The seed's small changes, and memory.


@pytest.mark.usefixtures("few")
def test_rows_of_the_parts_are_well_formed():
    rows = parts.rows(1) + parts.transfer_rows(torch.device("cpu"), 1)
    assert well_formed(rows)
    assert {row.seed_item for row in rows} == {
        "003 conditional clone",
        "003 cached KL weights",
        "003 in-place mask",
        "003 cached device checks",
        "003 non_blocking",
    }


def test_another_window_is_refused(monkeypatch):
    before, after = (kind(parts.LENGTH) for kind in (parts.RecentRollout, parts.SeedRollout))
    ring = windows.allocate(1, parts.STORED, parts.CHANNELS, parts.ACTION)
    generator = torch.Generator().manual_seed(0)
    for _ in range(parts.LENGTH + 3):
        transition = parts.transition_of(generator)
        for rollout in (before, after):
            rollout.add(transition)
        parts.wrote(ring, transition)
    parts.refuse_another_window(before, after, ring)
    view = windows.last(ring, parts.LENGTH)
    monkeypatch.setattr(windows, "last", lambda *_: type(view)(*(part.clone() for part in view)))
    with pytest.raises(NotTheSame, match="the project's window is a copy"):
        parts.refuse_another_window(before, after, ring)
    before.add(parts.transition_of(generator))
    with pytest.raises(NotTheSame, match="the last transitions are others"):
        parts.refuse_another_window(before, after, ring)


def test_without_a_gpu_the_transfer_is_told_as_skipped(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert "skipped: no CUDA device" in parts.transfer_note()[0]
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert parts.transfer_note() == []


def test_memory_of_both_is_told(monkeypatch):
    assert len(memory.kept_by(5).kept) == 5
    assert memory.ring_of(40).stored == 40
    floats = 4 * (parts.CHANNELS + parts.ACTION) + 1
    assert memory.stored() == 2 * floats + 8
    peaks = {"transitions before": 40, "transitions ours": 8, "plan before": 20, "plan ours": 30}
    monkeypatch.setattr(memory, "measured", lambda _, work: memory.Peak(300 + peaks[work], peaks[work]))
    transitions, plan = memory.notes(ROOT)
    assert "a dictionary each 4194 bytes a transition, ours 839 (its tensors: 426)" in transitions
    assert "before 320 MB, of them 20 MB beyond libraries and belief; ours 330 MB, 30 MB" in plan


def test_memory_is_measured_by_another_process():
    found = memory.measured(ROOT, "transitions before")
    assert 10 < found.grown < found.whole
