"""Values of actor_critic that do not fit together are refused in one line; every key is read."""

from typing import Any

import numpy as np
import pytest
from pydantic import BaseModel

from pipeline.runtime.errors import ConfigError
from pipeline.storage.params_file import overlaid, parse, validate
from quatrain.envs.colony.rules import COMPONENTS, PARAMETERS, REWARDS, Rules
from quatrain.models.actor_critic import config as room
from quatrain.models.actor_critic.collect import collect
from quatrain.models.actor_critic.config import ActorCriticConfig
from quatrain.models.actor_critic.evaluate import evaluate
from quatrain.models.actor_critic.train import train
from tests.conftest import ROOT, params_with, shapes_unchecked, small

RAW = parse(ROOT / "params.yaml")
FILE = "inputs/actor_critic/mine.npy"
FIXED = {"gamma": 5.0, "alpha": 2.0, "noise": 0.1, "theta": 0.0}
STIFF = tuple(np.linspace(1, 31, 600).tolist())


def at(section: str, **changes: Any) -> dict[str, Any]:
    """Changes of a section, by its dotted name."""
    for name in reversed(section.split(".")):
        changes = {name: changes}
    return changes


def action(*active: str, **fixed: float) -> dict[str, Any]:
    return at("env.action", active_params=active, fixed_params=fixed)


OWN_PLATE = at("collect", plates="user", plates_file=FILE, n_train=1, n_held_out=1, n_outside=0)


def selected(overlay: dict[str, Any], numbers: tuple[float, ...] = STIFF) -> ActorCriticConfig:
    raw = overlaid(RAW, {"actor_critic": overlay})
    return validate(raw, {FILE: numbers}.__getitem__).actor_critic


def refusal(overlay: dict[str, Any], numbers: tuple[float, ...] = STIFF) -> str:
    """The line that a user reads."""
    with pytest.raises(ConfigError) as caught:
        selected(overlay, numbers)
    assert "\n" not in str(caught.value)
    return str(caught.value)


OVERFLOWS = "n' = 2(n - floor(r n)) can then never shrink and each colony overflows; raise"
ORDER = "active_params: name each once, in this order: delete_ratio, gamma, alpha, noise, theta"
EXACTLY = "fixed_params must give exactly those that are not active:"
TOGETHER = "plates: user and plates_file go together; set both, or plates_file: null"
ONE_PLATE = "is one plate; set n_train: 1, n_held_out: 1, n_outside: 0"
OFF_PLATE = "with y_spread 0.1 leaves the plate: both ends must lie in [0.1, 0.9], the first not"
MULTIPLE = "is not a multiple of"
COLONIES = at("collect", held_out_colonies=100_000)
WIDE = at("env", width=100_000, max_steps=10_000) | at(
    "collect", n_train=65536, n_held_out=65536, n_outside=65536
)

