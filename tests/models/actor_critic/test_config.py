"""Values of the section actor_critic that cannot be used, one by one or together: each ends in one
line that says what to do. And of those that can be, each changes something.
"""

import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from pydantic import BaseModel

from pipeline.runtime.errors import ConfigError
from pipeline.storage.artifacts import to_arrays
from pipeline.storage.params_file import overlaid, parse, read_params, validate
from quatrain.envs.colony import reference_policies
from quatrain.envs.colony.rules import COMPONENTS, PARAMETERS, REWARDS
from quatrain.models.actor_critic import config as room
from quatrain.models.actor_critic.collect import Dataset, collect
from quatrain.models.actor_critic.config import ActorCriticConfig
from quatrain.models.actor_critic.evaluate import evaluate
from quatrain.models.actor_critic.train import train as learn
from tests.config_keys import leaves, nested
from tests.conftest import ROOT, SMALL, params_with, small

RAW = parse(ROOT / "params.yaml")
FILE = "inputs/actor_critic/mine.npy"
FIXED_VALUES = {"gamma": 5.0, "alpha": 2.0, "noise": 0.1, "theta": 0.0}
STIFF = tuple(np.linspace(1, 31, 600).tolist())


def env(**changes: Any) -> dict[str, Any]:
    return {"env": changes}


def bounds(**changes: Any) -> dict[str, Any]:
    return env(action={"bounds": changes})


def action(**changes: Any) -> dict[str, Any]:
    return env(action=changes)


def reward(**changes: Any) -> dict[str, Any]:
    return env(reward=changes)


def train(**changes: Any) -> dict[str, Any]:
    return {"train": changes}


def own_plate(**changes: Any) -> dict[str, Any]:
    return {
        "collect": {
            "plates": "user",
            "plates_file": FILE,
            "n_train": 1,
            "n_held_out": 1,
            "n_outside": 0,
        }
        | changes
    }


def selected(overlay: dict[str, Any], numbers: tuple[float, ...] = STIFF) -> ActorCriticConfig:
    return validate(
        overlaid(RAW, {"actor_critic": overlay}), {FILE: numbers}.__getitem__
    ).actor_critic


def refusal(overlay: dict[str, Any], numbers: tuple[float, ...] = STIFF) -> str:
    """The line that a user reads."""
    with pytest.raises(ConfigError) as caught:
        selected(overlay, numbers)
    assert "\n" not in str(caught.value)
    return str(caught.value)


OVERFLOWS = "n' = 2(n - floor(r n)) can then never shrink and each colony overflows; raise"

COLONIES = {
    "more cells than there is room for": (
        env(n0_max=120),
        "actor_critic.env: n0_max (120) exceeds env.max_nodes (100): colonies would overflow at "
        "reset; lower n0_max.",
    ),
    "a start of no size": (
        env(n0_min=81),
        "actor_critic.env: n0_min (81) exceeds n0_max (80); lower n0_min",
    ),
    "a size that overflows": (
        env(target_nodes=100),
        "actor_critic.env: target_nodes (100) is not below max_nodes (100); lower it",
    ),
    "a start above the plate": (
        env(y_center=[0.05, 0.75]),
        "actor_critic.env: y_center [0.05, 0.75] with y_spread 0.1 leaves the plate: both ends "
        "must lie in [0.1, 0.9], "
        "the first not above the second",
    ),
    "a start below the plate": (
        env(y_center=[0.25, 0.95]),
        "y_center [0.25, 0.95] with y_spread 0.1 leaves the plate",
    ),
    "a start wider than the plate": (
        env(y_spread=0.4),
        "y_center [0.25, 0.75] with y_spread 0.4 leaves the plate",
    ),
    "a start from right to left": (
        env(y_center=[0.75, 0.25]),
        "y_center [0.75, 0.25] with y_spread 0.1 leaves",
    ),
    "colonies that never shrink": (
        bounds(delete_ratio=[0.0, 0.5]),
        "actor_critic.env: action.bounds.delete_ratio upper bound 0.5 is not above 0.5: "
        f"{OVERFLOWS} the bound (0.7) or set env.allow_unbounded_growth: true.",
    ),
    "a share that never shrinks": (
        action(active_params=list(PARAMETERS[1:]), fixed_params={"delete_ratio": 0.49}),
        "actor_critic.env: action.fixed_params.delete_ratio 0.49 is below 0.5: "
        f"{OVERFLOWS} it or set env.allow_unbounded_growth: true.",
    ),
    "a goal out of reach": (
        env(max_steps=20),
        "env.max_steps 20 x longest spawn 15.5 px < 534 px to the goal: success is impossible; "
        "raise max_steps or "
        "gamma.",
    ),
    "a goal out of reach with a fixed throw": (
        action(active_params=["delete_ratio"], fixed_params=FIXED_VALUES | {"gamma": 4.0}),
        "env.max_steps 120 x longest spawn 4.1 px < 534 px to the goal: success is impossible; "
        "raise max_steps or",
    ),
}

