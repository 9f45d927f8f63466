"""A working folder with learner and scores of each model, as `evaluate` leaves it; none learns."""

import json
import shutil
from pathlib import Path
from typing import Any

from pipeline.judging.baseline_files import baseline_path
from pipeline.judging.changes import provenance_of
from pipeline.judging.gate import rules_of
from pipeline.judging.scores import digests_of, path_of, stored_scores, write_scores
from pipeline.storage.params_file import read_params
from pipeline.storage.run_key import code_digest, shaping
from pipeline.storage.trained_model import CONFIG
from quatrain.baselines import entry_of
from quatrain.registry import MODELS
from quatrain.storage import folders
from tests.conftest import ROOT, SIZES

SCORES: dict[str, dict[str, Any]] = {model: sizes.SCORES for model, sizes in SIZES.items()}
"""Per model: scores that reach every goal."""

PROVENANCE = {"commit": "abc123", "date": "2026-01-02", "run_key": "0" * 64}
PROVENANCE |= {"seeds": 1, "by": "ann", "why": None}
SETTINGS = {"device": "cpu", "cpu": "25 / 1 / AMD", "threads": "2", "jax": "0.10.2"}
DATASET = "d" * 64


class Workspace:
    """What the tests change by hand in a working folder of one model."""

    def __init__(self, root: Path, model: str = "allo") -> None:
        self.root, self.model = root, model
        self.scores, self.stored = path_of(root, model), baseline_path(root, model)
        self.weights, self.data = root / "models" / model, root / "data" / model

    def score(self, preset: str = "default", **changed: float | None) -> None:
        """As if the model had been evaluated with these scores."""
        params = read_params(self.root)
        learner = folders.read_digest(self.weights)
        digests = digests_of(self.root, self.model, params, learner=learner, data=DATASET)
        info = folders.read_json(self.weights / folders.MANIFEST)["info"]
        scores = SCORES[self.model] | changed
        write_scores(self.root, stored_scores(self.model, preset, digests, info, scores))

    def set_baseline(self, preset: str = "default", **changed: float) -> None:
        """As if SCORES with changes had been promoted."""
        rules, params = rules_of(self.model, preset), read_params(self.root)
        metrics = {rule.metric: entry_of(rule, SCORES[self.model] | changed) for rule in rules}
        info = {"run_key": "", "data": DATASET, "settings": SETTINGS}
        info["code"] = code_digest(self.root, self.model, params, "evaluate")
        provenance = provenance_of(self.root, self.model, params, info) | PROVENANCE
        entry = {"metrics": metrics, "provenance": provenance}
        self.edit_baseline({"schema": 1, "model": self.model, "presets": {preset: entry}})

    def edit_baseline(self, content: Any) -> None:
        """Write what no command would."""
        self.stored.parent.mkdir(exist_ok=True)
        self.stored.write_text(content if isinstance(content, str) else json.dumps(content))

    def baseline(self) -> Any:
        return json.loads(self.stored.read_text())

    def metrics(self) -> Any:
        return self.baseline()["presets"]["default"]["metrics"]

    def train(self, run_key: str, code: str | None = None, **settings: str) -> None:
        """As if the model had been trained, with these settings."""
        params = read_params(self.root)
        info = {
            "run_key": run_key,
            "dataset": DATASET,
            "settings": SETTINGS | settings,
            "params": shaping(params),
            "code": code or code_digest(self.root, self.model, params, "train"),
        }
        config = getattr(params, self.model).model_dump(mode="json")
        folders.save(self.weights, {"history.csv": "step\n", CONFIG: config}, info)


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
