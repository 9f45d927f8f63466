"""PPO that is PPO: what an update sees, what it leaves alone, what ends it, and which weights are
kept.
"""

import warnings
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch

from quatrain.envs.colony.config import SUCCESS
from quatrain.models.actor_critic import colony, ppo, train
from quatrain.models.actor_critic import network as networks
from quatrain.models.actor_critic.colony_data import Dataset
from quatrain.models.actor_critic.colony_scores import run_policy
from quatrain.models.actor_critic.policy import DISTRIBUTIONS
from quatrain.models.actor_critic.ppo import Learner
from quatrain.progress import TrainingDiverged
from quatrain.replay import rollouts
from tests.conftest import shapes_unchecked, small
from tests.models.actor_critic.learners import dataset_of, make_learner, trained

BRIEF = {"transitions": 24 * 8 * 3, "record_every": 3}
CONFIG = small("actor_critic", train=BRIEF)


@pytest.fixture(scope="module")
def dataset() -> Dataset:
    return dataset_of(CONFIG)


@pytest.fixture
def learner() -> Learner:
    return make_learner(CONFIG)


def rollout_of(learner: Learner) -> rollouts.Transitions:
    with shapes_unchecked():
        ppo.collect(learner)
    return ppo.compute_advantages(learner)


@pytest.mark.parametrize("policy", DISTRIBUTIONS)
def test_at_the_first_minibatch_nothing_has_moved(policy: str):
    learner = make_learner(small("actor_critic", network={"policy": policy}))
    for _ in range(2):  # also after the policy has become another one
        transitions = rollout_of(learner)
        assert not any(column.requires_grad for column in transitions)
        index = rollouts.minibatch_indices(len(transitions.n), 50, learner.order)[0]
        loss, row = ppo.objective(learner, rollouts.minibatch(transitions, index), 0.01)
        result = dict(zip(ppo.MINIBATCH_METRICS, row.tolist(), strict=True))
        assert result["ratio_max_dev"] < 1e-5
        assert abs(result["approx_kl"]) < 1e-6
        assert result["clip_fraction"] == 0
        loss.backward()
        assert max(param.grad.abs().max() for param in learner.network.actor.parameters()) > 1e-6
        ppo.learn(learner, transitions, ppo.scheduled_rates(learner))


def test_the_action_that_was_drawn_is_the_one_that_acts(learner: Learner):
    before = learner.envs.colonies
    rollout_of(learner)
    ratio = learner.actor.policy.action(learner.rollout.raw_action[0])[:, 0]
    left = before.n - (ratio * before.n + 1e-4).floor()
    going_on = ~(learner.rollout.terminated[0] | learner.rollout.truncated[0])
    assert going_on.any()
    assert torch.equal(learner.rollout.n[1][going_on].float(), 2 * left[going_on])


def test_steps_that_hold_the_noise_are_drawn_by_the_same_numbers(monkeypatch: pytest.MonkeyPatch):
    drawn = []
    learner = make_learner(small("actor_critic", train={"noise_hold": 3}))
    sample = learner.actor.policy.sample

    def recorded(params: Any, generator: torch.Generator) -> torch.Tensor:
        drawn.append(generator.get_state())
        return sample(params, generator)

    monkeypatch.setattr(learner.actor.policy, "sample", recorded)
    rollout_of(learner)
    groups = [0, 0, 0, 1, 1, 1, 2, 2]
    for (first, state), (second, following) in pairwise(zip(groups, drawn, strict=True)):
        assert torch.equal(state, following) == (first == second)


def test_numbers_that_nobody_draws_have_their_constant():
    fixed = {"gamma": 12.0, "alpha": 1.0, "noise": 0.1}
    action = {"active_params": ["delete_ratio", "theta"], "fixed_params": fixed}
    config = small("actor_critic", env={"action": action})
    view = make_learner(config).envs.view
    expected = [[0.5, 12.0, 1.0, 0.1, -0.2], [0.6, 12.0, 1.0, 0.1, 0.3]]
    whole = view.whole_action(torch.tensor([[0.5, -0.2], [0.6, 0.3]]))
    torch.testing.assert_close(whole, torch.tensor(expected))


def test_the_value_behind_a_step_is_that_of_the_state_it_led_to():
    """Of an episode out of time, that of its last state, not of the new colonies."""
    config = small("actor_critic", env={"max_steps": 8}, train={"horizon": 20})
    learner = make_learner(config)
    rollout_of(learner)
    recorded = learner.rollout
    goes_on = ~(recorded.truncated | recorded.terminated)
    with torch.no_grad():
        behind = learner.actor.forward(learner.envs.observe()).value
    later = torch.cat([recorded.value[1:], behind[None]])
    torch.testing.assert_close(recorded.next_value[goes_on], later[goes_on])
    assert recorded.truncated.any()
    assert (recorded.next_value[recorded.truncated] != later[recorded.truncated]).all()


