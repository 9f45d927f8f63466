"""Rows of a benchmark: their ratios, their verdicts, their file, and the report's line."""

from pathlib import Path

import pytest

from benchmarks import rows
from benchmarks.rows import ORIGINAL, OURS, PROPOSAL, Claim, Ratio, Results, Row, Times
from quatrain.errors import DataError

CLAIM = Claim("allo", "2-3x faster training", 2.0)
STEP = Row(
    "step",
    "ms/step",
    {
        ORIGINAL: Times([0.012, 0.024, 0.012], 0.5),
        PROPOSAL: Times([0.006, 0.008, 0.003]),
        OURS: Times([0.002, 0.004, 0.001]),
    },
    CLAIM,
)
DRAW = Row("draw", "us/call", {"cpprb": Times([8e-6]), OURS: Times([2e-6])}, note="no tensors")
MEMORY = Row("rollout", "MB", {ORIGINAL: Times([9e6]), OURS: Times([1e6])})
RESULTS = Results({"cpu": "some CPU"}, 3, [STEP, DRAW, MEMORY])


def test_a_ratio_is_the_median_and_the_quartiles_of_the_rounds_quotients():
    assert STEP.ratio(ORIGINAL) == Ratio(6, 6, 9)
    assert str(STEP.ratio(ORIGINAL)) == "6x (6..9)"
    assert STEP.proposed == pytest.approx((3, 2.5, 3.5))
    assert {library: str(ratio) for library, ratio in DRAW.gains.items()} == {"cpprb": "4x"}
    shown = [STEP.shown(ORIGINAL), DRAW.shown(OURS), MEMORY.shown(OURS)]
    assert shown == ["12 ms/step", "2 µs/call", "1 MB"]


@pytest.mark.parametrize(
    ("least", "verdict"),
    [(2.4, "holds"), (2.6, "in doubt"), (3.4, "in doubt"), (3.6, "does not hold")],
)
def test_a_promise_is_held_against_the_quartiles_of_the_proposals_way(least: float, verdict: str):
    assert STEP._replace(claim=CLAIM._replace(least=least)).verdict == verdict


def test_a_file_reads_as_it_was_and_one_of_another_form_is_refused_in_one_line(tmp_path: Path):
    rows.write(tmp_path, "allo", RESULTS)
    assert rows.read(tmp_path, ["allo", "iqn"]) == {"allo": RESULTS}
    path = tmp_path / "allo.json"
    path.write_text(path.read_text().replace("ms/step", "weeks"))
    line = r"allo\.json: rows\.0\.unit: Input should be 'ms/step', 'us/call'.*BENCH=allo` writes"
    with pytest.raises(DataError, match=line):
        rows.read(tmp_path, ["allo"])
