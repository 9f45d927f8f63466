"""Each preset, cut down in what only takes time, learns something."""

from typing import Any

import numpy as np
import pytest

from pipeline.storage.params_file import read_params
from quatrain import registry
from quatrain.envs.colony import policies
from quatrain.presets import parse
from quatrain.progress import Progress
from tests.conftest import ROOT, shapes_unchecked
from tests.pipeline.fixture_types import Patch

FIELD: dict[str, Any] = {
    "seeds": 1,
    "collect": {"warmup": 20, "held_out_rollouts": 8, "starts": 8},
    "train": {"transitions": 45, "record_every": 15, "checkpoints": 3},
}
"""Long enough for the windows of seq_vae, and for some plans after the warm-up."""
FIELD_PRESETS = sorted(
    path.stem
    for path in (ROOT / "presets").glob("*.yaml")
    if "kind" not in parse(path).get("active_dynamics", {"env": {"kind": ""}}).get("env", {})
)


def trained(model: str, preset: str | None, changes: dict[str, Any]) -> list[Progress]:
    """Returns all yields; their metrics are finite."""
    config = getattr(read_params(ROOT, preset, {model: changes}), model)
    module = registry.load(model)
    with shapes_unchecked():
        yields = list(module.train.train(config, module.collect.collect(config, 0), 1))
    for progress in yields:
        assert all(np.isfinite(values).all() for values in progress.metrics.values())
    return yields


@pytest.mark.parametrize("preset", [None, *FIELD_PRESETS])
@pytest.mark.usefixtures("one_thread")
def test_active_dynamics_gains_information(preset: str | None):
    yields = trained("active_dynamics", preset, FIELD)
    assert yields[-1].step == FIELD["train"]["transitions"]
    gained = [progress.metrics["information_gained"].mean() for progress in yields]
    assert gained[-1] > gained[0]


@pytest.mark.full
@pytest.mark.filterwarnings("ignore:actor_critic.env.max_steps .* is impossible:UserWarning")
@pytest.mark.parametrize(
    ("preset", "env"), [("original", {}), ("large", {"max_nodes": 100, "n0_max": 30})]
)
def test_actor_critic_learns(preset: str, env: dict[str, int], monkeypatch: Patch):
    for name in ("FIRST_COLONIES", "COLONIES", "FINAL_COLONIES", "GAMMA_COLONIES"):
        monkeypatch.setattr(policies, name, 4)
    one_plate = {"n_train": 1, "n_held_out": 1, "n_outside": 0}
    brief = {"num_envs": 4, "horizon": 5, "minibatch_size": 10, "transitions": 40}
    plain = {"record_every": 1, "evaluate_every": 0, "amp": "none", "compile": False}
    changes = {
        "seeds": 2,
        "env": {"width": 60, "max_steps": 12} | env,
        "collect": {"held_out_colonies": 32, "constant_search": 200} | one_plate,
        "train": brief | plain,
    }
    assert [progress.step for progress in trained("actor_critic", preset, changes)] == [1, 2]
