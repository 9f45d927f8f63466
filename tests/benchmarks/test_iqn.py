"""The plain reference does the original's work and the project the same, else it is refused."""

from collections.abc import Iterator
from itertools import islice
from operator import setitem

import numpy as np
import pytest
import torch

from benchmarks import speed
from benchmarks.harness import NotComparable
from benchmarks.iqn import playing, ring, steps, whole
from benchmarks.iqn import sides as making
from benchmarks.iqn.sides import SAME_TARGET
from benchmarks.reference import iqn as reference
from benchmarks.reference import iqn_seed as seed
from benchmarks.reference.iqn_world import ObjectWorld
from quatrain.frameworks.torch.threads import threads
from tests.conftest import ROOT

pytestmark = pytest.mark.full
ORIGINAL = making.settings_of(making.config_of(ROOT, train={"loss": SAME_TARGET}))
TINY = ORIGINAL._replace(
    inputs=6, hidden=16, cosines=4, quantiles=5, acting_quantiles=7, noisy=False
)


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Idle threads of PyTorch would spin in the way of the others'."""
    with threads(1):
        yield


@pytest.fixture(scope="module")
def sides() -> making.Sides:
    env = {"agents": 2, "max_turns": 10, "height": 5, "width": 6}
    network = {"frames": 3, "hidden": 8, "cosines": 4}
    train = {"turns": 100, "turns_per_cycle": 10, "updates_per_cycle": 2, "record_every": 2}
    train |= {"evaluate_every": 0, "batch_size": 16, "capacity": 100}
    train["loss"] = SAME_TARGET | {"quantiles": 5, "target_quantiles": 5}
    sections = {"env": env, "collect": {"turns": 50}, "network": network, "train": train}
    return making.sides_of(making.config_of(ROOT, **sections))


def agent_of(**settings) -> reference.Agent:
    return reference.Agent(TINY._replace(**settings), torch.Generator().manual_seed(3))


def batch(size: int) -> reference.Batch:
    rng, ones = np.random.default_rng(5), np.ones(size, np.float32)
    stacks = rng.integers(0, 3, (2, size, TINY.inputs)).astype(np.float32)
    return reference.Batch(stacks[0], rng.integers(0, 4, size), ones, stacks[1])


def test_reference_has_the_parameters_and_the_loss_of_the_original():
    network = reference.Iqn(ORIGINAL, torch.Generator())
    assert sum(each.numel() for each in network.parameters()) == 300_760
    taus, values, target = map(torch.tensor, ([[0.25, 0.75]], [[1.0, 3.0]], [[0.0, 2.0, 4.5]]))
    errors = target[:, None, :] - values[:, :, None]
    loss = reference.quantile_huber(errors, taus).item()
    assert loss == pytest.approx(0.458333, abs=1e-6)


def test_reference_learns_what_a_step_pays():
    agent, data = agent_of(learning_rate=0.01, discount=0.0), batch(32)
    first, *_, last = [agent.learn(data) for _ in range(120)]
    assert last < first / 50
    values = agent.online(torch.from_numpy(data.stack), torch.full((32, 1), 0.5))
    values = reference.of_action(values, torch.from_numpy(data.action))
    np.testing.assert_allclose(values.detach(), 1.0, atol=0.15)


def test_reference_target_creeps_and_gets_the_originals_unread_gradient():
    agent, data = agent_of(), batch(11)
    before = agent.target.hidden.weight.detach().clone()
    agent.learn(data)
    expected = 0.001 * agent.online.hidden.weight + 0.999 * before
    torch.testing.assert_close(agent.target.hidden.weight, expected)
    once = agent.target.feature.weight.grad.clone()
    agent.learn(data)
    assert 0 < once.abs().sum() < agent.target.feature.weight.grad.abs().sum()


def test_another_loss_is_refused(sides, monkeypatch):
    monkeypatch.setattr(reference, "quantile_huber", lambda errors, *_: (errors**2).mean())
    what = "loss or gradient of one batch: the project's differs from the reference's"
    with pytest.raises(NotComparable, match=what):
        making.refuse_another_gradient(sides)


