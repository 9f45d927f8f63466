"""Only fresh scores that hold their baselines pass; every other end is a line and its exit code."""

import re
from collections.abc import Callable
from typing import Any

import pytest

from pipeline.judging.gate import gate, rules_of
from pipeline.judging.render import heading, markdown, plain, summary, text
from pipeline.runtime.hints import promote_hint
from pipeline.storage.params_file import read_params
from quatrain.judgement import Judgement, Line
from quatrain.registry import MODELS
from tests.pipeline.fixture_types import Capture
from tests.pipeline.scored_workspace import Workspace


def ended(space: Workspace, capsys: Capture, *models: str) -> tuple[int, str, str]:
    """The exit code, stdout and stderr of the gate, which writes nothing."""
    before = {path: path.read_bytes() for path in space.root.rglob("*") if path.is_file()}
    code = gate(space.root, space.root, models or ["allo"], read_params(space.root))
    assert {path: path.read_bytes() for path in space.root.rglob("*") if path.is_file()} == before
    out, err = capsys.readouterr()
    assert ("gate: passed" in out) == (code == 0)
    return code, out, err


def test_a_held_baseline_passes_and_the_table_says_so(space: Workspace, capsys: Capture):
    assert ended(space, capsys) == (
        0,
        "model    metric         score    baseline    difference    allowed    status\n"
        "-------  -------------  -------  ----------  ------------  ---------  --------\n"
        "allo     cosine_mean    0.9950   0.9950      0.0000        0.005      ok\n"
        "allo     cosine_min     0.9800   0.9800      0.0000        0.03       ok\n"
        "allo     orthogonality  0.0500   0.0500      0.0000        0.1        ok\n"
        "gate: passed; 3 metrics of preset default hold their baselines\n",
        "",
    )


def test_a_worse_score_is_told_with_its_baseline_and_the_way_out(space: Workspace, capsys: Capture):
    space.score(cosine_min=0.5)
    code, _, err = ended(space, capsys, *MODELS)
    assert code == 4
    assert err == (
        "gate: allo: worse: cosine_min 0.5 is 0.48 worse than baseline 0.98 (higher is better, "
        "tolerance 0.03); baseline of 2026-01-02, commit abc123 [exit 4]\n"
        "gate: allo: changed since the baseline: nothing that is recorded; params, code, data, "
        "versions and machine are the same\n"
        "gate: allo: the scores are kept; to make them the baseline all the same: "
        """`make promote MODELS=allo ARGS="--force --why '...'"`\n"""
    )


def test_a_first_baseline_is_offered_beside_the_scores(space: Workspace, capsys: Capture):
    space.stored.unlink()
    code, out, err = ended(space, capsys)
    assert code == 4
    assert "cosine_min     0.9800   -           -             0.03       no baseline\n" in out
    assert err == (
        "gate: allo: no baseline: preset 'default' has no baseline yet [exit 4]\n"
        "gate: allo: trained and evaluated; nothing judges the scores yet: "
        "`make promote MODELS=allo` stores them as the first baseline\n"
    )
    assert promote_hint("smoke", "iqn") == "`make promote PRESET=smoke MODELS=iqn`"


def test_all_models_are_judged(space: Workspace, capsys: Capture):
    code, out, _ = ended(space, capsys, *MODELS)
    assert code == 0
    assert f"passed; {sum(len(rules_of(model, 'default')) for model in MODELS)} metrics" in out


def test_one_model_of_several_that_is_worse_fails(space: Workspace, capsys: Capture):
    space.score(cosine_mean=0.5)
    code, _, err = ended(space, capsys, "iqn", "allo")
    assert (code, "allo: worse" in err) == (4, True)


def test_scores_that_no_promotion_stores_have_no_such_remedy(space: Workspace, capsys: Capture):
    space.score(floor_random=0.994)
    code, _, err = ended(space, capsys)
    why = "gate: allo: below floor: cosine_mean 0.995 does not beat floor_random"
    assert (code, err.startswith(why), err.count("\n")) == (4, True, 2)


