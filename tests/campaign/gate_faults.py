"""Faults of what the gate reads: name -> (exit code, pattern of the line, the edit)."""

import json
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from pipeline.judging import verdicts
from pipeline.storage import artifacts
from quatrain.storage import folders
from tests.campaign.gate_workspace import Place, better
from tests.pipeline.small_project import flip_bit

Edit = Callable[[Place], Any]


class Fault(NamedTuple):
    code: int
    says: str
    edit: Edit


HUGE = 1e300
WRONG_SCHEMAS = {"true": True, "float": 1.0, "text": "1", "null": None, "next": 2, "list": [1]}

# Scores with an interval that the verdict vouches for: `{}` is the value of the first metric.


def with_interval(place: Place, low: Any, high: Any, seeds: Any = 10.0, shift: float = 0.0) -> None:
    """Score the first metric with an interval; low and high: of the value's distance to it."""
    name, value = place.rule.metric, good_value(place) + shift
    ends = {f"{name}_low": low, f"{name}_high": high, "seeds": seeds}
    ends |= {key: value + end for key, end in ends.items() if is_number(end) and key != "seeds"}
    place.score(**{name: value}, **ends)


def is_number(value: Any) -> bool:
    return isinstance(value, float)


def good_value(place: Place) -> float:
    return float(place.stored_metric(place.baseline())["value"])


def worse_by(place: Place, tolerances: float) -> float:
    """The shift of a score that is worse by so many tolerances."""
    return -better(place.rule) * tolerances * (place.rule.tolerance or 1.0)


def far_below(place: Place, half: float, seeds: float, tolerances: float) -> None:
    shift = worse_by(place, tolerances)
    name, value = place.rule.metric, good_value(place) + shift
    ends = {f"{name}_low": value - half, f"{name}_high": value + half, "seeds": seeds}
    place.score(**{name: value}, **ends)


def without_score(place: Place, ending: str) -> None:
    scores = artifacts.read_json(place.paths.scores)
    del scores[f"{place.rule.metric}{ending}"]
    artifacts.write_json(place.paths.scores, scores)
    place.judge()


INTERVALS = {
    "reversed": Fault(4, "bad interval: .* is reversed", lambda p: with_interval(p, 1.0, -1.0)),
    "reversed, huge": Fault(4, "is reversed", lambda p: with_interval(p, HUGE, -HUGE)),
    "above the value": Fault(4, "does not hold", lambda p: with_interval(p, 0.5, 1.0)),
    "below the value": Fault(4, "does not hold", lambda p: with_interval(p, -1.0, -0.5)),
    "low null": Fault(4, "is not finite", lambda p: with_interval(p, None, 1.0)),
    "high null": Fault(4, "is not finite", lambda p: with_interval(p, -1.0, None)),
    "no low": Fault(4, "is not finite", partial(without_score, ending="_low")),
    "no high": Fault(4, "is not finite", partial(without_score, ending="_high")),
} | {
    f"seeds {seeds}": Fault(
        4, "is one of .* seeds", lambda p, seeds=seeds: with_interval(p, -1.0, 1.0, seeds)
    )
    for seeds in (None, 0, 0.0, -1, -10.0, 2.5, 0.999)
}

WORSE = {
    f"{tolerances:g} tolerances worse, half {half:g}, {seeds:g} seeds": Fault(
        4,
        "worse",
        lambda p, half=half, seeds=seeds, tolerances=tolerances: far_below(
            p, half, seeds, tolerances
        ),
    )
    for tolerances in (2.01, 1e3)
    for half in (0.0, 1e4, HUGE, 1.7e308)
    for seeds in (1.0, 4.0, 10.0)
}

# scores.json.


def raw_scores(place: Place, text: str) -> None:
    place.paths.scores.write_text(text)
    place.vouch()


def duplicated(place: Place) -> None:
    text = place.paths.scores.read_text().strip().removesuffix("}")
    raw_scores(place, f'{text}, "{place.rule.metric}": 1e9}}')


