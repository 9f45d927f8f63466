"""Configs that no memory holds: refused with the numbers before anything is loaded or allocated."""

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import quatrain
from pipeline.runtime import devices, stage
from pipeline.runtime.processes import Signals
from pipeline.runtime.stage import Stage, check_fits, run_on_device
from pipeline.storage.params_file import read_params
from quatrain.errors import DeviceFull
from quatrain.memory import GIB, PROCESS, lack_explained
from quatrain.registry import MODELS, load
from quatrain.validation import overlaid
from tests.conftest import FORMS, ROOT, SMALL, params_with
from tests.pipeline.fixture_types import Patch
from tests.pipeline.small_project import Project

LARGE = {"hidden": 4096, "layers": 16}
WIDE = {"d": 4096, "layers": 64, "heads": 4}
MAZE = {"layout": "maze", "maze": {"width": 87, "height": 87, "braid": 0, "seed": 0}}
SEQ_VAE = {"seq_vae": {"hidden": 4096}}
# Model, verb, changes to the small config, free GiB, and what takes the memory.
HUGE: list[tuple[str, str, dict[str, Any], float, str]] = [
    ("allo", "collect", {"collect": {"num_envs": 80_000, "steps_per_env": 1000}}, 0.4, "transiti"),
    ("allo", "train", {"seeds": 1000, "network": LARGE}, 64, "moments"),
    ("allo", "evaluate", {"env": MAZE}, 0.1, "all pairs of states"),
    ("iqn", "train", {"train": {"capacity": 4 * 10**6}}, 0.25, "replay"),
    ("iqn", "evaluate", {"seeds": 64, "network": {"hidden": 4096}}, 16, "networks"),
    ("actor_critic", "train", {"network": WIDE}, 64, "moments"),
    ("actor_critic", "evaluate", {"network": WIDE}, 64, "moments"),
    ("active_dynamics", "collect", {"collect": {"held_out_rollouts": 65536}}, 0.25, "transitions"),
    ("active_dynamics", "train", {"train": {"transitions": 10**6}}, 0.25, "transitions of all"),
    ("active_dynamics", "evaluate", {"seeds": 100, "network": {"rbf": {"side": 25}}}, 1, "learne"),
    ("active_dynamics-seq_vae", "train", {"network": SEQ_VAE}, 1, "learners"),
]


def stage_of(verb: str, form: str, changes: dict[str, Any]) -> Stage:
    model, variant = FORMS[form]
    section = overlaid(overlaid({model: SMALL[model]}, {model: variant}), {model: changes})
    return Stage(verb, model, Path.cwd(), params_with(section | {"device": "cpu"}))


@pytest.mark.parametrize(("form", "verb", "changes", "free", "part"), HUGE)
def test_a_config_that_does_not_fit_is_refused_with_the_numbers(
    form: str, verb: str, changes: dict[str, Any], free: float, part: str, monkeypatch: Patch
):
    too_large = stage_of(verb, form, changes)
    monkeypatch.setattr(stage, "free_memory", lambda: int(free * GIB))
    model = too_large.model
    says = (
        rf"^{model}: {verb} needs about [\d,.]+ GiB of memory \(.*{part}.* GiB\), and "
        rf"{free:,.1f} GiB are free here; lower {model}\."
    )
    with pytest.raises(DeviceFull, match=says):
        check_fits(too_large)
    monkeypatch.setattr(stage, "free_memory", lambda: 10**6 * GIB)
    check_fits(too_large)


@pytest.mark.parametrize(
    "preset", ["default", *sorted(path.stem for path in (ROOT / "presets").glob("*.yaml"))]
)
def test_every_preset_fits_into_four_gibibytes(preset: str, monkeypatch: Patch):
    monkeypatch.setattr(stage, "free_memory", lambda: 4 * GIB)
    params = read_params(ROOT, preset)
    params = params.model_copy(update={"device": "cpu"})
    for model in MODELS:
        for verb in ("collect", "train", "evaluate"):
            check_fits(Stage(verb, model, ROOT, params))


