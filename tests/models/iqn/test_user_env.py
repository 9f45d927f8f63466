"""iqn in environments of users: what it collects, plays, stores, learns, restores and refuses."""

from contextlib import closing
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pipeline.storage.params_file import read_params
from quatrain.envs.host.envs import HostEnvs
from quatrain.errors import DataError, DatasetMismatch
from quatrain.models.iqn.collect import NO_RETURN, check, collect, scaled
from quatrain.models.iqn.config import IqnUserEnvConfig
from quatrain.models.iqn.evaluate import evaluate
from quatrain.models.iqn.learn import State, evaluation_params
from quatrain.models.iqn.serve import export, load, request
from quatrain.models.iqn.train import (
    Cycle,
    HostLoop,
    from_arrays,
    init_state,
    metrics,
    to_arrays,
    train,
)
from quatrain.models.iqn.user_env import Dataset, ReplayEnvs, by_seed, scale_of, stack
from quatrain.progress import Progress
from quatrain.replay.frames.ring import init, write
from quatrain.replay.frames.sampling import Window, gather_transitions, start_entries, valid_starts
from quatrain.serving import answer
from quatrain.validation import overlaid
from tests.config_keys import overlay_of
from tests.conftest import ROOT, params_with, shapes_unchecked
from tests.models.iqn.user_envs import Diary, Episode, section


def user_env(*changes: str, name: str = "OneStep", kind: str = "gymnasium", **kwargs: Any) -> Any:
    """Returns a small config with changes such as `train.turns: 64`."""
    config = params_with({"iqn": overlaid(section(name, kind, **kwargs), overlay_of(*changes))}).iqn
    assert isinstance(config, IqnUserEnvConfig)
    return config


CORRIDOR = user_env("seeds: 2", name="Corridor", ends=True)


def trained(config: IqnUserEnvConfig, seed: int = 3) -> State:
    with shapes_unchecked():
        *_, last = train(config, collect(config, seed), seed)
    return last.state


# What is collected and stored.


def test_the_prefill_holds_what_happened_and_its_last_turn_starts_no_transition():
    train_set = collect(CORRIDOR, 0).train
    for of_both_seeds in (train_set.actions[:, 0], train_set.frames[:, 0]):
        assert not np.array_equal(*of_both_seeds)
    place, turn = train_set.frames[:, :, 0, :, 0], train_set.turn
    ended = train_set.terminated | train_set.final
    np.testing.assert_array_equal(turn[:, 1:], np.where(ended, 0, turn + 1)[:, :-1])
    moved = (place[:, 1:] - place[:, :-1])[~ended[:, :-1]]
    np.testing.assert_allclose(moved, train_set.actions[:, :-1, 0][~ended[:, :-1]], atol=1e-6)
    is_final = train_set.final[:, :-1, None]
    paid = np.where(is_final, 0, train_set.actions[:, :-1])
    np.testing.assert_array_equal(train_set.rewards[:, :-1], paid)
    assert ended[:, -1].all()
    np.testing.assert_array_equal(train_set.final[:, :-1], turn[:, :-1] == 6)
    assert train_set.terminated.any()
    assert not (train_set.terminated & train_set.final).any()


def plain_transition(start: int, episode: Episode, window: Window) -> list[float]:
    """Walks from a step of an episode: stack, action, return, bootstrap and next stack."""
    returns, power, now = 0.0, 1.0, start
    while now < len(episode.rewards) and now < start + window.n_step:
        returns += power * episode.rewards[now]
        power *= window.discount
        now += 1
    if episode.ends and now == len(episode.rewards):
        power, now = 0.0, start
    padded = [0.0] * (window.frames - 1) + episode.obs
    stack, next_stack = (padded[at : at + window.frames] for at in (start, now))
    return [*stack, episode.actions[start], returns, power, *next_stack]