ACTIONS = {
    "a range of nothing": (
        bounds(alpha=[2.0, 2.0]),
        "actor_critic.env.action.bounds: alpha: [2, 2] is no range; the first must be less than "
        "the second",
    ),
    "a range upside down": (
        bounds(gamma=[15.0, 0.5]),
        "gamma: [15, 0.5] is no range; the first must be less than",
    ),
    "a share above 1": (
        bounds(delete_ratio=[0.0, 1.1]),
        "delete_ratio: [0, 1.1] must lie within 0..1",
    ),
    "a share below 0": (
        bounds(delete_ratio=[-0.1, 0.7]),
        "delete_ratio: [-0.1, 0.7] must lie within 0..1",
    ),
    "a throw backwards": (
        bounds(theta=[-1.6, 1.6]),
        "theta: [-1.6, 1.6] must lie within -1.571..1.571",
    ),
    "a throw of nothing": (bounds(gamma=[0.0, 15.0]), "gamma: [0, 15] must lie above 0"),
    "a negative stiffness": (bounds(alpha=[-0.5, 4.0]), "alpha: [-0.5, 4] must lie above 0"),
    "a negative length": (bounds(noise=[-0.05, 0.5]), "noise: [-0.05, 0.5] must lie above 0"),
    "a throw beyond sums": (bounds(gamma=[0.5, 2e6]), "actor_critic.env.action.bounds.gamma"),
    "three bounds": (bounds(gamma=[0.5, 2.0, 15.0]), "actor_critic.env.action.bounds.gamma"),
    "one bound": (bounds(gamma=15.0), "actor_critic.env.action.bounds.gamma = 15.0: "),
    "nothing to choose": (
        action(active_params=[], fixed_params=FIXED_VALUES | {"delete_ratio": 0.5}),
        "actor_critic.env.action.active_params",
    ),
    "an unknown number": (action(active_params=["gama"]), "actor_critic.env.action.active_params"),
    "a number twice": (
        action(active_params=["delete_ratio", "delete_ratio"], fixed_params=FIXED_VALUES),
        "actor_critic.env.action: active_params: name each once, in this order: delete_ratio, "
        "gamma, alpha, noise, "
        "theta",
    ),
    "numbers in another order": (
        action(
            active_params=["gamma", "delete_ratio"],
            fixed_params={"alpha": 2.0, "noise": 0.1, "theta": 0.0},
        ),
        "active_params: name each once, in this order: delete_ratio, gamma, alpha, noise, theta",
    ),
    "a number without a value": (
        action(active_params=["delete_ratio", "gamma"], fixed_params={"alpha": 2.0}),
        "actor_critic.env.action: fixed_params must give exactly those that are not active: alpha, "
        "noise, theta",
    ),
    "a value of what is chosen": (
        action(fixed_params={"gamma": 5.0}),
        "fixed_params must give exactly those that are not active: none",
    ),
    "a value outside": (
        action(active_params=["delete_ratio"], fixed_params=FIXED_VALUES | {"alpha": 4.5}),
        "actor_critic.env.action: fixed_params.alpha 4.5 is outside its bounds [0.5, 4]",
    ),
    "an infinite value": (
        action(active_params=["delete_ratio"], fixed_params=FIXED_VALUES | {"alpha": float("inf")}),
        "actor_critic.env.action.fixed_params.alpha = inf: ",
    ),
}