REFUSED = [
    (
        at("env", n0_max=120),
        "actor_critic.env: n0_max (120) exceeds env.max_nodes (100): colonies would overflow at "
        "reset; lower n0_max.",
    ),
    (at("env", n0_min=81), "actor_critic.env: n0_min (81) exceeds n0_max (80); lower n0_min"),
    (at("env", target_nodes=100), "env: target_nodes (100) is not below max_nodes (100); lower it"),
    (at("env", y_center=[0.05, 0.75]), f"env: y_center [0.05, 0.75] {OFF_PLATE} above the second"),
    (
        at("env.action.bounds", delete_ratio=[0.0, 0.5]),
        "actor_critic.env: action.bounds.delete_ratio upper bound 0.5 is not above 0.5: "
        f"{OVERFLOWS} the bound (0.7) or set env.allow_unbounded_growth: true.",
    ),
    (
        action(*PARAMETERS[1:], delete_ratio=0.49),
        "actor_critic.env: action.fixed_params.delete_ratio 0.49 is below 0.5: "
        f"{OVERFLOWS} it or set env.allow_unbounded_growth: true.",
    ),
    (
        at("env", max_steps=34),
        "env.max_steps 34 x longest spawn 15.5 px < 534 px to the goal: success is impossible; "
        "raise max_steps or gamma.",
    ),
    (
        action("delete_ratio", **FIXED | {"gamma": 4.0}),
        "env.max_steps 120 x longest spawn 4.1 px < 534 px to the goal",
    ),
    (
        at("env.action.bounds", alpha=[2.0, 2.0]),
        "env.action.bounds: alpha: [2, 2] is no range; the first must be less than the second",
    ),
    (
        at("env.action.bounds", delete_ratio=[0.0, 1.1]),
        "delete_ratio: [0, 1.1] must lie within 0..1",
    ),
    (at("env.action.bounds", gamma=[0.0, 15.0]), "gamma: [0, 15] must lie above 0"),
    (action("delete_ratio", "delete_ratio", **FIXED), f"actor_critic.env.action: {ORDER}"),
    (action("delete_ratio", "gamma", alpha=2.0), f"env.action: {EXACTLY} alpha, noise, theta"),
    (action(*PARAMETERS, gamma=5.0), f"{EXACTLY} none"),
    (
        action("delete_ratio", **FIXED | {"alpha": 4.5}),
        "env.action: fixed_params.alpha 4.5 is outside its bounds [0.5, 4]",
    ),
    (
        at("env.reward", weights={"grwoth": 1.0}),
        f"env.reward: weights: 'grwoth' is no component; known: {', '.join(COMPONENTS)}",
    ),
    (
        at("env.reward", weights=dict.fromkeys(REWARDS["goal_control"], 0.0)),
        "env.reward: all weights are 0: nothing can be learned; give one component a weight",
    ),
    (overlaid(OWN_PLATE, at("collect", plates_file=None)), f"actor_critic.collect: {TOGETHER}"),
    (overlaid(OWN_PLATE, at("collect", plates="fixed")), f"actor_critic.collect: {TOGETHER}"),
    (
        overlaid(OWN_PLATE, at("collect", n_held_out=2)),
        f"actor_critic.collect: plates: user {ONE_PLATE}",
    ),
    (at("collect", plates="fixed"), f"actor_critic.collect: plates: fixed {ONE_PLATE}"),
    ({"network": {"heads": 5}}, f"actor_critic.network: d 32 {MULTIPLE} heads 5"),
    (at("train", world_size=3), f"actor_critic.train: num_envs 128 {MULTIPLE} world_size 3"),
    (
        at("train", minibatch_size=2049),
        "actor_critic.train: minibatch_size 2049 exceeds num_envs * horizon 2048; lower it",
    ),
    (
        at("env", features="full", obs_norm="none"),
        "actor_critic: env.obs_norm none with env.features full: they are raw pixels and "
        "stiffness; set dataset",
    ),
    (
        at("train", num_envs=2**17, horizon=128),
        "actor_critic: a rollout of train.num_envs * train.horizon * env.max_nodes takes about 100 "
        "GiB; at most 64; lower one",
    ),
    (WIDE, "collect.n_train, n_held_out and n_outside plates of env.width takes about 73 GiB"),
    (at("collect", constant_search=10**6), "16 colonies of env.max_nodes takes about 298 GiB"),
    (COLONIES | at("env", max_nodes=4096), "held_out_colonies of env.max_nodes takes about 76 GiB"),
    (COLONIES | at("env", max_steps=20_000), "held_out_colonies * env.max_steps takes about 119 G"),
]


@pytest.mark.parametrize(("overlay", "line"), REFUSED)
def test_values_that_do_not_fit_together_are_refused(overlay: dict[str, Any], line: str):
    assert line in refusal(overlay)


POSITIVE, IN_RANGE = "finite and > 0.", "> 1e-06 and <= 1e+12."
STIFFNESS = [
    (17, np.nan, POSITIVE),
    (599, -2.5, POSITIVE),
    (0, 1e-6, IN_RANGE),
    (0, 1e39, IN_RANGE),
]