SCORES = {
    "metric missing": Fault(4, "did not report it", partial(without_score, ending="")),
    "metric null": Fault(4, "is NaN or inf", lambda p: p.score(**{p.rule.metric: None})),
    "metric twice": Fault(3, "scores.json", duplicated),
    "changed": Fault(4, "scores changed", lambda p: p.paths.scores.write_text('{"seeds": 3}')),
    "not there": Fault(4, "missing", lambda p: p.paths.scores.unlink()),
} | {
    f"is {text[:20]}": Fault(3, "scores.json", partial(raw_scores, text=text))
    for text in (
        "",
        "[]",
        "null",
        '{"seeds": true}',
        '{"seeds": "3"}',
        '{"seeds": [3]}',
        '{"seeds": NaN}',
        '{"seeds": 1e999}',
        '{"seeds": -Infinity}',
        '{"seeds": ' + "[" * 100_000,
        '{"seeds": 1' + "0" * 5000 + "}",
    )
}

# baselines/MODEL.json, which the verdict vouches for.


def in_file(place: Place, **changed: Any) -> None:
    place.write_baseline(place.baseline() | changed)


def in_entry(place: Place, **changed: Any) -> None:
    content = place.baseline()
    place.entry(content).update(changed)
    place.write_baseline(content)


def in_metric(place: Place, judge: bool = True, **changed: Any) -> None:
    content = place.baseline()
    place.stored_metric(content).update(changed)
    place.write_baseline(content)
    if judge:
        place.judge()


def dropped(place: Place) -> None:
    content = place.baseline()
    del place.entry(content)["metrics"][place.rule.metric]
    place.write_baseline(content)
    place.judge()


def added(place: Place) -> None:
    content = place.baseline()
    place.entry(content)["metrics"]["other"] = place.stored_metric(content)
    place.write_baseline(content)
    place.judge()


def baseline_interval(place: Place, low: float, high: float, seeds: Any = 10.0) -> None:
    value = good_value(place)
    in_metric(place, interval=[value + low, value + high], seeds=seeds)


MALFORMED: dict[str, dict[str, Any]] = {
    "value text": {"value": "1"},
    "value true": {"value": True},
    "value null": {"value": None},
    "direction up": {"direction": "up"},
    "tolerance negative": {"tolerance": -1.0},
    "tolerance text": {"tolerance": "1"},
    "floors number": {"floors": 3},
    "interval of one": {"interval": [0.5]},
    "interval of three": {"interval": [0.1, 0.5, 0.9]},
    "interval of texts": {"interval": ["0.1", "0.9"]},
    "interval of nulls": {"interval": [None, None]},
    "seeds text": {"seeds": "10"},
    "unknown key": {"floor": 0.0},
}
BASELINE = {
    "reversed interval": Fault(4, "is reversed", lambda p: baseline_interval(p, 1.0, -1.0)),
    "interval elsewhere": Fault(4, "does not hold", lambda p: baseline_interval(p, 1.0, 2.0)),
    "interval of 0 seeds": Fault(4, "seeds", lambda p: baseline_interval(p, -1.0, 1.0, 0.0)),
    "interval of 2.5 seeds": Fault(4, "seeds", lambda p: baseline_interval(p, -1.0, 1.0, 2.5)),
    "tolerance 1000": Fault(4, "another tolerance", lambda p: in_metric(p, tolerance=1000.0)),
    "another goal": Fault(4, "another goal", lambda p: in_metric(p, goal=-1000.0)),
    "another floor": Fault(4, "another floors", lambda p: in_metric(p, floors=["other"])),
    "another ceiling": Fault(4, "another ceilings", lambda p: in_metric(p, ceilings=["other"])),
    "direction near": Fault(4, "is 'near' in the", lambda p: in_metric(p, direction="near")),
    "metric dropped": Fault(4, "has no entry", dropped),
    "metric of no rule": Fault(4, "does not judge it", added),
    "changed after": Fault(
        4, "not what these scores give", lambda p: in_metric(p, False, value=9.0)
    ),
    "not there": Fault(4, "changed after the verdict", lambda p: p.paths.baseline.unlink()),
    "of another model": Fault(3, "not the baseline of", lambda p: in_file(p, model="other")),
    "of model null": Fault(3, "not the baseline of", lambda p: in_file(p, model=None)),
    "presets a list": Fault(3, "presets", lambda p: in_file(p, presets=[])),
    "preset a list": Fault(3, "presets", lambda p: in_file(p, presets={p.preset: [1]})),
    "no metrics": Fault(3, "metrics", lambda p: in_entry(p, metrics={})),
    "metrics a list": Fault(3, "metrics", lambda p: in_entry(p, metrics=["x"])),
    "not JSON": Fault(3, "git checkout", lambda p: p.write_baseline("{")),
    "a list": Fault(3, "not the baseline of", lambda p: p.write_baseline("[]")),
    "deep": Fault(3, "git checkout", lambda p: p.write_baseline("[" * 100_000)),
}
BASELINE |= {
    name: Fault(3, "git checkout", lambda p, changed=changed: in_metric(p, False, **changed))
    for name, changed in MALFORMED.items()
}
BASELINE |= {
    f"schema {name}": Fault(3, "schema is", lambda p, value=value: in_file(p, schema=value))
    for name, value in WRONG_SCHEMAS.items()
}
BASELINE |= {
    f"provenance {str(value)[:20]}": Fault(
        3, "provenance", lambda p, value=value: in_entry(p, provenance=value)
    )
    for value in ([], [1], 3, "x", None, {"date": [1]}, {"commit": {"a": 1}}, {"cpu": [["x"]]})
}