def test_transitions_are_those_of_whole_episodes_with_their_final_observations():
    Diary.episodes.clear()
    window = Window(2, 3, 0.9)
    config = user_env(name="Diary")
    rng = np.random.default_rng(0)
    slots, block = 24, 6
    with closing(HostEnvs(config.env, 4, 7)) as host_envs:
        envs = ReplayEnvs(host_envs)
        turns = [envs.step(rng.integers(3, size=(4, 1))) for _ in range(60)]
    ring = init(slots, stack(turns[:1]))
    for begin in range(0, 60, block):
        ring = write(ring, stack(turns[begin : begin + block]))
    starts = valid_starts(ring, window)
    entries = start_entries(ring, starts, jnp.arange(starts.total))
    batch = gather_transitions(ring, 0, entries, window)
    drawn = np.column_stack([np.reshape(column, (len(entries), -1)) for column in batch])
    expected = {
        episode.obs[start]: plain_transition(start, episode, window)
        for episode in Diary.episodes
        for start in range(len(episode.rewards))
    }
    newest = drawn[:, window.frames - 1]
    np.testing.assert_allclose(drawn, [expected[number] for number in newest], rtol=1e-6)
    last = [episode.obs[-2] for episode in Diary.episodes if episode.rewards and not episode.ends]
    assert len(set(newest)) == len(newest)
    assert len(set(newest) & set(last)) > 5


def test_observations_are_scaled_by_the_prefill_or_not_at_all():
    dataset = collect(CORRIDOR, 0)
    scales = by_seed(scale_of(CORRIDOR, dataset))
    for scale, frames in zip(scales, dataset.train.frames, strict=True):
        inputs = scaled(scale, frames)
        np.testing.assert_allclose([inputs.mean(), inputs.std()], [0, 1], atol=1e-5)
    neutral = scale_of(user_env("collect.observation_norm: none"), dataset)
    np.testing.assert_array_equal(
        scaled(by_seed(neutral)[0], dataset.train.frames), dataset.train.frames
    )


def test_the_ring_holds_the_stacks_that_the_agents_saw_and_episodes_are_counted():
    """A stack is scaled, blank before its episode, and of one environment."""
    state = init_state(CORRIDOR, collect(CORRIDOR, 0), 1)
    with closing(HostLoop(CORRIDOR, state)) as loop:
        stacks: list[np.ndarray] = []

        def watched(*arguments: Any) -> Any:
            stacks.append(arguments[-1])
            return loop._explore(state.params, *arguments)

        player, before = loop._player, loop._player.state
        assert (before.episode_return == NO_RETURN).all()
        played, record = player.play(watched)
    visible = np.stack(stacks, 1)
    np.testing.assert_array_equal(played.frames, visible[..., 1:])
    is_first = (played.turn == 0)[:, :, None, :, None]
    expected = np.where(is_first, 0, np.roll(played.frames, 1, axis=1))[:, 1:]
    np.testing.assert_array_equal(visible[:, 1:, ..., :1], expected)
    ended = played.terminated | played.final
    assert (player.state.episodes - before.episodes).tolist() == ended.sum((1, 2)).tolist()
    for seed in range(2):
        returns = []
        for env in range(4):
            ends = np.flatnonzero(ended[seed, :, env])
            parts = np.split(played.rewards[seed, :, 0, env], ends + 1)
            returns += [part.sum() for part in parts[:-1]]
            assert player.state.reward_sums[seed, 0, env] == parts[-1].sum()
        np.testing.assert_allclose(player.state.episode_return[seed, 0], np.mean(returns))
    np.testing.assert_array_equal(record["agent_steps"], player.state.transitions)


def test_a_restored_player_goes_on_as_the_one_that_was_not_cut_off():
    dataset = collect(CORRIDOR, 0)
    state = init_state(CORRIDOR, dataset, 4)
    with closing(HostLoop(CORRIDOR, state)) as loop:
        explore = partial(loop._explore, state.params)
        loop._player.play(explore)
        before = loop._player.state
        for pending in (before.final.turn, before.history, before.reward_sums):
            assert pending.any()
        saved = to_arrays(state._replace(play_state=before))
        with closing(HostLoop(CORRIDOR, from_arrays(CORRIDOR, dataset, saved))) as restored:
            players = loop._player, restored._player
            np.testing.assert_equal(restored._player.state, before)
            np.testing.assert_equal(*(jax.device_get(each.play(explore)) for each in players))
            np.testing.assert_equal(*(each.state for each in players))


def test_returns_are_recorded_once_an_episode_of_each_seed_has_ended():
    def recorded(*of_seeds: list[float]) -> list[float]:
        returns = np.array(of_seeds, np.float32)
        counts = [np.ones_like(returns)] * 3
        cycles = Cycle({}, {"episode_return": returns[..., None]}, *counts)
        return metrics(cycles, None)["episode_return"].tolist()

    assert recorded([1.0, 2.0], [NO_RETURN, 4.0]) == []
    assert recorded([1.0, 2.0], [3.0, 4.0]) == [2.0, 3.0]


