"""what is asked of a comparison -> its two sides: params and code, the working ones or a commit's.

Nothing here imports a framework: a mistake is refused within a second.
"""

import io
import re
import subprocess
import sys
import tarfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from pipeline.judging.gate import rules_of
from pipeline.runtime import git
from pipeline.runtime.command import Options, selected_models
from pipeline.runtime.errors import CommandFailed
from pipeline.runtime.processes import folder_lock
from pipeline.storage.run_key import COMPUTING, code_digest, inputs_of
from pipeline.trials.stages import code_variables, last_line, stage_environment
from pipeline.trials.storage import DATA_FILTER
from pipeline.trials.trial import Trial, make_trial, with_keys
from quatrain.baselines import Rule
from quatrain.comparison import looks_to
from quatrain.comparison_sides import compared_rules, deciding_rule, describe, world_keys
from quatrain.errors import ConfigError
from quatrain.params import Params
from quatrain.presets import read_raw
from quatrain.registry import MODELS
from quatrain.storage.yaml_text import parse_mapping
from quatrain.validation import nested, overlaid

COMMITS = Path(".state/commits")
# What stages and their params need of a commit.
NEEDED = ("src", "pipeline", "inputs", "presets", "params.yaml", "dvc.yaml")
# Of the oldest commits whose stages are run as trials.
OLDEST = Path("pipeline/trials/trial.py")
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._=-]{0,99}")


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
        seed = {"seed": self.raw["seed"] + number} if number else {}
        raw = overlaid(self.raw, {**seed, model: {"seeds": 1}})
        if self.checkout is None:
            return make_trial(root, model, raw)
        try:
            params = present_params(root, model, raw)
        except ConfigError as error:
            raise ConfigError(f"{self.name}, by the present code: {error}") from None
        inputs = inputs_of(self.checkout, model)
        return with_keys(root, Trial(model, raw, params, inputs, "", "", self.checkout))


class Request(NamedTuple):
    """Holds what is compared.

    name: of its report. change: what differs, in a few words. looks: after how many seeds it may
    end. fail_if: verdicts that end with an exit code of their own.
    """

    name: str
    model: str
    change: str
    before: Side
    after: Side
    rules: Sequence[Rule]
    metric: str
    margin: float
    looks: tuple[int, ...]
    is_paired: bool
    fail_if: Sequence[str]

    def pair(self, root: Path, number: int) -> tuple[Trial, Trial]:
        """Returns the trainings of both sides with their seeds + number."""
        return (
            self.before.trial(root, self.model, number),
            self.after.trial(root, self.model, number),
        )


def read_request(root: Path, options: Options) -> Request | None:
    """Returns what options ask for; None if the side that `--against` names is this one.

    Raises:
        ConfigError: an option cannot be used, both sides are the same, or they have other worlds.
        CommandFailed: git does not tell a commit.
    """
    model, preset, against = options.model, options.preset, options.against
    selected_models([model])
    if options.name and not NAME.fullmatch(options.name):
        raise ConfigError(f"--name {options.name}: use letters, digits and . _ = - alone")
    if not (options.changes or against):
        raise ConfigError("nothing differs: name a change (-S KEY=VALUE), or --against a commit")
    raw = read_raw(root, preset)
    tree = f"working tree ({git.revision(root, git.CODE)})"
    changes = read_changes(model, options.changes or (), raw)
    after = Side(tree, overlaid(raw, changes))
    looks = looks_to(options.seeds, options.batches)
    try:
        first = after.trial(root, model, 0)  # refused before a commit is read
        after.trial(root, model, looks[-1] - 1)  # whose seed may be too large
    except ConfigError as error:
        raise ConfigError(f"-S: {str(error).removeprefix('params.yaml: ')}") from None
    rules = compared_rules(rules_of(model, preset, getattr(first.params, model)))
    rule = deciding_rule(rules, options.metric, "--metric")
    before = old_side(root, options, Side(tree, raw), after.raw["seed"], is_asked="seed" in changes)
    if before.trial(root, model, 0).key == first.key:
        if options.changes:
            raise ConfigError(f"-S {' -S '.join(options.changes)}: changes nothing")
        return None
    worlds = world_keys(before.raw[model], after.raw[model])
    if worlds and not options.different_worlds:
        raise ConfigError(
            f"{', '.join(worlds)}: both sides would be scored in other worlds; give both the same "
            "in params.yaml, or compare them without pairs by --different-worlds"
        )
    return Request(
        options.name or name_of(model, preset, [*(options.changes or ()), against or ""]),
        model,
        in_words(model, before, after, with_names=bool(against)),
        before,
        after,
        rules,
        rule.metric,
        rule.tolerance if options.margin is None else options.margin,
        looks,
        not worlds and before.raw["seed"] == after.raw["seed"],
        options.fail_if or [],
    )


