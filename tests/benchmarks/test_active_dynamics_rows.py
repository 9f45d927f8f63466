"""The project does the plain references' work, and the benchmark refuses where it does not."""

from collections.abc import Iterator

import pytest
import torch

from benchmarks import repeat
from benchmarks.active_dynamics import (
    allocations,
    learning,
    memory,
    parts,
    planning,
    sides,
    vae,
    world,
)
from benchmarks.reference import active_dynamics as plain
from benchmarks.reference import active_dynamics_filter as plain_filter
from benchmarks.reference import active_dynamics_planner as plain_planner
from benchmarks.reference import active_dynamics_seed as seed
from benchmarks.reference import active_dynamics_world as plain_world
from benchmarks.table import NotTheSame, render
from quatrain.models.active_dynamics.seq_vae.trainer import SeqVaeTrainer
from quatrain.replay import windows
from tests.conftest import ROOT

FEW = {
    "rbf": {"side": 5, "length": 0.9},
    "seq_vae": {"hidden": 5, "head": 6, "dynamics_hidden": [7]},
}


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
        repeat: {"MOST": 1},
        planning: {"SIDE": 5, "LEARNED": 3, "THREADS": (1,), "ENVIRONMENTS": (1, 16), "TIMED": 1},
        learning: {"SIDE": 5, "AGENT_STEPS": 20, "UPDATES": 1, "THREADS": (1,), "ENVIRONMENTS": 3},
        parts: {"ROWS": 3},
        world: {
            "ROWS": (3, 1),
            "PLAIN_ROWS": 2,
            "OWN_STEPS": 1,
            "PLAIN_STEPS": 1,
            "FILTER_STEPS": 1,
            "NODES": 6,
        },
    }.items():
        for name, value in names.items():
            monkeypatch.setattr(module, name, value)
    monkeypatch.setitem(planning.MANY["rbf"], "side", 5)
    monkeypatch.setitem(planning.SAME, "candidates", 12)
    monkeypatch.setitem(planning.SAME, "iterations", 2)


@pytest.fixture(scope="module", params=["mlp", "rbf"])
def vaes(request) -> vae.Vaes:
    sections = vae.changed(request.param, 3, 5)
    ours = FEW["seq_vae"] | {"dynamics": request.param}
    sections["network"] |= FEW | {"seq_vae": ours}
    return vae.vaes_of(sides.sides_of(ROOT, 1, **sections))


@pytest.fixture(scope="module")
def beliefs():
    return sides.beliefs_of(sides.sides_of(ROOT, 2, network=FEW), 9)


def well_formed(rows) -> bool:
    return len(render(rows).splitlines()) == 2 + len(rows) and all(
        row.ours.median > 0 for row in rows
    )


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
    assert [row.point.at for row in rows if row.point] == [1, 16]
    assert all(row.tried for row in rows if row.goal and row.goal.number == 150)
    assert rows[5].without == planning.Without("rows at once: one row", rows[4].ours)


def test_candidates_one_by_one_lead_to_the_same_plan(beliefs):
    together, apart = (
        planning.own_plan(beliefs, beliefs.config),
        planning.alone(beliefs, beliefs.config),
    )
    threads = []
    scored = planning.planner.improved

    def watched(*args):
        threads.append(torch.get_num_threads())
        return scored(*args)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(planning.planner, "improved", watched)
        torch.set_num_threads(2)
        together.run()
        assert torch.get_num_threads() == 2
        torch.set_num_threads(1)
        apart.run()
    assert threads == [1, 1]
    assert together.units == apart.units == 2


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
    created = world.world_of_kind(ROOT, kind)
    sides.refuse_another_step(created, 7)
    monkeypatch.setattr(plain_world, "limit_cycle", lambda x: [x[1], -x[0]])
    monkeypatch.setattr(plain_world.Table, "__call__", lambda _, x: [x[1], -x[0]])
    with pytest.raises(NotTheSame, match="environment: row 0 goes elsewhere"):
        sides.refuse_another_step(created, 7)


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
    assert [(row.point.curve, row.point.at) for row in rows if row.point][:2] == [
        ("environment, limit_cycle", 3),
        ("environment, limit_cycle", 1),
    ]
    assert [row.name[:2] == "  " for row in rows] == [False, True] * 2 + [False, False, True]


# The variational autoencoder.


def test_terms_and_gradients_are_those_of_plain_loops(vaes, monkeypatch):
    vae.refuse_another_loss(vaes)
    monkeypatch.setattr(
        plain, "horizon_weights", lambda count, decay: seed.KlWeights()(count, decay)
    )
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
    ours = vaes.worker.network.raw_noise.detach().clone()
    plainly = vaes.plain.raw_noise.detach().clone()
    learning.own_update(vaes).run()
    learning.plain_update(vaes).run()
    assert not torch.equal(vaes.worker.network.raw_noise, ours)
    assert not torch.equal(vaes.plain.raw_noise, plainly)


