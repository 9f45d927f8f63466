"""Plain references of actor_critic are right, and rows whose sides differ are refused."""

from collections.abc import Iterator
from functools import partial

import numpy as np
import pytest
import torch
from torch.distributions import Normal

from benchmarks import harness
from benchmarks.actor_critic import learning, measure, memory, parts, playing, sides
from benchmarks.harness import NotComparable
from benchmarks.reference import actor_critic as plain
from benchmarks.reference import actor_critic_parts as reference
from benchmarks.reference.actor_critic_parts import BEFORE
from benchmarks.torch_rows import measured_row
from quatrain.envs.colony.world import step
from quatrain.frameworks.torch.threads import threads
from quatrain.models.actor_critic.ppo.acting import Actor
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
    original = learning.trainer_of
    steps = {"COLONIES": 3, "HORIZON": 2, "MINIBATCH": 4, "PLAIN_STEPS": 2}

    def trainer_of(actor, **keys):
        return original(actor, **keys | {"compile": False})

    def in_process(_, works):
        return {name: measured_row("s", 1, "", {"ours": work}).ours for name, work in works.items()}

    for module, names in {
        harness: {"MOST": 1},
        parts: {"SAMPLES": 2, "SHAPES": parts.SHAPES | {"T=10000": (50, 1)}},
        playing: {"COLONIES": 3, "CELLS": 6, "THREADS": (1,)},
        learning: steps | {"BATCH": 3, "CELLS": 6, "trainer_of": trainer_of},
        memory: {"STEPS": 2, "COLONIES": 3, "measure_growth": in_process},
    }.items():
        for name, value in names.items():
            monkeypatch.setattr(module, name, value)


@pytest.fixture(scope="module", params=["light", "full"])
def actor(request) -> Actor:
    everything = sides.actor_of(ROOT, env={"features": request.param}, network=NETWORK)
    return sides.sized(everything, 6)


@pytest.mark.full
@pytest.mark.usefixtures("few")
def test_rows_answer_all_claims():
    with shapes_unchecked():
        rows = measure.measure(ROOT, 1).rows
    assert {claim for row in rows for claim in row.claims} == {f"colony-{it}" for it in CLAIMS}
    assert len([row for row in rows if row.goal]) == 4
    assert all(row.ours.median > 0 and row.before.median > 0 for row in rows)


LOSS = plain.loss
ROW = partial(measured_row, "ms/step", 1)


def loss_of_another_gradient(network, *args):
    weight = network.cells.weight.sum()
    return LOSS(network, *args) + 0.01 * (weight - weight.detach())


def another_estimate(episode, *_):
    return reference.Estimate(episode.rewards, episode.values)


def dearer_reward(paid):
    return {"total": 5 * paid["progress"] + 1}


def network_of_another_value(trainer):
    def forward(*graphs):
        return trainer.network(*graphs)._replace(value=torch.ones(3))

    return forward


MEASURED = {
    "policy": lambda actor: [
        sides.refuse_another_policy(sides.sized(actor, cells)) for cells in (1, 6, 40)
    ],
    "environment": lambda actor: sides.refuse_another_step(actor.world),
    "update": lambda actor: learning.refuse_another_gradient(
        actor, learning.minibatch_of(actor, 4)
    ),
    "update in bfloat16": lambda actor: learning.precision_row(
        ROW, actor, learning.minibatch_of(actor, 3)
    ),
    "training iteration": lambda actor: learning.iteration_rows(ROW, actor),
    "advantages, T=200": lambda _: parts.advantage_row(ROW, "T=200"),
    **dict.fromkeys(("leftmost of 20", "reward", "entropy"), lambda _: parts.rows(1)),
}


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize(
    ("what", "target", "replacement"),
    [
        ("policy", "reference.actor_critic.CLIP", 0.1),
        ("environment", "reference.colony.Colony.leftmost", lambda colony, _: colony.cells[::2]),
        ("update", "reference.actor_critic.loss", lambda *args: 1.01 * LOSS(*args)),
        ("update", "reference.actor_critic.loss", loss_of_another_gradient),
        ("update in bfloat16", "actor_critic.learning.in_bfloat16", network_of_another_value),
        pytest.param(
            "training iteration",
            "actor_critic.learning.SEED",
            BEFORE._replace(reward=dearer_reward),
            marks=pytest.mark.full,
        ),
        ("leftmost of 20", "actor_critic.parts.select_leftmost", lambda x, *_: x > 300),
        ("reward", "actor_critic.parts.own_reward", lambda columns, _: columns.sum(0)),
        ("entropy", "actor_critic.parts.beta_entropy", lambda params: params[0].sum(-1)),
        ("advantages, T=200", "reference.actor_critic_parts.gae_before", another_estimate),
        ("advantages, T=200", "reference.actor_critic_parts.gae_seed", another_estimate),
    ],
)
def test_sides_that_differ_are_refused(actor, monkeypatch, what, target, replacement):
    MEASURED[what](actor)
    monkeypatch.setattr(f"benchmarks.{target}", replacement)
    with pytest.raises(NotComparable, match=f"{what}.*do not compute the same"):
        MEASURED[what](actor)


def test_a_partial_sort_selects_other_cells_where_some_share_an_x():
    rng = np.random.default_rng(0)
    others = 0
    for _ in range(100):
        node = torch.tensor(rng.integers(0, 10, (30, 1)), dtype=torch.float32)
        others += reference.leftmost_seed(node, 9) != reference.leftmost_before(node, 9)
    assert 5 < others < 100
    assert reference.leftmost_before(node, 0) == reference.leftmost_seed(node, 0) == set()


def test_entropy_of_samples_is_that_of_the_closed_form():
    torch.manual_seed(0)
    normal = Normal(torch.zeros(1, 5), torch.full((1, 5), 2.0))
    torch.testing.assert_close(
        reference.entropy_before(normal, 40_000), reference.entropy_seed(normal), atol=0.05, rtol=0
    )


def test_residual_networks_are_the_published_ones_and_stay_as_they_are(actor):
    # 11 689 512 less the classifier and two of the three channels that the first convolution reads.
    size = sum(each.numel() for each in plain.resnet18().parameters())
    assert size == 11_689_512 - 513 * 1000 - 2 * 64 * 49
    player = sides.plain_player(actor, 1)
    images = player.network.images
    bodies = (images.actor_body, images.critic_body)
    assert not any(module.training for body in bodies for module in body.modules())
    colony = sides.plain_colony(actor.world, sides.colonies_of(actor.world, 1), 0)
    player.network(plain.graph_of(colony, actor.scale))[0].sum().backward()
    assert images.of_cell.weight.grad is not None
    assert all(param.grad is None for body in bodies for param in body.parameters())


def test_an_even_colony_keeps_its_size_in_both(actor):
    colonies = sides.colonies_of(actor.world, 5)
    colony = sides.plain_colony(actor.world, colonies, 0)
    player = sides.plain_player(actor)
    assert [player.act(colony).after.size for _ in range(3)] == [6, 6, 6]
    action = sides.steady(actor.world, 5)
    assert step(actor.world, colonies, action, torch.Generator()).colonies.n.tolist() == [6] * 5


@pytest.mark.usefixtures("few")
def test_plain_training_learns(actor):
    work = learning.plain_training(actor, BEFORE, 3)
    first, second = work(), work()
    assert len(first) == learning.EPOCHS
    assert first != second
