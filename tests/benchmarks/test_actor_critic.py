"""The plain references do the original's work, the project the same, and the benchmark refuses
where they do not.
"""

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from torch.distributions import Beta, Normal

from benchmarks import repeat
from benchmarks.actor_critic import gae, learning, memory, parts, playing, whole
from benchmarks.actor_critic import sides as making
from benchmarks.peers import gae as gae_peers
from benchmarks.reference import actor_critic as plain
from benchmarks.reference import actor_critic_iteration as iteration
from benchmarks.reference import actor_critic_parts as reference
from benchmarks.reference.colony import Colony
from benchmarks.table import Goal, NotTheSame, render
from quatrain.replay.rollouts.gae import Trace
from tests.conftest import ROOT


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module", params=["light", "full"])
def sides(request) -> making.Sides:
    return making.sides_of(
        making.config_of(
            ROOT,
            env={"features": request.param, "obs_norm": "dataset"},
            network={"d": 12, "layers": 2, "heads": 3},
        )
    )


@pytest.fixture
def few(monkeypatch):
    """Rows in no time."""
    monkeypatch.setattr(playing, "COLONIES", 3)
    monkeypatch.setattr(playing, "COUNTS", (1, 3))
    monkeypatch.setattr(playing, "LEAST_STEPS", 1)
    monkeypatch.setattr(playing, "MOST_STEPS", 1)
    monkeypatch.setattr(playing, "SIZES", (6, 8))
    monkeypatch.setattr(playing, "PLAIN_STEPS", 1)
    monkeypatch.setattr(playing, "SOME_STEPS", 1)
    monkeypatch.setattr(playing, "IMAGE_STEPS", 1)
    monkeypatch.setattr(playing, "CELLS", 6)
    monkeypatch.setattr(learning, "GRAPHS", 3)
    monkeypatch.setattr(learning, "COSTLY", 2)
    monkeypatch.setattr(learning, "UPDATES", 1)
    for name, value in {
        "CELLS": 6,
        "COLONIES": 3,
        "HORIZON": 2,
        "MINIBATCH": 4,
        "PLAIN_STEPS": 2,
    }.items():
        monkeypatch.setattr(whole, name, value)
    monkeypatch.setattr(repeat, "MOST", 1)
    monkeypatch.setattr(parts, "SAMPLES", 2)
    monkeypatch.setitem(gae_peers.SHAPES, "T=200", (7, 1))
    monkeypatch.setitem(gae_peers.SHAPES, "64 episodes", (200, 1))
    monkeypatch.setitem(gae_peers.SHAPES, "[1000, 64]", (9, 4))


@pytest.mark.usefixtures("few")
def test_rows_of_the_parts_are_well_formed():
    rows = parts.rows(1)
    assert len(render(rows).splitlines()) == 2 + len(rows)
    assert {claim for row in rows for claim in row.claims} == {"colony-1", "colony-2", "colony-3"}
    assert [row.point.at for row in rows if row.point] == list(parts.SIZES)
    for row in rows:
        assert min(row.ours.median, row.before.median) > 0
        assert not row.claims or min(row.seed_way.median, row.without.measured.median) > 0


def test_a_partial_sort_takes_other_cells_where_some_stand_at_one_place(monkeypatch):
    monkeypatch.setattr(parts, "TIES", 100)
    said = parts.ties_note()
    assert 5 < int(said.split(" in ")[1].split(" of ")[0]) <= 100
    node = torch.tensor([[3.0], [1.0], [1.0], [2.0]])
    assert reference.leftmost_before(node, 1) == parts.own_leftmost(node, 1) == {1}
    assert reference.leftmost_before(node, 0) == reference.leftmost_seed(node, 0) == set()


def test_another_selection_is_refused(monkeypatch):
    parts.refuse_other_cells()
    monkeypatch.setattr(parts, "own_leftmost", lambda _, count: set(range(count)))
    with pytest.raises(NotTheSame, match="ours are others than the sorted ones"):
        parts.refuse_other_cells()


def test_another_entropy_is_refused(monkeypatch):
    beta = Beta(torch.tensor([[2.0, 3.0]]), torch.tensor([[3.0, 1.5]]))
    parts.refuse_another_entropy(beta)
    monkeypatch.setattr(parts, "beta_entropy", lambda params: params[0].sum(-1))
    with pytest.raises(NotTheSame, match="entropy: ours is not what samples tell"):
        parts.refuse_another_entropy(beta)


