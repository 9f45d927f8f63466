"""Presets, sweep files and options: refused in one line, before anything heavy is loaded."""

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from pipeline.runtime.command import run_guarded
from pipeline.scaling.space import read_space
from tests.campaign import yaml_texts
from tests.campaign.promises import Outcome, broken, content_of, refused, run, unchanged
from tests.campaign.written_params import HOSTILE, same, written_nothing
from tests.conftest import ROOT
from tests.pipeline.small_sweep import SWEEP

Capture = pytest.CaptureFixture[str]
GOOD = (ROOT / "params.yaml").read_text()

PRESETS = [
    ("../smoke", "unknown preset '../smoke'"),
    ("presets/smoke", "unknown preset"),
    ("smoke.yaml", "unknown preset 'smoke.yaml'; did you mean 'smoke'"),
    ("SMOKE", "unknown preset 'SMOKE'"),
    ("a b", "unknown preset 'a b'"),
    ("", "unknown preset ''"),
    (".", r"unknown preset '\.'"),
    ("/", "unknown preset '/'"),
    ("smoke\n", r"unknown preset 'smoke\\n'"),
    ("smoke\0", r"unknown preset 'smoke\\x00'"),
    ("größe", "unknown preset 'größe'"),
    ("x" * 5000, "unknown preset 'xxx"),
    ("-x", ""),
]
WITH_PRESET = ("params", "repro", "promote", "retrain", "grids")


@pytest.mark.parametrize("command", WITH_PRESET)
@pytest.mark.parametrize(("preset", "says"), PRESETS, ids=[ascii(name)[:12] for name, _ in PRESETS])
def test_a_preset_that_is_none_is_refused(
    command: str, preset: str, says: str, params_folder: Path, capsys: Capture
):
    module = importlib.import_module(f"pipeline.commands.{command}")
    options = {"params": ["check", preset], "grids": ["catalogue", f"--preset={preset}"]}
    argv = options.get(command, [f"--preset={preset}"])
    answer = written_nothing(params_folder, lambda: module.main(argv), capsys)
    if command == "params" and preset == "-x":
        misused(answer, "-x")
    else:
        refused(answer, 2, says)


def misused(answer: Outcome, says: str) -> None:
    """argparse refuses options in its own way: the usage, then a line; and exit 2."""
    if answer.code != 2:
        broken("silent" if answer.code == 0 else "wrong code", f"exit {answer.code}: {answer.said}")
    if "Traceback" in answer.said:
        broken("traceback", answer.said)
    last = answer.said.splitlines()[-1]
    if ": error: " not in last or says not in last:
        broken("unclear", f"{says!r} is not in: {last}")