# verdict.json.


def lenient(place: Place, **changed: Any) -> None:
    """Edit rules, baseline and verdict alike, so that a far worse score holds by all three."""
    with_shift = {place.rule.metric: good_value(place) + worse_by(place, 100.0)}
    ends = {f"{place.rule.metric}{end}": with_shift[place.rule.metric] for end in ("_low", "_high")}
    place.score(**with_shift, **ends)
    rules = [rule.model_copy(update=changed) for rule in place.rules[:1]] + [*place.rules[1:]]
    if changed.get("metric") == "":
        rules = [*place.rules[1:]]
        dropped(place)
    else:
        in_metric(place, **changed)
    paths = place.paths
    result = verdicts.judge_files(paths, place.model, place.preset, rules)
    lines = [line.model_dump() for line in result.verdict.lines]
    place.vouch()
    place.edit_verdict(
        passed=True, lines=lines, rules=[rule.model_dump(by_alias=True) for rule in rules]
    )


def in_line(place: Place, **changed: Any) -> None:
    lines = place.verdict()["lines"]
    place.edit_verdict(lines=[lines[0] | changed, *lines[1:]])


def lines_twice(place: Place) -> None:
    place.edit_verdict(lines=[*place.verdict()["lines"]] * 2)


def rules_twice(place: Place) -> None:
    place.edit_verdict(rules=[*place.verdict()["rules"]] * 2)


VERDICT = {
    "tolerance 1000 everywhere": Fault(4, "of other rules", partial(lenient, tolerance=1000.0)),
    "direction turned everywhere": Fault(4, "of other rules", partial(lenient, direction="near")),
    "metric dropped everywhere": Fault(4, "of other rules|missing", partial(lenient, metric="")),
    "no rules": Fault(4, "of other rules", lambda p: p.edit_verdict(rules=[])),
    "rules twice": Fault(4, "of other rules", rules_twice),
    "no lines": Fault(4, "altered", lambda p: p.edit_verdict(lines=[])),
    "lines twice": Fault(4, "altered", lines_twice),
    "line better": Fault(4, "altered", lambda p: in_line(p, status="better")),
    "line of a value": Fault(4, "altered", lambda p: in_line(p, value=1e9)),
    "line of a metric": Fault(4, "altered", lambda p: in_line(p, metric="other")),
    "line of a status": Fault(3, "status", lambda p: in_line(p, status="passed")),
    "passed false": Fault(4, "altered", lambda p: p.edit_verdict(passed=False)),
    "of another model": Fault(4, "not one of", lambda p: p.edit_verdict(model="other")),
    "of another preset": Fault(4, "of preset", lambda p: p.edit_verdict(preset="smoke")),
    "of another learner": Fault(4, "changed after", lambda p: p.edit_verdict(learner="0" * 64)),
    "of other params": Fault(4, "params.yaml changed", lambda p: p.edit_verdict(params="0" * 64)),
    "of other scores": Fault(4, "scores changed", lambda p: p.edit_verdict(scores_sha256="0" * 64)),
    "of another baseline": Fault(4, "changed", lambda p: p.edit_verdict(baseline_sha256="0" * 64)),
    "of no baseline": Fault(4, "changed", lambda p: p.edit_verdict(baseline_sha256=None)),
    "unknown key": Fault(3, "verdict.json", lambda p: p.edit_verdict(extra=1)),
    "a list": Fault(4, "not one of", lambda p: p.paths.verdict.write_text("[]")),
    "not JSON": Fault(3, "verdict.json", lambda p: p.paths.verdict.write_text("{")),
    "deep": Fault(3, "verdict.json", lambda p: p.paths.verdict.write_text("[" * 100_000)),
    "not there": Fault(4, "missing", lambda p: p.paths.verdict.unlink()),
} | {
    f"passed {value!r}": Fault(3, "passed", lambda p, value=value: p.edit_verdict(passed=value))
    for value in (1, 1.0, "true", "True", None, [], [True], {"passed": True})
}