def test_entropy_of_samples_is_that_of_the_closed_form():
    torch.manual_seed(0)
    normal = Normal(torch.zeros(1, 5), torch.full((1, 5), 2.0))
    torch.testing.assert_close(
        reference.entropy_before(normal, 40_000), reference.entropy_seed(normal), atol=0.05, rtol=0
    )


def test_loops_find_the_advantages_worked_out_by_hand():
    columns = ([1.0, 0, 2, 1], [0.5, 0.4, 0.3, 0.2], [0.4, 0.3, 0.7, 0.6])
    expected = [[1.0 + 0.9 * 0.4 - 0.5, 0.9 * 0.3 - 0.4, 2 + 0.9 * 0.7 - 0.3, 1 + 0.9 * 0.6 - 0.2]]
    for step in (2, 1, 0):
        expected[0][step] += 0.72 * expected[0][step + 1]
    expected.append(
        [advantage + value for advantage, value in zip(expected[0], columns[1], strict=True)]
    )
    episode = reference.Episode(*map(torch.tensor, columns))
    for result in (reference.gae_before(episode, 0.9, 0.8), reference.gae_seed(episode, 0.9, 0.8)):
        np.testing.assert_allclose(np.stack(result), expected, rtol=1e-5)
    np.testing.assert_allclose(reference.gae_floats(columns, 0.9, 0.8), expected, rtol=1e-9)


def test_episodes_of_lanes_are_cut_where_they_end():
    terminated = torch.tensor([[False, True], [True, False], [False, False]])
    column = torch.arange(6.0).reshape(3, 2)
    trace = Trace(column, column, column + 10, terminated, torch.zeros_like(terminated))
    result = [episode.rewards.tolist() for episode in gae.episodes_of(trace)]
    assert result == [[0, 2], [4], [1], [3, 5]]
    assert gae.episodes_of(trace)[0].next_values.tolist() == [10, 0]


@pytest.mark.usefixtures("few")
def test_rows_of_advantages_are_well_formed():
    rows = [*gae.single_rows("T=200", 1)]
    rows += [gae.batch_row(name, 1) for name in ("64 episodes", "[1000, 64]")]
    assert len(render(rows).splitlines()) == 2 + len(rows)
    assert rows[2].name == "advantages, 64 episodes: 200 steps"
    assert [row.claims for row in rows] == [("colony-4",), (), ("colony-4",), ("colony-4",)]
    assert rows[0].point.at == 7
    assert all(row.without and row.limit for row in rows if row.claims)


def test_of_many_episodes_the_first_are_timed_and_counted_up(monkeypatch):
    monkeypatch.setattr(gae, "PLAIN_STEPS", 5)
    each = [reference.Episode(*[torch.zeros(length)] * 3) for length in (3, 4, 5)]
    result, share = gae.first_of(each)
    assert [len(episode.rewards) for episode in result] == [3, 4]
    assert share == 7 / 12
    assert gae.first_of(each[:1]) == (each[:1], 1.0)


def test_short_work_fills_a_turn(monkeypatch):
    calls = []
    moments = iter([0.0, 0.5, 9.0, 9.5])
    monkeypatch.setattr(repeat.time, "perf_counter", lambda: next(moments))
    monkeypatch.setattr(repeat, "TURN", 2.0)
    contestant = repeat.repeat(lambda: calls.append(1), 3)
    calls.clear()
    contestant.run()
    assert len(calls) == 4
    assert contestant.units == 12
    monkeypatch.setattr(repeat, "TURN", 0.1)
    assert repeat.repeat(lambda: calls.append(1)).units == 1


@pytest.mark.usefixtures("few")
def test_other_advantages_are_refused(monkeypatch):
    monkeypatch.setattr(
        reference, "gae_seed", lambda *_: reference.Estimate(torch.zeros(7), torch.zeros(7))
    )
    with pytest.raises(
        NotTheSame, match="advantages, T=200: ours are others than the seed's way's"
    ):
        gae.single_rows("T=200", 1)


def test_residual_network_is_the_published_one():
    body = plain.resnet18()
    # 11 689 512 less the classifier and two of the three channels that the first convolution reads.
    assert sum(each.numel() for each in body.parameters()) == 11_689_512 - 513 * 1000 - 2 * 64 * 49
    assert body.eval()(torch.zeros(2, 1, plain.IMAGE, plain.IMAGE)).shape == (2, 512)


