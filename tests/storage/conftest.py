from pathlib import Path

import pytest

from quatrain.storage.folders import save
from tests.storage.saved_folder import CONTENTS, INFO


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """What `save` makes of CONTENTS."""
    save(tmp_path / "allo", CONTENTS, INFO)
    return tmp_path / "allo"