def test_a_plate_of_another_width_or_of_impossible_stiffness_is_refused():
    place = "actor_critic: collect.plates_file: "
    assert f"{place}600 values expected (env.width), got 512" in refusal(OWN_PLATE, STIFF[:512])
    for column, value, limits in STIFFNESS:
        numbers = (*STIFF[:column], value, *STIFF[column + 1 :])
        line = f"{place}value at column {column} is {value:g}; intensities must be {limits}"
        assert line in refusal(OWN_PLATE, numbers)


def test_half_precision_wants_a_gpu():
    with pytest.raises(ConfigError) as caught:
        params_with({"device": "cpu", "actor_critic": at("train", amp="bf16")})
    assert (
        "actor_critic.train.amp bf16 needs a GPU: on CPU it was measured slower than float32; set "
        "none"
    ) in str(caught.value)
    params_with({"device": "cuda", "actor_critic": at("train", amp="bf16")})


# What is allowed.


def test_growth_without_bound_is_accepted_from_who_asks_for_it():
    asked = {"allow_unbounded_growth": True, "action": {"bounds": {"delete_ratio": [0.0, 0.5]}}}
    assert selected(at("env", **asked)).env.rules.bounds[0].high == 0.5
    selected(action(*PARAMETERS[1:], delete_ratio=0.5))


def test_a_goal_out_of_reach_is_a_warning_where_it_is_not_the_task():
    line = r"^actor_critic\.env\.max_steps 20 x longest spawn 15\.5 px < 534 px to the goal"
    with pytest.warns(UserWarning, match=line):
        selected(at("env", max_steps=20, reward={"preset": "simple_delete_only"}))
    assert selected(at("env", max_steps=35)).env.max_steps == 35  # 35 * 15.5 = 542.5


def test_weights_stand_in_place_of_a_presets_or_beside_them():
    weights = {"growth": 0.5, "time": 0.0, "milestone": 2.0}
    result = dict(selected(at("env.reward", weights=weights)).env.rules.reward)
    expected = {"progress": 10, "growth": 0.5, "metabolic": 0.05, "lane": 0.4}
    assert result == expected | {"terminal": 2, "milestone": 2}
    assert list(result) == [name for name in COMPONENTS if name in result]


def test_whole_iterations_are_counted():
    for transitions, expected in ((2048 * 98, 98), (2048 * 98 + 1, 99)):
        assert selected(at("train", transitions=transitions)).train.steps == expected


# Each key is read.


def test_the_rules_hold_every_key_of_the_colonies():
    config = small("actor_critic").env
    elsewhere = {"obs_norm", "allow_unbounded_growth", "action", "reward"}
    keys = type(config).model_fields.keys() - elsewhere
    assert keys == set(Rules._fields) - {"bounds", "reward"}
    assert all(getattr(config.rules, key) == getattr(config, key) for key in keys)
    assert config.rules.bounds == tuple(getattr(config.action.bounds, name) for name in PARAMETERS)


def test_every_other_key_is_read_by_what_runs(monkeypatch: pytest.MonkeyPatch):
    config = small("actor_critic", train={"transitions": 24 * 8 * 2, "record_every": 1})
    sections = (room.Env, room.Collect, room.Network, room.Train, room.Evaluate, ActorCriticConfig)
    read = set()

    def noting(section: BaseModel, name: str) -> Any:
        read.add((type(section), name))
        return object.__getattribute__(section, name)

    for section in sections:
        monkeypatch.setattr(section, "__getattribute__", noting, raising=False)
    with shapes_unchecked():
        dataset = collect(config, 0)
        *_, progress = train(config, dataset, 0)
        evaluate(config, progress.state, dataset, 0)
    every = {(section, name) for section in sections for name in section.model_fields}
    assert every - read == {(room.Env, "allow_unbounded_growth")}
