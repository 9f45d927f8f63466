"""Each preset, as it stands but for the number of transitions, learns something."""

from typing import Any

import numpy as np
import pytest

from pipeline.storage.params_file import overlaid, parse, read_input, read_raw, validate
from quatrain.models.active_dynamics.collect import collect
from quatrain.models.active_dynamics.train import train
from tests.conftest import ROOT, shapes_unchecked

FEW = {"held_out_rollouts": 8, "starts": 8}
BRIEF: dict[str, Any] = {
    "seeds": 1,
    "collect": {"warmup": 20, **FEW},
    "train": {"transitions": 45, "record_every": 15, "checkpoints": 3},
}
"""Long enough for the windows of seq_vae, and for some plans after the warm-up."""
LARGE: dict[str, Any] = {
    "collect": FEW,
    "train": {"transitions": 30, "record_every": 10, "checkpoints": 3},
}
PRESETS = sorted(
    path.stem for path in (ROOT / "presets").glob("*.yaml") if "active_dynamics" in parse(path)
)


@pytest.mark.parametrize(
    ("preset", "changes"),
    [
        (None, BRIEF),
        *((preset, BRIEF) for preset in PRESETS),
        pytest.param("large", LARGE, marks=pytest.mark.slow),
    ],
)
def test_a_preset_learns(preset: str | None, changes: dict[str, Any]):
    raw = overlaid(read_raw(ROOT, preset), {"active_dynamics": changes})
    config = validate(raw, lambda name: read_input(ROOT, str(name))).active_dynamics
    with shapes_unchecked():
        progress = list(train(config, collect(config, 0), 1))
    assert progress[-1].step == config.train.transitions
    assert all(np.isfinite(values).all() for values in progress[-1].metrics.values())
    gained = [item.metrics["information_gained"].mean() for item in progress]
    assert gained[-1] > gained[0]
