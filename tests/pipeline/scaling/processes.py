"""Who of a sweep's or a node's processes lives, and where they listen: read from /proc."""

import os
import signal
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from ipaddress import ip_address
from pathlib import Path
from typing import NamedTuple

LISTEN = "0A"


class Process(NamedTuple):
    pid: int
    command: str

    @property
    def parent(self) -> int:
        """Its pid; 0 if the process is gone."""
        with suppress(OSError):
            return int(_stat(Path("/proc") / str(self.pid))[1])
        return 0

    @property
    def folder(self) -> Path | None:
        """Where it works; None if it is gone."""
        with suppress(OSError):
            return Path(f"/proc/{self.pid}/cwd").readlink()
        return None

    @property
    def is_stage(self) -> bool:
        return any(f"pipeline.{verb}" in self.command for verb in ("collect", "train", "evaluate"))


def members(session: int) -> list[Process]:
    """The living processes of a session, the oldest first: all that its first process started, and
    who was left when that was killed.
    """
    processes = []
    for folder in sorted(Path("/proc").glob("[0-9]*"), key=lambda path: int(path.name)):
        with suppress(OSError):
            state, _, _, its_session, *_ = _stat(folder)
            if int(its_session) == session and state != "Z":
                command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                processes.append(Process(int(folder.name), command.strip()))
    return processes


def kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def kill_all(session: int) -> None:
    """kill -9 of a whole machine: at once, and again until nothing is left."""
    while processes := members(session):
        for process in processes:
            kill(process.pid)
        time.sleep(0.05)


def soon(condition: Callable[[], object], seconds: float = 150.0) -> float:
    """Waits until the condition holds, and returns how long that took."""
    start = time.monotonic()
    while not condition():
        assert time.monotonic() - start < seconds, f"it did not come true in {seconds:g} s"
        time.sleep(0.05)
    return time.monotonic() - start


def listening(session: int) -> set[tuple[str, int]]:
    """Addresses and ports of the LISTEN sockets of a session's processes."""
    inodes = {inode for process in members(session) for inode in _sockets(process.pid)}
    return {
        (address, port)
        for table in ("tcp", "tcp6")
        for address, port, inode in _listeners(Path("/proc/net") / table)
        if inode in inodes
    }


def _stat(folder: Path) -> list[str]:
    """State, parent, group, session, ... of a process."""
    return (folder / "stat").read_text().rpartition(")")[2].split()


def _sockets(pid: int) -> set[str]:
    inodes = set()
    for link in Path(f"/proc/{pid}/fd").glob("*"):
        with suppress(OSError):
            target = str(link.readlink())
            if target.startswith("socket:["):
                inodes.add(target[8:-1])
    return inodes


def _listeners(table: Path) -> list[tuple[str, int, str]]:
    listeners = []
    for line in table.read_text().splitlines()[1:]:
        _, local, _, state, *_, inode = line.split()[:10]
        if state == LISTEN:
            address, port = local.split(":")
            listeners.append((_address(address), int(port, 16), inode))
    return listeners


def _address(text: str) -> str:
    """The kernel's form: words of four bytes, each in the machine's order."""
    words = [bytes.fromhex(text[start : start + 8])[::-1] for start in range(0, len(text), 8)]
    address = ip_address(b"".join(words))
    mapped = getattr(address, "ipv4_mapped", None)
    return str(mapped or address)


def free_port_below(limit: int = 10_000) -> int:
    """A free port outside the ranges that Ray and the system hand out themselves."""
    for _ in range(1000):
        port = int.from_bytes(os.urandom(2)) % (limit - 5000) + 5000
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise AssertionError("no free port")
