"""QUATRAIN_TRIAL -> what a stage records differently as a trial of a sweep.

A trial has a run of its own, below the run of the sweep: a later `make repro` of the same params
must not add to it. It sends nothing and registers no model; the driver of the sweep delivers its
outbox.
"""

import json
import os
from collections.abc import Mapping
from typing import NamedTuple

from pipeline.tracking.records import Header, Parent

VARIABLE = "QUATRAIN_TRIAL"


class TrialContext(NamedTuple):
    run_key: str
    run_name: str
    sweep: Parent
    tags: Mapping[str, str]

    def of_trial(self, name: str) -> "TrialContext":
        """Returns the context of one trial of the sweep that this one names."""
        return self._replace(
            run_key=f"{self.run_key}-{name}",
            run_name=f"{self.run_name}-{name}",
            tags={**self.tags, "quatrain.trial": name},
        )

    def header(self, header: Header) -> Header:
        """Returns the header of a stage's outbox as that of this trial."""
        return header._replace(
            run_key=self.run_key,
            run_name=self.run_name,
            parent=self.sweep,
            tags={**header.tags, **self.tags},
        )

    def to_environment(self) -> dict[str, str]:
        return {VARIABLE: json.dumps(self._asdict() | {"sweep": self.sweep._asdict()})}


def trial_context() -> TrialContext | None:
    """Returns what this process was started with; None outside a sweep."""
    text = os.environ.get(VARIABLE)
    if not text:
        return None
    fields = json.loads(text)
    return TrialContext(**fields | {"sweep": Parent(**fields["sweep"])})
