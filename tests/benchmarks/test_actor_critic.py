"""The plain references do the original's work, the project the same, and the benchmark refuses where they do not."""

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from torch.distributions import Beta, Normal

from benchmarks.actor_critic import gae, learning, memory, parts, playing
from benchmarks.actor_critic import sides as making
from benchmarks.harness import Times
from benchmarks.peers import environment
from benchmarks.peers import gae as gae_peers
from benchmarks.reference import actor_critic as plain
from benchmarks.reference import actor_critic_parts as reference
from benchmarks.reference.colony import Colony
from benchmarks.table import NotTheSame, render
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
    monkeypatch.setattr(playing, "OWN_STEPS", 1)
    monkeypatch.setattr(playing, "PLAIN_STEPS", 1)
    monkeypatch.setattr(playing, "IMAGE_STEPS", 1)
    monkeypatch.setattr(playing, "CELLS", 6)
    monkeypatch.setattr(learning, "GRAPHS", 3)
    monkeypatch.setattr(learning, "UPDATES", 1)
    monkeypatch.setattr(parts, "REPEATS", 1)
    monkeypatch.setattr(parts, "SAMPLES", 2)
    monkeypatch.setitem(gae_peers.SHAPES, "T=200", (7, 1))
    monkeypatch.setitem(gae_peers.SHAPES, "64 episodes", (200, 1))
    monkeypatch.setitem(gae_peers.SHAPES, "[1000, 64]", (9, 4))


@pytest.mark.usefixtures("few")
def test_rows_of_the_parts_are_well_formed():
    rows = parts.rows(1)
    assert len(render(rows).splitlines()) == 2 + len(rows)
    assert {row.seed_item for row in rows} - {"-"} == {
        "002-1 argpartition",
        "002-2 dict template",
        "002-3 closed form",
    }
    for row in rows:
        assert min(row.ours.median, row.before.median) > 0


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
    monkeypatch.setattr(parts, "beta_entropy", lambda parameters: parameters.first.sum(-1))
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
    expected.append([advantage + value for advantage, value in zip(expected[0], columns[1], strict=True)])
    episode = reference.Episode(*map(torch.tensor, columns))
    for found in (reference.gae_before(episode, 0.9, 0.8), reference.gae_seed(episode, 0.9, 0.8)):
        np.testing.assert_allclose(np.stack(found), expected, rtol=1e-5)
    np.testing.assert_allclose(reference.gae_floats(columns, 0.9, 0.8), expected, rtol=1e-9)


def test_episodes_of_lanes_are_cut_where_they_end():
    terminated = torch.tensor([[False, True], [True, False], [False, False]])
    column = torch.arange(6.0).reshape(3, 2)
    trace = Trace(column, column, column + 10, terminated, torch.zeros_like(terminated))
    found = [episode.rewards.tolist() for episode in gae.episodes_of(trace)]
    assert found == [[0, 2], [4], [1], [3, 5]]
    assert gae.episodes_of(trace)[0].next_values.tolist() == [10, 0]


@pytest.mark.usefixtures("few")
def test_rows_of_advantages_are_well_formed():
    rows = [*gae.single_rows("T=200", 1)]
    rows += [gae.batch_row(name, 1) for name in ("64 episodes", "[1000, 64]")]
    assert len(render(rows).splitlines()) == 2 + len(rows)
    assert rows[2].name == "advantages, 64 episodes: 200 steps"


@pytest.mark.usefixtures("few")
def test_other_advantages_are_refused(monkeypatch):
    monkeypatch.setattr(reference, "gae_seed", lambda *_: reference.Estimate(torch.zeros(7), torch.zeros(7)))
    with pytest.raises(NotTheSame, match="advantages, T=200: ours are others than the seed's way's"):
        gae.single_rows("T=200", 1)


def test_without_other_libraries_there_is_a_note_and_no_row(tmp_path, monkeypatch):
    monkeypatch.setattr(environment, "TORCH", "no-such-package-at-all==0")
    monkeypatch.setattr(environment.sys, "executable", str(tmp_path / "no-python"))
    found, notes = environment.times(tmp_path, 1)
    assert found == {}
    assert "other libraries are not compared" in notes[0]
    assert "no-python" in notes[0]
    assert gae.peer_rows("T=200", {}) == []


def test_rows_against_other_libraries_are_well_formed():
    seconds = {"torchrl": 4.0, "torchrl, plain": 9.0, "stable-baselines3": 3.0, "ours": 1.0}
    rows = gae.peer_rows("T=200", {side: Times(np.full(3, one)) for side, one in seconds.items()})
    assert [row.met for row in rows] == [True, None, True]


def test_a_failed_command_is_told_by_its_last_line():
    error = environment.subprocess.CalledProcessError(1, "pip", stderr="a\nERROR: no matching distribution\n")
    assert environment.reason(error) == "ERROR: no matching distribution"


def test_residual_network_is_the_published_one():
    body = plain.resnet18()
    # 11 689 512 less the classifier and two of the three channels that the first convolution reads.
    assert sum(each.numel() for each in body.parameters()) == 11_689_512 - 513 * 1000 - 2 * 64 * 49
    assert body.eval()(torch.zeros(2, 1, plain.IMAGE, plain.IMAGE)).shape == (2, 512)


def test_residual_networks_cost_and_change_nothing(sides):
    both = learning.minibatch_of(sides, 3, 6)
    costly = making.with_images(sides)
    costly.train()
    assert not any(module.training for body in (costly.images.actor_body,) for module in body.modules())
    graph = both.plain[0].graph
    torch.testing.assert_close(costly(graph), sides.plain(graph))
    plain.loss(costly, both.plain, both.chosen).backward()
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
    with pytest.raises(NotTheSame, match="policy: colony 0 of 6 cells: another distribution or value"):
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
    copy, agent = learning.plain_copy(sides), learning.agent_of(sides, sides.config)
    own = agent.network.cells.weight.detach().clone()
    for _ in range(2):
        learning.plain_update(sides, copy, both).run()
    assert not torch.equal(copy.cells.weight, sides.plain.cells.weight)
    learning.own_update(agent, both.ours).run()
    assert not torch.equal(agent.network.cells.weight, own)


@pytest.mark.usefixtures("few")
def test_rows_of_playing_and_updates_are_well_formed(sides):
    rows = playing.rows(sides, 1) + learning.update_rows(sides, 6, 1)
    assert len(render(rows).splitlines()) == 2 + len(rows)
    assert [row.goal is not None for row in rows].count(True) == 5
    for row in rows:
        assert min(row.ours.median, row.before.median) > 0


def test_another_program_is_refused(sides):
    batch = learning.minibatch_of(sides, 4, 6).ours
    agent = learning.agent_of(sides, sides.config)
    half = learning.agent_of(sides, learning.changed(sides.config, amp="bf16"))
    arms = {"float32": agent, "bfloat16": half, "compiled": agent}
    assert learning.refuse_another_program(arms, batch) > 0
    worse = learning.agent_of(sides, sides.config)
    with torch.no_grad():
        worse.network.critic[-1].bias += 1
    with pytest.raises(NotTheSame, match="update: the compiled loss"):
        learning.refuse_another_program(arms | {"compiled": worse}, batch)


def test_memory_of_both_is_told():
    kept = memory.before()
    assert len(kept) == memory.STEPS * memory.COLONIES
    assert memory.ours().n.eq(memory.CELLS).all()
    assert "a dictionary each" in memory.note(ROOT)
