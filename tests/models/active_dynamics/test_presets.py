"""Each preset, as it stands but for the number of transitions, learns something."""

from typing import Any

import numpy as np
import pytest

from pipeline.storage.params_file import overlaid, parse, read_input, read_raw, validate
from quatrain.models.active_dynamics.collect import collect
from quatrain.models.active_dynamics.config import ActiveDynamicsConfig
from quatrain.models.active_dynamics.train import train
from tests.conftest import ROOT

PRESETS = [
    None,
    *sorted(
        item.stem for item in (ROOT / "presets").glob("*.yaml") if "active_dynamics" in parse(item)
    ),
]
FEW = {"held_out_rollouts": 8, "starts": 8}
BRIEF: dict[str, Any] = {
    "collect": {"warmup": 20, **FEW},
    "train": {"transitions": 45, "record_every": 15, "checkpoints": 3},
}
"""Long enough for the windows of seq_vae, and for some plans after the warm-up."""


def changed(preset: str | None, changes: dict[str, Any]) -> ActiveDynamicsConfig:
    raw = overlaid(read_raw(ROOT, preset), {"active_dynamics": changes})
    return validate(raw, lambda name: read_input(ROOT, str(name))).active_dynamics


def learned(config: ActiveDynamicsConfig) -> None:
    progress = list(train(config, collect(config, 0), 1))
    assert progress[-1].step == config.train.transitions
    assert all(np.isfinite(values).all() for values in progress[-1].metrics.values())
    reference = [item.metrics["information_gained"].mean() for item in progress]
    assert reference[-1] > reference[0]


@pytest.mark.parametrize("preset", PRESETS)
def test_a_preset_learns(preset: str | None):
    learned(changed(preset, BRIEF | {"seeds": 1}))


@pytest.mark.slow
def test_the_large_preset_learns_as_large_as_it_is():
    learned(
        changed(
            "large",
            {"train": {"transitions": 30, "record_every": 10, "checkpoints": 3}, "collect": FEW},
        )
    )