def test_residual_networks_cost_and_change_nothing(sides):
    both = learning.minibatch_of(sides, 3, 6)
    costly = making.with_images(sides)
    costly.train()
    assert not any(
        module.training for body in (costly.images.actor_body,) for module in body.modules()
    )
    graph = both.plain[0].graph
    torch.testing.assert_close(costly(graph), sides.plain(graph))
    plain.loss(costly, both.plain, both.coefs).backward()
    assert costly.images.of_cell.weight.grad is not None
    assert all(param.grad is None for param in costly.images.actor_body.parameters())


def test_policies_and_environments_are_the_same(sides):
    for cells in (1, 6, 40):
        making.refuse_another_policy(sides, cells)
    making.refuse_another_step(making.sized(sides.world, 6))


def test_another_policy_is_refused(sides):
    other = sides._replace(plain=making.plain_network(sides.config))
    with torch.no_grad():
        other.plain.critic[-1].bias += 1
    with pytest.raises(
        NotTheSame, match="policy: colony 0 of 6 cells: another distribution or value"
    ):
        making.refuse_another_policy(other, 6)


def test_another_environment_is_refused(sides, monkeypatch):
    monkeypatch.setattr(Colony, "leftmost", lambda colony, _: colony.cells[::2])
    with pytest.raises(NotTheSame, match="environment: colony 0: other cells"):
        making.refuse_another_step(making.sized(sides.world, 6))


def test_an_even_colony_holds_its_size_in_both(sides):
    world = making.sized(sides.world, 6)
    acting = plain.Acting(
        sides.plain,
        making.plain_colony(world, making.colonies_of(world, 1), 0),
        making.plain_scale(sides.actor),
        sides.box,
    )
    assert [acting.step().after.size for _ in range(3)] == [6, 6, 6]
    colonies = making.colonies_of(world, 5)
    for _ in range(3):
        colonies = playing.acted(sides, world, colonies, torch.Generator().manual_seed(0))
        assert colonies.n.tolist() == [6] * 5


def test_gradients_are_the_same_and_others_are_refused(sides, monkeypatch):
    both = learning.minibatch_of(sides, 4, 6)
    learning.refuse_another_gradient(sides, both)
    original = plain.loss
    monkeypatch.setattr(plain, "loss", lambda *args: 1.01 * original(*args))
    with pytest.raises(NotTheSame, match="loss or gradient differs"):
        learning.refuse_another_gradient(sides, both)


def test_contestants_of_an_update_learn(sides):
    both = learning.minibatch_of(sides, 4, 6)
    copy, trainer = learning.plain_copy(sides), learning.trainer_of(sides, sides.config)
    ours = trainer.network.cells.weight.detach().clone()
    for _ in range(2):
        learning.plain_update(sides, copy, both, 4).run()
    assert not torch.equal(copy.cells.weight, sides.plain.cells.weight)
    learning.own_update(trainer, both.ours).run()
    assert not torch.equal(trainer.network.cells.weight, ours)


@pytest.mark.usefixtures("few")
def test_rows_of_playing_and_updates_are_well_formed(sides):
    rows = playing.rows(sides, 1) + learning.update_rows(sides, 6, 1)
    assert len(render(rows).splitlines()) == 2 + len(rows)
    assert [row.goal for row in rows if row.goal] == [
        Goal(10, "before"),
        *[Goal(100, "before")] * 4,
    ]
    assert [row.point.at for row in rows if row.point and row.point.axis == "cells"] == [6, 8]
    for row in rows:
        assert min(row.ours.median, row.before.median) > 0
    [main] = [row for row in rows if row.name.startswith("environment, 3")]
    assert main.claims == ("colony-environments",)
    assert main.without.measured is not main.ours


@pytest.mark.usefixtures("few")
def test_rows_of_a_whole_iteration_are_well_formed(sides):
    rows = whole.rows(sides, 1)
    assert [row.claims for row in rows] == [
        ("colony-overall", "colony-environments"),
        ("colony-overall",),
    ]
    for row in rows:
        assert min(row.ours.median, row.before.median, row.seed_way.median) > 0


