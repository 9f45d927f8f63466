"""What changed since a baseline: params, code, data, versions and machine, and nothing else."""

from pipeline.judging.changes import SAME, UNRECORDED
from pipeline.judging.gate import judge
from pipeline.storage.params_file import read_params
from tests.pipeline.scored_workspace import PROVENANCE, Workspace
from tests.pipeline.small_checkout import git


def changes(space: Workspace) -> list[str]:
    return [*judge(space.root, "allo", read_params(space.root)).changes]


def test_the_same_run_has_no_change(space: Workspace):
    assert changes(space) == [SAME]


def test_params_data_versions_and_machine_stand_beside_the_old_ones(space: Workspace):
    content = space.baseline()
    provenance = content["presets"]["default"]["provenance"]
    provenance["params"]["allo"]["train"]["steps"] += 1
    steps = provenance["params"]["allo"]["train"]["steps"]
    provenance |= {"data": "e" * 64, "flags": "XLA_FLAGS=--a", "cpu": "6 / 143 / Intel"}
    del provenance["jax"]
    space.edit_baseline(content)
    assert changes(space) == [
        f"allo.train.steps: {steps} -> {steps - 1}",
        "data: another dataset, eeeeeeeeeeee -> dddddddddddd",
        "flags: XLA_FLAGS=--a -> unset",
        "jax: unset -> 0.10.2",
        "machine: Intel (family 6, model 143), 2 threads -> AMD (family 25, model 1), 2 threads",
    ]


def test_code_is_commits_and_edits_or_a_commit_that_is_not_here(space: Workspace):
    root = space.root
    content = space.baseline()
    provenance = content["presets"]["default"]["provenance"]
    provenance["code"] = "f" * 64
    space.edit_baseline(content)
    assert changes(space) == ["code: changed after commit abc123, which is not in this clone"]
    (root / "src").mkdir()
    for name in ("first", "second"):
        (root / "src" / f"{name}.py").touch()
        git(root, "init", "-q")
        git(root, "add", "src", "inputs")
        git(root, "commit", "-q", "-m", name)
    (root / "src" / "third.py").touch()
    provenance["commit"] = f"{git(root, 'rev-parse', '--short=12', 'HEAD^').strip()}+changes"
    space.edit_baseline(content)
    (line,) = changes(space)
    edited, commit = line.split("; ")
    assert edited == "code: src/third.py (not committed)"
    assert commit.endswith(" second")


def test_a_baseline_without_a_record_says_so(space: Workspace):
    content = space.baseline()
    content["presets"]["default"]["provenance"] = PROVENANCE
    space.edit_baseline(content)
    assert changes(space) == [UNRECORDED]
