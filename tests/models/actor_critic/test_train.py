"""PPO that is PPO: what an update sees, what it leaves alone, and what a saved learner goes on
with.
"""

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from pipeline.storage.params_file import overlaid, read_input, read_raw, validate
from quatrain.envs.colony.dynamics import make_world
from quatrain.errors import DatasetMismatch
from quatrain.models.actor_critic import train
from quatrain.models.actor_critic.collect import Dataset, collect
from quatrain.models.actor_critic.config import ActorCriticConfig
from quatrain.models.actor_critic.ppo import iteration, rollout
from quatrain.models.actor_critic.ppo import trainer as trainers
from quatrain.models.actor_critic.ppo.acting import observe
from quatrain.models.actor_critic.ppo.metrics import MINIBATCH_METRICS
from quatrain.models.actor_critic.ppo.trainer import Trainer
from quatrain.progress import TrainingDiverged
from quatrain.replay.rollouts import buffer, gae
from tests.conftest import ROOT, small

CONFIG = small("actor_critic")


@pytest.fixture(scope="module")
def dataset() -> Dataset:
    return collect(CONFIG, 0)


@pytest.fixture
def trainer(dataset: Dataset) -> Trainer:
    return make_trainer(CONFIG, dataset)


def make_trainer(config: ActorCriticConfig, dataset: Dataset, seed: int = 0) -> Trainer:
    world = make_world(config.env.rules, dataset.train.plates)
    return trainers.from_state(config, world, train.init_state(config, dataset, seed).seeds[0])


def collected(trainer: Trainer) -> buffer.Transitions:
    trainer.rollout_state = rollout.collect_rollout(
        trainer.actor, trainer.rollout_state, trainer.rollout
    ).state
    return iteration.compute_advantages(trainer)


def minibatch_metrics(row: torch.Tensor) -> dict[str, float]:
    return dict(zip(MINIBATCH_METRICS, row.tolist(), strict=True))


@pytest.mark.parametrize("policy", ["beta", "squashed_gaussian"])
def test_at_the_first_minibatch_nothing_has_moved(policy: str, dataset: Dataset):
    trainer = make_trainer(small("actor_critic", network={"policy": policy}), dataset)
    for _ in range(3):  # also after the policy has become another one
        transitions = collected(trainer)
        index = buffer.minibatch_indices(len(transitions.n), 50, trainer.order)[0]
        loss, row = iteration.objective(trainer, buffer.minibatch(transitions, index), 0.01)
        result = minibatch_metrics(row)
        assert result["ratio_max_dev"] < 1e-5
        assert abs(result["approx_kl"]) < 1e-6
        assert result["clip_fraction"] == 0
        loss.backward()
        assert max(param.grad.abs().max() for param in trainer.network.actor.parameters()) > 1e-6
        iteration.learn(trainer, transitions, iteration.scheduled_rates(trainer))


def test_stored_draws_and_advantages_carry_no_gradient(trainer: Trainer):
    transitions = collected(trainer)
    assert not any(column.requires_grad for column in transitions)
    assert transitions.advantage.mean().abs() < 1e-5
    assert transitions.advantage.std(correction=0) == pytest.approx(1, abs=1e-4)


def test_numbers_that_stand_still_get_no_gradient_and_are_never_drawn():
    fixed = {"gamma": 9.0, "alpha": 0.5, "noise": 0.5, "theta": 0.1}
    config = small(
        "actor_critic", env={"action": {"active_params": ["delete_ratio"], "fixed_params": fixed}}
    )
    trainer = make_trainer(config, collect(config, 0))
    collected(trainer)
    assert trainer.rollout.raw_action.shape[-1] == 1
    assert trainer.network.actor[-1].out_features == 2
    action = trainer.actor.policy.action(trainer.rollout.raw_action)
    np.testing.assert_allclose(
        action[..., 1:].flatten(0, 1).unique(dim=0), [list(fixed.values())], rtol=1e-6
    )


def test_the_action_that_was_drawn_is_the_one_that_acts(trainer: Trainer):
    before = trainer.rollout_state.colonies
    collected(trainer)
    ratio = trainer.actor.policy.action(trainer.rollout.raw_action[0])[:, 0]
    gone = (ratio * before.n + 1e-4).floor()
    after = trainer.rollout.n[1].long()
    going_on = ~(trainer.rollout.terminated[0] | trainer.rollout.truncated[0])
    assert going_on.any()
    assert torch.equal(after[going_on].float(), 2 * (before.n - gone)[going_on])


