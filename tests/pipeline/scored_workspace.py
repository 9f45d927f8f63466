"""A working folder with learner and scores of each model, as `evaluate` leaves it; none learns."""

import json
import shutil
from pathlib import Path
from typing import Any

from pipeline.judging import verdicts
from pipeline.storage import artifacts
from pipeline.storage.params_file import read_params
from pipeline.storage.trained_model import CONFIG, shaping
from quatrain.baselines import entry_of
from quatrain.registry import MODELS
from tests.conftest import ROOT, SIZES

SCORES: dict[str, dict[str, Any]] = {
    "allo": {"cosine_mean": 0.995, "cosine_min": 0.98, "cosine/2": 0.996, "cosine/10": 0.994}
    | {"floor_untrained": 0.12, "floor_random": 0.08, "floor_constant": 0.09}
    | {"orthogonality": 0.05, "ceiling_truth": 1.0},
    "iqn": {"return_mean": 105.0, "share": 0.98, "score": 0.96, "constant_return": -36.0}
    | {"random_return": 51.0, "free_random_return": 63.0}
    | {"oracle_view_return": 107.0, "oracle_full_return": 108.0},
    "actor_critic": {"return_mean": 8.4, "margin_over_constant": 0.8, "fraction_of_feedback": 0.96}
    | {"success_rate": 1.0, "size_rmse": 5.0}
    | {"random_return": -2.8, "constant_return": 4.6, "feedback_return": 8.8},
    "active_dynamics": {"field_nrmse.active": 0.08, "transition_ratio.random": 8.0}
    | {"displacement_r2_20.active": 0.9, "coverage_90.active": 0.87}
    | {"zero_field": 1.0, "affine_field": 0.43, "projection_floor": 0.0035}
    | {"teleport_reference": 0.0755},
}
"""Per model: scores that reach every goal."""
SCORES |= {model: sizes.SCORES for model, sizes in SIZES.items()}

PROVENANCE = {"commit": "abc123", "date": "2026-01-02", "run_key": "0" * 64}
PROVENANCE |= {"seeds": 1, "why": None, "device": "cpu", "cpu": "25 / 1 / AMD", "threads": "2"}


class Workspace:
    """What the tests change by hand in a working folder of one model."""

    def __init__(self, root: Path, model: str = "allo") -> None:
        self.root, self.model = root, model
        self.files = verdicts.files(root, model)

    def score(self, preset: str = "default", **changed: float | None) -> None:
        """As if the model had been evaluated with these scores."""
        artifacts.write_json(self.files.scores, SCORES[self.model] | changed)
        params = read_params(self.root).model_copy(update={"preset": preset})
        verdicts.write(self.root, self.model, params)

    def set_baseline(self, preset: str = "default", **changed: float) -> None:
        """As if SCORES with changes had been promoted."""
        rules = verdicts.rules_of(self.model, preset)
        metrics = {rule.metric: entry_of(rule, SCORES[self.model] | changed) for rule in rules}
        entry = {"metrics": metrics, "provenance": PROVENANCE}
        self.edit_baseline({"schema": 1, "model": self.model, "presets": {preset: entry}})

    def edit_baseline(self, content: Any) -> None:
        """Write what no stage would."""
        self.files.baseline.parent.mkdir(exist_ok=True)
        text = content if isinstance(content, str) else json.dumps(content)
        self.files.baseline.write_text(text)

    def baseline(self) -> Any:
        return json.loads(self.files.baseline.read_text())

    def metrics(self) -> Any:
        return self.baseline()["presets"]["default"]["metrics"]

    def edit_verdict(self, **changed: Any) -> None:
        stored = json.loads(self.files.verdict.read_text())
        self.files.verdict.write_text(json.dumps(stored | changed))

    def train(self, run_key: str, cpu: str = "25 / 1 / AMD") -> None:
        """As if the model had been trained."""
        params = read_params(self.root)
        info = {
            "run_key": run_key,
            "dataset": "d" * 64,
            "settings": {"device": "cpu", "cpu": cpu, "threads": "2"},
            "params": shaping(params),
        }
        config = getattr(params, self.model).model_dump(mode="json")
        contents = {"history.csv": "step\n", CONFIG: config}
        artifacts.save(self.root / "models" / self.model, contents, info)


def make_workspace(root: Path) -> dict[str, Workspace]:
    """All models trained, evaluated, and as good as their baselines."""
    for name in ("params.yaml", "presets", "inputs"):
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, root / name)
    spaces = {model: Workspace(root, model) for model in MODELS}
    for space in spaces.values():
        space.train("a" * 64)
        space.set_baseline()
        space.score()
    return spaces