# models/MODEL.


def without(place: Place, name: str) -> None:
    (place.weights / name).unlink()


def dangling(place: Place, name: str = "") -> None:
    path = place.weights / name
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    path.symlink_to(place.root / "nowhere")


def cut(place: Place, name: str) -> None:
    path = place.weights / name
    path.write_bytes(path.read_bytes()[:-1])


def in_its_way(place: Place) -> None:
    shutil.rmtree(place.weights)
    place.weights.write_text("learner")


def reschemed(place: Place, value: Any) -> None:
    """A manifest of another schema that matches its own digest."""
    path = place.weights / folders.MANIFEST
    content = json.loads(path.read_text()) | {"schema_version": value}
    body = {key: part for key, part in content.items() if key != "digest"}
    content["digest"] = folders.sha256_of(folders.encode_file(path, body)[0])
    path.write_bytes(folders.encode_file(path, content)[0])
    place.edit_verdict(learner=content["digest"])


def with_info(place: Place, **changed: Any) -> None:
    place.train(**changed)
    place.vouch()


def other_data(place: Place) -> Path:
    """A dataset that the learner was not trained on."""
    folder = place.root / "data" / place.model
    artifacts.save(folder, {"x.json": {"a": 1}}, {})
    return folder


def data_a_file(place: Place) -> None:
    folder = other_data(place)
    shutil.rmtree(folder)
    folder.write_text("x")


LEARNER_FILES = (
    "config.json",
    "history.csv",
    "state.safetensors",
    "weights.safetensors",
    folders.MANIFEST,
)
LEARNER = {
    "retrained": Fault(4, "changed after", lambda p: p.train("b" * 64)),
    "folder missing": Fault(4, "is not there", lambda p: shutil.rmtree(p.weights)),
    "folder a dangling link": Fault(3, "models", dangling),
    "folder a file": Fault(3, "models", in_its_way),
    "a further file": Fault(3, "belong", lambda p: (p.weights / "more.txt").write_text("x")),
    "no origin": Fault(3, "does not tell how", lambda p: with_info(p, params=None)),
    "origin a list": Fault(3, "does not tell how", lambda p: with_info(p, params=["seed"])),
    "of other data": Fault(4, "is not what .* was trained on", other_data),
    "data damaged": Fault(3, "restore", lambda p: flip_bit(other_data(p) / folders.MANIFEST)),
    "data a file": Fault(3, "data", data_a_file),
    "no run key": Fault(3, "does not tell how", lambda p: with_info(p, run_key=None)),
    "settings a list": Fault(3, "does not tell how", lambda p: with_info(p, settings=[])),
    "settings nested": Fault(3, "does not tell how", lambda p: with_info(p, settings={"cpu": {}})),
}
for _name in LEARNER_FILES:
    LEARNER |= {
        f"a bit of {_name}": Fault(3, "restore", lambda p, n=_name: flip_bit(p.weights / n)),
        f"{_name} cut": Fault(3, "restore", partial(cut, name=_name)),
        f"{_name} missing": Fault(3, "restore", partial(without, name=_name)),
        f"{_name} a dangling link": Fault(3, "restore", partial(dangling, name=_name)),
    }
LEARNER |= {
    f"schema {name}": Fault(3, "has schema version", partial(reschemed, value=value))
    for name, value in WRONG_SCHEMAS.items()
}

FAULTS = {
    "interval": INTERVALS,
    "worse": WORSE,
    "scores": SCORES,
    "baseline": BASELINE,
    "verdict": VERDICT,
    "learner": LEARNER,
}
