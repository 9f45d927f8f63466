"""params.yaml is written as a person would write it."""

from pathlib import Path

import pytest

from pipeline.storage.params_file import checkout_of, dvc_root, workspace_of, write_value

TEXT = "preset: default  # of seeds\r\nseed: 3   # of all\nallo:\n  seed: 4\n"


def test_a_number_is_set_and_every_other_character_stays(tmp_path: Path):
    path = tmp_path / "params.yaml"
    path.write_bytes(TEXT.encode())
    write_value(path, "seed", 17)
    assert path.read_bytes().decode() == TEXT.replace("seed: 3", "seed: 17")


def test_presets_and_experiments_belong_to_a_checkout(monkeypatch: pytest.MonkeyPatch):
    root = Path("/home/me/quatrain")
    for preset in ("default", "smoke"):
        assert checkout_of(workspace_of(root, preset)) == root
    monkeypatch.delenv("DVC_ROOT", raising=False)
    assert dvc_root(root) == root
    monkeypatch.setenv("DVC_ROOT", str(root))
    assert dvc_root(Path("/elsewhere/tmp")) == root