REWARD = {
    "an unknown component": (
        reward(weights={"grwoth": 1.0}),
        f"actor_critic.env.reward: weights: 'grwoth' is no component; known: "
        f"{', '.join(COMPONENTS)}",
    ),
    "nothing that pays": (
        reward(weights=dict.fromkeys(REWARDS["goal_control"], 0.0)),
        "actor_critic.env.reward: all weights are 0: nothing can be learned; give one component a "
        "weight",
    ),
    "a weight that is no number": (
        reward(weights={"growth": float("nan")}),
        "actor_critic.env.reward.weights.growth",
    ),
    "a weight beyond sums": (
        reward(weights={"growth": 2e6}),
        "actor_critic.env.reward.weights.growth = 2000000.0: ",
    ),
    "an unknown preset": (
        reward(preset="goal"),
        "actor_critic.env.reward.preset = 'goal': Input should be 'goal_con",
    ),
}

PLATES = {
    "a plate of another width": (
        own_plate(),
        STIFF[:512],
        "actor_critic: collect.plates_file: 600 values expected (env.width), got 512",
    ),
    "a plate of nothing": (
        own_plate(),
        (),
        "collect.plates_file: 600 values expected (env.width), got 0",
    ),
    "a stiffness that is none": (
        own_plate(),
        (*STIFF[:17], float("nan"), *STIFF[18:]),
        "actor_critic: collect.plates_file: value at column 17 is nan; intensities must be finite "
        "and > 0.",
    ),
    "an infinite stiffness": (
        own_plate(),
        (*STIFF[:599], float("inf")),
        "collect.plates_file: value at column 599 is inf; intensities must be finite and > 0.",
    ),
    "no stiffness": (
        own_plate(),
        (0.0, *STIFF[1:]),
        "collect.plates_file: value at column 0 is 0; intensities must be finite and > 0.",
    ),
    "a negative stiffness": (
        own_plate(),
        (*STIFF[:5], -2.5, *STIFF[6:]),
        "collect.plates_file: value at column 5 is -2.5; intensities must be finite and > 0.",
    ),
    "a stiffness that would count as 1": (
        own_plate(),
        (1e-6, *STIFF[1:]),
        "collect.plates_file: value at column 0 is 1e-06; intensities must be > 1e-06 and <= "
        "1e+12.",
    ),
    "a stiffness beyond float32": (
        own_plate(),
        (1e39, *STIFF[1:]),
        "collect.plates_file: value at column 0 is 1e+39; intensities must be > 1e-06 and <= "
        "1e+12.",
    ),
    "a plate without its file": (
        own_plate(plates_file=None),
        STIFF,
        "actor_critic.collect: plates: user and plates_file go together; set both, or plates_file: "
        "null",
    ),
    "a file without its plate": (
        own_plate(plates="fixed"),
        STIFF,
        "actor_critic.collect: plates: user and plates_file go together; set both, or plates_file: "
        "null",
    ),
    "one plate, drawn often": (
        own_plate(n_held_out=2),
        STIFF,
        "actor_critic.collect: plates: user is one plate; set n_train: 1, n_held_out: 1, "
        "n_outside: 0",
    ),
    "the fixed plate, drawn often": (
        {"collect": {"plates": "fixed"}},
        STIFF,
        "actor_critic.collect: plates: fixed is one plate; set n_train: 1, n_held_out: 1, "
        "n_outside: 0",
    ),
    "an unknown law": (
        {"collect": {"plates": "random"}},
        STIFF,
        "actor_critic.collect.plates = 'random': Input should be 'default_law', 'fixed' or 'user'",
    ),
    "a text as plate": (
        own_plate(plates_file="inputs/actor_critic/mine.csv"),
        STIFF,
        "inputs/actor_critic/mine.csv is no .npy file; write one with numpy.save",
    ),
}

