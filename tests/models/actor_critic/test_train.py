"""PPO that is PPO: what an update sees, what it leaves alone, and what ends it."""

from typing import Any

import numpy as np
import pytest
import torch

from quatrain.errors import DatasetMismatch
from quatrain.models.actor_critic import train
from quatrain.models.actor_critic.collect import collect
from quatrain.models.actor_critic.config import ActorCriticConfig
from quatrain.models.actor_critic.ppo import iteration
from quatrain.models.actor_critic.ppo import learner as learning
from quatrain.models.actor_critic.ppo.learner import Learner
from quatrain.models.actor_critic.worlds import colony
from quatrain.models.actor_critic.worlds.colony_data import Dataset
from quatrain.progress import Progress, TrainingDiverged
from quatrain.replay.rollouts import buffer, gae
from quatrain.validation import overlaid
from tests.conftest import shapes_unchecked, small

BRIEF = {"transitions": 24 * 8 * 3, "record_every": 3}
CONFIG = small("actor_critic", train=BRIEF)


@pytest.fixture(scope="module")
def dataset() -> Dataset:
    with shapes_unchecked():
        return collect(CONFIG, 0)


@pytest.fixture
def learner(dataset: Dataset) -> Learner:
    return make_learner(CONFIG, dataset)


def make_learner(config: ActorCriticConfig, dataset: Dataset) -> Learner:
    return learning.from_state(config, dataset, train.init_state(config, dataset, 0).seeds[0])


def collected(learner: Learner) -> buffer.Transitions:
    with shapes_unchecked():
        iteration.collect(learner)
    return iteration.compute_advantages(learner)


def trained(config: ActorCriticConfig, dataset: Dataset) -> Progress:
    with shapes_unchecked():
        *_, last = train.train(config, dataset, 0)
    return last


def assert_equal(item: train.State, other: train.State) -> None:
    np.testing.assert_equal(train.to_arrays(item), train.to_arrays(other))


@pytest.mark.parametrize("policy", ["beta", "squashed_gaussian"])
def test_at_the_first_minibatch_nothing_has_moved(policy: str, dataset: Dataset):
    learner = make_learner(small("actor_critic", network={"policy": policy}), dataset)
    for _ in range(2):  # also after the policy has become another one
        transitions = collected(learner)
        assert not any(column.requires_grad for column in transitions)
        index = buffer.minibatch_indices(len(transitions.n), 50, learner.order)[0]
        loss, row = iteration.objective(learner, buffer.minibatch(transitions, index), 0.01)
        result = dict(zip(iteration.MINIBATCH_METRICS, row.tolist(), strict=True))
        assert result["ratio_max_dev"] < 1e-5
        assert abs(result["approx_kl"]) < 1e-6
        assert result["clip_fraction"] == 0
        loss.backward()
        assert max(param.grad.abs().max() for param in learner.network.actor.parameters()) > 1e-6
        iteration.learn(learner, transitions, iteration.scheduled_rates(learner))


def test_the_action_that_was_drawn_is_the_one_that_acts(learner: Learner):
    before = learner.envs.colonies
    collected(learner)
    ratio = learner.actor.policy.action(learner.rollout.raw_action[0])[:, 0]
    left = before.n - (ratio * before.n + 1e-4).floor()
    going_on = ~(learner.rollout.terminated[0] | learner.rollout.truncated[0])
    assert going_on.any()
    assert torch.equal(learner.rollout.n[1][going_on].float(), 2 * left[going_on])


def test_numbers_that_nobody_draws_have_their_constant(dataset: Dataset):
    fixed = {"gamma": 12.0, "alpha": 1.0, "noise": 0.1}
    action = {"active_params": ["delete_ratio", "theta"], "fixed_params": fixed}
    config = small("actor_critic", env={"action": action})
    view = make_learner(config, dataset).envs.view
    expected = [[0.5, 12.0, 1.0, 0.1, -0.2], [0.6, 12.0, 1.0, 0.1, 0.3]]
    whole = view.whole_action(torch.tensor([[0.5, -0.2], [0.6, 0.3]]))
    torch.testing.assert_close(whole, torch.tensor(expected))


