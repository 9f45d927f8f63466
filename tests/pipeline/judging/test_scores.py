"""Scores vouch for themselves: only those of this learner, dataset, params and code are fresh."""

import json
import shutil
from collections.abc import Callable
from typing import Any

import pytest

from pipeline.judging.scores import FreshScores, NotFresh, fresh_scores, read_scores
from pipeline.storage import run_key
from pipeline.storage.params_file import read_params
from quatrain.errors import DataError
from quatrain.storage import folders
from tests.pipeline.fixture_types import Patch
from tests.pipeline.scored_workspace import DATASET, SCORES, Workspace
from tests.pipeline.small_project import Project, flip_bit

Edit = Callable[[Workspace], Any]
WHOLE = '{"model": "allo", "preset": "default", "digests": {}, "scores": %s}'


def fresh(space: Workspace) -> FreshScores:
    return fresh_scores(space.root, space.model, read_params(space.root))


def edit_params(space: Workspace, old: str, new: str) -> None:
    path = space.root / "params.yaml"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


def edit(space: Workspace, **changed: Any) -> None:
    content = json.loads(space.scores.read_text())
    digests = content["digests"] | changed.pop("digests", {})
    space.scores.write_text(json.dumps(content | {"digests": digests} | changed))


def collect(space: Workspace, **content: Any) -> str:
    return folders.save(space.data, {"x.json": content}, {})


def test_fresh_scores_come_with_what_the_learner_says_of_its_run(space: Workspace):
    space.score(cosine_min=None)
    stored, info = fresh(space)
    assert stored == SCORES["allo"] | {"cosine_min": None}
    assert (info["run_key"], info["settings"]["threads"]) == ("a" * 64, "2")
    content = json.loads(space.scores.read_text())
    assert [*content] == ["digests", "model", "preset", "run", "scores"]
    assert (content["model"], content["preset"]) == ("allo", "default")
    assert content["digests"]["learner"] == folders.read_digest(space.weights)
    assert content["digests"]["data"] == DATASET


def test_what_evaluate_writes_is_fresh_until_the_model_is_trained_anew(evaluated: Project):
    params = read_params(evaluated.root)
    stored, info = fresh_scores(evaluated.root, evaluated.model, params)
    metrics = folders.read_json(evaluated.reports / "metrics.json")
    gated = ["cosine_mean", "cosine_min", "orthogonality"]
    assert metrics == {evaluated.model: {name: stored[name] for name in gated}}
    assert read_scores(evaluated.root, evaluated.model).digests["data"] == info["data"]
    evaluated.choose(overlay={"seed": params.seed + 1})
    with pytest.raises(NotFresh, match=r"^params\.yaml changed after"):
        fresh_scores(evaluated.root, evaluated.model, read_params(evaluated.root))


@pytest.mark.parametrize(
    ("change", "status", "why"),
    [
        (lambda s: s.scores.unlink(), "missing", "allo was not evaluated yet"),
        (lambda s: shutil.rmtree(s.weights), "missing", "models/allo, which was evaluated, is not"),
        (lambda s: edit(s, model="iqn"), "stale", "the scores are those of iqn, preset 'default'"),
        (lambda s: edit(s, preset="my"), "stale", "the scores are those of allo, preset 'my'"),
        (lambda s: s.train("b" * 64), "stale", "models/allo changed after allo was evaluated"),
        (lambda s: collect(s, a=1), "stale", "data/allo changed after allo was evaluated"),
        (lambda s: edit_params(s, "seed: 0", "seed: 1"), "stale", "params.yaml changed after"),
        (lambda s: (s.root / "inputs/allo/my.py").touch(), "stale", "the code of allo changed"),
        (lambda s: edit(s, digests={"code": "0"}), "stale", "the code of allo changed after allo"),
        (
            lambda s: (s.train("b" * 64, code="0"), s.score()),
            "stale",
            "the code that trains allo changed after it was trained",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_scores_of_something_else_are_not_fresh(
    space: Workspace, change: Edit, status: str, why: str
):
    change(space)
    with pytest.raises(NotFresh, match=f"^{why}.*; run `make repro`$") as caught:
        fresh(space)
    assert caught.value.status == status


def test_what_shapes_no_score_may_change_and_the_dataset_may_be_absent(space: Workspace):
    edit_params(space, "checkpoint_seconds: ", "checkpoint_seconds: 1")
    edit_params(space, "iqn:\n  seeds: 1", "iqn:\n  seeds: 2")
    for name in ("__pycache__", ".ruff_cache"):
        (space.root / "inputs" / "allo" / name).mkdir()
        (space.root / "inputs" / "allo" / name / "a").touch()
    assert fresh(space).scores == SCORES["allo"]
    edit(space, digests={"data": collect(space, a=1)})
    assert fresh(space).scores == SCORES["allo"]


def test_a_user_s_environment_is_part_of_the_code(space: Workspace, monkeypatch: Patch):
    monkeypatch.setattr(run_key, "environment_of", lambda _env: {"paylib (version)": "2.0"})
    with pytest.raises(NotFresh, match=r"^the code of allo changed after allo was evaluated"):
        fresh(space)


def test_another_form_is_refused_with_the_remedy(space: Workspace):
    space.scores.write_text("[]")
    why = "reports/allo/scores.json: the whole: Input should be a valid dictionary"
    with pytest.raises(DataError, match=f"^{why}.*; `make repro`.* writes it anew$"):
        read_scores(space.root, "allo")


def test_a_score_that_was_edited_or_is_not_finite_is_refused(space: Workspace):
    edit(space, scores=SCORES["allo"] | {"cosine_mean": 0.9999})
    with pytest.raises(DataError, match="its scores are not those that were written; `make repro`"):
        fresh(space)
    space.scores.write_text(WHOLE % '{"a": NaN}')
    with pytest.raises(DataError, match=r"allo/scores\.json"):
        fresh(space)


def test_a_damaged_learner_is_refused(space: Workspace):
    flip_bit(space.weights / "history.csv")
    with pytest.raises(DataError, match=r"^models/allo"):
        fresh(space)
