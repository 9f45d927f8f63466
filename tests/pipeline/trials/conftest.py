"""What several tests of trials need."""

import shutil
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from pipeline.trials import space
from tests.conftest import ROOT


@pytest.fixture(autouse=True, scope="module")
def params_are_read_once() -> Iterator[None]:
    """For many sweeps of the same params.yaml, whose reading takes longest."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(space, "read_raw", cache(space.read_raw))
        yield


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """What params.yaml needs, to be changed."""
    for name in ("inputs", "baselines", "presets"):
        shutil.copytree(ROOT / name, tmp_path / "root" / name)
    shutil.copy(ROOT / "params.yaml", tmp_path / "root")
    return tmp_path / "root"
