"""Where the commands are tried."""

from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.pipeline.fixture_types import Patch


@pytest.fixture
def project(tmp_path: Path, monkeypatch: Patch) -> Path:
    """Returns a folder with the committed params, for results; it is the current one."""
    for name in ("params.yaml", "presets"):
        (tmp_path / name).symlink_to(ROOT / name)
    monkeypatch.chdir(tmp_path)
    return tmp_path
