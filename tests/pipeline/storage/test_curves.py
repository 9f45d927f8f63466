"""Tests that each metric gets a file without blank cells."""

from pathlib import Path

from pipeline.storage.curves import write_curves
from quatrain.storage import history

CURVES = {
    "loss": [(1, 0.5), (2, 0.25), (3, 0.125)],
    "loss/seed/0": [(1, 0.5)],
    "loss/agent/1": [(1, 0.5)],
    "cosine/0": [(3, 1.0)],
    "cosine_mean": [(3, 0.1)],
    "reason/success": [(2, 1.0)],
    "monitor/error.active": [(2, 0.75), (3, 0.5)],
    "monitor/error.active/seed/0": [(2, 0.75)],
}


def test_a_metric_that_is_evaluated_seldom_has_no_blank_cells(tmp_path: Path):
    text = history.to_csv(CURVES)
    assert ",," in text
    (tmp_path / "old.csv").write_text("of an earlier evaluation")
    write_curves(tmp_path, history.from_csv(text))
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {
        "loss.csv": "step,loss\n1,0.5\n2,0.25\n3,0.125\n",
        "cosine_mean.csv": "step,cosine_mean\n3,0.1\n",
        "reason_success.csv": "step,reason/success\n2,1.0\n",
        "monitor_error.active.csv": "step,monitor/error.active\n2,0.75\n3,0.5\n",
    }