TOGETHER = {
    "heads of no whole units": (
        {"network": {"heads": 5}},
        "actor_critic.network: d 32 is not a multiple of heads 5",
    ),
    "colonies that cannot be shared": (
        train(world_size=3),
        "actor_critic.train: num_envs 128 is not a multiple of world_size 3",
    ),
    "minibatches that cannot be shared": (
        train(world_size=2, minibatch_size=255),
        "actor_critic.train: minibatch_size 255 is not a multiple of world_size 2",
    ),
    "a minibatch beyond its rollout": (
        train(minibatch_size=2049),
        "actor_critic.train: minibatch_size 2049 exceeds num_envs * horizon 2048; lower it",
    ),
    "raw pixels for a network": (
        env(features="full", obs_norm="none"),
        "actor_critic: env.obs_norm none with env.features full: they are raw pixels and "
        "stiffness; set dataset",
    ),
    "a rollout beyond memory": (
        train(num_envs=2**17, horizon=128),
        "actor_critic: a rollout of train.num_envs * train.horizon * env.max_nodes takes about 100 "
        "GiB; at most 64; "
        "lower one",
    ),
    "plates beyond memory": (
        {
            "env": {"width": 100_000, "max_steps": 10_000},
            "collect": {"n_train": 65536, "n_held_out": 65536, "n_outside": 65536},
        },
        "actor_critic: collect.n_train, n_held_out and n_outside plates of env.width takes about "
        "73 GiB; at most 64",
    ),
    "a search beyond memory": (
        {"collect": {"constant_search": 10**6}},
        "actor_critic: collect.constant_search * 16 colonies of env.max_nodes takes about 298 GiB; "
        "at most 64",
    ),
    "colonies beyond memory": (
        {"env": {"max_nodes": 4096}, "collect": {"held_out_colonies": 10**6}},
        "actor_critic: collect.held_out_colonies of env.max_nodes takes about 763 GiB; at most 64",
    ),
    "episodes beyond memory": (
        {"env": {"max_steps": 100_000}, "collect": {"held_out_colonies": 20_000}},
        "actor_critic: collect.held_out_colonies * env.max_steps takes about 119 GiB; at most 64",
    ),
}

LIMITS = {
    ("seeds",): (0, 257),
    ("env", "width"): (49, 100_001),
    ("env", "height"): (49, 100_001),
    ("env", "max_nodes"): (7, 4097),
    ("env", "target_nodes"): (1,),
    ("env", "n0_min"): (0,),
    ("env", "n0_max"): (0,),
    ("env", "y_spread"): (-0.1, 0.6),
    ("env", "max_steps"): (0, 100_001),
    ("env", "left_limit"): (0,),
    ("env", "delta_time"): (0,),
    ("env", "delta_intensity"): (-2e6, 2e6),
    ("collect", "n_train"): (0, 65537),
    ("collect", "n_held_out"): (0, 65537),
    ("collect", "n_outside"): (-1, 65537),
    ("collect", "held_out_colonies"): (31, 10**7),
    ("collect", "constant_search"): (199, 10**7),
    ("network", "d"): (3, 4097),
    ("network", "layers"): (0, 65),
    ("network", "heads"): (0, 65),
    ("train", "num_envs"): (0, 2**21),
    ("train", "horizon"): (0, 100_001),
    ("train", "transitions"): (0, 10**13),
    ("train", "epochs"): (0, 1001),
    ("train", "minibatch_size"): (0, 2**25),
    ("train", "discount"): (0.0, 1.1),
    ("train", "gae_lambda"): (-0.1, 1.1),
    ("train", "clip"): (0.0, 1.0),
    ("train", "value_clip"): (-0.1, 2e6),
    ("train", "target_kl"): (0.0, 2e6),
    ("train", "learning_rate"): (0.0, 1.5),
    ("train", "lr_final_fraction"): (-0.1, 1.1),
    ("train", "value_coef"): (-0.1, 2e6),
    ("train", "entropy_start"): (-0.1, 2e6),
    ("train", "entropy_end"): (-0.1, 2e6),
    ("train", "max_grad_norm"): (0.0, 2e6),
    ("train", "adam_eps"): (0.0, 1.5),
    ("train", "world_size"): (0, 65),
    ("train", "record_every"): (0,),
    ("evaluate", "bootstrap_samples"): (99, 10**7),
}

