"""Processes that get a signal at moments spread over their disk's operations: each ends with the
code of the signal, and the next one with the results of an undisturbed one.
"""

import signal
from functools import partial
from itertools import cycle
from pathlib import Path

import pytest

from tests.campaign.command_works import PROMOTION
from tests.campaign.faulty_disk import signals
from tests.campaign.processes import STAGES, begin, whole
from tests.campaign.promises import broken

SIGNALS: dict[str, tuple[tuple[int, ...], set[int]]] = {
    "SIGKILL": ((signal.SIGKILL,), {-signal.SIGKILL}),
    "SIGTERM": ((signal.SIGTERM,), {143, -signal.SIGTERM}),
    "SIGINT": ((signal.SIGINT,), {130}),
    "SIGINT twice": ((signal.SIGINT, signal.SIGINT), {130}),
}
"""By name: what is sent, and how a process may end. A command has nothing to save at SIGTERM."""
COMMANDS = (PROMOTION, "preset", "sync")
SHARES = (0.2, 0.5, 0.8, 0.4)
"""Of its operations, the share that a process has done when the signal comes."""
ROWS = [*zip(STAGES, cycle(SIGNALS), cycle(SHARES[::-1]), strict=False)]
ROWS += [(name, *row) for name in COMMANDS for row in zip(SIGNALS, SHARES, strict=True)]


@pytest.mark.parametrize(("name", "sent", "share"), ROWS)
def test_a_signal_at_any_moment_loses_nothing(name: str, sent: str, share: float, tmp_path: Path):
    reference = whole(name)
    numbers, codes = SIGNALS[sent]
    place = reference.begun_in(tmp_path / "project")
    at = 1 + int(share * reference.points)
    ending = begin(reference.body, place, "signalled", partial(signals, at, numbers)).ended()
    if ending.code not in codes or "Traceback" in ending.said:
        broken("wrong code", f"exit {ending.code} after {sent}: {ending.said}")
    reference.done_again(place)