ALLO = '{"schema": 1, "model": "allo", "presets": %s}'


@pytest.mark.parametrize(
    ("edit", "code", "why"),
    [
        (lambda s: s.scores.unlink(), 4, "missing: allo was not evaluated yet; run `make repro`"),
        (lambda s: s.train("b" * 64), 4, "stale: models/allo changed after allo was evaluated; ru"),
        (lambda s: (s.weights / "x").touch(), 3, "models/allo: files that are missing: [], "),
        (lambda s: s.edit_baseline(""), 3, "baselines/allo.json: cannot be read (JSONDecodeError"),
        (lambda s: s.edit_baseline({"model": "iqn"}), 3, "baselines/allo.json: is not the baselin"),
        (lambda s: s.edit_baseline(ALLO % "[]"), 3, "baselines/allo.json: presets is []: Input"),
    ],
    ids=["unscored", "retrained", "learner", "empty", "of another", "no presets"],
)
def test_what_is_not_fresh_or_cannot_be_read_is_no_pass(
    space: Workspace, capsys: Capture, edit: Callable[[Workspace], Any], code: int, why: str
):
    """And the other models are judged all the same."""
    edit(space)
    actual, out, err = ended(space, capsys, "allo", "iqn")
    assert actual == code
    assert f"gate: allo: {why}" in err
    assert err.endswith(f" [exit {code}]\n")
    assert err.count("\n") == 1
    assert re.search(r"iqn +return_mean +105\.0000 +105\.0000 +0\.0000 +\S+ +ok", out)
    if "baselines" in why:
        assert "; `git checkout baselines/allo.json` restores it [exit 3]" in err


# What it says beside its table.

OK = Line("a|b", "ok", "a|b holds", value=0.5, baseline=0.25, interval=(0.4, 0.6))
BROKEN = Line("gap", "not finite", "gap is NaN\nor infinite")
FIRST = Line("gap", "no baseline", "preset 'default' has no baseline yet", value=1.0)


def test_a_row_has_both_sides_with_intervals_and_half_that_of_their_difference():
    shown = text([Judgement("default", (OK, BROKEN), "allo")]).splitlines()
    row = ["allo", "a|b", "0.5000 (0.4000 to 0.6000)", "0.2500", "+0.2500 ± 0.1000", "0", "ok"]
    assert re.split(r" {2,}", shown[2]) == row
    assert shown[3].split() == ["allo", "gap", "-", "-", "-", "0", "not", "finite"]
    rows = markdown([Judgement("default", (OK, BROKEN), "allo")]).splitlines()
    assert rows[2].startswith(r"| allo | a\|b | 0.5000 (0.4000 to 0.6000) | 0.2500 | +0.2500 ±")
    assert rows[3] == "| allo | gap | - | - | - | 0 | **not finite** |"


def test_a_summary_gives_each_reason_once():
    passed = Judgement("default", (OK, OK._replace(status="better")), "allo")
    broken = Judgement("default", (BROKEN, OK), "iqn")
    first = Judgement("default", (FIRST, FIRST), "iqn")
    assert summary([passed]) == (
        "**Passed**: all 2 scores hold their baselines. 1 better: `make promote` would store that."
    )
    assert summary([passed, broken]) == (
        "**Undecided**: 1 of 4 scores.\n\n* **iqn**: gap is NaN or infinite"
    )
    reason = "* **iqn**: preset 'default' has no baseline yet"
    assert summary([passed, first]) == f"**No baseline yet**: 2 of 4 scores.\n\n{reason}"
    assert heading([broken, first]) == "Undecided"


def test_text_from_a_file_is_escaped():
    assert plain("cosine_mean of `make`\n\n# x") == r"cosine_mean of \`make\` # x"
    assert plain("a|b *c* [d](e) ~f~ _g_ __h__") == r"a\|b \*c\* \[d\](e) \~f\~ \_g\_ \_\_h\_\_"
    assert plain("<script>a</script> &amp;") == "&lt;script&gt;a&lt;/script&gt; &amp;amp;"
