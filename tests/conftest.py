"""What tests share: the committed params.yaml, small variants of its sections, and the repository's root."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pipeline.params import overlaid, parse, read_input, validate
from quatrain.params import Params

ROOT = Path(__file__).parent.parent

SMALL: dict[str, dict[str, Any]] = {
    "allo": {
        "collect": {"num_envs": 13, "steps_per_env": 60, "held_out_fraction": 0.2},
        "network": {"d": 3, "hidden": 16, "layers": 2},
        "train": {"batch_size": 32, "steps": 60, "record_every": 20, "evaluate_every": 20, "learning_rate": 0.01},
    }
}
"""Per model: the changes to params.yaml that make a run take a second and still learn something."""


def params_with(overlay: dict[str, Any]) -> Params:
    """params.yaml with some values changed."""
    return validate(overlaid(parse(ROOT / "params.yaml"), overlay), lambda name: read_input(ROOT, str(name)))


@pytest.fixture
def allo() -> Callable[..., Any]:
    """A small allo config with sections changed: allo(train={"steps": 40}, seeds=3)."""

    def make(**sections: Any) -> Any:
        return params_with({"allo": overlaid(SMALL["allo"], sections)}).allo

    return make
