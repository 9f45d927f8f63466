"""The comparison of decoders: each sees the observations that it is made for, and is stored."""

import json
from pathlib import Path

import pytest

from pipeline.cli import main
from pipeline.studies import decoders
from pipeline.studies.verbs import DECODERS
from tests.conftest import ROOT, shapes_unchecked


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Returns a folder with the committed params and a brief preset, for results."""
    (tmp_path / "params.yaml").symlink_to(ROOT / "params.yaml")
    (tmp_path / "presets").mkdir()
    preset = (ROOT / "presets" / "seq_vae.yaml").read_text()
    assert preset.count("transitions: 600") == 1
    brief = preset.replace("transitions: 600", "transitions: 60")
    (tmp_path / "presets" / "seq_vae.yaml").write_text(brief)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_decoder_is_trained_on_what_it_can_decode():
    kinds = {
        name: decoders.params_for(ROOT, name, kind, 1).active_dynamics.env.observation.kind
        for name, kind in DECODERS.items()
    }
    assert kinds == {
        "known": "linear",
        "linear": "linear",
        "loglinear": "loglinear",
        "mlp": "linear",
    }


@pytest.mark.full
def test_what_is_done_is_shown_and_not_done_again(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    options = ["--decoders", "known", "--replicates", "1"]
    with shapes_unchecked():
        assert main(["decoders", *options]) == 0
    row = capsys.readouterr().out.splitlines()[-1]
    scores = json.loads((project / decoders.RESULTS).read_text())["decoders"]["known"]["scores"]
    assert scores["planned.active"] == 1
    assert f"| known | 1, 60 | {scores['field_nrmse.active']:.3g} |" in row
    monkeypatch.setattr(decoders, "run_decoder", None)
    assert main(["decoders", *options]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == row


def test_no_replicates_are_refused(project: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["decoders", "--replicates", "0"]) == 2
    assert "--replicates 0: give at least 1" in capsys.readouterr().err
    assert not (project / decoders.RESULTS).exists()