def test_an_episode_out_of_time_is_bootstrapped_from_its_last_state(dataset: Dataset):
    config = small("actor_critic", env={"max_steps": 8}, train={"horizon": 20})
    trainer = make_trainer(config, dataset)
    collected(trainer)
    recorded = trainer.rollout
    assert recorded.truncated.any()
    goes_on = ~(recorded.truncated | recorded.terminated)
    assert torch.equal(recorded.next_value[:-1][goes_on[:-1]], recorded.value[1:][goes_on[:-1]])
    cut = recorded.truncated[:-1]
    assert (
        recorded.next_value[:-1][cut] != recorded.value[1:][cut]
    ).all()  # that is a new colony's


def test_the_value_behind_the_rollout_is_that_of_the_next_one(trainer: Trainer):
    collected(trainer)
    last = trainer.rollout.next_value[-1].clone()
    over = trainer.rollout.terminated[-1] | trainer.rollout.truncated[-1]
    with torch.no_grad():
        value = trainer.actor.forward(observe(trainer.actor, trainer.rollout_state.colonies)).value
    torch.testing.assert_close(value[~over], last[~over])


def test_heads_of_components_sum_to_the_advantage_of_the_whole(dataset: Dataset):
    trainer = make_trainer(small("actor_critic", network={"value_heads": "components"}), dataset)
    collected(trainer)
    weights, recorded = trainer.actor.world.weights, trainer.rollout
    whole = gae.Trace(
        recorded.components @ weights,
        recorded.value @ weights,
        recorded.next_value @ weights,
        recorded.terminated,
        recorded.truncated,
    )
    expected = gae.normalise(
        gae.advantages(whole, CONFIG.train.discount, CONFIG.train.gae_lambda, "loop")[0]
    )
    torch.testing.assert_close(
        iteration.compute_advantages(trainer).advantage, expected.flatten(), atol=1e-4, rtol=1e-4
    )