CHOICES = {
    "features": (
        env(features="all"),
        "actor_critic.env.features = 'all': Input should be 'light' or 'full'",
    ),
    "norm": (
        env(obs_norm=True),
        "actor_critic.env.obs_norm = True: Input should be 'dataset' or 'none'",
    ),
    "growth": (
        env(allow_unbounded_growth=1),
        "actor_critic.env.allow_unbounded_growth = 1: Input should be a valid bo",
    ),
    "checks": (
        env(check_actions="yes"),
        "actor_critic.env.check_actions = 'yes': Input should be a valid boolean",
    ),
    "policy": (
        {"network": {"policy": "gaussian"}},
        "actor_critic.network.policy = 'gaussian': Input should be 'beta' o",
    ),
    "values": (
        {"network": {"value_heads": 2}},
        "actor_critic.network.value_heads = 2: Input should be 'total' or 'com",
    ),
    "gae": (
        train(gae="fast"),
        "actor_critic.train.gae = 'fast': Input should be 'auto', 'scan', 'lfilter' or 'loop'",
    ),
    "amp": (train(amp="fp16"), "actor_critic.train.amp = 'fp16': Input should be 'none' or 'bf16'"),
    "compile": (
        train(compile="yes"),
        "actor_critic.train.compile = 'yes': Input should be a valid boolean",
    ),
    "a misspelt key": (
        train(gae_lamda=0.9),
        "actor_critic.train.gae_lamda: unknown key; did you mean 'gae_lambda'?",
    ),
    "a key of the original": (env(spawn_law="hill"), "actor_critic.env.spawn_law: unknown key"),
}


@pytest.mark.parametrize("case", COLONIES)
def test_colonies_that_cannot_be_are_refused(case: str):
    overlay, line = COLONIES[case]
    assert line in refusal(overlay)


@pytest.mark.parametrize("case", ACTIONS)
def test_actions_that_cannot_be_are_refused(case: str):
    overlay, line = ACTIONS[case]
    assert line in refusal(overlay)


@pytest.mark.parametrize("case", REWARD)
def test_rewards_that_cannot_be_are_refused(case: str):
    overlay, line = REWARD[case]
    assert line in refusal(overlay)


@pytest.mark.parametrize("case", PLATES)
def test_plates_that_cannot_be_are_refused(case: str):
    overlay, numbers, line = PLATES[case]
    assert line in refusal(overlay, numbers)


@pytest.mark.parametrize("case", TOGETHER)
def test_numbers_that_do_not_fit_together_are_refused_with_both_keys(case: str):
    overlay, line = TOGETHER[case]
    assert line in refusal(overlay)


@pytest.mark.parametrize("case", CHOICES)
def test_an_unknown_choice_is_refused_with_the_known_ones(case: str):
    overlay, line = CHOICES[case]
    assert line in refusal(overlay)


@pytest.mark.parametrize("keys", LIMITS, ids=".".join)
def test_each_number_has_limits_that_its_refusal_names(keys: tuple[str, ...]):
    for value in LIMITS[keys]:
        said = refusal(nested(keys, value))
        assert f"actor_critic.{'.'.join(keys)} = {value}: Input should be " in said
        assert re.search(r"(greater|less) than (or equal to )?-?\d", said), said


def test_every_number_has_limits():
    numbers = {
        keys for keys, value in leaves(params_with({}).actor_critic) if type(value) in (int, float)
    }
    assert numbers == set(LIMITS)


# What is allowed.


def test_growth_without_bound_is_accepted_from_who_asks_for_it():
    asked = {"allow_unbounded_growth": True, "action": {"bounds": {"delete_ratio": [0.0, 0.5]}}}
    assert selected(env(**asked)).env.rules.bounds[0].high == 0.5
    half = action(active_params=list(PARAMETERS[1:]), fixed_params={"delete_ratio": 0.5})
    assert selected(half).env.action.fixed_params == {"delete_ratio": 0.5}


@pytest.mark.parametrize("preset", ["centroid_distance_only", "simple_delete_only", "full"])
def test_a_goal_out_of_reach_is_a_warning_where_it_is_not_the_task(preset: str):
    line = (
        r"actor_critic\.env\.max_steps 20 x longest spawn 15\.5 px < 534 px to the goal: success "
        r"is impossible; raise "
        r"max_steps or gamma\."
    )
    with pytest.warns(UserWarning, match=f"^{line}$"):
        result = selected(env(max_steps=20, reward={"preset": preset}))
    assert result.env.max_steps == 20


