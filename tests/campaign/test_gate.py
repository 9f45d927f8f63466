"""No fault of scores, baseline, verdict, learner, rules or params lets a worse model pass."""

import copy
import json
import operator
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipeline.cli import main
from pipeline.judging import verdicts
from pipeline.storage.params_file import overlaid, read_input, read_params, read_raw, validate
from pipeline.storage.trained_model import load_trained, verified_origin
from quatrain.baselines import BaselineError, Rule, entry_of
from quatrain.errors import ConfigError, DataError
from quatrain.judgement import Verdict, judge
from tests.campaign.gate_faults import FAULTS
from tests.campaign.gate_workspace import DATASET, SUBJECTS, Place, better, good_scores, make_place
from tests.campaign.promises import Outcome, accepted, broken, content_of, refused, see, unchanged
from tests.conftest import ROOT
from tests.pipeline.fixture_types import Capture, Patch

subjects = pytest.mark.parametrize("place", SUBJECTS, ids="-".join, indirect=True)
ANYTHING = settings(
    max_examples=150, deadline=None, database=None, suppress_health_check=list(HealthCheck)
)


@pytest.fixture(scope="session")
def places(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], Place]:
    folder = tmp_path_factory.mktemp("places")
    return {subject: make_place(folder / "-".join(subject), *subject) for subject in SUBJECTS}


@pytest.fixture
def place(
    request: pytest.FixtureRequest,
    places: dict[tuple[str, str], Place],
    tmp_path: Path,
    monkeypatch: Patch,
) -> Place:
    template = places[request.param]
    root = shutil.copytree(template.root, tmp_path / "work", symlinks=True)
    monkeypatch.chdir(root)
    return template._replace(root=root)


def run_gate(place: Place, capsys: Capture) -> Outcome:
    return see(lambda: main(["gate", place.model]), capsys)


@subjects
def test_what_is_whole_passes(place: Place, capsys: Capture):
    accepted(run_gate(place, capsys))


OF_RULES = ("interval", "worse")
ROWS = [(kind, name) for kind, faults in FAULTS.items() for name in faults]
CASES = [
    (subject, *row)
    for number, row in enumerate(ROWS)
    for subject in (SUBJECTS if row[0] in OF_RULES else [SUBJECTS[number % len(SUBJECTS)]])
]
"""What depends on rules over all models and variants, what concerns files over each in turn."""


@pytest.mark.parametrize(
    ("place", "kind", "name"),
    CASES,
    ids=["-".join((*subject, *row)) for subject, *row in CASES],
    indirect=["place"],
)
def test_a_fault_is_refused(place: Place, kind: str, name: str, capsys: Capture):
    fault = FAULTS[kind][name]
    fault.edit(place)
    before = content_of(place.root)
    refused(run_gate(place, capsys), fault.code, fault.says)
    unchanged(before, content_of(place.root))


@pytest.mark.parametrize("name", FAULTS["interval"])
@pytest.mark.parametrize("place", [("iqn", "default")], ids=["iqn"], indirect=True)
def test_a_broken_interval_becomes_no_baseline_even_by_force(
    place: Place, name: str, capsys: Capture
):
    FAULTS["interval"][name].edit(place)
    before = content_of(place.root)
    command = [place.model, "--preset", place.preset, "--force", "--why", "reason"]
    refused(see(lambda: main(["promote", *command]), capsys), 4, "has no interval")
    unchanged(before, content_of(place.root))


# Params.


def shaping_changes(place: Place) -> Iterator[dict[str, Any]]:
    """Of seed, threads, determinism, and of each number of the section that may be another one."""
    raw = read_raw(place.root, None)
    yield from ({"seed": raw["seed"] + 1}, {"threads": raw["threads"] + 1})
    yield {"deterministic": not raw["deterministic"]}
    for path, value in leaves(raw[place.model]):
        if type(value) is bool or not isinstance(value, int | float):
            continue
        others = {type(value)(other) for other in (value + 1, value * 2, value / 2, value + 0.5)}
        for other in sorted(others - {value}, reverse=True):
            change: Any = other
            for key in reversed(path):
                change = {key: change}
            try:
                validate(
                    overlaid(raw, {place.model: change}),
                    lambda name: read_input(place.root, str(name)),
                )
            except ConfigError:
                continue
            yield {place.model: change}
            break


def leaves(tree: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    if isinstance(tree, Mapping):
        for key, part in tree.items():
            yield from leaves(part, (*path, key))
    else:
        yield path, tree


@subjects
def test_a_learner_of_other_params_is_neither_evaluated_nor_passed(
    place: Place, capsys: Capture, record_property: Any
):
    """The verdict vouches for params that the learner was not trained under."""
    changes = list(shaping_changes(place))
    text = (place.root / "params.yaml").read_text()
    for change in changes:
        (place.root / "params.yaml").write_text(text)
        place.choose(change)
        params = read_params(place.root)
        for read in (
            lambda params=params: verified_origin(place.weights, place.model, params),
            lambda params=params: load_trained(place.weights, place.model, params, None, DATASET),
        ):
            try:
                read()
            except DataError as error:
                if "was trained with" not in str(error) or "; set that back, or run `" not in str(
                    error
                ):
                    broken("unclear", f"{change}: {error}")
            else:
                broken("silent", f"accepted with {change}")
    for change in changes[:5]:
        (place.root / "params.yaml").write_text(text)
        place.choose(change)
        place.vouch()
        refused(run_gate(place, capsys), 3, "was trained with .*; set that back, or run `")
    record_property("generated", len(changes))


@pytest.mark.parametrize(
    "change",
    [{"device": "cpu"}, {"devices": 2}, {"checkpoint_seconds": 3.5}],
    ids=["device", "devices", "checkpoint_seconds"],
)
@subjects
def test_what_shapes_no_learner_may_change(place: Place, change: dict[str, Any], capsys: Capture):
    place.choose(change)
    params = read_params(place.root)
    verified_origin(place.weights, place.model, params)
    place.judge()
    accepted(run_gate(place, capsys))


@subjects
def test_another_models_section_and_the_name_of_the_preset_may_change(place: Place):
    other = "iqn" if place.model == "allo" else "allo"
    seeds = read_raw(place.root, None)[other]["seeds"]
    place.choose({other: {"seeds": seeds + 1}, "preset": "mine"})
    verified_origin(place.weights, place.model, read_params(place.root))


# Generated.

NUMBERS = st.one_of(
    st.none(),
    st.floats(),
    st.floats(-1e3, 1e3),
    st.sampled_from([1e300, -1e300, 1.7e308, -1.7e308]),
)
SEEDS = st.one_of(NUMBERS, st.integers(-2, 20).map(float))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=5,
)