# What is learned.


HALF = "train: {turns: 160, loss: {discount: 0.5, n_step: 3}, target: {rate: 0.3}}"


@pytest.mark.parametrize(
    ("ends", "length", "limit", "expected"),
    [
        ("terminated", 3, 6, [1 / 4, 1 / 2, 1]),
        ("never", 3, 3, [2 / 7, 4 / 7, 8 / 7]),
        ("never", 1, 1, [2]),
    ],
)
def test_the_reward_of_a_last_step_is_learned_at_an_end_and_at_a_time_limit(
    ends: str, length: int, limit: int, expected: list[float]
):
    changes = (HALF, "network.frames: 1", f"env.max_episode_steps: {limit}")
    config = user_env(*changes, name="Laps", ends=ends, length=length)
    with shapes_unchecked():
        dataset = collect(config, 0)
        *_, last = train(config, dataset, 0)
    places = np.eye(length, dtype=np.float32)[:, None]
    request = {"observations": places, "agents": np.zeros(length, np.int32)}
    values = answer("iqn", load(config, export(config, last.state, dataset)), request)["values"]
    np.testing.assert_allclose(values.mean(-1), expected, atol=0.1)


def test_a_replay_without_any_transition_ends_the_training_in_a_line():
    small = "train: {turns_per_cycle: 1, capacity: 12, batch_size: 8, turns: 4}"
    empty = r"^iqn: the replay of seed 0 holds no transition .* Raise iqn\.collect\.turns "
    few = ("collect.turns: 3", "env.max_episode_steps: 1", "network.frames: 1")
    brief = "train: {loss: {n_step: 1}, acting: {epsilon: {over_transitions: 9}}}"
    config = user_env(small, *few, brief, name="Laps", ends="never")
    with shapes_unchecked(), pytest.raises(DataError, match=empty):
        next(train(config, collect(config, 0), 0))


def test_two_agents_learn_opposite_actions_from_the_same_observation():
    config = user_env("train.turns: 160", name="Opposites", kind="pettingzoo")
    dataset = collect(config, 0)
    scores = evaluate(config, trained(config), dataset, 0).scores
    assert scores["return_agent_0"] == scores["return_agent_1"] == 4
    assert abs(scores["random_return"] - 2) < 0.5
    assert scores["constant_return"] < 3


OFTEN = user_env("train: {turns: 80, record_every: 20, evaluate_every: 20}")


@cache
def evaluated() -> tuple[Dataset, list[Progress]]:
    with shapes_unchecked():
        dataset = collect(OFTEN, 0)
        return dataset, list(train(OFTEN, dataset, 0))


def test_a_learner_is_scored_with_the_scale_that_it_was_trained_with():
    """The prefill of other data changes no score; another scale does."""
    dataset, yields = evaluated()
    state = yields[-1].state
    train_set = dataset.train._replace(frames=9 * dataset.train.frames + 3)
    changed = dataset._replace(train=train_set)
    with shapes_unchecked():
        scores = evaluate(OFTEN, state, dataset, 0).scores
        assert evaluate(OFTEN, state, changed, 0).scores == scores
        other = state._replace(scale=scale_of(OFTEN, changed))
        assert (
            evaluate(OFTEN, other, dataset, 0).scores["return_mean"] < scores["return_mean"] - 0.5
        )


def test_the_best_evaluation_is_kept_and_judged_and_before_any_the_last_networks():
    dataset, yields = evaluated()
    greedy = [progress.metrics["greedy_return"].item() for progress in yields]
    best = max(place for place, value in enumerate(greedy) if value == max(greedy))
    assert yields[-1].state.best.greedy_return.item() == pytest.approx(max(greedy))
    kept, at_best = (yields[place].state for place in (-1, best))
    jax.tree.map(np.testing.assert_array_equal, kept.best.params, at_best.target_params)
    first = kept._replace(best=init_state(OFTEN, dataset, 0).best)
    params = evaluation_params(OFTEN, first)
    jax.tree.map(np.testing.assert_array_equal, params, kept.target_params)


