"""The plain reference does the original's work, the project the same, and the benchmark refuses
where they do not.
"""

from collections.abc import Iterator

import numpy as np
import pytest
import torch

from benchmarks.claims import CLAIMS
from benchmarks.iqn import acting, loss, playing, returns, ring, steps
from benchmarks.iqn import sides as making
from benchmarks.reference import iqn as reference
from benchmarks.reference import iqn_seed as seed
from benchmarks.reference.iqn_ring import NumpyRing
from benchmarks.reference.iqn_training import Memory, Society
from benchmarks.reference.iqn_world import ObjectWorld
from benchmarks.table import NotTheSame, render
from benchmarks.torch_threads import threads
from quatrain.envs.treasurehunt.rules import TREASUREHUNT
from tests.conftest import ROOT

TINY = reference.ORIGINAL._replace(
    inputs=6, hidden=16, cosines=4, quantiles=5, acting_quantiles=7, noisy=False
)


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Idle threads of PyTorch would spin in the way of the others'."""
    with threads(1):
        yield


@pytest.fixture(scope="module")
def sides() -> making.Sides:
    config = making.config_of(
        ROOT,
        env={"agents": 2, "max_turns": 10, "height": 5, "width": 6},
        collect={"turns": 50, "held_out_worlds": 2},
        network={"frames": 3, "hidden": 8, "cosines": 4},
        train={
            "turns": 100,
            "turns_per_cycle": 10,
            "updates_per_cycle": 2,
            "record_every": 2,
            "evaluate_every": 0,
            "batch_size": 16,
            "capacity": 100,
            "loss": making.SAME_TARGET | {"quantiles": 5, "target_quantiles": 5},
        },
    )
    return making.sides_of(config)


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(3)


def batch(size: int, reward: float) -> reference.Batch:
    rng = np.random.default_rng(5)
    stacks = rng.integers(0, 3, (2, size, TINY.inputs)).astype(np.float32)
    ones = np.ones(size, np.float32)
    return reference.Batch(
        stacks[0], rng.integers(0, 4, size), reward * ones, stacks[1], ones, ones
    )


def test_reference_has_the_parameters_of_the_original():
    network = reference.Iqn(reference.ORIGINAL, generator())
    assert sum(each.numel() for each in network.parameters()) == 300_760


def test_reference_loss_is_the_mean_over_quantiles():
    taus, values, target = (
        torch.tensor([each]) for each in ([0.25, 0.75], [1.0, 3.0], [0.0, 2.0, 4.5])
    )
    errors = target[:, None, :] - values[:, :, None]
    assert reference.quantile_huber(errors, taus, torch.ones(1)).item() == pytest.approx(
        0.458333, abs=1e-6
    )
    assert reference.quantile_huber(errors, taus, torch.zeros(1)).item() == 0


def test_reference_learns_what_an_ended_step_pays():
    agent = reference.Agent(TINY._replace(learning_rate=0.01), generator())
    data = batch(32, reward=1.0)
    first, *_, last = [agent.learn(data) for _ in range(120)]
    assert last < first / 50
    taus = torch.full((32, 1), 0.5)
    values = reference.of_action(
        agent.online(torch.from_numpy(data.stack), taus), torch.from_numpy(data.action)
    )
    np.testing.assert_allclose(values.detach(), 1.0, atol=0.15)


def test_reference_passes_backward_through_its_target_as_the_original_does():
    agent = reference.Agent(TINY, generator())
    data = batch(11, reward=1.0)._replace(ended=np.zeros(11, np.float32))
    agent.learn(data)
    once = agent.target.feature.weight.grad.clone()
    agent.learn(data)
    assert 0 < once.abs().sum() < agent.target.feature.weight.grad.abs().sum()


def test_reference_target_creeps():
    agent = reference.Agent(TINY, generator())
    before = agent.target.hidden.weight.detach().clone()
    agent.learn(batch(11, reward=1.0))
    expected = 0.001 * agent.online.hidden.weight + 0.999 * before
    torch.testing.assert_close(agent.target.hidden.weight, expected)


def test_reference_acts_without_noise_by_the_mean_of_its_quantiles():
    agent = reference.Agent(TINY._replace(noisy=True, acting_quantiles=4000), generator())
    stack = batch(1, reward=0.0).stack
    agent.online.eval()
    taus = (torch.arange(4000)[None] + 0.5) / 4000
    best = int(agent.online(torch.from_numpy(stack), taus).mean(1).argmax())
    assert agent.online.train() is agent.online
    assert {agent.act(stack) for _ in range(5)} == {best}


def test_reference_agents_play_and_learn_once_an_episode():
    rng = np.random.default_rng(1)
    rules = TREASUREHUNT._replace(agents=2, max_turns=12)
    settings = reference.ORIGINAL._replace(hidden=8, cosines=4, acting_quantiles=3)
    agents = [reference.Agent(settings, generator()) for _ in range(2)]
    memories = [Memory(NumpyRing(60, 125, 5), rng) for _ in agents]
    society = Society(ObjectWorld(rules, rng), agents, memories, rng, batch=16)
    before = agents[1].online.hidden.weight.detach().clone()
    returns = [society.episode() for _ in range(6)]
    assert all(-12 <= each <= 120 for each in returns)
    assert not torch.equal(before, agents[1].online.hidden.weight)
    assert society.epsilon == pytest.approx(0.999**6)