def line_status(verdict: Verdict, metric: str) -> str:
    return next(line.status for line in verdict.lines if line.metric == metric)


def rules_of(subject: tuple[str, str]) -> tuple[Rule, ...]:
    model, preset = subject
    return verdicts.rules_of(model, preset, getattr(read_params(ROOT, preset), model))


@pytest.mark.parametrize("subject", SUBJECTS, ids="-".join)
def test_a_score_worse_by_more_than_twice_the_tolerance_fails_with_any_interval(
    subject: tuple[str, str], record_property: Any
):
    rules = rules_of(subject)
    good = good_scores(rules)
    count = 0

    @ANYTHING
    @given(
        rule=st.sampled_from(rules),
        ends=st.tuples(NUMBERS, NUMBERS, SEEDS),
        stored_ends=st.tuples(NUMBERS, NUMBERS, SEEDS),
        factor=st.floats(2.001, 1e9),
        up=st.booleans(),
    )
    def fails(rule: Rule, ends: Any, stored_ends: Any, factor: float, up: bool) -> None:
        nonlocal count
        metric = rule.metric
        names = (f"{metric}_low", f"{metric}_high", "seeds")
        pairs = zip(names, stored_ends, strict=True)
        before = good | {name: end for name, end in pairs if end is not None}
        metrics = {other.metric: entry_of(other, before) for other in rules}
        baseline = {"schema": 1, "presets": {"p": {"metrics": metrics, "provenance": {}}}}
        sign = (1.0 if up else -1.0) if rule.direction == "near" else -better(rule)
        for value in (good[metric] + sign * factor * rule.tolerance, sign * 1e6):
            count += 1
            scores = good | dict(zip(names, ends, strict=True)) | {metric: value}
            try:
                verdict = judge(scores, baseline, rules, "p")
            except BaselineError:
                continue  # exit 3
            if verdict.passed or line_status(verdict, metric) in ("ok", "better"):
                broken("silent", f"{metric} = {value} passes with {ends}, {stored_ends}")

    fails()
    record_property("generated", count)


@pytest.mark.parametrize("file", ["scores", "baseline", "verdict"])
@subjects
def test_a_generated_change_passes_only_if_it_changes_nothing_that_counts(
    place: Place, file: str, capsys: Capture, record_property: Any
):
    path = getattr(place.paths, file)
    original, verdict = json.loads(path.read_text()), place.paths.verdict.read_text()
    paths = [*all_paths(original)]
    before = meaning(place)
    count = 0

    @settings(ANYTHING, max_examples=12)
    @given(where=st.sampled_from(paths), value=JSON)
    def changed(where: tuple[Any, ...], value: Any) -> None:
        nonlocal count
        count += 1
        place.paths.verdict.write_text(verdict)
        path.write_text(json.dumps(replaced(original, where, value)))
        if file != "verdict":
            place.vouch()
        outcome = run_gate(place, capsys)
        if outcome.code == 0:
            means, allowed = meaning(place)
            if means != before[0] or any(map(operator.gt, allowed, before[1])):
                broken("silent", f"{where} = {value!r} passes")
        elif outcome.code not in (3, 4):
            broken("wrong code", f"exit {outcome.code}: {where} = {value!r}: {outcome.said}")

    changed()
    record_property("generated", count)


def meaning(place: Place) -> tuple[Any, list[float]]:
    """What a verdict, and the scores and baseline behind it, say of the judged metrics; and how far
    each may be off: without its interval, which older baselines lack, less than with it.
    """
    stored = verdicts.stored_verdict(place.root, place.model, place.preset)
    result = verdicts.judge_files(place.paths, place.model, place.preset, place.rules)
    scores = [result.scores[rule.metric] for rule in place.rules]
    values = {metric: entry.value for metric, entry in result.baseline.metrics.items()}
    lines = [line.metric for line in stored.lines]
    allowed = [comparison.allowed for comparison in result.comparisons]
    return (stored.passed, stored.rules, lines, scores, values), allowed


def all_paths(tree: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    items: Any = ()
    if isinstance(tree, dict):
        items = tree.items()
    elif isinstance(tree, list):
        items = enumerate(tree)
    for key, part in items:
        yield from all_paths(part, (*path, key))


def replaced(tree: Any, path: tuple[Any, ...], value: Any) -> Any:
    if not path:
        return value
    tree = copy.copy(tree)
    tree[path[0]] = replaced(tree[path[0]], path[1:], value)
    return tree
