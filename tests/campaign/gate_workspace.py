"""A working folder of one model as `evaluate` leaves it, made from the model's rules."""

import json
import shutil
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from ruamel.yaml import YAML

from pipeline.judging import verdicts
from pipeline.storage import artifacts
from pipeline.storage.params_file import overlaid, parse, read_params, read_raw
from pipeline.storage.trained_model import CONFIG, shaping
from quatrain.baselines import Rule, entry_of
from quatrain.errors import DataError
from quatrain.registry import MODELS
from tests.conftest import ROOT

SUBJECTS = [
    *((model, "default") for model in MODELS),
    *((model, "gymnasium") for model in ("allo", "iqn", "actor_critic")),
]
"""Models in our environments, and those that have a variant in one of Gymnasium."""
PROVENANCE = {"commit": "abc123", "date": "2026-01-02", "run_key": "0" * 64, "seeds": 1}
RUN_KEY, DATASET = "a" * 64, "d" * 64
SEEDS = 10.0
"""Enough for an interval to widen a tolerance."""


def better(rule: Rule) -> float:
    """Which way the score gets better; near: up, which is worse."""
    return -1.0 if rule.direction == "lower" else 1.0


def good_scores(rules: Sequence[Rule]) -> dict[str, float]:
    """Scores at their goals, clear of what learned nothing; the first with an interval."""
    first, value = rules[0].metric, rules[0].goal or 0.5
    scores = {"seeds": SEEDS, f"{first}_low": value - 1e-6, f"{first}_high": value + 1e-6}
    for rule in rules:
        value = rule.goal or 0.5
        scores |= {rule.metric: value}
        step = 10 * better(rule) * (rule.tolerance + 1)
        scores |= dict.fromkeys(rule.lower_references, value - step)
        scores |= dict.fromkeys(rule.upper_references, value + step)
    return scores


class Place(NamedTuple):
    """What the cases change in a working folder."""

    root: Path
    model: str
    preset: str

    @property
    def rules(self) -> tuple[Rule, ...]:
        return verdicts.rules_of(
            self.model, self.preset, getattr(read_params(self.root), self.model)
        )

    @property
    def rule(self) -> Rule:
        return self.rules[0]

    @property
    def paths(self) -> verdicts.Files:
        return verdicts.files(self.root, self.model)

    @property
    def weights(self) -> Path:
        return self.root / "models" / self.model

    def judge(self) -> None:
        """Write the verdict, as `evaluate` does at its end."""
        verdicts.write(self.root, self.model, read_params(self.root))

    def score(self, **changed: Any) -> None:
        """As if the model had been evaluated with these scores."""
        scores = good_scores(self.rules) | changed
        artifacts.write_json(self.paths.scores, scores)
        self.judge()

    def store(self, **changed: Any) -> None:
        """As if such scores had been promoted."""
        scores = good_scores(self.rules) | changed
        metrics = {rule.metric: entry_of(rule, scores) for rule in self.rules}
        entry = {"metrics": metrics, "provenance": PROVENANCE}
        content = {"schema": 1, "model": self.model, "presets": {self.preset: entry}}
        artifacts.write_json(self.paths.baseline, content)

    def train(self, run_key: str = RUN_KEY, **changed: Any) -> None:
        """As if the model had been trained; `changed` of what the manifest tells of it."""
        params = read_params(self.root)
        settings = {"device": "cpu", "cpu": "25 / 1 / AMD", "threads": "2"}
        info = {"run_key": run_key, "dataset": DATASET, "settings": settings}
        info |= {"params": shaping(params)} | changed
        contents = {
            "weights.safetensors": {"params/w": np.arange(64, dtype=np.float32)},
            "state.safetensors": {"step": np.array(7)},
            "history.csv": "step\n",
            CONFIG: getattr(params, self.model).model_dump(mode="json"),
        }
        artifacts.save(self.weights, contents, {k: v for k, v in info.items() if v is not None})

    def choose(self, overlay: dict[str, Any]) -> None:
        """Change params.yaml."""
        path = self.root / "params.yaml"
        values = overlaid(parse(path), overlay)
        with path.open("w") as file:
            YAML().dump(values, file)

    def vouch(self) -> None:
        """Write the digests of the current files into the verdict, which says what it said."""
        params = read_params(self.root)
        self.edit_verdict(
            scores_sha256=artifacts.file_digest(self.paths.scores),
            baseline_sha256=self.baseline_digest(),
            learner=artifacts.folder_digest(self.weights),
            params=verdicts.params_digest(params, self.model),
        )

    def baseline_digest(self) -> str | None:
        """None, too, where no file can be judged."""
        with suppress(DataError):
            verdict = verdicts.judge_files(self.paths, self.model, self.preset, self.rules)
            return verdict.baseline_digest
        return None

    def verdict(self) -> Any:
        return json.loads(self.paths.verdict.read_text())

    def edit_verdict(self, **changed: Any) -> None:
        self.paths.verdict.write_text(json.dumps(self.verdict() | changed))

    def baseline(self) -> Any:
        return json.loads(self.paths.baseline.read_text())

    def write_baseline(self, content: Any) -> None:
        """Write what no command would, and a verdict that vouches for it."""
        self.paths.baseline.write_text(content if isinstance(content, str) else json.dumps(content))
        self.vouch()

    def entry(self, content: Any) -> Any:
        """The baseline of this preset in the content of the file."""
        return content["presets"][self.preset]

    def stored_metric(self, content: Any) -> Any:
        return self.entry(content)["metrics"][self.rule.metric]


def make_place(root: Path, model: str, preset: str) -> Place:
    """The model trained, evaluated, and as good as its baseline."""
    root.mkdir()
    shutil.copytree(ROOT / "inputs", root / "inputs")
    with (root / "params.yaml").open("w") as file:
        YAML().dump(read_raw(ROOT, preset), file)
    place = Place(root, model, preset)
    place.train()
    place.store()
    place.score()
    return place