def old_side(root: Path, options: Options, present: Side, seed: int, is_asked: bool) -> Side:
    """Returns the side without the changes: that of `--against`, or the working tree's.

    seed: of the new side. is_asked: whether that is a change; else both sides have it, for another
    seed is luck.

    Raises:
        ConfigError: there is no such side, or it cannot be compared with this one.
    """
    model, against = options.model, options.against
    side = read_side(root, model, against, options.preset) if against else present
    if side.checkout and options.address:
        raise ConfigError(
            f"--against {against}: the nodes of a cluster have this code alone; leave out --address"
        )
    if not is_asked:
        return side._replace(raw={**side.raw, "seed": seed})
    if 0 < abs(side.raw["seed"] - seed) < options.seeds:
        raise ConfigError(
            f"-S seed: both sides would share trainings; give a seed {options.seeds} or more away"
        )
    return side


def in_words(model: str, before: Side, after: Side, with_names: bool) -> str:
    """Says what differs between two sides."""
    others = {*MODELS, "preset", "seeds"}
    old, new = (
        {key: value for key, value in (side.raw | side.raw[model]).items() if key not in others}
        for side in (before, after)
    )
    names = [f"{before.name} -> {after.name}"] if with_names else []
    return ", ".join(filter(None, [*names, describe(old, new)]))


def name_of(model: str, preset: str, words: Sequence[str]) -> str:
    """Returns a name of a folder: `iqn-train.learning_rate=3e-3`."""
    named = filter(None, [model, "" if preset == "default" else preset, *words])
    return re.sub(r"[^A-Za-z0-9._=-]+", "-", "-".join(named))[:100]


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
        changes[".".join(parts)] = parse_mapping(f"-S {text}", f"value: {value}")["value"]
    return nested(changes)


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
        digest = git.output(root, "rev-parse", "--verify", f"{commit}^{{commit}}").decode().strip()
    except CommandFailed as error:
        hint = "name a commit, a branch, preset:NAME or champion"
        raise ConfigError(f"--against {against}: {error}; {hint}") from None
    checkout = checkout_of_commit(root, digest)
    raw = read_raw(checkout, preset)
    if model not in raw:
        raise ConfigError(f"--against {against}: that commit has no {model}")
    check_by_own_code(checkout, preset, digest)
    side = Side(f"{against} ({digest[:12]})", raw, checkout)
    params = side.trial(root, model, 0).params
    is_same = all(
        code_digest(checkout, model, params, verb, checkout)
        == code_digest(root, model, params, verb)
        for verb in COMPUTING
    )
    return Side(side.name, of_present(raw, read_raw(root), model)) if is_same else side


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
                unpacked = Path(temporary, commit)
                tar.extraction_filter = DATA_FILTER
                tar.extractall(unpacked)
                if not (unpacked / OLDEST).exists():
                    raise ConfigError(
                        f"commit {commit[:12]} is older than trials; name a later one"
                    )
                unpacked.rename(folder)
    return folder


def check_by_own_code(checkout: Path, preset: str, commit: str) -> None:
    """Raises ConfigError if a commit's own code does not accept its params."""
    command = [sys.executable, "-m", "pipeline", "params", "check", preset]
    environment = stage_environment(1) | code_variables(checkout)
    done = subprocess.run(command, cwd=checkout, env=environment, capture_output=True, text=True)
    if done.returncode:
        reason = last_line(done.stderr).removesuffix(f" [exit {done.returncode}]")
        raise ConfigError(f"commit {commit[:12]}: {reason}")


def champion_commit(root: Path, model: str, preset: str) -> str:
    """Returns the commit that stored the baseline of the model's champion: its params and code made
    the champion, which may have been trained before it was committed.

    In a fresh clone the champion is a version that was trained there, for its scores hold the
    baseline; the commit of that baseline stands for it.

    Raises:
        ConfigError: no commit did.
    """
    from pipeline.tracking.champions import champion_key, provenances

    if git.git(root, "rev-parse", "--is-shallow-repository") == "true":
        raise ConfigError("--against champion: fetch the whole history: `git fetch --unshallow`")
    stored = provenances(root, preset).get(model, {}).get("run_key", "")
    for key in filter(None, (champion_key(root, model, preset), stored)):
        commits = git.git(root, "log", "--format=%H", "-S", key, "--", f"baselines/{model}.json")
        if commits:
            return commits.split()[-1]
    raise ConfigError(
        f"--against champion: no commit has a baseline of {model}, preset {preset}; promote "
        "one, commit it, and fetch the whole history"
    )


def present_params(root: Path, model: str, raw: Mapping[str, Any]) -> Params:
    """Returns a commit's params as the present code has them: keys that it does not know are left
    out, and it adds those that the commit does not have.

    Raises:
        ConfigError: it does not accept them even so.
    """
    present = read_raw(root)
    of_model = of_present(raw, present, model)
    with suppress(ConfigError):
        return make_trial(root, model, of_model).params
    return make_trial(root, model, overlaid(present, of_keys(of_model, present))).params


def of_present(raw: Mapping[str, Any], present: Mapping[str, Any], model: str) -> dict[str, Any]:
    """Returns params of a commit with the sections of other models that there are at present."""
    others = MODELS.keys() - {model}
    return {key: value if key in others else raw.get(key, value) for key, value in present.items()}


def of_keys(raw: Mapping[str, Any], present: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the values of those keys that params have at present, too."""
    return {
        key: of_keys(value, present[key])
        if isinstance(value, Mapping) and isinstance(present[key], Mapping)
        else value
        for key, value in raw.items()
        if key in present
    }