def test_heads_of_components_sum_to_the_advantage_of_the_whole():
    learner = make_learner(small("actor_critic", network={"value_heads": "components"}))
    transitions = rollout_of(learner)
    weights, recorded = learner.envs.weights, learner.rollout
    columns = (recorded.components, recorded.value, recorded.next_value)
    advantage, returns = rollouts.advantages(
        *(column @ weights for column in columns),
        recorded.terminated,
        recorded.truncated,
        CONFIG.train.discount,
        CONFIG.train.gae_lambda,
    )
    close = {"atol": 1e-4, "rtol": 1e-4}
    expected = rollouts.normalise(advantage).flatten()
    torch.testing.assert_close(transitions.advantage, expected, **close)
    torch.testing.assert_close(transitions.returns @ weights, returns.flatten(), **close)


@pytest.mark.parametrize(("target_kl", "updates"), [(1e-9, 1), (1e6, 3 * 3)])
def test_no_step_is_taken_once_the_policy_has_moved_too_far(target_kl: float, updates: int):
    """Before the first one nothing has moved."""
    config = small("actor_critic", train={"target_kl": target_kl, "epochs": 3})
    learner = make_learner(config)
    _, approx_kl = ppo.learn(learner, rollout_of(learner), ppo.scheduled_rates(learner))
    assert (learner.updates, approx_kl > target_kl) == (updates, updates == 1)


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
        assert ppo.scheduled_rates(learner) == pytest.approx(expected)


def test_several_seeds_learn_each_as_if_alone():
    together = trained(small("actor_critic", train=BRIEF, seeds=2))
    alone = trained(CONFIG)
    first = train.State.from_seeds([together.state.seeds[0]])
    np.testing.assert_equal(train.to_arrays(first), train.to_arrays(alone.state))
    np.testing.assert_array_equal(together.metrics["return/seed"][:, 0], alone.metrics["return"])
    weights = [params["cells.weight"] for params in together.state.params]
    assert not torch.equal(*weights)


@pytest.mark.filterwarnings("ignore:actor_critic. after .* no validation colony:UserWarning")
def test_cut_off_after_an_iteration_a_run_ends_as_the_whole_one():
    """With settings that no other run changes, best weights, and steps that KL stops."""
    heads = {"layers": 2, "policy": "squashed_gaussian", "value_heads": "components"}
    length = {"record_every": 1, "evaluate_every": 1, "transitions": 24 * 8 * 2}
    config = small(
        "actor_critic",
        seeds=2,
        env={"features": "full"},
        network={"encoder": "graph", **heads},
        train={"target_kl": 1e-3, "value_clip": 0.1, **length},
    )
    with shapes_unchecked():
        first, last = train.train(config, dataset_of(config), 0)
        saved = train.from_arrays(config, dataset_of(config), train.to_arrays(first.state))
        (rest,) = train.train(config, dataset_of(config), 0, saved)
    np.testing.assert_equal(train.to_arrays(rest.state), train.to_arrays(last.state))
    np.testing.assert_equal(dict(rest.metrics), dict(last.metrics))


def test_the_scale_of_values_follows_the_returns_of_all_iterations():
    learner = make_learner(CONFIG)
    first, second = torch.tensor([1.0, 3.0]), torch.tensor([4.0, 4.0])
    ppo.normalise_values(learner, first)
    assert (float(learner.network.value_mean), float(learner.network.value_std)) == (2, 1)
    learner.iterations = 1
    ppo.normalise_values(learner, second)
    assert float(learner.network.value_mean) == 3
    assert float(learner.network.value_std) == pytest.approx(0.5**0.5)


def test_the_loss_of_values_is_in_units_of_their_scale(learner: Learner):
    transitions = rollout_of(learner)
    batch = rollouts.minibatch(transitions, torch.arange(50))
    place = ppo.MINIBATCH_METRICS.index("loss_value")
    plain = ppo.objective(learner, batch, 0.0)[1][place]
    learner.network.rescale_values(torch.tensor(2.0), torch.tensor(10.0))
    scaled = ppo.objective(learner, batch, 0.0)[1][place]
    torch.testing.assert_close(scaled, plain / 100, rtol=1e-3, atol=1e-6)