@pytest.mark.usefixtures("few")
def test_rows_of_learning_are_well_formed():
    rows = learning.rows(ROOT, 1)
    assert well_formed(rows)
    assert [row.goal.number for row in rows if row.goal] == [3, 3, 1.5, 20, 1.3]
    assert [row.claims for row in rows] == [("dynamics-encoder",)] * 4 + [()] * 3
    assert rows[0].without.what == "the carried state: the whole window"


def test_learning_takes_one_thread_of_a_process_with_two(vaes, monkeypatch):
    threads = []
    original = SeqVaeTrainer.update

    def update(*args):
        threads.append(torch.get_num_threads())
        return original(*args)

    monkeypatch.setattr(SeqVaeTrainer, "update", update)
    torch.set_num_threads(2)
    vaes.worker.learn(vaes.ring, 0)
    assert threads == [1]
    assert torch.get_num_threads() == 2


# The seed's small changes, and memory.


@pytest.mark.usefixtures("few")
def test_rows_of_the_parts_are_well_formed():
    rows = parts.rows(1)
    assert well_formed(rows)
    assert [row.claims[0] for row in rows if row.claims] == [
        f"dynamics-{name}"
        for name in ("clone", "pool", "kl", "mask", "variance", "device", "transfer")
    ]
    assert all(row.before and row.seed_way for row in rows)


def test_bytes_of_the_proposal_are_those_of_before_but_for_the_mask():
    created = parts.latest()
    copy, write = parts.memory_rows(created)
    assert copy.unit == write.unit == "KiB"
    tensors = 4 * parts.LENGTH * (2 * parts.CHANNELS + parts.ACTION + 2 * parts.D + 1)
    assert (
        allocations.of_tensors(created.before.copy)
        == allocations.of_tensors(created.after.copy)
        == tensors
    )
    assert allocations.of_tensors(lambda: windows.last(created.ring, parts.LENGTH)) == 0
    assert copy.ours.median < tensors / 4
    assert write.before.median == pytest.approx(write.seed_way.median, rel=0.05)
    drawn = seed.Mask(parts.TIMES)
    assert allocations.of_tensors(lambda: seed.mask_before(parts.TIMES, 0.1)) == 3 * 4 * parts.TIMES
    assert allocations.of_tensors(lambda: drawn(0.1)) == 2 * 4 * parts.TIMES


def test_python_objects_count_too():
    assert allocations.of_python(lambda: bytearray(10**5)) == pytest.approx(10**5, rel=0.01)
    assert allocations.allocated(lambda: torch.zeros(1000)).median == pytest.approx(4000, rel=0.2)


def test_another_variance_is_refused(monkeypatch):
    monkeypatch.setattr(parts, "to_variance", torch.exp)
    with pytest.raises(NotTheSame, match="variance: the seed's is another"):
        parts.variance_row(1)


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


def test_without_a_gpu_the_transfer_is_told_as_none():
    row = parts.transfer_row(torch.device("cpu"), 1)
    assert row.name.endswith("no CUDA device: on the CPU a copy that never happens")
    assert row.claims == ("dynamics-transfer",)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_on_a_gpu_the_transfer_is_timed():
    assert "no CUDA device" not in parts.transfer_row(torch.device("cuda"), 1).name


def test_memory_of_all_is_told(monkeypatch):
    rollout, latest = memory.kept_by(parts.SeedRollout, 25)
    assert len(rollout.transitions) == 25
    assert len(latest.data["obs"]) == parts.LENGTH
    assert memory.ring_of(40).stored == 40
    floats = 4 * (parts.CHANNELS + parts.ACTION) + 1
    assert memory.stored() == 2 * floats + 8
    peaks = {
        "transitions before": 40,
        "transitions seed": 50,
        "transitions ours": 8,
        "plan before": 20,
        "plan ours": 30,
    }
    monkeypatch.setattr(memory, "start_process", lambda _, work: work)
    monkeypatch.setattr(
        memory, "peak_of", lambda work: memory.Peak(300e6 + peaks[work], 1e6 * peaks[work])
    )
    transitions, plan = memory.rows(ROOT)
    assert transitions.claims == ("dynamics-memory",)
    each = (transitions.before, transitions.seed_way, transitions.ours)
    assert [measured.median * memory.TRANSITIONS for measured in each] == pytest.approx(
        [40e6, 50e6, 8e6]
    )
    assert (plan.before.median, plan.ours.median) == (300e6 + 20, 300e6 + 30)


def test_memory_is_measured_by_another_process():
    result = memory.peak_of(memory.start_process(ROOT, "transitions before"))
    assert 10 * 2**20 < result.grown < result.whole


def test_a_process_that_fails_is_told():
    with pytest.raises(RuntimeError, match=r"memory: .* ended with 1"):
        memory.peak_of(memory.start_process(ROOT, "nobody's"))