def test_worlds_are_the_same_and_others_are_refused(sides, monkeypatch):
    rules = sides.config.env.rules
    playing.refuse_another_world(rules)
    world = ObjectWorld(rules, np.random.default_rng(2))
    world.reset()
    observed = [world.observe(agent) for agent in range(rules.agents)]
    np.testing.assert_array_equal(seed.views(world), observed)
    monkeypatch.setattr(ObjectWorld, "act", lambda *_: 0.5)
    with pytest.raises(NotComparable, match="world: turn 0, agent 0: seed differs from before"):
        playing.refuse_another_world(rules)


def test_draws_of_every_kind_are_the_same_transitions_and_others_are_refused(monkeypatch):
    rows = ring.numpy_rows(1)
    assert [row.claims for row in rows] == [("agents-sample",), ("agents-device",)]
    right = seed.sample
    shifted = lambda stored, *rest: (right(stored, *rest)[3], *right(stored, *rest)[1:])  # noqa: E731
    monkeypatch.setattr(seed, "sample", shifted)
    with pytest.raises(NotComparable, match=r"sample\(256\): seed_way"):
        ring.numpy_rows(1)


def test_rows_of_parts_have_all_sides(sides):
    rows = [steps.loss_row(sides, 1), playing.stacking_row(sides, 1)]
    rows += playing.inference_rows(sides, 1)
    claims = ["agents-loss", "agents-stack", "agents-infer", "agents-act-together"]
    assert [row.claims for row in rows] == [(claim,) for claim in claims]
    for row in rows:
        assert {"before/ours", "seed's/ours", "before/seed's"} <= row.ratios.keys()


def test_rows_of_a_train_step_learn(sides):
    before = sides.agents[1].online.hidden.weight.detach().clone()
    claims = {claim for row in steps.small_rows(sides, 1) for claim in row.claims}
    assert claims == {"agents-train", "agents-train-together"}
    assert not torch.equal(before, sides.agents[1].online.hidden.weight)
    assert steps.large_rows(sides, 1)[1].goal_reached is not None


def test_the_clock_of_a_return_stands_while_the_return_is_evaluated(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(whole.time, "perf_counter", lambda: now[0])

    def run(*earned: float):
        for number, each in enumerate(earned, start=1):
            now[0] += 2.0
            yield 500 * number, lambda: setitem(now, 0, now[0] + 100.0) or each  # noqa: B023

    assert whole.until_return("ours", run(20.0, 99.9, 100.0, 110.0)) == (6.0, 1500)
    with pytest.raises(NotComparable, match="before ended without a greedy return of 100"):
        whole.until_return("before", run(0.0, 0.0))


def test_rows_of_a_return_hold_seconds_and_agent_steps_of_each_run():
    runs = {"ours": [(5.0, 24_000), (6.0, 28_000)], "before": [(50.0, 100_000), (90.0, 140_000)]}
    reached = {side: [whole.Reached(*run) for run in each] for side, each in runs.items()}
    seconds, steps = whole.return_rows(reached)
    assert seconds.goal_ratio.median == 12.5
    assert (steps.title, steps.goal_reached) == (
        "greedy return 100 from nothing / agent-steps, with the prefill",
        True,
    )
    assert speed.asked(steps) == "at most 30000 agent-steps"
    assert speed.reached(steps) == "26000 agent-steps"
    np.testing.assert_array_equal(steps.before.values, [100_000, 140_000])


def test_a_training_counts_the_agent_steps_that_it_records(sides):
    config = sides.config
    of_prefill, of_cycle = (
        config.env.agents * config.env.worlds * turns
        for turns in (config.collect.turns, config.train.turns_per_cycle)
    )
    (first, _), (second, _) = islice(whole.own_run(config, 0), 2)
    assert (first, second) == (of_prefill + of_cycle, of_prefill + 2 * of_cycle)
