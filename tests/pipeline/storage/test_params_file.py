"""params.yaml is written as a person would write it."""

from pathlib import Path

import pytest

from pipeline.storage.params_file import (
    checkout_of,
    dvc_root,
    read_params,
    workspace_of,
    write_value,
)
from quatrain.errors import ConfigError

TEXT = "preset: default  # of seeds\r\nseed: 3   # of all\nallo:\n  seed: 4\n"


@pytest.mark.parametrize("line", ["seed: 3", "seed : 3", "seed:  3# of all"])
def test_a_number_is_set_and_every_other_character_stays(line: str, tmp_path: Path):
    path = tmp_path / "params.yaml"
    path.write_bytes(TEXT.replace("seed: 3", line).encode())
    write_value(path, "seed", 17)
    assert path.read_bytes().decode() == TEXT.replace("seed: 3", line.replace("3", "17"))


@pytest.mark.parametrize("text", ["'seed': 3\n", "seed:\n  3\n", "{seed: 3}\n", ""])
def test_a_number_that_is_on_no_line_of_its_own_is_refused(text: str, tmp_path: Path):
    path = tmp_path / "params.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=r"^params.yaml: write `seed: NUMBER` on a line"):
        write_value(path, "seed", 17)
    assert path.read_text() == text


def test_presets_and_experiments_belong_to_a_checkout(monkeypatch: pytest.MonkeyPatch):
    root = Path("/home/me/quatrain")
    for preset in ("default", "smoke"):
        assert checkout_of(workspace_of(root, preset)) == root
    monkeypatch.delenv("DVC_ROOT", raising=False)
    assert dvc_root(root) == root
    monkeypatch.setenv("DVC_ROOT", str(root))
    assert dvc_root(Path("/elsewhere/tmp")) == root


def test_a_checkout_is_of_no_other_preset(checkout: Path):
    path = checkout / "params.yaml"
    path.write_text(path.read_text().replace("preset: default", "preset: smoke", 1))
    with pytest.raises(ConfigError, match=r"^params\.yaml: preset = 'smoke': a checkout's own is"):
        read_params(checkout)
    (checkout / ".git").rename(checkout / "not-git")  # as a preset's workspace
    assert read_params(checkout).preset == "smoke"


def test_a_file_that_no_stage_of_the_model_depends_on_is_refused(checkout: Path):
    layout = (checkout / "inputs" / "allo" / "one_way.txt").read_text()
    for folder in ("iqn", "allo"):
        (checkout / "inputs" / folder / "my.txt").write_text(layout)
    read_params(checkout, changes={"allo": {"env": {"layout": "inputs/allo/my.txt"}}})
    why = r"^params\.yaml: allo: inputs/iqn/my\.txt lies outside inputs/allo/, so that DVC"
    with pytest.raises(ConfigError, match=why):
        read_params(checkout, changes={"allo": {"env": {"layout": "inputs/iqn/my.txt"}}})
