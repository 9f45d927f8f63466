"""Bad params.yaml: each ends with exit 2, one line that names the key, and without jax, torch or a
written file.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from ruamel.yaml import YAML

from pipeline.commands import params
from pipeline.runtime.errors import ConfigError
from pipeline.storage.params_file import overlaid, parse, read_params
from quatrain.models.allo.config import AlloConfig
from tests.conftest import ROOT

GOOD = (ROOT / "params.yaml").read_text()

CHANGES = {
    "unknown key, with the nearest": (
        "    steps: 20000",
        "    step: 20000",
        r"allo.train.step: unknown key; did you mean 'steps'\?",
    ),
    "unknown section": (
        "  network:",
        "  netwrok:",
        r"allo.netwrok: unknown key; did you mean 'network'\?",
    ),
    "unknown model": ("allo:", "alo:", r"alo: unknown key; did you mean 'allo'\?|allo: is missing"),
    "missing key": ("    batch_size: 256\n", "", r"allo.train.batch_size: is missing"),
    "word for a number": (
        "batch_size: 256",
        "batch_size: many",
        r"allo.train.batch_size = 'many': .*valid integer",
    ),
    "quoted number": (
        "batch_size: 256",
        "batch_size: '256'",
        r"allo.train.batch_size = '256': .*valid integer",
    ),
    "true for a number": (
        "batch_size: 256",
        "batch_size: true",
        r"allo.train.batch_size = True: .*valid integer",
    ),
    "fraction for a count": (
        "batch_size: 256",
        "batch_size: 25.6",
        r"allo.train.batch_size = 25.6: .*valid integer",
    ),
    "number for a word": ("device: auto", "device: 1", r"device = 1: .*'auto', 'cpu' or 'cuda'"),
    "unknown device": ("device: auto", "device: tpu", r"device = 'tpu': .*'auto', 'cpu' or 'cuda'"),
    "no for true": ("deterministic: true", "deterministic: no", r"deterministic = 'no': .*boolean"),
    "list for a number": (
        "batch_size: 256",
        "batch_size: [256]",
        r"allo.train.batch_size = \[256\]: .*valid integer",
    ),
    "null for a number": (
        "batch_size: 256",
        "batch_size: null",
        r"allo.train.batch_size = None: .*valid integer",
    ),
    "number for a section": (
        "  evaluate:\n    degeneracy_tol: 0.02",
        "  evaluate: 3",
        r"allo.evaluate = 3: ",
    ),
    "zero steps": (
        "    steps: 20000",
        "    steps: 0",
        r"allo.train.steps = 0: .*greater than or equal to 1",
    ),
    "negative rate": (
        "learning_rate: 1e-3",
        "learning_rate: -1e-3",
        r"allo.train.learning_rate = -0.001: .*greater than 0",
    ),
    "huge rate": (
        "learning_rate: 1e-3",
        "learning_rate: 1e300",
        r"allo.train.learning_rate = 1e\+300: .*less than",
    ),
    "NaN": (
        "learning_rate: 1e-3",
        "learning_rate: .nan",
        r"allo.train.learning_rate = nan: .*finite number",
    ),
    "infinity": (
        "graph_coef: 0.5",
        "graph_coef: .inf",
        r"allo.train.graph_coef = inf: .*finite number",
    ),
    "huge count": (
        "num_envs: 1000",
        f"num_envs: {10**12}",
        r"allo.collect.num_envs = 1000000000000: .*less than",
    ),
    "more data than memory": (
        "num_envs: 1000",
        "num_envs: 1000000",
        r"allo.collect: num_envs \* steps_per_env = 1,000,000,000",
    ),
    "held-out part without walkers": (
        "held_out_fraction: 0.1",
        "held_out_fraction: 0.0001",
        r"allo.collect: held_out_fraction 0.0001 of 1000 environments is none",
    ),
    "steps not divisible": (
        "    steps: 20000",
        "    steps: 20050",
        r"allo.train: steps 20050 is not a multiple of record_every 100",
    ),
    "evaluations not divisible": (
        "evaluate_every: 1000",
        "evaluate_every: 1050",
        r"allo.train: evaluate_every 1050 is not a multiple of record_every 100",
    ),
    "no evaluation at all": (
        "    steps: 20000",
        "    steps: 500",
        r"allo.train: evaluate_every 1000 exceeds steps 500: nothing would be compared",
    ),
    "samples beyond memory": (
        "batch_size: 256",
        "batch_size: 1000001",
        r"allo.train.batch_size = 1000001: .*less than or equal",
    ),
    "barrier starts above its limit": (
        "b_init: 1.0",
        "b_init: 2.5",
        r"allo.train: b_min 0.0 <= b_init 2.5 <= b_max 1.0 does not hold",
    ),
    "discount above 1": (
        "discount: 0.9",
        "discount: 1.5",
        r"allo.train: discount 1.5 must be .* in 0..1",
    ),
    "empty mixture": ("discount: 0.9", "discount: []", r"allo.train: discount \(\) must be"),
    "mixture with a word": (
        "discount: 0.9",
        "discount: [0.9, high]",
        r"allo.train.discount = \[0.9, 'high'\]: ",
    ),
    "unknown mode": (
        "mode: stochastic",
        "mode: exakt",
        r"allo.train.mode = 'exakt': .*'stochastic' or 'exact'",
    ),
    "batch rows in exact mode": (
        "mode: stochastic      # stochastic, exact\n    encoder_rows: auto",
        "mode: exact\n    encoder_rows: batch",
        r"allo.train: mode exact needs every state",
    ),
    "more components than states": (
        "    d: 11",
        "    d: 105",
        r"allo: d=105 but the map has only 104 states; lower allo.network.d",
    ),
    "generator without numbers": (
        "layout: room4",
        "layout: maze",
        r"allo.env: 'maze' is chosen but its numbers are null; give maze: \{...\}",
    ),
    "numbers without their generator": (
        "maze: null",
        "maze: {width: 9, height: 9, braid: 0, seed: 0}",
        r"allo.env: maze: \{...\} has no effect with 'room4'",
    ),
    "even maze": (
        "layout: room4",
        "layout: maze\n    maze: {width: 8, height: 9, braid: 0.0, seed: 0}\n    # ",
        r"allo.*maze.*odd|equal keys|duplicate key",
    ),
    "fourier without numbers": (
        "observation: centred",
        "observation: fourier",
        r"allo.env: 'fourier' is chosen but its numbers are null",
    ),
    "unknown layout": (
        "layout: room4",
        "layout: romo4",
        r"unknown layout 'romo4'; did you mean 'room4'\?",
    ),
    "layout file not there": (
        "layout: room4",
        "layout: inputs/allo/nothing.txt",
        r"inputs/allo/nothing.txt is not there",
    ),
    "layout file outside": (
        "layout: room4",
        "layout: ../elsewhere/map.txt",
        r"../elsewhere/map.txt is outside inputs/",
    ),
    "absolute layout file": (
        "layout: room4",
        "layout: /etc/hosts.txt",
        r"/etc/hosts.txt is outside inputs/",
    ),
    "more doors than passages": ("doors: 0 ", "doors: 5000 ", r"allo.*door"),
    "mazes too wide to compare": (
        "layout: room4",
        "layout: rooms",
        r"'rooms' is chosen but its numbers are null",
    ),
    "colonies that never shrink": (
        "delete_ratio: [0.0, 0.7]",
        "delete_ratio: [0.0, 0.5]",
        r"actor_critic.env: action.bounds.delete_ratio upper bound 0.5 is not above 0.5: .* "
        r"raise the bound \(0.7\) or",
    ),
    "more cells than there is room for": (
        "n0_max: 80",
        "n0_max: 120",
        r"actor_critic.env: n0_max \(120\) exceeds env.max_nodes \(100\): .* lower n0_max\.",
    ),
    "goal out of reach": (
        "max_steps: 120",
        "max_steps: 20",
        r"actor_critic.env: env.max_steps 20 x longest spawn 15.5 px < 534 px to the goal: .* "
        r"raise max_steps or gamma",
    ),
    "range upside down": (
        "gamma: [0.5, 15.0]",
        "gamma: [15.0, 0.5]",
        r"actor_critic.env.action.bounds: gamma: \[15, 0.5\] is no range",
    ),
    "number without a value": (
        "active_params: [delete_ratio, gamma, alpha, noise, theta]",
        "active_params: [delete_ratio, gamma]",
        r"actor_critic.env.action: fixed_params must give exactly those that are not active: "
        r"alpha, noise, theta",
    ),
    "unknown component": (
        "weights: {}         # component",
        "weights: {grwoth: 1.0}  # component",
        r"actor_critic.env.reward: weights: 'grwoth' is no component; known: progress, growth, ",
    ),
    "plate file not there": (
        "plates_file: null",
        "plates_file: inputs/actor_critic/two_step.npy",
        r"two_step.npy is not there; did you mean 'inputs/actor_critic/two_steps.npy'\?",
    ),
    "plate file without its plate": (
        "plates_file: null",
        "plates_file: inputs/actor_critic/two_steps.npy",
        r"actor_critic.collect: plates: user and plates_file go together; set both, or "
        r"plates_file: null",
    ),
    "plate of another width": (
        "plates: default_law   # default_law, fixed, user\n    plates_file: null     # with "
        "plates: user, a path such as "
        "inputs/actor_critic/plate.npy\n    n_train: 64\n    n_held_out: 64\n    n_outside: 32 ",
        "plates: user\n    plates_file: inputs/actor_critic/short.npy\n    n_train: 1\n    "
        "n_held_out: 1\n    n_outside: 0 ",
        r"actor_critic: collect.plates_file: 600 values expected \(env.width\), got 512",
    ),
    "minibatch beyond its rollout": (
        "minibatch_size: 256",
        "minibatch_size: 4096",
        r"actor_critic.train: minibatch_size 4096 exceeds num_envs \* horizon 2048; lower it",
    ),
    "unknown field, with the nearest": (
        "kind: limit_cycle ",
        "kind: limitcycle ",
        r"active_dynamics.env.field.kind = 'limitcycle': .*did you mean 'limit_cycle'\? Known: "
        r"limit_cycle, ",
    ),
    "list too short": (
        "prbs_hold: [3, 19]",
        "prbs_hold: [3]",
        r"active_dynamics.train.policies.prbs_hold = \[3\]: has too few values \(least and most",
    ),
    "table file not there": (
        "kind: limit_cycle   # limit_cycle, double_limit_cycle, van_der_pol, duffing, snowman, "
        "multi_attractor, linear, "
        "table\n      parameters: {}      # of the kind, in place of its own, e.g. {w: 2.0}\n  "
        "    matrix: null        "
        "# only with kind: linear, A of f(x) = A x\n      table_file: null ",
        "kind: table\n      parameters: {}\n      matrix: null\n      table_file: "
        "inputs/active_dynamics/wimd.npz ",
        r"wimd.npz is not there; did you mean 'inputs/active_dynamics/wind.npz'\?",
    ),
    "table of whole numbers": (
        "table_file: null ",
        "table_file: inputs/active_dynamics/whole.npz ",
        r"whole.npz: axis_0: holds int64 of shape \(3,\); numpy.savez arrays of dtype float",
    ),
    "warm-up longer than the run": (
        "warmup: 20 ",
        "warmup: 2000 ",
        r"active_dynamics: collect.warmup 2000 leaves nothing of train.transitions 1000; lower it",
    ),
    "value without a posterior": (
        "weights: {variance: 1.0}",
        "weights: {disagreement: 1.0}",
        r"active_dynamics: train.acquisition.weights.disagreement needs network.family: "
        r"seq_vae with dynamics: ensemble",
    ),
    "bad preset name": ("preset: default", "preset: Über", r"preset = 'Über': .*pattern"),
    "no threads": ("threads: 2", "threads: 0", r"threads = 0: .*greater than or equal to 1"),
    "negative seed": ("seed: 0\n", "seed: -1\n", r"seed = -1: .*greater than or equal to 0"),
    "negative checkpoint interval": (
        "checkpoint_seconds: 20",
        "checkpoint_seconds: -1",
        r"checkpoint_seconds = -1: ",
    ),
    "duplicate key": (
        "seed: 0\n",
        "seed: 0\nseed: 1\n",
        r"params.yaml line \d+, column \d+: .*duplicate key",
    ),
    "tab indentation": ("  seeds: 1 ", "\tseeds: 1 ", r"params.yaml line \d+, column \d+: "),
    "unclosed bracket": ("discount: 0.9", "discount: [0.9", r"params.yaml line \d+, column \d+: "),
    "python tag": (
        "seed: 0\n",
        "seed: !!python/object/apply:os.getcwd []\n",
        r"params.yaml line \d+: tag .* is not allowed",
    ),
    "alias": (
        "seed: 0\n",
        "seed: &a 0\nthreads: *a\n",
        r"params.yaml line \d+: anchors and aliases are not allowed",
    ),
    "second document": ("allo:", "---\nallo:", r"params.yaml line \d+: a second document begins"),
}

WHOLE = {
    "empty": (b"", r"params.yaml: is empty"),
    "a list": (b"- 1\n- 2\n", r"params.yaml: holds a list"),
    "a word": (b"hello\n", r"params.yaml: holds a str"),
    "not UTF-8": (b"preset: \xff\xfe\n", r"params.yaml: byte 8 is not UTF-8"),
    "binary": (bytes(range(256)), r"params.yaml"),
    "very deep": (b"a: " + b"[" * 20_000 + b"]" * 20_000, r"nested deeper than 20 levels"),
    "alias bomb": (
        b"a: &a [1]\nb: &b [*a,*a]\nc: [*b,*b]\n",
        r"anchors and aliases are not allowed",
    ),
    "a megabyte": (b"a: " + b"x" * 1_000_000, r"1,000,003 bytes; at most 200,000 are read"),
}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    shutil.copytree(ROOT / "presets", tmp_path / "presets")
    shutil.copytree(ROOT / "inputs", tmp_path / "inputs")
    (tmp_path / "params.yaml").write_text(GOOD)
    np.save(tmp_path / "inputs" / "actor_critic" / "short.npy", np.ones(512))
    np.savez(tmp_path / "inputs" / "active_dynamics" / "whole.npz", axis_0=np.arange(3))
    return tmp_path


def refused(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> str:
    """The one line that `pipeline.commands.params check` ends with, after exit 2 and no change to
    the folder.
    """
    before = sorted(project.rglob("*"))
    monkeypatch.chdir(project)
    assert params.main(["check"]) == 2
    assert sorted(project.rglob("*")) == before
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1
    assert said.err.endswith("[exit 2]\n")
    return said.err


@pytest.mark.parametrize("case", CHANGES)
def test_a_wrong_value_is_refused_in_one_line_that_names_it(
    case: str, project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    old, new, message = CHANGES[case]
    assert GOOD.count(old) >= 1
    (project / "params.yaml").write_text(GOOD.replace(old, new, 1))
    line = refused(project, capsys, monkeypatch)
    assert re.search(message, line), line


@pytest.mark.parametrize("case", WHOLE)
def test_a_file_that_is_no_params_file_is_refused_in_one_line(
    case: str, project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    content, message = WHOLE[case]
    (project / "params.yaml").write_bytes(content)
    line = refused(project, capsys, monkeypatch)
    assert re.search(message, line), line


def test_a_missing_file_or_a_folder_in_its_place_is_refused(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    (project / "params.yaml").unlink()
    assert "params.yaml: is not there" in refused(project, capsys, monkeypatch)
    (project / "params.yaml").mkdir()
    assert "params.yaml: is not a file" in refused(project, capsys, monkeypatch)


def test_a_stage_refuses_before_any_framework_is_imported_or_file_written(project: Path):
    (project / "params.yaml").write_text(GOOD.replace("batch_size: 256", "batch_size: 0"))
    code = (
        "import sys; from pipeline.runtime.stage import main; code = main('train', '', None, "
        "['allo']);"
        "print(*(m for m in ('jax', 'torch', 'mlflow', 'flax', 'matplotlib') if m in "
        "sys.modules)); sys.exit(code)"
    )
    before = sorted(project.rglob("*"))
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=project, capture_output=True, text=True, env=environment()
    )
    assert done.returncode == 2
    assert done.stdout.strip() == ""
    assert done.stderr.count("\n") == 1
    assert "train@allo: params.yaml: allo.train.batch_size = 0" in done.stderr
    assert sorted(project.rglob("*")) == before


def environment() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}


def test_the_committed_file_is_valid_and_numbers_are_read_as_dvc_reads_them():
    params = read_params(ROOT)
    assert params.allo.train.learning_rate == 1e-3
    assert YAML(typ="safe").load(GOOD)["allo"]["train"]["learning_rate"] == 1e-3


@pytest.mark.parametrize("preset", sorted(path.stem for path in (ROOT / "presets").glob("*.yaml")))
def test_each_preset_is_valid_and_carries_its_own_name(preset: str):
    assert read_params(ROOT, preset).preset == preset


def test_an_unknown_preset_names_the_nearest():
    with pytest.raises(
        ConfigError, match=r"unknown preset 'smok'; did you mean 'smoke'\?; known: default"
    ):
        read_params(ROOT, "smok")


def test_an_overlay_replaces_the_keys_that_it_names_and_no_others():
    raw = parse(ROOT / "params.yaml")
    merged = overlaid(raw, {"allo": {"train": {"steps": 7}}})
    assert merged["allo"]["train"].pop("steps") == 7
    assert raw["allo"]["train"].pop("steps") == 20000
    assert merged == raw


def test_another_kind_takes_the_place_of_a_section_only_where_it_has_other_keys():
    raw = parse(ROOT / "params.yaml")
    hard, duffing = {"kind": "hard", "copy_every": 100}, {"kind": "duffing"}
    merged = overlaid(
        raw, {"iqn": {"train": {"target": hard}}, "active_dynamics": {"env": {"field": duffing}}}
    )
    assert merged["iqn"]["train"]["target"] == hard
    assert (
        merged["active_dynamics"]["env"]["field"]
        == raw["active_dynamics"]["env"]["field"] | duffing
    )


def test_a_map_file_stands_with_its_content_in_the_config(project: Path):
    (project / "inputs" / "allo" / "mine.txt").write_text("......\n......\n..S...\n")
    text = GOOD.replace("layout: room4", "layout: inputs/allo/mine.txt")
    (project / "params.yaml").write_text(text)
    config = read_params(project).allo
    assert config.env.map.start == (2, 2)
    again = AlloConfig.model_validate_json(config.model_dump_json())
    assert again == config
    assert hash(again) == hash(config)


def test_the_schema_names_every_key_with_its_limits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    assert params.main(["schema"]) == 0
    schema = json.loads((tmp_path / params.SCHEMA_FILE).read_text())
    train = next(
        section for name, section in schema["$defs"].items() if name.endswith("allo__config__Train")
    )
    assert train["properties"]["steps"]["minimum"] == 1
    assert schema["additionalProperties"] is False
