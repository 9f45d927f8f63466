"""journals on the disk -> MLflow, with a line about each that is not complete there yet."""

import time
from pathlib import Path

from pipeline.tracking.delivery import Delivery
from pipeline.tracking.journal import Journal
from pipeline.tracking.store import Late, Unreachable, reason_of
from quatrain.storage.disk_errors import escaped

FIRST_PAUSE = 1.0
LONGEST_PAUSE = 10.0
# Journals in a row whose calls may end at the deadline before the others are left for later.
MOST_LATE = 3


class JournalDelivery:
    """Delivers one journal; `pending` says why it is not complete in the store."""

    def __init__(
        self, folder: Path, uri: str, is_checked: bool = False, from_start: bool = False
    ) -> None:
        self.name = folder.name
        self.pending: str | None = "not tried"
        self.metrics = 0
        self.files = 0
        self.folder = folder
        self.is_late = False
        """Whether a call of the last attempt ended at its deadline."""
        self._uri = uri
        self._modes = {"is_checked": is_checked, "from_start": from_start}

    def send(self) -> bool:
        """Delivers what the store accepts; returns False if no server answers, so that the next is
        not tried.
        """
        self.pending = None
        self.is_late = False
        is_reachable = True
        delivery = None
        try:
            journal = Journal(self.folder)
            if journal.header is not None:
                run = f"{journal.header.run_name}, key {journal.header.run_key[:12]}"
                self.name = escaped(f"{self.folder.name} ({run})")
            delivery = Delivery(journal, self._uri, **self._modes)
            while delivery.step():
                pass
        except Exception as error:
            # Any failure: the other journals are sent all the same.
            self.pending = reason_of(error, self._uri)
            self.is_late = isinstance(error, Late)
            is_reachable = self.is_late or not isinstance(error, Unreachable)
        finally:
            if delivery is not None:
                if delivery.is_begun:
                    self._modes = {}
                self.metrics += delivery.metrics
                self.files += delivery.artifacts
                delivery.close()
        return is_reachable

    def summary(self) -> str:
        text = f"{self.name}: {self.metrics:,} metrics and {self.files} files sent"
        return text if self.pending is None else f"{text}, the rest is pending: {self.pending}"


def deliver(deliveries: list[JournalDelivery], wait_seconds: float) -> list[JournalDelivery]:
    """Tries for about `wait_seconds` with growing pauses; returns those that are still pending."""
    end = time.monotonic() + wait_seconds
    pause = FIRST_PAUSE
    while True:
        late = 0
        for delivery in deliveries:
            is_reachable = delivery.send()
            late = late + 1 if delivery.is_late else 0
            if not is_reachable or late == MOST_LATE:
                break
        deliveries = [delivery for delivery in deliveries if delivery.pending is not None]
        if not deliveries or time.monotonic() + pause > end:
            return deliveries
        time.sleep(pause)
        pause = min(2 * pause, LONGEST_PAUSE)
