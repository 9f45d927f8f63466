"""DVC's settings in a checkout -> those of a copy of it: its cache, remotes and credentials."""

import io
import os
from pathlib import Path
from typing import Any

from quatrain.errors import DataError
from quatrain.storage.atomic_write import write_durably

LOCAL = Path(".dvc") / "config.local"


def share_settings(root: Path, work: Path) -> None:
    """Writes .dvc/config.local of a copy of the checkout, for this user alone.

    It has what `.dvc/config` and `.dvc/config.local` of the checkout say, for relative paths there
    lead elsewhere from the copy.

    Raises:
        DataError: DVC cannot read the checkout's settings.
    """
    from configobj import ConfigObj
    from dvc.config import Config, ConfigError, _pack_named, merge

    folder = root.absolute() / ".dvc"
    settings: dict[str, Any] = {}
    try:
        config = Config(str(folder))
        for level in ("repo", "local"):
            merge(settings, config.load_one(level))
    except ConfigError:  # which may quote a password
        raise DataError(
            ".dvc/config or .dvc/config.local: dvc cannot read it; `dvc config --list` says why"
        ) from None
    # The user's own settings for all repositories may name a cache, too.
    settings["cache"]["dir"] = config["cache"].get("dir") or str(folder / "cache")
    if not (work / ".git").exists():  # a copy, and no worktree
        settings["core"]["no_scm"] = "true"
    text = io.BytesIO()
    ConfigObj(_pack_named(settings), encoding="utf-8").write(text)
    mask = os.umask(0o077)
    try:
        write_durably(work / LOCAL, text.getvalue())
    finally:
        os.umask(mask)
