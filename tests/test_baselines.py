"""Tests the stored form of baselines: what is written is read again, anything else is refused."""

import copy
from typing import Any

import pytest

from quatrain.baselines import BaselineError, Rule, StoredMetric, entry_of, preset_of

RULE = Rule(
    "accuracy", "higher", 0.02, {"default": 0.9}, {"random": "", "constant": ""}, {"oracle": ""}
).under("default")
SCORES = {"accuracy": 0.95, "random": 0.1, "constant": 0.3, "oracle": 1.0, "seeds": 5.0}
ENDS = {"accuracy_low": 0.92, "accuracy_high": 0.98}


def file_with(entry: Any) -> dict[str, Any]:
    preset = {"metrics": {"accuracy": entry}, "provenance": {"seeds": 5}}
    return {"schema": 1, "model": "toy", "presets": {"default": preset}}


def stored(entry: Any) -> StoredMetric:
    preset = preset_of(file_with(entry), "default")
    assert preset is not None
    return preset.metrics["accuracy"]


def test_an_entry_holds_value_rule_and_interval_with_its_seeds_but_no_value_of_a_reference():
    entry = entry_of(RULE, SCORES)
    assert entry == {
        "value": 0.95,
        "direction": "higher",
        "tolerance": 0.02,
        "goal": 0.9,
        "floors": ["constant", "random"],
        "ceilings": ["oracle"],
    }
    assert stored(entry).differs_from(RULE) is None
    measured = entry_of(RULE, SCORES | ENDS)
    assert measured == entry | {"interval": [0.92, 0.98], "seeds": 5}
    assert (stored(measured).interval, stored(measured).seeds) == ((0.92, 0.98), 5)


def test_older_files_with_values_of_references_and_without_seeds_are_read():
    entry = entry_of(RULE, SCORES) | {"interval": [0.92, 0.98]}
    older = entry | {"floors": {"random": 0.1, "constant": 0.3}, "ceilings": {"oracle": 1.0}}
    assert stored(older) == stored(entry | {"floors": ["random", "constant"]})
    assert stored(older).differs_from(RULE) is None
    assert stored(older).seeds is None


def altered(key: str, to: Any) -> dict[str, Any]:
    return file_with(copy.deepcopy(entry_of(RULE, SCORES)) | {key: to})


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ([], "the whole is []: Input should be a valid dictionary"),
        (file_with({}) | {"schema": 2}, "schema is 2: Input should be less than"),
        (file_with({}) | {"schema": "1"}, "schema is '1': Input should be a valid integer"),
        (
            {"schema": 1, "presets": {"default": {"metrics": {}, "provenance": {}}}},
            "presets.default.metrics is {}: Dictionary should have at least 1 item",
        ),
        (altered("extra", 1), "accuracy.extra is 1: Extra inputs are not permitted"),
        (altered("value", "0.25"), "accuracy.value is '0.25': Input should be a valid number"),
        (altered("value", float("nan")), "accuracy.value is nan: Input should be a finite number"),
        (altered("value", 10**400), "00: Input should be a valid number"),
        (altered("interval", [0.9]), "accuracy.interval.1: Field required"),
        (altered("floors", "random"), "accuracy.floors is 'random': Input should be a valid tuple"),
    ],
)
def test_a_baseline_of_another_form_is_refused_in_a_line_that_names_the_place(
    content: Any, why: str
):
    with pytest.raises(BaselineError) as caught:
        preset_of(content, "default")
    assert why in str(caught.value)
    assert "\n" not in str(caught.value)