def test_a_training_of_any_length_ends_with_its_rest_and_an_evaluation():
    """None of its other lengths needs a change: epsilon stops on its way."""
    later = "acting: {epsilon: {over_transitions: 9999}}"
    every = f"record_every: 40, evaluate_every: 400, {later}"
    brief, longer = (user_env(f"train: {{turns: {turns}, {every}}}") for turns in (33, 52))
    with shapes_unchecked():
        dataset = collect(brief, 0)
        yields = list(train(brief, dataset, 0))
        further = list(train(longer, dataset, 0, yields[-1].state))
    assert [each.step for each in yields + further] == [40, 80, 100, 120, 140]
    evaluations = [len(each.metrics["greedy_return"]) for each in yields + further]
    assert evaluations == [0, 0, 1, 0, 1]
    assert yields[-1].metrics["epsilon"][-1] > 0.9


# What is refused.


def test_a_dataset_of_another_environment_is_refused():
    with pytest.raises(DatasetMismatch, match="its observation_size is 3, and was 1"):
        check(user_env(), collect(CORRIDOR, 0))


def config_in(name: str, *changes: str, **kwargs: Any) -> IqnUserEnvConfig:
    """Returns the config of a small learner in one of tests/own_envs.py."""
    return user_env(f"env.import: tests.own_envs:{name}", *changes, **kwargs)


def test_legal_actions_alone_are_taken_and_learned():
    changes = ("train.turns: 192", "train.capacity: 1024", "train.loss.n_step: 1")
    config = config_in("Doors", *changes, "train.loss.discount: 0.2", "train.evaluate_every: 0")
    dataset, state = collect(config, 3), trained(config)
    result = evaluate(config, state, dataset, 0).scores  # a closed one raises
    below = max(result[f"{name}_return"] for name in ("random", "constant", "untrained"))
    assert below < 3.5 < result["return_mean"]
    answered = answer(
        "iqn",
        load(config, export(config, state, dataset)),
        {"observations": np.float32([[[0] * 6, [0, 0, 1, 0, 0, 0]]]), "agents": np.int32([0])},
    )
    assert answered["action"].tolist() == [1]


@pytest.mark.parametrize("layout", ["hw", "dict"])
def test_frames_of_images_are_stored_once_as_they_are_and_learned(layout: str):
    config = config_in("Catch", "network.frames: 2", "train.evaluate_every: 0", layout=layout)
    dataset = collect(config, 3)
    with shapes_unchecked():
        yields = list(train(config, dataset, 3))
    state = yields[-1].state
    size = 144 + (layout == "dict")
    assert state.ring.data.frames.shape == (1, 64, 1, 4, size)
    assert state.ring.data.frames.dtype == (np.uint8 if layout == "hw" else np.float32)
    assert yields[-1].metrics["loss"].mean() < yields[0].metrics["loss"].mean()
    example = request(config, dataset)
    assert example["observations"].shape == (2, 2, size)
    assert answer("iqn", load(config, export(config, state, dataset)), example)["action"].shape == (
        2,
    )


@pytest.mark.slow
def test_images_are_learned():
    changes = ("train.turns: 512", "train.capacity: 4096", "train.loss.n_step: 3")
    config = config_in("Catch", *changes)
    result = evaluate(config, trained(config), collect(config, 3), 0).scores
    below = max(result[f"{name}_return"] for name in ("random", "constant", "untrained"))
    assert below < 0.5
    assert result["return_mean"] > 0.9


def test_actions_of_several_indices_are_refused_in_a_line():
    with pytest.raises(DataError, match=r"has actions of 3 indices.*or train actor_critic in it"):
        collect(config_in("Switches"), 0)


def test_a_replay_of_images_beyond_any_memory_is_refused_in_a_line():
    with pytest.raises(DataError, match=r"env Catch: the replay of seeds \* train.capacity takes"):
        collect(config_in("Catch", "train.capacity: 1000000000"), 0)


def test_continuous_actions_are_refused_in_a_line():
    pendulum = "env: {id: Pendulum-v1, import: null}"
    with pytest.raises(DataError, match="Pendulum-v1 has continuous actions; iqn needs Discrete"):
        collect(user_env(pendulum), 0)


# The preset.


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_cartpole_is_solved_by_the_preset(seed: int):
    config = read_params(ROOT, "gymnasium").iqn
    dataset = collect(config, seed)
    with shapes_unchecked():
        *_, last = train(config, dataset, seed + 100)
    scores = evaluate(config, last.state, dataset, seed).scores
    assert scores["return_mean"] >= 475
    assert max(scores[f"{name}_return"] for name in ("random", "constant", "untrained")) < 100