def test_a_goal_just_in_reach_is_none():
    assert selected(env(max_steps=35)).env.max_steps == 35  # 35 * 15.5 = 542.5
    assert "env.max_steps 34 x longest spawn 15.5 px < 534 px" in refusal(env(max_steps=34))


def test_weights_stand_in_place_of_a_presets_or_beside_them():
    weights = {"growth": 0.5, "time": 0.0, "milestone": 2.0}
    result = dict(selected(reward(weights=weights)).env.reward.weighted)
    assert result == {
        "progress": 10,
        "growth": 0.5,
        "metabolic": 0.05,
        "lane": 0.4,
        "terminal": 2,
        "milestone": 2,
    }
    assert list(result) == [name for name in COMPONENTS if name in result]


@pytest.mark.parametrize("preset", REWARDS)
def test_a_preset_pays_what_it_lists(preset: str):
    assert dict(selected(reward(preset=preset)).env.rules.reward) == REWARDS[preset]


def test_whole_iterations_are_counted():
    assert selected(train(transitions=200_000)).train.steps == 98
    assert selected(train(transitions=2048 * 98)).train.steps == 98
    assert selected(train(transitions=2048 * 98 + 1)).train.steps == 99
    assert selected(train(transitions=1)).train.steps == 1


def test_half_precision_wants_a_gpu():
    line = (
        "actor_critic.train.amp bf16 needs a GPU: on CPU it was measured slower than float32; set "
        "none"
    )
    with pytest.raises(ConfigError) as caught:
        params_with({"device": "cpu", "actor_critic": train(amp="bf16")})
    assert line in str(caught.value)
    assert (
        params_with({"device": "cuda", "actor_critic": train(amp="bf16")}).actor_critic.train.amp
        == "bf16"
    )


@pytest.mark.parametrize("preset", [None, "original", "large", "smoke"])
def test_each_preset_can_be_used(preset: str | None):
    result = read_params(ROOT, preset).actor_critic
    assert result.env.rules.reward
    again = ActorCriticConfig.model_validate_json(result.model_dump_json())
    assert again == result
    assert again.env.rules == result.env.rules
    assert hash(again.env.rules) == hash(result.env.rules)


def test_the_original_has_the_numbers_of_the_original():
    result = read_params(ROOT, "original").actor_critic
    assert (
        result.env.n0_min,
        result.env.n0_max,
        result.env.target_nodes,
        result.env.max_steps,
    ) == (
        5,
        5,
        50,
        1000,
    )
    assert result.env.action.fixed_params == {
        "gamma": 0.5,
        "alpha": 2.0,
        "noise": 0.1,
        "theta": 0.0,
    }
    assert result.env.reward.weighted == (
        ("distance", 1.0),
        ("first_step", 1.0),
        ("terminal_scaled", 1.0),
    )
    assert result.env.rules.bounds[0] == (0.0, 0.5)
    assert (result.collect.plates, result.train.steps) == ("fixed", 489)


def test_the_example_plate_can_be_used():
    result = params_with(
        {"actor_critic": own_plate(plates_file="inputs/actor_critic/two_steps.npy")}
    ).actor_critic
    assert result.collect.plates_file is not None
    assert len(result.collect.plates_file.numbers) == result.env.width


# Each key is read by something.

