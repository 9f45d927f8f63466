"""DVC's settings in a checkout -> those of a copy of it: its cache, remotes and credentials."""

import io
import os
from pathlib import Path
from typing import Any

from configobj import ConfigObj

from pipeline.dvc import obstacles
from quatrain.errors import DataError
from quatrain.storage.atomic_write import write_durably

LOCAL = Path(".dvc") / "config.local"


def share_settings(root: Path, work: Path) -> None:
    """Writes .dvc/config.local of a copy that is no repository of git.

    It has what `.dvc/config` and `.dvc/config.local` of the checkout say, for relative paths there
    lead elsewhere from the copy. Who may not read the checkout's file may not read this one.

    Raises:
        DataError: DVC cannot read the checkout's settings.
    """
    obstacles.check_configs(root)
    settings = settings_of(root)
    settings["core"] = settings.get("core", {}) | {"no_scm": "true"}
    text = io.BytesIO()
    ConfigObj(settings).write(text)
    is_private = (root / LOCAL).is_file() and not (root / LOCAL).stat().st_mode & 0o077
    mask = os.umask(0o077) if is_private else None
    try:
        write_durably(work / LOCAL, text.getvalue())
    finally:
        if mask is not None:
            os.umask(mask)


def settings_of(root: Path) -> dict[str, Any]:
    """Returns the checkout's own settings as in a file of DVC's, with absolute paths."""
    from dvc.config import Config, _pack_named, merge
    from dvc.exceptions import DvcException
    from voluptuous import Invalid

    folder = root.absolute() / ".dvc"
    try:
        config = Config(str(folder), validate=False)
        settings: dict[str, Any] = {}
        for level in ("repo", "local"):
            merge(settings, config.load_one(level))
        # The user's own settings for all repositories may name a cache, too.
        settings["cache"]["dir"] = config["cache"].get("dir") or str(folder / "cache")
        packed: dict[str, Any] = _pack_named(settings)
    except (DvcException, Invalid, TypeError, AttributeError) as error:
        raise DataError(
            f".dvc/config: dvc cannot read it ({type(error).__name__}); mend or remove what is "
            "wrong there and in .dvc/config.local"
        ) from None
    return packed