COMMANDS = sorted(path.stem for path in (ROOT / "pipeline" / "commands").glob("[a-z]*.py"))
MISUSED = [
    *((command, ["--no-such-option"], "") for command in COMMANDS),
    *((command, ["--preset"], "expected one argument") for command in WITH_PRESET[1:]),
    ("repro", ["--jobs", "0"], "'0' is no number of jobs"),
    ("repro", ["--jobs", "-1"], "'-1' is no number of jobs"),
    ("repro", ["--jobs", "1.5"], "'1.5' is no number of jobs"),
    ("repro", ["--jobs", "two"], "'two' is no number of jobs"),
    ("repro", ["--jobs", ""], "'' is no number of jobs"),
    ("repro", ["--jobs", "9" * 5000], "is no number of jobs"),
    ("repro", ["--jobs", "²"], "is no number of jobs"),
    ("repro", ["--jobs"], "expected one argument"),
    ("retrain", ["--jobs", "0"], "'0' is no number of jobs"),
    ("retrain", ["--seed", "-1"], "'-1' is no seed"),
    ("retrain", ["--seed", "4294967296"], "'4294967296' is no seed"),
    ("retrain", ["--seed", "1e3"], "'1e3' is no seed"),
    ("retrain", ["--seed", "9" * 5000], "is no seed"),
    ("retrain", ["--preset", "smoke", "--seed", "1"], "--seed goes with the default preset"),
    ("promote", ["--force"], "--force and --why '...' go together"),
    ("promote", ["--why", "x"], "--force and --why '...' go together"),
    ("params", [], "required: ACTION"),
    ("params", ["chekc"], "invalid choice: 'chekc'"),
    ("params", ["check", "a", "b"], "unrecognized arguments: b"),
    ("params", ["preset"], "required: preset"),
    ("sweep", [], "required: SWEEP"),
    ("sweep", ["sweeps/allo_lr.yaml", "--cpus", "0"], "'0' is no number of"),
    ("new", [], "required: NAME"),
    ("new", ["x", "--framework", "tensorflow"], "invalid choice: 'tensorflow'"),
    ("profile", [], "required: MODEL"),
    ("profile", ["allo", "--seconds", "two"], "'two'"),
    ("profile", ["allo", "--seconds", "nan"], "'nan'"),
    ("profile", ["allo", "--seconds", "-1"], "'-1'"),
    ("profile", ["allo", "--seconds", "inf"], "'inf'"),
    ("sync", ["--wait", "long"], "'long'"),
    ("sync", ["--wait", "nan"], "'nan'"),
    ("sync", ["--wait", "-1"], "'-1'"),
    ("sync", ["--wait", "inf"], "'inf'"),
    ("ui", ["--port", "http"], "'http'"),
    ("results", ["--seeds", "x"], "'x'"),
    ("fields", ["--fields", "nofield"], "invalid choice: 'nofield'"),
    ("fields", ["--replicates", "x"], "'x'"),
    ("fields", ["--transitions", "0"], "'0'"),
    ("decoders", ["--decoders", "none"], "invalid choice: 'none'"),
    ("identify", ["--arm", "none"], "invalid choice: 'none'"),
    ("identify", ["--transitions", "x"], "'x'"),
    ("identify", ["--transitions", "0"], "'0'"),
    ("identify", ["--transitions", "-5"], "'-5'"),
    ("grids", [], "required: folder"),
    ("grids", ["catalogue", "--steps", "0"], "'0'"),
    ("grids", ["catalogue", "--seeds", "-1"], "'-1'"),
    ("grids", ["catalogue", "--seeds", "x"], "'x'"),
]
REFUSED_OPTIONS = [
    ("results", ["--seeds", "4"], "--seeds 4: intervals need at least 5"),
    ("results", ["--seeds", "-1"], "--seeds -1: intervals"),
    ("results", ["--seeds", "0"], "--seeds 0: intervals"),
    ("decoders", ["--replicates", "0"], "--replicates 0"),
    ("fields", ["--replicates", "0"], "--replicates 0: give at least 1"),
    ("fields", ["--replicates", "-3"], "--replicates -3: give at least 1"),
    ("repro", ["allo", "alo"], "unknown model 'alo'"),
    ("repro", [""], "unknown model ''"),
    ("repro", ["../allo"], "unknown model '../allo'"),
    ("gate", ["alo"], "unknown model 'alo'"),
    ("promote", ["alo"], "unknown model 'alo'"),
    ("results", ["alo"], "unknown model 'alo'"),
    ("profile", ["alo"], "alo: there is no such model"),
    ("ui", ["--port", "0"], "port 0: use a number from 1 to 65535"),
    ("ui", ["--port", "70000"], "port 70000: use a number"),
    ("new", ["allo"], "allo"),
    ("new", ["My Model"], "'My Model'"),
    ("new", ["../x"], r"'\.\./x'"),
    ("new", [""], "''"),
    ("identify", [], "give one of --recording FILE and --system NAME"),
    ("sweep", ["sweeps/none.yaml"], "none.yaml is not there"),
    ("sweep", ["sweeps"], "sweeps"),
    ("sweep", ["params.yml"], "params.yml"),
    ("grids", ["nofolder"], "nofolder"),
]


@pytest.mark.parametrize(
    ("command", "argv", "says"), MISUSED, ids=[f"{c}-{' '.join(a)[:40]}" for c, a, _ in MISUSED]
)
def test_options_that_cannot_be_used_are_refused(
    command: str, argv: list[str], says: str, params_folder: Path, capsys: Capture
):
    module = importlib.import_module(f"pipeline.commands.{command}")
    misused(written_nothing(params_folder, lambda: module.main(argv), capsys), says)


@pytest.mark.parametrize(
    ("command", "argv", "says"),
    REFUSED_OPTIONS,
    ids=[f"{c}-{' '.join(a)[:40]}" for c, a, _ in REFUSED_OPTIONS],
)
def test_what_options_name_and_is_not_there_is_refused(
    command: str, argv: list[str], says: str, params_folder: Path, capsys: Capture
):
    module = importlib.import_module(f"pipeline.commands.{command}")
    refused(written_nothing(params_folder, lambda: module.main(argv), capsys), 2, says)


