"""trials of a sweep -> lines, or a bar on a terminal: how many ended, the best, the time left."""

import sys
import time
from collections import Counter
from collections.abc import Callable
from typing import Self

from tqdm import tqdm

from pipeline.judging.render import number
from pipeline.runtime import console
from pipeline.scaling.plan import Ledger
from pipeline.scaling.records import Trial
from pipeline.scaling.result import rank

# A line even if no trial ends.
LINE_SECONDS = 30.0


class SweepProgress:
    """Shows a phase of a sweep: its search, or its confirmation."""

    def __init__(
        self, title: str, total: int, ledger: Ledger, belongs: Callable[[Trial], bool]
    ) -> None:
        self._title = title
        self._ledger = ledger
        self._belongs = belongs
        self._total = total
        self._started_at = time.monotonic()
        self._begun_before = self._ended()
        self._printed_at = self._started_at
        self._is_terminal = sys.stderr.isatty()

    def __enter__(self) -> Self:
        self._bar = tqdm(
            total=self._total,
            initial=self._begun_before,
            desc=self._title,
            unit=" trials",
            disable=not self._is_terminal,
        )
        if self._begun_before:
            console.info(
                f"{self._title}: continues with {self._begun_before} of {self._total} trials ended"
            )
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.close()

    def begun(self, trial: Trial) -> None:
        if not self._is_terminal:
            values = "  ".join(f"{key}={_short(value)}" for key, value in trial.values.items())
            repeats = "" if trial.repeats is None else f" repeats {trial.repeats}"
            console.info(f"{self._title}: trial {trial.number}{repeats} begins  {values}")

    def ended(self, trial: Trial) -> None:
        if self._is_terminal:
            self._bar.update(self._ended() - self._bar.n)
            self.tick()
            return
        at = f" at step {trial.last.step:,}" if trial.state == "stopped" and trial.last else ""
        score = f", {number(trial.score)}" if trial.score is not None else ""
        reason = f": {trial.reason}" if trial.reason else ""
        self._print(f"trial {trial.number} {trial.state}{at}{score}{reason}; ")

    def note(self, text: str) -> None:
        self._bar.clear()
        console.info(f"{self._title}: {text}")

    def tick(self) -> None:
        """Shows the state now and then."""
        if self._is_terminal:
            self._bar.set_postfix_str(self._state(), refresh=True)
        elif time.monotonic() - self._printed_at >= LINE_SECONDS:
            self._print("")

    def _print(self, event: str) -> None:
        self._printed_at = time.monotonic()
        console.info(
            f"{self._title}: {event}{self._ended()}/{self._total} ended, "
            f"{self._state()}, {self._left()}"
        )

    def _ended(self) -> int:
        return sum(trial.has_ended for trial in self._trials())

    def _trials(self) -> list[Trial]:
        return [trial for trial in self._ledger.trials.values() if self._belongs(trial)]

    def _state(self) -> str:
        """Returns how many run, how many were stopped, and the best score."""
        states = Counter(trial.state for trial in self._trials())
        states.pop("finished", None)
        parts = [f"{count} {state}" for state, count in sorted(states.items())]
        ranked = rank(self._trials(), self._ledger.is_higher_better)
        if ranked:
            parts.append(f"best {number(ranked[0].score)} (trial {ranked[0].number})")
        return ", ".join(parts) or "none runs"

    def _left(self) -> str:
        done = self._ended() - self._begun_before
        if not done:
            return "time left unknown"
        seconds = (time.monotonic() - self._started_at) / done * (self._total - self._ended())
        return f"about {_duration(seconds)} left"


def _short(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def _duration(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"
