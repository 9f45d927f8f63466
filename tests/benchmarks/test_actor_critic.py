"""Plain references of actor_critic are right, and rows whose sides differ are refused."""

from collections.abc import Iterator
from functools import partial

import numpy as np
import pytest
import torch
from torch.distributions import Normal

from benchmarks import repeat
from benchmarks.actor_critic import gae, learning, measure, memory, parts, playing
from benchmarks.actor_critic import sides as making
from benchmarks.peers import gae as gae_peers
from benchmarks.reference import actor_critic as plain
from benchmarks.reference import actor_critic_parts as reference
from benchmarks.reference.actor_critic_iteration import BEFORE
from benchmarks.table import NotTheSame, render
from benchmarks.torch_rows import measured_row
from benchmarks.torch_threads import threads
from quatrain.envs.colony.world import step
from quatrain.replay.rollouts.gae import Trace
from tests.conftest import ROOT, shapes_unchecked

NETWORK = {"d": 12, "layers": 2, "heads": 3}
CLAIMS = ["1", "2", "3", "4", "environments", "amp", "compile", "overall", "memory"]


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    with threads(1):
        yield


@pytest.fixture
def few(monkeypatch):
    """Shrinks all work; compiles nothing, and starts no process."""
    sizes = {
        repeat: {"MOST": 1},
        parts: {"SAMPLES": 2},
        playing: {"COLONIES": 3, "COUNTS": (3, 1), "CELLS": 6, "THREADS": (1,)},
        learning: {"BATCH": 3, "CELLS": 6, "COLONIES": 3, "HORIZON": 2, "MINIBATCH": 4},
        memory: {"STEPS": 2, "COLONIES": 3},
    }
    for module, names in sizes.items():
        for name, value in names.items():
            monkeypatch.setattr(module, name, value)
    monkeypatch.setattr(learning, "PLAIN_STEPS", 2)
    for name, shape in {"T=10000": (50, 1), "64 episodes": (200, 1), "[1000, 64]": (9, 4)}.items():
        monkeypatch.setitem(gae_peers.SHAPES, name, shape)
    original = learning.changed
    eager = {"compile": False}
    monkeypatch.setattr(
        learning, "changed", lambda config, **keys: original(config, **keys | eager)
    )
    monkeypatch.setattr(memory, "measure_growth", lambda _, works: memory_in_process(works))


def memory_in_process(works):
    assert all(len(work()) == 2 for work in works.values())
    return dict.fromkeys(works, measured_row("s", 1, "", {"ours": lambda: None}).ours)


@pytest.fixture(scope="module", params=["light", "full"])
def sides(request) -> making.Sides:
    return making.sides_of(ROOT, env={"features": request.param}, network=NETWORK)


@pytest.mark.usefixtures("few")
def test_rows_answer_all_claims_and_goals():
    with shapes_unchecked():
        rows = measure.measure(ROOT, 1).rows
    assert len(render(rows).splitlines()) == 2 + len(rows)
    claims = dict.fromkeys(claim for row in rows for claim in row.claims)
    assert set(claims) == {f"colony-{name}" for name in CLAIMS}
    goals = [str(row.goal) for row in rows if row.goal]
    assert goals == [">= 100x seed's way", ">= 10x before", *[">= 100x before"] * 2]
    curves = {}
    for row in rows:
        curves.setdefault(row.point and row.point.curve, []).append(row.point and row.point.at)
        assert min(row.ours.median, row.before.median) >= 0
    assert curves["leftmost cells"] == [20, 100, 512]
    assert curves["advantages of an episode"] == [200, 1000, 50]
    assert curves["environment"] == [3, 1]
    assert [row.name for row in rows if row.name.startswith("advantages, 64")] == [
        "advantages, 64 episodes: 200 steps; before, seed's way: 64 episodes, counted up"
    ]


LOSS = plain.loss


def loss_of_another_gradient(network, *args):
    weight = network.cells.weight.sum()
    return LOSS(network, *args) + 0.01 * (weight - weight.detach())


def another_estimate(episode, *_):
    return reference.Estimate(episode.rewards, episode.values)


def dearer_reward(paid):
    return {"total": 5 * paid["progress"] + 1}


def actor_of_another_value(trainer):
    return trainer.actor._replace(
        forward=lambda *_: trainer.network(*_)._replace(value=torch.ones(3))
    )


ROW = partial(measured_row, "ms/step", 1)
MEASURED = {
    "policy": lambda sides: making.refuse_another_policy(sides, 6),
    "environment": lambda sides: making.refuse_another_step(making.sized(sides.world, 6)),
    "update": lambda sides: learning.refuse_another_gradient(
        sides, learning.minibatch_of(sides, 4, 6)
    ),
    "update in bfloat16": lambda sides: learning.precision_row(
        ROW, sides, learning.minibatch_of(sides, 3, 6)
    ),
    "training iteration": lambda sides: learning.iteration_rows(ROW, sides),
    "advantages, T=200": lambda _: gae.advantage_row("T=200", 1),
}


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize(
    ("what", "target", "replacement"),
    [
        ("policy", "benchmarks.reference.actor_critic.CLIP", 0.1),
        (
            "environment",
            "benchmarks.reference.colony.Colony.leftmost",
            lambda colony, _: colony.cells[::2],
        ),
        ("update", "benchmarks.reference.actor_critic.loss", lambda *args: 1.01 * LOSS(*args)),
        ("update", "benchmarks.reference.actor_critic.loss", loss_of_another_gradient),
        (
            "update in bfloat16",
            "benchmarks.actor_critic.learning.in_bfloat16",
            actor_of_another_value,
        ),
        (
            "training iteration",
            "benchmarks.actor_critic.learning.SEED",
            BEFORE._replace(reward=dearer_reward),
        ),
        (
            "advantages, T=200",
            "benchmarks.reference.actor_critic_parts.gae_before",
            another_estimate,
        ),
        ("advantages, T=200", "benchmarks.reference.actor_critic_parts.gae_seed", another_estimate),
    ],
)
def test_sides_that_differ_are_refused(sides, monkeypatch, what, target, replacement):
    MEASURED[what](sides)
    monkeypatch.setattr(target, replacement)
    with pytest.raises(NotTheSame, match=f"{what}.*do not compute the same"):
        MEASURED[what](sides)


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize(
    ("what", "name", "replacement"),
    [
        ("leftmost of 20", "select_leftmost", lambda x, *_: x > 300),
        ("reward", "own_reward", lambda columns, _: columns.sum(0)),
        ("entropy", "beta_entropy", lambda params: params[0].sum(-1)),
    ],
)
def test_other_parts_are_refused(monkeypatch, what, name, replacement):
    monkeypatch.setattr(parts, name, replacement)
    with pytest.raises(NotTheSame, match=what):
        parts.rows(1)


