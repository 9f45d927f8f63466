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

SCORES: dict[str, dict[str, Any]] = {model: sizes.SCORES for model, sizes in SIZES.items()}
"""Per model: scores that reach every goal."""

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
