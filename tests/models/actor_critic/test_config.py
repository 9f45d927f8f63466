"""Plates from files, what the section actor_critic allows beyond its limits; every key is read."""

from functools import partial

import numpy as np
import pytest

from quatrain.envs.colony.config import COMPONENTS
from quatrain.models.actor_critic.collect import collect
from quatrain.models.actor_critic.config import ActorCriticConfig
from quatrain.models.actor_critic.evaluate import evaluate
from quatrain.models.actor_critic.train import train
from quatrain.validation import overlaid
from tests.config_keys import config_of, refusal, unread_keys
from tests.conftest import params_with, shapes_unchecked, small
from tests.models.actor_critic import user_envs

FILE = "inputs/actor_critic/mine.npy"
STIFF = tuple(np.linspace(1, 31, 600).tolist())
OWN_PLATE = (
    f"collect: {{plates: user, plates_file: {FILE}, n_train: 1, n_held_out: 1, n_outside: 0}}"
)

config_with = partial(config_of, "actor_critic")

STIFFNESS = [(17, np.nan, "finite and > 0."), (0, 1e-6, "> 1e-06 and <= 1e+12.")]


def test_a_plate_of_another_width_or_of_impossible_stiffness_is_refused():
    def refused(numbers: tuple[float, ...]) -> str:
        return refusal("actor_critic", OWN_PLATE, files={FILE: numbers})

    place = "actor_critic: collect.plates_file: "
    assert f"{place}600 values expected (env.width), got 512" in refused(STIFF[:512])
    for column, value, limits in STIFFNESS:
        numbers = (*STIFF[:column], value, *STIFF[column + 1 :])
        line = f"{place}value at column {column} is {value:g}; intensities must be {limits}"
        assert line in refused(numbers)


def test_records_end_at_the_same_iterations_wherever_a_training_goes_on():
    train = config_with("train: {transitions: 5632, record_every: 4, evaluate_every: 4}").train
    assert train.steps == 11
    assert {done: train.counts(done) for done in (0, 3, 4, 10, 11)} == {
        0: [4, 4, 3],
        3: [1, 4, 3],
        4: [4, 3],
        10: [1],
        11: [],
    }


# What is allowed.


def test_growth_without_bound_is_accepted_from_who_asks_for_it():
    bounds = "env.action.bounds: {delete_ratio: [0.0, 0.5]}"
    config = config_with("env: {allow_unbounded_growth: true}", bounds)
    assert config.env.bounds[0].high == 0.5


def test_a_goal_out_of_reach_is_a_warning_where_it_is_not_the_task():
    line = r"^actor_critic\.env\.max_steps 20 x longest spawn 15\.5 px < 534 px to the goal"
    with pytest.warns(UserWarning, match=line):
        config_with("env: {max_steps: 20, reward: {preset: full}}")
    assert config_with("env: {max_steps: 35}").env.max_steps == 35  # 35 * 15.5 = 542.5


def test_weights_stand_in_place_of_a_presets_or_beside_them():
    config = config_with("env.reward.weights: {growth: 0.5, time: 0.0, milestone: 2.0}")
    result = dict(config.env.reward_weights)
    expected = {"progress": 10, "growth": 0.5, "metabolic": 0.05, "lane": 0.4}
    assert result == expected | {"terminal": 2, "milestone": 2}
    assert list(result) == [name for name in COMPONENTS if name in result]


def test_whole_iterations_are_counted():
    for transitions, expected in ((512 * 98, 98), (512 * 98 + 1, 99)):
        assert config_with(f"train: {{transitions: {transitions}}}").train.steps == expected


# Each key is read.


@pytest.mark.filterwarnings("ignore:actor_critic. after .* no validation colony:UserWarning")
def test_every_key_is_read_by_what_runs():
    # Another environment than those of other tests, so that its interface is read here.
    theirs = {"train": {"transitions": 7 * 16 * 4}, "env": {"max_episode_steps": 6}}
    of_user = params_with({"actor_critic": overlaid(user_envs.section("Pointer"), theirs)})
    ours = small(
        "actor_critic",
        env={"reward": {"preset": "full"}},
        train={"transitions": 24 * 8 * 2, "record_every": 1, "evaluate_every": 1},
    )
    with shapes_unchecked(), unread_keys(ActorCriticConfig) as unread:
        for config in (ours, of_user.actor_critic):
            dataset = collect(config, 0)
            *_, progress = train(config, dataset, 0)
            evaluate(config, progress.state, dataset, 0)
    assert unread == {"Env.allow_unbounded_growth"}
