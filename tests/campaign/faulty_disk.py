"""The operations that change files below a folder, counted; before each of them something happens:
the process ends, the disk is full.

An end is an exception that nothing catches, after which nothing reaches the folder any more: its
files are then those that SIGKILL leaves.
"""

import builtins
import errno
import io
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, Self

import pytest

Fault = Literal["killed", "full"]
Points = dict[Fault, int]
FAULTS: tuple[Fault, ...] = ("killed", "full")
"""A process is killed before any operation; the disk is full for those that take space."""
CHANGING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
BY_DESCRIPTOR = ("write", "fsync", "ftruncate", "sendfile")
BY_PATH = ("mkdir", "unlink", "remove", "rmdir", "replace", "rename", "symlink", "link")
TAKING_SPACE = ("write", "sendfile", "mkdir", "open", "opened", "symlink", "link")
Happens = Callable[[Points, bool], None]
"""Is told how many operations there were, with the one that is to come, and whether that one takes
space."""


class Killed(BaseException):
    """Ends a life, as SIGKILL would."""


def nothing(points: Points, takes_space: bool) -> None: ...


def dies(at: int, points: Points, takes_space: bool) -> None:
    """Ends the process before an operation, and whatever it tries afterwards."""
    if points["killed"] >= at:
        raise Killed


def is_full(at: int, points: Points, takes_space: bool) -> None:
    """Refuses the n-th operation that takes space, and all later ones."""
    if takes_space and points["full"] >= at:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


class FaultyDisk:
    """Watches a folder while it is entered."""

    def __init__(self, folder: Path, happens: Happens = nothing) -> None:
        self.folder = folder
        self.happens = happens
        self.points: Points = {"killed": 0, "full": 0}
        self._patch = pytest.MonkeyPatch()

    def __enter__(self) -> Self:
        for name in BY_DESCRIPTOR:
            self._replace(name, lambda descriptor, *_: f"/proc/self/fd/{descriptor}")
        for name in BY_PATH:
            self._replace(name, lambda path, *_: path)
        self._replace("open", lambda path, flags, *_: path if flags & CHANGING else None)
        opened = io.open

        def guarded(file: Any, mode: str = "r", *arguments: Any, **named: Any) -> Any:
            changes = not isinstance(file, int) and set(mode) & set("wax+")
            if not changes or not self._is_below(file, None):
                return opened(file, mode, *arguments, **named)
            self._count("open" if "r" in mode or "a" in mode else "truncate")
            stream = opened(file, mode, *arguments, **named)
            try:
                self._count("opened")  # there, and nothing written yet
            except BaseException:
                stream.close()
                raise
            return stream

        self._patch.setattr(io, "open", guarded)
        self._patch.setattr(builtins, "open", guarded)
        return self

    def __exit__(self, *_: object) -> None:
        self._patch.undo()

    def _replace(self, name: str, path_of: Callable[..., Any]) -> None:
        real = getattr(os, name)

        def guarded(*arguments: Any, **named: Any) -> Any:
            path = path_of(*arguments)
            if path is not None and self._is_below(path, named.get("dir_fd")):
                try:
                    self._count(name)
                except OSError:
                    if name == "write":  # half of it still fits
                        real(arguments[0], bytes(arguments[1])[: len(arguments[1]) // 2])
                    raise
            return real(*arguments, **named)

        self._patch.setattr(os, name, guarded)

    def _is_below(self, path: Any, dir_fd: int | None) -> bool:
        text = os.fspath(path) if not isinstance(path, int) else f"/proc/self/fd/{path}"
        where = Path(os.fsdecode(text))
        if str(where).startswith("/proc/self/fd/"):
            where = where.readlink()
        elif dir_fd is not None:
            where = Path(f"/proc/self/fd/{dir_fd}").readlink() / where
        return where.absolute().is_relative_to(self.folder)

    def _count(self, name: str) -> None:
        takes_space = name in TAKING_SPACE
        self.points["killed"] += 1
        self.points["full"] += takes_space
        self.happens(self.points, takes_space)
