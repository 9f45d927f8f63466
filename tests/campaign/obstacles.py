"""What may be found at a path where the project expects a file or a folder of its own."""

import os
import shutil
import socket
from collections.abc import Callable
from pathlib import Path

DEEP = b"[" * 100_000


def _clear(path: Path) -> None:
    """Moves what is at a path aside, so that a test can see that it is kept."""
    for parent in reversed(path.parents):
        parent.mkdir(exist_ok=True)
    if path.is_symlink() or path.is_file():
        path.unlink()
    elif path.exists():
        shutil.rmtree(path)


def _socket(path: Path) -> None:
    listener = socket.socket(socket.AF_UNIX)
    short = Path(f"/proc/self/fd/{os.open(path.parent, os.O_PATH)}") / path.name
    listener.bind(str(short))
    listener.close()
    os.close(int(short.parent.name))


def _folder(path: Path) -> None:
    path.mkdir()
    (path / "notes.md").write_text("a user's own\n")


THINGS: dict[str, Callable[[Path], object]] = {
    "file": lambda path: path.write_text("a user's own\n"),
    "folder": _folder,
    "link to nothing": lambda path: path.symlink_to("nowhere"),
    "loop": lambda path: path.symlink_to(path.name),
    "pipe": os.mkfifo,
    "socket": _socket,
    "device": lambda path: path.symlink_to("/dev/zero"),
    "not UTF-8": lambda path: path.write_bytes(b"\xff\xfe\xfa"),
    "deep": lambda path: path.write_bytes(DEEP),
    "empty": lambda path: path.write_bytes(b""),
}


def put(thing: str, path: Path) -> None:
    """Puts a thing at a path, in place of what is there."""
    _clear(path)
    THINGS[thing](path)
