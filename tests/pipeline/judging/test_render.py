"""Tests what a judgement says beside its table, and that text of a file stays text."""

import re

from pipeline.judging.render import markdown, plain, summary, text, verdict
from quatrain.judgement import Judgement, Line

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
        "**Broken**: 1 of 4 scores.\n\n* **iqn**: gap is NaN or infinite"
    )
    reason = "* **iqn**: preset 'default' has no baseline yet"
    assert summary([passed, first]) == f"**No baseline yet**: 2 of 4 scores.\n\n{reason}"
    assert verdict([broken, first]) == "Broken"


def test_text_from_a_file_is_escaped():
    assert plain("cosine_mean of `make`\n\n# x") == r"cosine_mean of \`make\` # x"
    assert plain("a|b *c* [d](e) ~f~ _g_ __h__") == r"a\|b \*c\* \[d\](e) \~f\~ \_g\_ \_\_h\_\_"
    assert plain("<script>a</script> &amp;") == "&lt;script&gt;a&lt;/script&gt; &amp;amp;"