def test_errors_of_components_weigh_as_they_move_the_total():
    """A component that never varies has no more of the loss than it has of the total's variance."""
    learner = make_learner(small("actor_critic", network={"value_heads": "components"}))
    weights = learner.envs.weights
    deviations = torch.tensor([2.0, 1e-3, 0.5, 1e-3, 3.0, 1.0])
    learner.network.rescale_values(torch.zeros(6), deviations)
    shares = ppo.value_weights(learner) * deviations.square()
    variances = (weights * deviations).square()
    torch.testing.assert_close(shares, variances / variances.sum())
    plain = {"network": {"value_heads": "components"}, "train": {"value_norm": "none"}}
    learner = make_learner(small("actor_critic", **plain))
    assert torch.equal(ppo.value_weights(learner), weights.abs())


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
    rollout_of(learner)
    learner.rollout.components[5, 7, 2] = float("inf")
    name, _ = CONFIG.env.reward.weighted[2]
    why = (
        rf"^actor_critic: reward component {name} of colony 7 is inf at iteration 1; lower its "
        r"weight or actor_critic\.env\.action\.bounds$"
    )
    with pytest.raises(TrainingDiverged, match=why):
        colony.check_rewards(CONFIG, learner.rollout.components, 1)


def test_a_small_network_learns_on_one_thread(dataset: Dataset, monkeypatch: pytest.MonkeyPatch):
    used, before = [], torch.get_num_threads()

    def collect(_: Learner) -> dict[str, float]:
        used.append(torch.get_num_threads())
        return {}

    monkeypatch.setattr(ppo, "collect", collect)
    try:
        for units, expected in ((16, 1), (72, 2)):
            torch.set_num_threads(2)
            with pytest.raises(TrainingDiverged):  # nothing was collected
                next(train.train(small("actor_critic", network={"d": units}), dataset, 0))
            assert (used.pop(), torch.get_num_threads()) == (expected, 2)
    finally:
        torch.set_num_threads(before)


# Evaluations while training.


def test_the_weights_that_were_best_on_validation_colonies_are_kept(
    dataset: Dataset, monkeypatch: pytest.MonkeyPatch
):
    """Every second iteration and after the last; of equal ones the first, and before any the
    last.
    """
    scores = iter([(1.0, 0.0), (3.0, 0.5), (3.0, 1.0), (2.0, 1.0)])
    monkeypatch.setattr(colony, "validate", lambda *_: next(scores))
    length = {"record_every": 1, "evaluate_every": 2, "transitions": 24 * 8 * 7}
    config = small("actor_critic", train=length)
    with shapes_unchecked():
        yields = list(train.train(config, dataset, 0))
    assert [len(item.metrics["validation_return"]) for item in yields] == [0, 1, 0, 1, 0, 1, 1]
    assert [item.metrics["validation_success"].tolist() for item in yields[3:7:2]] == [[0.5], [1]]
    (best,) = yields[-1].state.best
    assert (best.iteration, best.validation_return, best.validation_success) == (4, 3, 0.5)
    torch.testing.assert_close(best.params, yields[3].state.params[0], rtol=0, atol=0)
    (first,) = yields[0].state.best
    torch.testing.assert_close(first.params, yields[0].state.params[0], rtol=0, atol=0)
    actor = networks.load_actor(config, colony.spec_of(config), best.params)
    torch.testing.assert_close(dict(actor.eager.state_dict()), best.params)  # type: ignore[attr-defined]


def test_a_validation_is_the_deterministic_policy_on_each_colony(dataset: Dataset):
    learner = make_learner(CONFIG)
    starts = dataset.train.validation
    with shapes_unchecked():
        result = colony.validate(learner, dataset)
        outcome = run_policy(
            CONFIG, train.init_state(CONFIG, dataset, 0).seeds[0], dataset.train.plates, starts
        )
    expected = outcome.returns.mean(), (outcome.reasons == SUCCESS).mean()
    assert result == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(("success", "warned"), [(0.0, True), (0.1, False)])
def test_one_warning_says_that_no_colony_reaches_the_goal(
    success: float, warned: bool, monkeypatch: pytest.MonkeyPatch
):
    """Of the evaluations after 4 iterations and after the last, the fifth, only the first warns."""
    monkeypatch.setattr(colony, "validate", lambda *_: (-2.4, success))
    length = {"record_every": 2, "evaluate_every": 4, "transitions": 24 * 8 * 5}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        trained(small("actor_critic", train=length))
    assert len([item for item in caught if "no validation colony" in str(item.message)]) == warned


@pytest.mark.parametrize(
    ("reward", "safe"),
    [({"preset": "goal_control_safe"}, True), ({"preset": "goal_control"}, False)],
)
def test_a_warning_advises_the_safe_preset_only_without_a_forfeit(
    reward: dict[str, Any], safe: bool
):
    config = small("actor_critic", env={"reward": reward})
    failed = r"after 576 transitions no held-out colony reaches the goal \(learner 0, 2\)"
    with pytest.warns(UserWarning, match=failed) as caught:
        colony.warn_without_success(config, "held-out", 576, [0.0, 0.5, 0.0])
    assert ("reward.preset: goal_control_safe" in str(caught[0].message)) == (not safe)
