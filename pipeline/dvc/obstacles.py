"""a workspace -> one line about the first thing in it that DVC would wait for or fail on.

DVC opens whatever has the name of a file: a pipe stops it for ever, and anything else that is no
file ends it with an error that names no remedy.
"""

import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from configobj import ConfigObj, ConfigObjError

from quatrain.errors import DataError
from quatrain.storage.disk_errors import MOVE, printable

FOLDERS = (
    ".dvc",
    ".dvc/tmp",
    ".dvc/cache",
    ".state",
    ".state/journal",
    "data",
    "models",
    "reports",
)
CONFIGS = (".dvc/config", ".dvc/config.local")
FILES = (
    "dvc.yaml",
    "dvc.lock",
    *CONFIGS,
    ".dvc/tmp/lock",
    ".dvc/tmp/rwlock",
    ".dvc/tmp/rwlock.lock",
)
# Each file of these is read by DVC.
DEPENDENCIES = ("inputs", "baselines", "src/quatrain")
# DVC makes outs anew where links into its cache lead nowhere any more.
OUTS = ("data", "models", "reports", ".dvc/cache/files")
# Of a section in DVC's config: its parser takes cubic time.
LONGEST_NAME = 200
# Beside the modes of files: of links that lead to none.
NOWHERE = 0
IN_CIRCLES = -1


def check(work: Path) -> None:
    """Checks that what DVC reads and writes are files and folders, and that it can read its config.

    Raises:
        DataError: something else is in the way; an absent path is none.
    """
    for names, is_kind, kind in (
        (FOLDERS, stat.S_ISDIR, "folder"),
        (FILES, stat.S_ISREG, "file"),
    ):
        for path in (work / name for name in names):
            mode = _mode(path)
            if mode is not None and not is_kind(max(mode, 0)):
                raise DataError(f"{printable(path)}: is no {kind}; {MOVE}")
    check_configs(work)
    for name in (*DEPENDENCIES, *OUTS):
        for path in _entries(work / name):
            mode = _mode(path)
            is_mended = mode == NOWHERE and name in OUTS
            if not (mode is None or is_mended or _is_plain(mode)):
                raise DataError(f"{printable(path)}: is no file; {MOVE}")


def check_configs(work: Path) -> None:
    """Checks that DVC can read its config.

    Raises:
        DataError: it cannot.
    """
    for name in CONFIGS:
        _check_config(work / name)


def _check_config(path: Path) -> None:
    """Raises DataError if DVC would end with a traceback, or read a line for ever; the line,
    which may hold a password, is not quoted.
    """
    try:
        lines = path.read_text().splitlines(keepends=True) if path.is_file() else []
        if not any(len(line) > LONGEST_NAME and line.lstrip().startswith("[") for line in lines):
            ConfigObj(lines)
            return
        place = ", a section's name"
    except UnicodeDecodeError:
        place = ""
    except ConfigObjError as error:
        place = f" line {next(iter(error.errors), error).line_number}"
    raise DataError(f"{printable(path)}{place}: dvc cannot read it; mend or remove what is wrong")


def _mode(path: Path) -> int | None:
    """Returns the mode of what is there, that of no file for a link that leads nowhere or in
    circles, None for nothing.
    """
    try:
        return path.stat().st_mode
    except FileNotFoundError:
        return NOWHERE if path.is_symlink() else None
    except OSError as error:
        return IN_CIRCLES if error.errno == errno.ELOOP else None


def _is_plain(mode: int) -> bool:
    return mode > 0 and (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def _entries(folder: Path) -> Iterator[Path]:
    """Yields what is in a folder that is neither plain file nor folder; looks at no file itself.

    Raises:
        DataError: a name is not UTF-8, which DVC cannot store.
    """
    for parent, _, _ in os.walk(folder):
        with os.scandir(parent) as entries:
            for entry in entries:
                if not entry.name.isascii() and not _is_utf_8(entry.name):
                    raise DataError(
                        f"{printable(entry.path)}: has a name that is not UTF-8; rename it"
                    )
                is_plain = entry.is_file(follow_symlinks=False) or entry.is_dir(
                    follow_symlinks=False
                )
                if not is_plain:
                    yield Path(entry.path)


def _is_utf_8(name: str) -> bool:
    try:
        return bool(name.encode())
    except UnicodeEncodeError:
        return False