def test_no_step_is_taken_once_the_policy_has_moved_too_far(dataset: Dataset):
    far = make_trainer(small("actor_critic", train={"target_kl": 1e-9, "epochs": 3}), dataset)
    transitions = collected(far)
    updated = iteration.learn(far, transitions, iteration.scheduled_rates(far))
    assert updated.stopped
    assert far.updates == 1  # before the first one nothing has moved
    near = make_trainer(small("actor_critic", train={"target_kl": 1e6, "epochs": 3}), dataset)
    updated = iteration.learn(near, collected(near), iteration.scheduled_rates(near))
    assert not updated.stopped
    assert near.updates == 3 * -(-CONFIG.train.batch // CONFIG.train.minibatch_size)


def test_rates_fall_linearly(trainer: Trainer):
    train_config = trainer.config.train
    result = []
    for trainer.iterations in (0, train_config.steps // 2, train_config.steps):
        result.append(
            iteration.scheduled_rates(trainer)["learning_rate"] / train_config.learning_rate
        )
    assert result == pytest.approx(
        [1, (1 + train_config.lr_final_fraction) / 2, train_config.lr_final_fraction]
    )


def test_what_was_yielded_stays_as_it_was(dataset: Dataset):
    learners = []
    for progress in train.train(CONFIG, dataset, 0):
        learners.append((progress.state, copy.deepcopy(train.to_arrays(progress.state))))
    for state, packed in learners:
        for name, array in train.to_arrays(state).items():
            np.testing.assert_array_equal(array, packed[name], err_msg=name)


def test_several_seeds_learn_each_as_if_alone(dataset: Dataset):
    three = list(train.train(small("actor_critic", seeds=3), dataset, 0))[-1]
    alone = list(train.train(CONFIG, dataset, 0))[-1]
    assert three.metrics["return/seed"].shape[1] == 3
    np.testing.assert_array_equal(three.metrics["return/seed"][:, 0], alone.metrics["return"])
    packed = [train.to_arrays(state.state) for state in (three, alone)]
    for name, array in packed[1].items():
        np.testing.assert_array_equal(packed[0][name], array, err_msg=name)
    first, second = three.state.params[:2]
    assert not torch.equal(first["cells.weight"], second["cells.weight"])


# What goes wrong.


def broken(change: Callable[[dict[str, Any]], None], dataset: Dataset) -> train.State:
    state = next(train.train(CONFIG, dataset, 0)).state
    change(state.params[0])
    return state


def test_a_weight_that_is_not_finite_ends_the_training_with_its_name(dataset: Dataset):
    state = broken(lambda params: params["critic.3.weight"].fill_(float("nan")), dataset)
    why = (
        r"actor_critic: loss_policy is nan at iteration \d+, transition [\d,]+ \(update \d+\); "
        r"lower .*learning_rate"
    )
    with pytest.raises(TrainingDiverged, match=why):
        list(train.train(CONFIG, dataset, 0, state))


def test_a_dataset_of_another_config_is_refused(dataset: Dataset):
    other = small("actor_critic", collect={"n_train": 5})
    with pytest.raises(
        DatasetMismatch, match=r"training plates have the shape .*; run `dvc repro`"
    ):
        next(train.train(other, dataset, 0))


def test_arrays_of_another_network_are_refused(dataset: Dataset):
    arrays = train.to_arrays(next(train.train(CONFIG, dataset, 0)).state)
    wider = small("actor_critic", network={"d": 24})
    with pytest.raises(ValueError, match="not a learner of this config: params/0/"):
        train.from_arrays(wider, dataset, arrays)
    arrays.pop("params/0/cells.weight")
    with pytest.raises(ValueError, match=r"differing arrays \['params/0/cells.weight'\]"):
        train.from_arrays(CONFIG, dataset, arrays)


@pytest.mark.parametrize("preset", ["original", "large"])
def test_other_presets_learn(preset: str):
    """Cut down in what only takes time."""
    brief = {
        "seeds": 2,
        "env": {"width": 60, "max_steps": 100},
        "collect": {
            "n_train": 1,
            "n_held_out": 1,
            "n_outside": 0,
            "held_out_colonies": 32,
            "constant_search": 200,
        },
        "train": {
            "num_envs": 4,
            "horizon": 5,
            "transitions": 40,
            "minibatch_size": 10,
            "record_every": 1,
        },
    }
    cut = {
        "large": {
            "env": {"max_nodes": 100, "n0_max": 30},
            "train": {"amp": "none", "compile": False},
        }
    }
    raw = overlaid(read_raw(ROOT, preset), {"actor_critic": overlaid(brief, cut.get(preset, {}))})
    config = validate(raw, lambda name: read_input(ROOT, str(name))).actor_critic
    ends = list(train.train(config, collect(config, 0), 0))
    assert [end.step for end in ends] == [1, 2]
    assert all(np.isfinite(values).all() for end in ends for values in end.metrics.values())


def test_a_small_network_learns_on_one_thread_whatever_there_are(
    dataset: Dataset, monkeypatch: pytest.MonkeyPatch
):
    used, before = [], torch.get_num_threads()
    monkeypatch.setattr(rollout, "collect_rollout", lambda *_: used.append(torch.get_num_threads()))
    for units, expected in ((16, 1), (72, 2)):
        torch.set_num_threads(2)
        with pytest.raises(TrainingDiverged):  # nothing was collected
            next(train.train(small("actor_critic", network={"d": units}), dataset, 0))
        assert (used.pop(), torch.get_num_threads()) == (expected, 2)
    torch.set_num_threads(before)


@pytest.mark.parametrize("seeds", [1, 2])
def test_repeated_updates_are_the_training(seeds: int, dataset: Dataset):
    config = small("actor_critic", seeds=seeds)
    *_, last = train.train(config, dataset, 3)
    state = train.init_state(config, dataset, 3)
    for _ in range(config.train.steps):
        before = copy.deepcopy(train.to_arrays(state))
        next_state, metrics = train.update(config, dataset, state)
        for name, array in train.to_arrays(state).items():
            np.testing.assert_array_equal(array, before[name], err_msg=name)
        state = next_state
    trained = train.to_arrays(last.state)
    for name, array in train.to_arrays(state).items():
        np.testing.assert_array_equal(array, trained[name], err_msg=name)
    assert metrics.keys() == last.metrics.keys()
    for name, value in metrics.items():
        np.testing.assert_array_equal(value[-1], last.metrics[name][-1], err_msg=name)