@pytest.mark.usefixtures("few")
def test_an_iteration_learns_and_the_proposal_changes_nothing_in_it(sides, monkeypatch):
    plainly = whole.Plain(sides, iteration.BEFORE, 3, 0)
    ours = plainly.network.cells.weight.detach().clone()
    assert len(plainly.run()) == whole.EPOCHS
    assert not torch.equal(plainly.network.cells.weight, ours)
    whole.refuse_another_iteration(sides)
    dearer = iteration.SEED._replace(reward=lambda paid: {"total": 5 * paid["progress"] + 1})
    monkeypatch.setattr(whole, "SEED", dearer)
    monkeypatch.setattr(whole, "PLAIN_STEPS", 3)
    with pytest.raises(NotTheSame, match=r"training: losses .* become"):
        whole.refuse_another_iteration(sides)


def test_one_query_trimming_and_padding_change_no_loss(sides):
    batch = learning.minibatch_of(sides, 4, 6).ours
    plainly, everyone = (learning.trainer_of(sides, sides.config) for _ in range(2))
    expected = learning.iteration.objective(plainly, batch, 0.0)[0]
    wide = learning.padded(batch, 9)
    assert wide.groups[0].node.shape[1] == 9
    asked = []
    monitored = learning.asking_everyone(everyone)
    monitored.network.blocks[-1].attention.register_forward_hook(lambda *_: asked.append(1))
    for result in (
        learning.iteration.objective(plainly, wide, 0.0)[0],
        learning.iteration.objective(monitored, batch, 0.0)[0],
    ):
        torch.testing.assert_close(result, expected)
    assert asked == [1]


def test_products_are_counted_by_the_operations_they_stand_for(monkeypatch):
    monkeypatch.setattr(repeat, "MOST", 1)
    item = 4.0 * playing.COLONIES * playing.CELLS * 3 * 3
    assert playing.products(2 * item, 3, 5).units == 2.5


@pytest.mark.usefixtures("few")
def test_rows_of_what_was_left_for_later_are_well_formed(sides, monkeypatch):
    monkeypatch.setattr(learning, "changed", lambda config, **_: config)
    batch = learning.minibatch_of(sides, 3, 6).ours
    rows = [*learning.precision_rows(sides, batch, 1), learning.compiled_row(sides, batch, 1)]
    assert [row.claims for row in rows] == [(), ("colony-amp",), ("colony-compile",)]
    assert rows[0].without.what == "one query in the last block: all cells ask"
    assert all(row.before is row.ours and row.seed_way.median > 0 for row in rows[1:])
    assert rows[2].seed_way.compile_seconds > 0


def test_another_output_of_a_program_is_refused(sides):
    batch = learning.minibatch_of(sides, 3, 6).ours
    trainer = learning.trainer_of(sides, sides.config)
    output = trainer.actor.forward(*batch.groups)
    learning.refuse_another_output(output, output)
    with pytest.raises(NotTheSame, match="compiled: another value than eager"):
        learning.refuse_another_output(output._replace(value=output.value + 0.1), output)


def test_another_program_is_refused(sides):
    batch = learning.minibatch_of(sides, 4, 6).ours
    trainer = learning.trainer_of(sides, sides.config)
    half = learning.trainer_of(sides, learning.changed(sides.config, amp="bf16"))
    arms = {"float32": trainer, "bfloat16": half, "everyone": trainer}
    learning.refuse_another_program(arms, batch)
    worse = learning.trainer_of(sides, sides.config)
    with torch.no_grad():
        worse.network.critic[-1].bias += 1
    with pytest.raises(NotTheSame, match="update: the everyone loss"):
        learning.refuse_another_program(arms | {"everyone": worse}, batch)


def test_memory_of_all_is_told(monkeypatch):
    kept, estimates = memory.plain(iteration.SEED)
    assert len(kept) == len(estimates) == memory.COLONIES
    assert {len(steps) for steps in kept} == {memory.STEPS}
    rollout, result = memory.ours()
    assert rollout.n.eq(memory.CELLS).all()
    assert result.advantage.shape == (memory.STEPS, memory.COLONIES)
    monkeypatch.setattr(memory, "CELLS", 5)
    monkeypatch.setattr(
        memory, "SIDES", {side: memory.SIDES[side] for side in ("before", "seed", "ours")}
    )
    [row] = memory.rows(ROOT)
    assert row.claims == ("colony-memory",)
    assert 2**20 < min(row.ours.median, row.seed_way.median) <= row.before.median * 2


def test_a_process_that_fails_is_told():
    process = memory.begun(ROOT, "nobody's")
    with pytest.raises(RuntimeError, match=r"memory: .* ended with 1"):
        memory.grown(process)