PIXELS = 84 * 84
LONG_REPLAY = {"seeds": 3, "env": {"worlds": 64}, "train": {"capacity": 320_000}}
OF_IMAGES = {
    "env": {"kind": "gymnasium", "id": None, "import": "images:Images", "max_episode_steps": 40},
    "network": {"hidden": 512, "frames": 4},
    "train": {"capacity": 30_720},
}
WIDE_GRU = {"network": {"seq_vae": {"hidden": 1024}}, "train": {"checkpoints": 3}}
VECTOR = {"image": (), "observation_dtype": np.float32}
IMAGES = SimpleNamespace(agents=("agent",), observation_size=PIXELS, **VECTOR)
# Model, preset, changes to params.yaml, sizes of a user's environment, and GiB that a training took
# at its peak, whose checkpoint was encoded.
TOOK: list[tuple[str, str | None, dict[str, Any], Any, float]] = [
    ("allo", None, {"seeds": 4, "network": {"hidden": 2048}}, None, 1.65),
    ("allo", None, {"collect": {"num_envs": 40_000}}, None, 1.24),
    ("active_dynamics", None, {"seeds": 12, "network": {"rbf": {"side": 23}}}, None, 2.12),
    ("active_dynamics", "seq_vae", {"seeds": 2, **WIDE_GRU}, None, 2.20),
    ("iqn", None, LONG_REPLAY, None, 3.39),
    ("iqn", None, OF_IMAGES, IMAGES, 5.62),
    ("actor_critic", None, {"seeds": 4, "network": {"d": 2048, "layers": 3}}, None, 6.21),
]


@pytest.mark.parametrize(("model", "preset", "changes", "interface", "took"), TOOK)
def test_what_large_trainings_took_is_what_they_are_said_to_need(
    model: str, preset: str | None, changes: dict[str, Any], interface: Any, took: float
):
    config = quatrain.config(model, preset, **changes)
    parts = load(model).memory.needs(config, interface).train
    assert 1 / 1.5 < (PROCESS + sum(parts.values())) / GIB / took < 1.5


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (MemoryError(), "an allocation failed"),
        (RuntimeError("RESOURCE_EXHAUSTED: 4 G\nat 0"), "RESOURCE_EXHAUSTED: 4 G"),
        (RuntimeError("CUDA out of memory. Tried"), "CUDA out of memory. Tried"),
        (RuntimeError("CPU: can't allocate memory"), "CPU: can't allocate memory"),
    ],
)
def test_a_device_without_memory_is_told_with_the_keys_to_lower(
    error: Exception, said: str, monkeypatch: Patch
):
    def full(*_: Any) -> None:
        raise error

    working = stage_of("train", "iqn", {})
    expected = f"iqn: the device has no memory left: {said}; lower iqn.seeds, iqn.env.worlds, "
    with pytest.raises(DeviceFull, match=f"^{re.escape(expected)}"):
        run_on_device(working, full, Signals())
    monkeypatch.setattr(load("iqn").collect, "collect", full)
    with pytest.raises(DeviceFull, match=f"^{re.escape(expected)}"):
        quatrain.fit("iqn", config=working.config, progress=False)


def test_another_error_is_not_taken_for_a_lack_of_memory():
    error = RuntimeError("CUDA error: an illegal memory access was encountered")
    with pytest.raises(RuntimeError, match="illegal memory access"), lack_explained("iqn", dict):
        raise error


def test_a_process_refuses_before_it_loads_a_framework(tmp_path: Path):
    project = Project.create(tmp_path / "project", "allo", code=True)
    project.choose({"device": "cpu", "allo": {"seeds": 1000, "network": LARGE}})
    trace = "import sys; sys.modules.update(jax=None, torch=None, flax=None); "
    start = "import runpy; sys.argv[1:] = ['allo']; "
    start += "runpy.run_module('pipeline.train', run_name='__main__')"
    ended = project.run("-c", trace + start)
    assert ended.code == 5
    assert re.match(r"train@allo: allo: train needs about [\d,]+.\d GiB of memory", ended.said)


LIMIT = {"memory.max": "65536\n", "memory.current": "32768\n"}
GROUPS: dict[str, tuple[str, dict[str, str], float]] = {
    "no group": ("", {}, np.inf),
    "of its own": ("0::/a/b\n", {f"a/b/{name}": text for name, text in LIMIT.items()}, 32768),
    "of the group around it": ("0::/a/b\n", {f"a/{n}": text for n, text in LIMIT.items()}, 32768),
    "used by file caches": (
        "0::/a\n",
        {**{f"a/{name}": text for name, text in LIMIT.items()}, "a/memory.stat": "file 8192\n"},
        40960,
    ),
    "seen from inside a container": ("0::/docker/1234\n", LIMIT, 32768),
    "no limit": ("0::/a\n", {"a/memory.max": "max\n", "a/memory.current": "1\n"}, np.inf),
}


@pytest.mark.parametrize("case", GROUPS)
def test_what_is_free_is_the_least_that_anybody_allows(
    case: str, tmp_path: Path, monkeypatch: Patch
):
    group, files, expected = GROUPS[case]
    (tmp_path / "own").write_text(group)
    for name, text in files.items():
        path = tmp_path / "groups" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        (path.parent / "memory.stat").touch()
    monkeypatch.setattr(devices, "OWN_GROUP", tmp_path / "own")
    monkeypatch.setattr(devices, "GROUPS", tmp_path / "groups")
    free = devices.free_memory()
    assert free > 2**20 if expected == np.inf else free == expected