def test_a_partial_sort_selects_other_cells_where_some_share_an_x():
    node = torch.tensor([[3.0], [1.0], [1.0], [2.0]])
    assert reference.leftmost_before(node, 1) == {1}
    assert reference.leftmost_seed(node, 2) == reference.leftmost_before(node, 2) == {1, 2}
    assert reference.leftmost_before(node, 0) == reference.leftmost_seed(node, 0) == set()
    rng = np.random.default_rng(0)
    others = 0
    for _ in range(100):
        node = torch.tensor(rng.integers(0, 10, (30, 1)), dtype=torch.float32)
        others += reference.leftmost_seed(node, 9) != reference.leftmost_before(node, 9)
    assert 5 < others < 100


def test_entropy_of_samples_is_that_of_the_closed_form():
    torch.manual_seed(0)
    normal = Normal(torch.zeros(1, 5), torch.full((1, 5), 2.0))
    torch.testing.assert_close(
        reference.entropy_before(normal, 40_000), reference.entropy_seed(normal), atol=0.05, rtol=0
    )


def test_loops_compute_the_advantages_worked_out_by_hand():
    columns = ([1.0, 0, 2, 1], [0.5, 0.4, 0.3, 0.2], [0.4, 0.3, 0.7, 0.6])
    expected = [1.0 + 0.9 * 0.4 - 0.5, 0.9 * 0.3 - 0.4, 2 + 0.9 * 0.7 - 0.3, 1 + 0.9 * 0.6 - 0.2]
    for time in (2, 1, 0):
        expected[time] += 0.72 * expected[time + 1]
    returns = np.add(expected, columns[1])
    episode = reference.Episode(*map(torch.tensor, columns))
    for loop in (reference.gae_before, reference.gae_seed):
        np.testing.assert_allclose(
            np.stack(loop(episode, 0.9, 0.8)), [expected, returns], rtol=1e-5
        )


def test_episodes_are_cut_where_they_end_and_the_first_are_timed(monkeypatch):
    terminated = torch.tensor([[False, True], [True, False], [False, False]])
    column = torch.arange(6.0).reshape(3, 2)
    trace = Trace(column, column, column + 10, terminated, torch.zeros_like(terminated))
    episodes = gae.episodes_of(trace)
    assert [episode.rewards.tolist() for episode in episodes] == [[0, 2], [4], [1], [3, 5]]
    assert episodes[0].next_values.tolist() == [10, 0]
    monkeypatch.setattr(gae, "PLAIN_STEPS", 3)
    assert gae.first_of(episodes) == (episodes[:2], 0.5)
    assert gae.first_of(episodes[:1]) == (episodes[:1], 1.0)


def test_residual_network_is_the_published_one():
    body = plain.resnet18()
    # 11 689 512 less the classifier and two of the three channels that the first convolution reads.
    assert sum(each.numel() for each in body.parameters()) == 11_689_512 - 513 * 1000 - 2 * 64 * 49
    assert body.eval()(torch.zeros(2, 1, plain.IMAGE, plain.IMAGE)).shape == (2, 512)


def test_residual_networks_cost_and_learn_only_their_projections(sides):
    costly = making.plain_network(sides.config, sides.network, images=True)
    bodies = (costly.images.actor_body, costly.images.critic_body)
    assert not any(module.training for body in bodies for module in body.modules())
    colony = making.plain_colony(sides.world, making.colonies_of(sides.world, 1), 0)
    raw, value = costly(plain.graph_of(colony, sides.actor.scale))
    (raw.sum() + value).backward()
    assert costly.images.of_cell.weight.grad is not None
    assert all(param.grad is None for body in bodies for param in body.parameters())


@pytest.mark.parametrize("cells", [1, 40])
def test_policies_are_the_same_for_the_smallest_and_for_large_colonies(sides, cells):
    making.refuse_another_policy(sides, cells)


def test_an_even_colony_holds_its_size_in_both(sides):
    world = making.sized(sides.world, 6)
    colonies = making.colonies_of(world, 5)
    network = making.plain_network(sides.config, sides.network)
    player = plain.Player(network, sides.actor.scale, sides.box)
    colony = making.plain_colony(world, colonies, 0)
    assert [player.act(colony).after.size for _ in range(3)] == [6, 6, 6]
    action = making.steady(world, 5)
    for _ in range(3):
        colonies = step(world, colonies, action, torch.Generator().manual_seed(0)).colonies
        assert colonies.n.tolist() == [6] * 5


@pytest.mark.usefixtures("few")
def test_plain_training_learns(sides):
    work = learning.plain_training(sides, BEFORE, 3)
    first, second = work(), work()
    assert len(first) == learning.EPOCHS
    assert first != second
