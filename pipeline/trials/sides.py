"""what is asked of a comparison -> its two sides: params and code, the working ones or a commit's.

Nothing here imports a framework: a mistake is refused within a second.
"""

import io
import subprocess
import sys
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from pipeline.runtime import git
from pipeline.runtime.errors import CommandFailed
from pipeline.runtime.processes import folder_lock
from pipeline.storage.run_key import COMPUTING, code_digest, inputs_of
from pipeline.trials.stages import code_variables, last_line, stage_environment
from pipeline.trials.trial import Trial, make_trial, with_keys
from quatrain.errors import ConfigError
from quatrain.presets import read_raw
from quatrain.registry import MODELS
from quatrain.storage.yaml_text import parse_mapping
from quatrain.validation import overlaid, validate

COMMITS = Path(".state/commits")
# What stages and their params need of a commit.
NEEDED = ("src", "pipeline", "inputs", "presets", "params.yaml", "dvc.yaml")
# Of the oldest commits whose stages are run as trials.
OLDEST = Path("pipeline/trials/trial.py")


class Side(NamedTuple):
    """Holds params, not validated, and the code that they are trained with.

    checkout: of a commit, whose code it is; None: the working tree.
    """

    name: str
    raw: dict[str, Any]
    checkout: Path | None = None

    def trial(self, root: Path, model: str, number: int) -> Trial:
        """Returns the training with the side's seed + number: the unit is a training, so that it
        has one learner.

        Raises:
            ConfigError: the params cannot be used.
        """
        raw = overlaid(self.raw, {"seed": self.raw["seed"] + number, model: {"seeds": 1}})
        if self.checkout is None:
            return make_trial(root, model, raw)
        present = read_raw(root)
        try:
            params = make_trial(root, model, overlaid(present, known(raw, present))).params
        except ConfigError as error:
            raise ConfigError(f"{self.name}, by the present code: {error}") from None
        inputs = inputs_of(self.checkout, model)
        return with_keys(root, Trial(model, raw, params, inputs, "", "", self.checkout))


def read_changes(model: str, texts: Sequence[str], raw: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the values of `key=value`, nested, as they are laid over params.yaml; keys may have
    the model's name before them.

    Raises:
        ConfigError: a text has another form, or its key is that of another model.
    """
    changes: dict[str, Any] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        parts = key.strip().split(".")
        if not equals or not all(parts):
            raise ConfigError(f"-S {text}: write KEY=VALUE, such as train.learning_rate=3e-3")
        if parts[0] in MODELS and parts[0] != model:
            raise ConfigError(f"-S {text}: {parts[0]} is not {model}, which is compared")
        if parts[0] not in raw:
            parts.insert(0, model)
        nested = parse_mapping(f"-S {text}", f"value: {value}")["value"]
        for part in reversed(parts):
            nested = {part: nested}
        changes = overlaid(changes, nested)
    return changes


def read_side(root: Path, model: str, against: str, preset: str) -> Side:
    """Returns the side that `--against` names: `preset:NAME`, `champion`, or a commit.

    Raises:
        ConfigError: there is no such preset or commit, or its params cannot be used.
    """
    if against.startswith("preset:"):
        name = against.removeprefix("preset:")
        return Side(f"preset {name}", read_raw(root, name))
    commit = champion_commit(root, model, preset) if against == "champion" else against
    try:
        found = git.output(root, "rev-parse", "--verify", f"{commit}^{{commit}}").decode().strip()
    except CommandFailed as error:
        hint = "name a commit, a branch, preset:NAME or champion"
        raise ConfigError(f"--against {against}: {error}; {hint}") from None
    checkout = checkout_of_commit(root, found)
    raw = read_raw(checkout, preset)
    check_by_own_code(checkout, preset, found)
    side = Side(f"{against} ({found[:12]})", raw, checkout)
    params = side.trial(root, model, 0).params
    is_same = all(
        code_digest(checkout, model, params, verb, checkout)
        == code_digest(root, model, params, verb)
        for verb in COMPUTING
    )
    return side._replace(checkout=None) if is_same else side


def checkout_of_commit(root: Path, commit: str) -> Path:
    """Returns a folder with what a commit's stages need; it is made once.

    Raises:
        ConfigError: the commit is too old.
    """
    commits = (root / COMMITS).absolute()
    folder = commits / commit
    with folder_lock(commits):
        if not folder.exists():
            listed = git.output(root, "ls-tree", "--name-only", commit).decode().split()
            names = [name for name in NEEDED if name in listed]
            archive = io.BytesIO(git.output(root, "archive", commit, "--", *names))
            with TemporaryDirectory(dir=commits) as temporary, tarfile.open(fileobj=archive) as tar:
                made = Path(temporary, commit)
                tar.extractall(made, filter="data")
                if not (made / OLDEST).exists():
                    raise ConfigError(f"commit {commit[:12]} is older than trials; name a later one")
                made.rename(folder)
    return folder


def check_by_own_code(checkout: Path, preset: str, commit: str) -> None:
    """Raises ConfigError if a commit's own code does not accept its params."""
    command = [sys.executable, "-m", "pipeline", "params", "check", preset]
    environment = stage_environment(1) | code_variables(checkout)
    done = subprocess.run(command, cwd=checkout, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise ConfigError(f"commit {commit[:12]}: {last_line(done.stderr)}")


def champion_commit(root: Path, model: str, preset: str) -> str:
    """Returns the commit that stored the baseline of the model's champion: its params and code made
    the champion, which may have been trained before it was committed.

    Raises:
        ConfigError: no commit did.
    """
    from pipeline.tracking.champions import champion_key

    key = champion_key(root, model, preset)
    found = git.git(root, "log", "--format=%H", "-S", key, "--", f"baselines/{model}.json")
    if not key or not found:
        raise ConfigError(
            f"--against champion: no commit has a baseline of {model}, preset {preset}; promote "
            "one, commit it, and fetch the whole history"
        )
    return found.split()[-1]


def known(raw: Mapping[str, Any], present: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the values of those keys that params have at present, too."""
    return {
        key: known(value, present[key])
        if isinstance(value, Mapping) and isinstance(present[key], Mapping)
        else value
        for key, value in raw.items()
        if key in present
    }