SWEEP_ROWS = [(key, kind) for key in SWEEP for kind in HOSTILE]


@pytest.mark.parametrize(("key", "kind"), SWEEP_ROWS, ids=[f"{k}-{v}" for k, v in SWEEP_ROWS])
def test_a_sweep_with_a_hostile_value_is_refused_or_as_written(
    key: str, kind: str, params_folder: Path, capsys: Capture
):
    path = params_folder / "tried.yaml"
    content = SWEEP | {key: HOSTILE[kind]}
    with path.open("w") as file:
        YAML(typ="safe", pure=True).dump(content, file)
    spaces: list[Any] = []
    answer = written_nothing(
        params_folder,
        lambda: run_guarded("sweep", lambda: spaces.append(read_space(params_folder, path))),
        capsys,
    )
    if not spaces:
        refused(answer, 2, r"tried\.yaml")
        return
    read = spaces[0].sweep.model_dump(by_alias=True)[key]
    if not same(content[key], read):
        broken("silent", f"{key}: {content[key]!r} is taken as {read!r}")


@pytest.mark.parametrize("row", yaml_texts.ROWS, ids=lambda row: row.name)
def test_the_text_of_a_sweep_is_refused_or_read_as_written(
    row: yaml_texts.Row, params_folder: Path, capsys: Capture
):
    path = params_folder / "tried.yaml"
    text = (ROOT / "sweeps" / "allo_lr.yaml").read_bytes()
    path.write_bytes(row.data if row.is_whole else text.replace(b"seed: 0\n", row.data, 1))

    def work() -> int:
        return run_guarded("sweep", lambda: read_space(params_folder, path) and None)

    answer = written_nothing(params_folder, work, capsys)
    if answer.code or row.refused:
        refused(answer, 2, r"tried\.yaml")


# Refusals come before anything heavy is loaded.

STAGES = [("collect", "allo"), ("train", "iqn"), ("evaluate", "actor_critic"), ("report", "")]
LIGHT = """
import runpy, sys
sys.argv = {argv!r}
try:
    runpy.run_module(sys.argv[0], run_name="__main__")
except SystemExit as ended:
    heavy = ("jax", "matplotlib", "mlflow", "numpy", "pandas", "scipy", "sqlalchemy", "torch")
    print("loaded:", *[name for name in heavy if name in sys.modules])
    sys.exit(ended.code)
"""
RUNS = [
    *([f"pipeline.{verb}", model] for verb, model in STAGES),
    *([f"pipeline.commands.{name}"] for name in ("repro", "promote", "gate", "retrain", "results")),
    *([f"pipeline.commands.{name}"] for name in ("fields", "decoders", "identify")),
    ["pipeline.commands.params", "check"],
    ["pipeline.commands.profile", "allo"],
    ["pipeline.commands.grids", "catalogue"],
    ["pipeline.commands.sweep", "sweeps/allo_lr.yaml"],
]
FAULTS = {
    "missing": None,
    "wrong value": GOOD.replace("threads: 2", "threads: 0"),
    "no YAML": "a: [",
    "directive": f"%YAML 1.1\n---\n{GOOD}",
    "merge key": f"<<: {{seed: 1}}\n{GOOD}",
}


@pytest.mark.parametrize("argv", RUNS, ids=[" ".join(argv) for argv in RUNS])
@pytest.mark.parametrize("fault", FAULTS)
def test_wrong_params_are_refused_before_anything_heavy_is_loaded(
    fault: str, argv: list[str], params_folder: Path
):
    (params_folder / "params.yaml").unlink()
    text = FAULTS[fault]
    if text is not None:
        (params_folder / "params.yaml").write_text(text)
    before = content_of(params_folder)
    code = LIGHT.format(argv=[part for part in argv if part])
    path = f"import sys; sys.path[:0] = {[str(ROOT), str(ROOT / 'src')]}\n"
    answer = run(sys.executable, "-c", path + code, cwd=params_folder)
    unchanged(before, content_of(params_folder))
    refused(Outcome(answer.code, answer.said.replace("loaded:\n", "")), 2, r"params\.yaml")
    if "loaded:\n" not in answer.said:
        broken("unclear", f"heavy modules: {answer.said}")