def test_the_value_behind_a_step_is_that_of_the_state_it_led_to(dataset: Dataset):
    """Of an episode out of time, that of its last state, not of the new colonies."""
    config = small("actor_critic", env={"max_steps": 8}, train={"horizon": 20})
    learner = make_learner(config, dataset)
    collected(learner)
    recorded = learner.rollout
    goes_on = ~(recorded.truncated | recorded.terminated)
    with torch.no_grad():
        behind = learner.actor.forward(learner.envs.observe()).value
    later = torch.cat([recorded.value[1:], behind[None]])
    torch.testing.assert_close(recorded.next_value[goes_on], later[goes_on])
    assert recorded.truncated.any()
    assert (recorded.next_value[recorded.truncated] != later[recorded.truncated]).all()


def test_heads_of_components_sum_to_the_advantage_of_the_whole(dataset: Dataset):
    learner = make_learner(small("actor_critic", network={"value_heads": "components"}), dataset)
    transitions = collected(learner)
    weights, recorded = learner.envs.weights, learner.rollout
    whole = gae.Trace(
        recorded.components @ weights,
        recorded.value @ weights,
        recorded.next_value @ weights,
        recorded.terminated,
        recorded.truncated,
    )
    estimate = gae.advantages(whole, CONFIG.train.discount, CONFIG.train.gae_lambda)
    expected = gae.normalise(estimate[0]).flatten()
    torch.testing.assert_close(transitions.advantage, expected, atol=1e-4, rtol=1e-4)
    returns = (transitions.returns @ weights).view_as(estimate.returns)
    torch.testing.assert_close(returns, estimate.returns, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(("target_kl", "updates"), [(1e-9, 1), (1e6, 3 * 3)])
def test_no_step_is_taken_once_the_policy_has_moved_too_far(
    target_kl: float, updates: int, dataset: Dataset
):
    """Before the first one nothing has moved."""
    config = small("actor_critic", train={"target_kl": target_kl, "epochs": 3})
    learner = make_learner(config, dataset)
    updated = iteration.learn(learner, collected(learner), iteration.scheduled_rates(learner))
    assert (learner.updates, updated.stopped) == (updates, updates == 1)


def test_rates_change_linearly(learner: Learner):
    config = learner.config.train
    ends = {
        "learning_rate": (config.learning_rate, config.learning_rate * config.lr_final_fraction),
        "entropy_coef": (config.entropy_start, config.entropy_end),
    }
    horizons = 1 - config.discount, 1 - config.discount_end
    for share in (0, 1 / 3, 1):
        learner.iterations = round(share * config.steps)
        expected = {name: first + share * (last - first) for name, (first, last) in ends.items()}
        expected["discount"] = 1 - horizons[0] * (horizons[1] / horizons[0]) ** share
        assert iteration.scheduled_rates(learner) == pytest.approx(expected)


def test_several_seeds_learn_each_as_if_alone(dataset: Dataset):
    together = trained(small("actor_critic", train=BRIEF, seeds=2), dataset)
    alone = trained(CONFIG, dataset)
    assert_equal(train.State.from_seeds([together.state.seeds[0]]), alone.state)
    first, second = together.state.params
    assert not torch.equal(first["cells.weight"], second["cells.weight"])
    assert together.metrics["return/seed"].shape == (3, 2)
    np.testing.assert_array_equal(together.metrics["return/seed"][:, 0], alone.metrics["return"])


@pytest.mark.filterwarnings("ignore:actor_critic. after .* no validation colony:UserWarning")
@pytest.mark.parametrize(
    "changes",
    [
        {
            "env": {"features": "full"},
            "network": {"layers": 2, "policy": "squashed_gaussian", "value_heads": "components"},
        },
        {"train": {"target_kl": 1e-3, "value_clip": 0.1}, "seeds": 2},
        {"network": {"encoder": "graph", "layers": 2}, "train": {"evaluate_every": 2}},
    ],
    ids=["all that can be another", "stopped by KL, two seeds", "no cells, best kept"],
)
def test_cut_off_after_two_iterations_a_run_ends_as_the_whole_one(changes: dict[str, Any]):
    length = {"record_every": 2, "transitions": 24 * 8 * 4}
    config = small("actor_critic", **overlaid(changes, {"train": length}))
    with shapes_unchecked():
        collected = collect(config, 0)
        first, last = train.train(config, collected, 0)
        saved = train.from_arrays(config, collected, train.to_arrays(first.state))
        (rest,) = train.train(config, collected, 0, saved)
        assert list(train.train(config, collected, 0, last.state)) == []
    assert (first.step, last.step, rest.step) == (2, 4, 4)
    assert_equal(rest.state, last.state)
    np.testing.assert_equal(dict(rest.metrics), dict(last.metrics))


def test_the_scale_of_values_follows_the_returns_of_all_iterations(dataset: Dataset):
    learner = make_learner(CONFIG, dataset)
    first, second = torch.tensor([1.0, 3.0]), torch.tensor([4.0, 4.0])
    iteration.normalise_values(learner, first)
    assert (float(learner.network.value_mean), float(learner.network.value_std)) == (2, 1)
    learner.iterations = 1
    iteration.normalise_values(learner, second)
    assert float(learner.network.value_mean) == 3
    assert float(learner.network.value_std) == pytest.approx(0.5**0.5)


def test_the_loss_of_values_is_in_units_of_their_scale(learner: Learner):
    transitions = collected(learner)
    batch = buffer.minibatch(transitions, torch.arange(50))
    place = iteration.MINIBATCH_METRICS.index("loss_value")
    plain = iteration.objective(learner, batch, 0.0)[1][place]
    learner.network.rescale_values(torch.tensor(2.0), torch.tensor(10.0))
    scaled = iteration.objective(learner, batch, 0.0)[1][place]
    torch.testing.assert_close(scaled, plain / 100, rtol=1e-3, atol=1e-6)


def test_errors_of_components_weigh_as_they_move_the_total(dataset: Dataset):
    """A component that never varies has no more of the loss than it has of the total's variance."""
    learner = make_learner(small("actor_critic", network={"value_heads": "components"}), dataset)
    weights = learner.envs.weights
    deviations = torch.tensor([2.0, 1e-3, 0.5, 1e-3, 3.0, 1.0])
    learner.network.rescale_values(torch.zeros(6), deviations)
    shares = iteration.value_weights(learner) * deviations.square()
    variances = (weights * deviations).square()
    torch.testing.assert_close(shares, variances / variances.sum())
    plain = {"network": {"value_heads": "components"}, "train": {"value_norm": "none"}}
    learner = make_learner(small("actor_critic", **plain), dataset)
    assert torch.equal(iteration.value_weights(learner), weights.abs())


# What goes wrong.


def test_a_weight_that_is_not_finite_ends_the_training_with_its_name(dataset: Dataset):
    state = train.init_state(CONFIG, dataset, 0)
    state.params[0]["critic.3.weight"].fill_(float("nan"))
    why = (
        r"^actor_critic: loss_policy is nan at iteration 1, transition 192 \(update 1\); "
        r"lower actor_critic\.train\.learning_rate$"
    )
    with pytest.raises(TrainingDiverged, match=why):
        next(train.train(CONFIG, dataset, 0, state))


def test_a_reward_that_is_not_finite_ends_the_training_with_its_component(learner: Learner):
    collected(learner)
    learner.rollout.components[5, 7, 2] = float("inf")
    name, _ = CONFIG.env.reward.weighted[2]
    why = (
        rf"^actor_critic: reward component {name} of colony 7 is inf at iteration 1; lower its "
        r"weight or actor_critic\.env\.action\.bounds$"
    )
    with pytest.raises(TrainingDiverged, match=why):
        colony.check_rewards(CONFIG, learner.rollout.components, 1)


def test_a_dataset_and_arrays_of_another_config_are_refused(dataset: Dataset):
    with pytest.raises(DatasetMismatch, match="training plates have the shape"):
        next(train.train(small("actor_critic", collect={"n_train": 5}), dataset, 0))
    arrays = train.to_arrays(train.init_state(CONFIG, dataset, 0))
    with pytest.raises(ValueError, match="not a learner of this config: params/0/"):
        train.from_arrays(small("actor_critic", network={"d": 24}), dataset, arrays)


def test_a_small_network_learns_on_one_thread(dataset: Dataset, monkeypatch: pytest.MonkeyPatch):
    used, before = [], torch.get_num_threads()

    def collect(_: Learner) -> dict[str, float]:
        used.append(torch.get_num_threads())
        return {}

    monkeypatch.setattr(iteration, "collect", collect)
    try:
        for units, expected in ((16, 1), (72, 2)):
            torch.set_num_threads(2)
            with pytest.raises(TrainingDiverged):  # nothing was collected
                next(train.train(small("actor_critic", network={"d": units}), dataset, 0))
            assert (used.pop(), torch.get_num_threads()) == (expected, 2)
    finally:
        torch.set_num_threads(before)
