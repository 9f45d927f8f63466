"""What differs between two sides is said in a few words, and one gated metric decides."""

from typing import Any

import pytest

from quatrain.baselines import Rule
from quatrain.comparison_sides import compared_rules, deciding_rule, describe, world_keys
from quatrain.errors import ConfigError

RULES = (
    Rule("coverage", "near", 0.1, {}),
    Rule("error", "lower", 0.02, {}),
    Rule("return", "higher", 3.0, {}),
)


def test_the_first_metric_with_a_best_end_decides_unless_one_is_named():
    assert deciding_rule(RULES, None).metric == "error"
    assert deciding_rule(RULES, "return").tolerance == 3.0
    assert compared_rules(RULES) == RULES


@pytest.mark.parametrize("metric", ["coverage", "retrun"])
def test_a_metric_that_cannot_decide_is_refused_with_those_that_can(metric: str):
    with pytest.raises(ConfigError, match=f"judge = '{metric}': is no gated .* of error, return$"):
        deciding_rule(RULES, metric, "judge")


WORLDS: list[tuple[dict[str, Any], list[str]]] = [
    ({"train": {"steps": 2}, "collect": {"turns": 5}, "seeds": 3}, []),
    ({"env": {"field": {"kind": "duffing"}}}, ["env.field.kind"]),
    ({"evaluate": {"samples": 7}}, ["evaluate"]),
    ({"collect": {"n_held_out": 5, "plates": "fixed"}}, ["collect.n_held_out", "collect.plates"]),
]


@pytest.mark.parametrize(("after", "keys"), WORLDS)
def test_keys_that_make_other_held_out_worlds_are_named(after: dict[str, Any], keys: list[str]):
    before = {"train": {"steps": 1}, "env": {"field": {"kind": "linear"}}, "collect": {"turns": 4}}
    assert world_keys(before, before | after) == keys


TEXTS: list[tuple[dict[str, Any], str]] = [
    ({"rate": 0.003}, "train.rate 0.001 -> 0.003"),
    ({"rate": 1e-6, "clip": None}, "train.rate 0.001 -> 1e-6, train.clip 10 -> null"),
    (
        {"target": {"kind": "hard", "every": 9}},
        "train.target.kind polyak -> hard, train.target.rate 0.1 -> unset, "
        "train.target.every unset -> 9",
    ),
    (
        {"rate": 0, "clip": 0, "double": False, "mask": (0, 1), "target": {}},
        "train.rate 0.001 -> 0, train.clip 10 -> 0, train.double true -> false and 3 more",
    ),
    ({"mask": (0,) * 99}, f"train.mask [1] -> [{'0,' * 18}..."),
    ({"map": {"name": "my/map.txt", "text": "##"}}, "train.map room4 -> my/map.txt"),
]


@pytest.mark.parametrize(("changes", "text"), TEXTS, ids=[text[:30] for _, text in TEXTS])
def test_what_differs_is_said_key_by_key(changes: dict[str, Any], text: str):
    train = {"rate": 0.001, "clip": 10, "double": True, "mask": (1,), "map": "room4"}
    before = train | {"target": {"kind": "polyak", "rate": 0.1}}
    assert describe({"train": before}, {"train": before | changes}) == text
