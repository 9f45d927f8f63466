"""What a comparison is asked for: its changes, its refusals, and commits as sides."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pipeline.cli import parser
from pipeline.tracking import champions
from pipeline.trials.sides import (
    COMMITS,
    Side,
    champion_commit,
    read_changes,
    read_request,
    read_side,
)
from pipeline.trials.trial import Trial
from quatrain.errors import ConfigError
from quatrain.presets import read_raw
from tests.conftest import committed
from tests.pipeline.fixture_types import Patch
from tests.pipeline.small_checkout import git

Ask = Callable[[str], Any]


@pytest.fixture
def ask(repository: Path) -> Ask:
    """Reads a command line."""
    return lambda line: read_request(
        repository, parser().parse_args(["compare", "allo", *line.split()])
    )


# What is asked.


@pytest.mark.parametrize(
    ("texts", "changes"),
    [
        (["train.steps=9"], {"allo": {"train": {"steps": 9}}}),
        (["allo.train.lr=3e-3", "seed=7"], {"allo": {"train": {"lr": 0.003}}, "seed": 7}),
        (["a.b=1", "a.c=[0.9, x]", "allo.a.b="], {"allo": {"a": {"b": None, "c": [0.9, "x"]}}}),
        (["env.import=a:b=c"], {"allo": {"env": {"import": "a:b=c"}}}),
    ],
)
def test_changes_are_values_of_yaml_by_key_of_which_the_last_one_counts(
    texts: list[str], changes: dict[str, Any]
):
    assert read_changes("allo", texts, committed()) == changes


@pytest.mark.parametrize("text", ["train.steps", "=3", "train..steps=3", "iqn.train.turns=3"])
def test_what_is_no_change_of_this_model_is_refused(text: str):
    with pytest.raises(ConfigError, match=rf"^-S {text}: (write KEY=VALUE|iqn is not allo)"):
        read_changes("allo", [text], committed())


REFUSED = [
    ("", r"nothing differs: name a change \(-S KEY=VALUE\), or --against a commit"),
    ("-S train.stepz=9", "-S: allo.train.stepz: unknown key; did you mean 'steps'"),
    ("-S train.steps=-9", "-S: allo.train.steps = -9: Input should be"),
    ("-S seed=x", "-S: seed = 'x': "),
    ("-S seed=9", "-S seed: both sides would share trainings; give a seed 16 or more away"),
    ("-S seeds=1 -S train.steps=240", "-S seeds=1 -S train.steps=240: changes nothing"),
    ("-S train.lr_final=1 --metric gap", "--metric = 'gap': is no gated metric"),
    ("-S train.lr_final=1 --seeds 3", "a comparison after 3 seeds is none"),
    ("-S train.lr_final=1 --name ../x", "--name ../x: use letters"),
    ("-S train.lr_final=1 --preset smok", "unknown preset 'smok'; did you mean 'smoke'"),
    (
        "-S env.max_episode_steps=9",
        "env.max_episode_steps: both sides would be scored in other worlds; ",
    ),
    ("--against preset:smok", "unknown preset 'smok'; did you mean 'smoke'"),
    ("--against nowhere", "--against nowhere: fatal: Needed a single revision; name a commit, "),
    ("--against old", "commit [0-9a-f]{12} is older than trials; name a later one"),
    ("--against refused", "commit [0-9a-f]{12}: params: params.yaml: allo.evaluate.of_nobody: unk"),
    ("--against code --address a:1", "--against code: the nodes of a cluster have this code alone"),
]


@pytest.mark.parametrize(("line", "why"), REFUSED, ids=[line for line, _ in REFUSED])
def test_what_cannot_be_compared_is_refused_in_a_line(line: str, why: str, ask: Ask):
    with pytest.raises(ConfigError) as caught:
        ask(line)
    assert re.fullmatch(f"{why}.*", str(caught.value))


def test_a_request_has_a_name_a_change_and_what_the_gate_says_of_the_metric(ask: Ask):
    request = ask("--preset smoke -S train.steps=9000 -S train.lr_final=1 --seeds 8")
    assert (request.name, request.model) == ("allo-smoke-train.steps=9000-train.lr_final=1", "allo")
    assert request.change == "train.steps 2000 -> 9000, train.lr_final 0.01 -> 1"
    assert request[6:] == ("cosine_mean", 0.005, (4, 8), True, [])
    request = ask(
        "-S train.lr_final=1 --name x --metric cosine_min --margin 0 --batches 5 --fail-if worse"
    )
    assert (request.name, *request[6:]) == ("x", "cosine_min", 0.0, (5, 16), True, ["worse"])


@pytest.mark.parametrize("line", ["-S env.max_episode_steps=9 --different-worlds", "-S seed=90"])
def test_sides_with_worlds_of_their_own_have_no_pairs(line: str, ask: Ask):
    assert not ask(line).is_paired


def test_trainings_of_a_pair_have_one_seed_and_one_learner(repository: Path, ask: Ask):
    trials = ask("-S seeds=3 -S train.steps=480").pair(repository, 2)
    of_pair = [(each.params.seed, each.params.allo.seeds) for each in trials]
    assert of_pair == [(2, 1), (2, 1)]
    assert [each.params.allo.train.steps for each in trials] == [240, 480]


# Commits.


def test_another_seed_of_the_working_tree_is_that_of_both_sides(repository: Path, ask: Ask):
    params = repository / "params.yaml"
    text = params.read_text()
    params.write_text(text.replace("seed: 0", "seed: 7", 1))
    try:
        assert ask("--against HEAD") is None
    finally:
        params.write_text(text)


def trial_of(repository: Path, against: str) -> Trial:
    return read_side(repository, "allo", against, "default").trial(repository, "allo", 1)


@pytest.fixture
def present(repository: Path) -> Trial:
    return Side("", read_raw(repository)).trial(repository, "allo", 1)


def test_other_code_gives_another_key_and_runs_where_it_lies(repository: Path, present: Trial):
    trial = trial_of(repository, "code")
    assert trial.checkout == repository / COMMITS / git(repository, "rev-parse", "code").strip()
    assert "of the commit" in (trial.checkout / "src/quatrain/models/allo/train.py").read_text()
    assert trial.key != present.key
    assert (trial.params, trial.data_key) == (present.params, present.data_key)


def test_params_that_the_present_code_does_not_know_are_those_of_the_trial(
    repository: Path, present: Trial
):
    trial = trial_of(repository, "keys")
    assert trial.checkout is not None
    assert (trial.raw["allo"]["evaluate"]["of_old"], trial.params) == (3, present.params)
    assert trial.data_key != present.data_key, "by its own dvc.yaml"
    changed = trial.raw | {"of_old": 3}
    of_changed = Side("", changed, trial.checkout).trial(repository, "allo", 0)
    assert len({trial.key, present.key, of_changed.key}) == 3


def test_a_commit_whose_model_has_the_same_code_has_the_present_keys(
    repository: Path, ask: Ask, present: Trial
):
    assert trial_of(repository, "others") == present
    assert ask("--against main") is None
    sides = r"main \([0-9a-f]{12}\) -> working tree \([0-9a-f]{12}\)"
    change = ask("--against main -S train.steps=480").change
    assert re.fullmatch(f"{sides}, train.steps 240 -> 480", change)


def test_the_champion_is_the_commit_that_first_had_its_baseline(
    repository: Path, monkeypatch: Patch
):
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    promoted = git(repository, "rev-parse", "promoted").strip()
    assert champion_commit(repository, "allo", "default") == promoted
    assert not read_side(repository, "allo", "champion", "default").checkout
    monkeypatch.setattr(champions, "champion_key", lambda *_: "0123456789abcdef")
    assert champion_commit(repository, "allo", "default") == promoted  # trained in a fresh clone
    monkeypatch.setattr(champions, "provenances", lambda *_: {})
    with pytest.raises(ConfigError, match="no commit has a baseline of allo, preset default"):
        champion_commit(repository, "allo", "default")
