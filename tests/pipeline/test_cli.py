"""Every verb by one door: what it says of itself, of wrong options and of wrong params."""

import io
import os
import re
import shutil
import signal
import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path

import pytest

import quatrain
from pipeline import cli
from pipeline.cli import main
from pipeline.runtime import console
from pipeline.runtime.command import VERBS, run_guarded, selected_models
from quatrain.registry import MODELS
from tests.conftest import ROOT
from tests.pipeline.fixture_types import Capture, Failure, Patch
from tests.pipeline.small_checkout import contents


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: Patch) -> Path:
    """Returns the current folder, with all that reading params.yaml needs."""
    for name in ("inputs", "presets", "baselines"):
        (tmp_path / name).symlink_to(ROOT / name)
    shutil.copy(ROOT / "params.yaml", tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("name", VERBS)
def test_help_tells_the_purpose_and_only_defaults_that_are_something(name: str, capsys: Capture):
    assert main([name, "--help"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert said.startswith(f"usage: quatrain {name} [-h]")
    assert VERBS[name].summary in said
    assert not re.search(r"\(default: (None|False|''|\[\]|)\)", said)


@pytest.mark.parametrize("arguments", [[], ["--help"], ["-h"]])
def test_help_has_one_line_for_each_verb(arguments: list[str], capsys: Capture):
    assert main(arguments) == 0
    said = capsys.readouterr().out
    assert re.findall(r"^    (\w+) +[A-Z]", said, re.MULTILINE) == sorted(VERBS)
    for verb in VERBS.values():
        assert verb.summary in " ".join(said.split())


@pytest.mark.parametrize(
    ("verb", "meant"), [("repo", "; did you mean repro"), ("qqq", ""), ("../x", "")]
)
def test_an_unknown_verb_is_refused_with_the_nearest(verb: str, meant: str, failure: Failure):
    said = failure(main, verb, "--help", code=2)
    assert said == f"quatrain: there is no verb {verb!r}{meant}; `quatrain --help` lists them"


MISUSED = [
    ("gate --no-such-option", "unrecognized arguments: '--no-such-option'"),
    ("repro --jobs=0", "argument --jobs: '0' is no whole number; pass 1 or more"),
    *((f"repro --jobs={jobs}", f"'{jobs}' is no whole number") for jobs in ("-1", "1.5", "x", "²")),
    *((f"retrain --seed={seed}", f"'{seed}' is no seed") for seed in ("-1", "4294967296", "1e3")),
    *((f"ui --port {port}", f"'{port}' is no port; pass a num") for port in ("http", "0", "65536")),
    ("results --seeds 4", "'4' is no number of seeds for intervals; pass 5 or more"),
    *((f"profile allo --seconds={text}", f"'{text}' is no number") for text in ("x", "-1", "inf")),
    ("compare allo --fail-if worse,worst", "'worst' is no verdict; write worse,undecided"),
    ("compare allo --batches 4,x", "'x' is no whole number"),
]


@pytest.mark.parametrize(("line", "why"), MISUSED)
def test_a_wrong_option_is_one_line_that_names_the_help(
    line: str, why: str, folder: Path, capsys: Capture
):
    before = contents(folder)
    assert main(line.split(" ")) == 2
    verb = line.split()[0]
    said = capsys.readouterr()
    assert (said.out, said.err.count("\n")) == ("", 1)
    assert re.match(rf"quatrain {verb}: ", said.err)
    assert why in said.err
    assert re.search(rf"; `quatrain {verb} --help` lists the options \[exit 2\]$", said.err)
    assert contents(folder) == before


REFUSED = [
    ("promote --force", "promote: --force and --why '...' go together"),
    ("gate allo --page", "gate: --page shows all models of preset default; name none of them"),
    ("retrain --preset smoke --seed 1", "retrain: --seed goes with the default preset; "),
    ("retrain --preset smok", "retrain: unknown preset 'smok'; did you mean 'smoke'?"),
    *((f"{verb} alo", f"{verb}: unknown model 'alo'; known: allo, ") for verb in ("repro", "gate")),
    ("results allo alo", "results: unknown model 'alo'; known: "),
    ("fields --fields nofield", "fields: params.yaml: active_dynamics.env.field.kind = 'nofield'"),
    ("states castle", "states: no map 'castle'; known: hall, 1,000; "),
    ("grids docs", "grids: docs holds no map (*.txt); name a folder of maps: make grids GRIDS="),
    ("identify", "identify: give one of --recording FILE and --system NAME"),
    ("grids catalogue --preset=../x", "grids: unknown preset '../x'; known: default, "),
]


@pytest.mark.parametrize(("line", "why"), REFUSED)
def test_what_options_name_and_is_not_there_is_refused_in_a_line(
    line: str, why: str, folder: Path, failure: Failure
):
    before = contents(folder)
    assert failure(main, *line.split(), code=2).startswith(why)
    assert contents(folder) == before


def test_models_are_those_that_are_named_each_once_or_all():
    assert selected_models(["iqn", "allo", "iqn"]) == ["iqn", "allo"]
    assert selected_models([]) == list(MODELS)


LIGHT = """
import sys
from importlib import import_module
from pipeline.cli import VERBS, main
needs = {name: ["allo"] for name in ("compare", "profile", "rollback")}
needs |= {"grids": ["catalogue"], "sweep": ["sweeps/allo_lr.yaml"]}
needs["predict"] = ["allo", "--input", "in.csv", "--output", "out.csv"]
def loaded(*names):
    return [name for name in names if name in sys.modules]
for name in VERBS:
    assert main([name, "--help"]) == 0
    assert main([name, "--no-such-option"]) == 2
assert not loaded("pydantic", "ruamel"), "help needs no library"
for name, verb in VERBS.items():
    if verb.reads_params:
        assert main([name, *needs.get(name, [])]) == 2, name
assert main(["params", "check"]) == 2
for stage, argv in {"collect": ["allo"], "train": ["iqn"], "evaluate": ["actor_critic"]}.items():
    assert import_module("pipeline.runtime.stage").main(stage, "", argv=argv) == 2
assert import_module("pipeline.report").main() == 2
heavy = ("dvc", "gymnasium", "jax", "matplotlib", "mlflow", "numpy", "pandas", "ray", "torch")
print("loaded:", *loaded(*heavy))
"""


def test_help_and_wrong_params_cost_no_large_library(folder: Path):
    """Every verb and stage that reads params.yaml, in one process."""
    params = folder / "params.yaml"
    params.write_text(params.read_text().replace("threads: 2", "threads: 0"))
    environment = {"PYTHONPATH": f"{ROOT}:{ROOT / 'src'}", "PATH": str(folder), "HOME": str(folder)}
    command = [sys.executable, "-c", LIGHT]
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "loaded:"
    refused = [line for line in done.stderr.splitlines() if "params.yaml" in line]
    assert len(refused) == 5 + sum(verb.reads_params for verb in VERBS.values())
    assert all(line.endswith(" [exit 2]") for line in refused)


def test_a_library_that_is_not_installed_is_named_and_a_module_of_ours_is_a_fault(
    folder: Path, failure: Failure, monkeypatch: Patch
):
    """What a module of a user lacks is said with the user's environment (envs/host)."""
    assert folder == Path.cwd()
    monkeypatch.setitem(sys.modules, "dvc.exceptions", None)
    said = failure(main, "verify", code=5)
    assert said.startswith("verify: dvc is not installed; run `make setup` in a checkout, or `pip ")
    monkeypatch.setitem(sys.modules, "pipeline.dvc.verify", None)
    with pytest.raises(ModuleNotFoundError, match=r"pipeline\.dvc\.verify"):
        main(["verify"])


# How a command ends.


def test_ctrl_c_and_a_reader_that_has_ended_have_their_codes(failure: Failure, monkeypatch: Patch):
    """And a verb says how its work goes on."""

    def interrupt(_: object) -> None:
        signal.raise_signal(signal.SIGINT)

    def write() -> None:
        raise BrokenPipeError

    monkeypatch.setitem(VERBS, "sync", VERBS["sync"]._replace(work=interrupt))
    assert failure(main, "sync", code=130) == f"sync: {VERBS['sync'].interrupted}"
    ended = failure(lambda _: run_guarded("probe", write), code=141)
    assert ended == "probe: what reads the output has ended"


def test_an_output_that_lacks_a_letter_shows_its_number(monkeypatch: Patch):
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", stream)
    assert run_guarded("probe", lambda: stream.write("0.5 ± 0.1") and None) == 0
    assert stream.buffer.getvalue() == b"0.5 \\xb1 0.1"


def test_a_full_output_is_exit_5():
    code = (
        "import sys; from pipeline.runtime.command import run_guarded\n"
        "def work():\n  for _ in range(999): print('x' * 99)\n"
        "sys.exit(run_guarded('probe', work))"
    )
    with Path("/dev/full").open("w") as full:
        done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, stdout=full, stderr=full)
    assert done.returncode == 5


def test_a_line_to_a_reader_that_has_gone_stops_nothing(monkeypatch: Patch):
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "w", buffering=1) as stream:
        monkeypatch.setattr(sys, "stderr", stream)
        console.info("nobody hears it")
        monkeypatch.undo()
        os.dup2(os.open(os.devnull, os.O_WRONLY), write)  # what is left of it goes there


# The console script.


@pytest.fixture
def started(monkeypatch: Patch) -> list[list[str]]:
    """Command lines that replaced this process, or would have."""
    lines: list[list[str]] = []

    def replace(_: str, arguments: list[str]) -> None:
        lines.append(arguments)
        raise SystemExit(0)

    monkeypatch.setattr(cli.os, "execv", replace)
    monkeypatch.setenv("PYTHONPATH", os.environ.get("PYTHONPATH", ""))
    return lines


def script(monkeypatch: Patch, *arguments: str) -> int:
    """Calls what pyproject.toml names as the script `quatrain`."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    module, _, function = project["scripts"]["quatrain"].partition(":")
    monkeypatch.setattr(sys, "argv", ["quatrain", *arguments])
    return getattr(import_module(module), function)()


def test_the_script_runs_the_code_of_the_checkout_it_is_called_in(
    started: list[list[str]], tmp_path: Path, monkeypatch: Patch
):
    for name in cli.CHECKOUT_FILES:
        (tmp_path / name).touch()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit):
        script(monkeypatch, "promote", "allo", "--why", "a larger map")
    command = [sys.executable, "-m", "pipeline", "promote", "allo", "--why", "a larger map"]
    assert started == [command]
    assert os.environ["PYTHONPATH"] == f"{tmp_path}/src:{tmp_path}"


def test_outside_of_a_checkout_the_script_tells_help_and_refuses_the_rest(
    started: list[list[str]], tmp_path: Path, monkeypatch: Patch, capsys: Capture
):
    monkeypatch.chdir(tmp_path)
    assert script(monkeypatch, "repro") == 2
    assert capsys.readouterr().err == (
        "quatrain: repro works in a checkout, and here is no params.yaml and no dvc.yaml; "
        "cd to one, or git clone the repository [exit 2]\n"
    )
    assert script(monkeypatch, "repo") == 2
    assert "did you mean repro" in capsys.readouterr().err
    assert [script(monkeypatch, *each) for each in ([], ["--version"], ["repro", "-h"])] == [0] * 3
    assert f"quatrain {quatrain.__version__}\n" in capsys.readouterr().out
    assert not started