def test_weights_go_to_the_reference_and_back(sides):
    again = making.dump(sides.agents[1].online)
    for layer, arrays in making.params_of(sides.state, 1).items():
        for name, array in arrays.items():
            np.testing.assert_array_equal(again[layer][name], array)


def test_values_losses_and_gradients_are_the_same_and_others_are_refused(sides, monkeypatch):
    making.refuse_other_values(sides)
    making.refuse_another_gradient(sides)
    monkeypatch.setattr(seed, "quantile_huber", lambda errors, *_: 1.01 * (errors**2).mean())
    with pytest.raises(
        NotTheSame,
        match="the seed's way's loss or gradient differs from the reference's on one batch",
    ):
        making.refuse_another_gradient(sides)


def test_worlds_are_the_same_and_others_are_refused(sides, monkeypatch):
    rules = sides.config.env.rules
    playing.refuse_another_world(rules)
    monkeypatch.setattr(ObjectWorld, "act", lambda *_: 0.5)
    with pytest.raises(NotTheSame, match="world: turn 0, agent 0: another observation or reward"):
        playing.refuse_another_world(rules)


def test_contestants_of_a_gradient_step_learn(sides):
    before = sides.agents[1].online.hidden.weight.detach().clone()
    arms = steps.plain_arms(sides) | steps.seed_arms(sides)
    for name in ("one thread", "one by one"):
        assert arms[name].units == len(sides.agents)
        arms[name].run()
    assert not torch.equal(before, sides.agents[1].online.hidden.weight)


def test_all_agents_at_once_do_as_one_after_the_other(sides):
    rules = sides.config.env.rules
    world = ObjectWorld(rules, np.random.default_rng(2))
    world.reset()
    observed = [world.observe(agent) for agent in range(rules.agents)]
    np.testing.assert_array_equal(playing.jitted_views(world), observed)


def test_draws_of_every_kind_are_the_same_transitions_and_others_are_refused(monkeypatch):
    rows = ring.numpy_rows(1)
    assert [row.claims for row in rows] == [("agents-sample",), ("agents-device",), ()]
    assert rows[-1].ratios["before/ours"].median > 3
    shifted = lambda stored, *rest: (stored.states[: ring.BATCH], *SAMPLE(stored, *rest)[1:])  # noqa: E731
    monkeypatch.setattr(seed, "sample", shifted)
    with pytest.raises((NotTheSame, ValueError)):
        ring.numpy_rows(1)


SAMPLE = seed.sample


def test_rows_are_well_formed(sides, monkeypatch):
    monkeypatch.setattr(acting, "STACKS", 32)
    rows = [
        loss.loss_row(sides, 1),
        acting.stacking_row(sides, 1),
        *acting.inference_rows(sides, 1),
    ]
    assert len(render(rows).splitlines()) == 2 + len(rows)
    assert [row.claims for row in rows] == [
        ("agents-loss",), ("agents-stack",), ("agents-infer",), ("agents-act-together",)
    ]  # fmt: skip
    for row in rows:
        assert row.claims[0] in CLAIMS
        assert {"before/ours", "seed's/ours", "before/seed's"} <= row.ratios.keys()


def test_rows_of_a_train_step_have_goals_a_limit_and_what_is_taken_away(sides):
    small, large = steps.small_rows(sides, 1), steps.large_rows(sides, 1)
    assert {claim for row in small for claim in row.claims} == {
        "agents-train",
        "agents-train-together",
    }
    assert "without/ours" in small[0].ratios
    assert [str(row.goal) for row in large] == [">= 0.9x before", ">= 0.3x limit"]
    assert large[1].goal_reached is not None


def test_flop_of_a_gradient_step():
    config = making.config_of(ROOT)
    assert steps.flop(config) == pytest.approx(2.67e9, rel=0.005)


def test_the_clock_of_a_return_stands_while_the_return_is_judged(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(returns.time, "perf_counter", lambda: now[0])

    def evaluation(steps: int, earned: float) -> returns.Evaluation:
        now[0] += 2.0

        def greedy() -> float:
            now[0] += 100.0
            return earned

        return returns.Evaluation(steps, greedy)

    run = (
        evaluation(steps, earned)
        for steps, earned in ((10, 20.0), (20, 99.9), (30, 100.0), (40, 110.0))
    )
    assert returns.until_return("ours", run) == (6.0, 30)
    with pytest.raises(NotTheSame, match="before ended without a greedy return of 100"):
        returns.until_return("before", (evaluation(steps, 0.0) for steps in (1, 2)))


def test_what_an_agent_saw_last_is_there_wherever_the_ring_stands():
    memory = Memory(NumpyRing(10, 1, 4), np.random.default_rng(0))
    memory.ring.begin_episode()
    for number in range(1, 30):
        memory.ring.add(np.array([number]), 0, 0.0, False)
        observed = [max(0, each) for each in range(number - 2, number + 1)]
        np.testing.assert_array_equal(memory.latest()[:, 0], observed)