COLLECTED = {
    "env.width": env(width=61),
    "env.height": env(height=50),
    "env.max_nodes": env(max_nodes=30),
    "env.target_nodes": env(target_nodes=7),
    "env.n0_min": env(n0_min=3),
    "env.n0_max": env(n0_max=7),
    "env.y_center": env(y_center=[0.25, 0.7]),
    "env.y_spread": env(y_spread=0.05),
    "env.max_steps": env(max_steps=11),
    "env.features": env(features="full"),
    "env.action.bounds.delete_ratio": bounds(delete_ratio=[0.0, 0.75]),
    "env.action.bounds.gamma": bounds(gamma=[0.5, 14.0]),
    "env.action.bounds.alpha": bounds(alpha=[0.5, 3.0]),
    "env.action.bounds.noise": bounds(noise=[0.06, 0.5]),
    "env.action.bounds.theta": bounds(theta=[-0.5, 0.4]),
    "env.action.active_params": action(
        active_params=list(PARAMETERS[:4]), fixed_params={"theta": 0.0}
    ),
    "env.reward.preset": reward(preset="centroid_distance_only"),
    "env.reward.weights": reward(weights={"growth": 0.3}),
    "collect.plates": {
        "collect": {"plates": "fixed", "n_train": 1, "n_held_out": 1, "n_outside": 0}
    },
    "collect.n_train": {"collect": {"n_train": 5}},
    "collect.n_held_out": {"collect": {"n_held_out": 5}},
    "collect.n_outside": {"collect": {"n_outside": 5}},
    "collect.held_out_colonies": {"collect": {"held_out_colonies": 65}},
    "collect.constant_search": {"collect": {"constant_search": 201}},
}
"""A change of a key that changes what is collected."""
BESIDE = {
    "env.delta_time": (reward(weights={"delete": 1.0}), env(delta_time=2)),
    "env.delta_intensity": (reward(weights={"spawn": 1.0}), env(delta_intensity=0.1)),
    "env.action.fixed_params": (
        action(active_params=list(PARAMETERS[:4]), fixed_params={"theta": 0.0}),
        action(fixed_params={"theta": 0.1}),
    ),
    "collect.plates_file": (own_plate(), own_plate()),
}
"""The same, of keys that count only beside others: those, and the change."""
ELSEWHERE = {"env.allow_unbounded_growth", "env.check_actions", "env.obs_norm", "env.left_limit"}
"""Read by the config itself, by `world.step`, while learning, and by `dynamics`: no law moves a
colony to the left.
"""


def written(dataset: Dataset) -> dict[str, bytes]:
    return {name: array.tobytes() for name, array in to_arrays(dataset).items()}


@pytest.fixture(scope="module", autouse=True)
def quick() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name in ("FIRST_COLONIES", "COLONIES", "FINAL_COLONIES", "GAMMA_COLONIES"):
            patch.setattr(reference_policies, name, 4)
        yield


@pytest.fixture(scope="module")
def reference() -> dict[str, bytes]:
    return written(collect(small("actor_critic"), 0))


@pytest.mark.parametrize("key", COLLECTED)
def test_a_key_of_env_or_collect_changes_what_is_collected(key: str, reference: dict[str, bytes]):
    assert written(collect(small("actor_critic", **COLLECTED[key]), 0)) != reference


@pytest.mark.parametrize("key", BESIDE)
def test_a_key_that_needs_others_changes_what_is_collected_with_them(key: str):
    beside, change = BESIDE[key]
    base, plate = overlaid(SMALL["actor_critic"], beside), tuple(np.linspace(1, 4, 60).tolist())
    item = selected(base, plate)
    other = selected(overlaid(base, change), plate[::-1] if key == "collect.plates_file" else plate)
    assert written(collect(item, 0)) != written(collect(other, 0))


def test_no_key_of_env_or_collect_is_forgotten_above():
    keys = {
        ".".join(keys) for keys, _ in leaves(small("actor_critic")) if keys[0] in ("env", "collect")
    }
    assert keys == set(COLLECTED) | set(BESIDE) | ELSEWHERE


def test_every_other_key_is_read_while_learning_or_evaluating(monkeypatch: pytest.MonkeyPatch):
    """Read by what runs, not by the config's own checks, which are done before."""
    config = small("actor_critic", train={"transitions": 24 * 8 * 2, "record_every": 1})
    dataset = collect(config, 0)
    sections = {
        "network": room.Network,
        "train": room.Train,
        "evaluate": room.Evaluate,
        "": ActorCriticConfig,
    }
    read: set[str] = set()
    for above, section in sections.items():
        monkeypatch.setattr(section, "__getattribute__", noting(read, above), raising=False)
    monkeypatch.setattr(room.Env, "__getattribute__", noting(read, "env"), raising=False)
    progress = list(learn(config, dataset, 0))[-1]
    evaluate(config, progress.state, dataset, 0)
    expected = {
        f"{above}.{name}" for above, section in sections.items() for name in section.model_fields
    }
    assert expected | {"env.obs_norm"} <= read, expected - read


def noting(read: set[str], above: str) -> Any:
    def get(section: BaseModel, name: str) -> Any:
        read.add(f"{above}.{name}")
        return object.__getattribute__(section, name)

    return get
