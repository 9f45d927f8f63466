"""Configs that no memory holds: refused with the numbers before anything is loaded or allocated."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.runtime import stage as stages
from pipeline.runtime.command import run_guarded
from pipeline.runtime.free_memory import free_memory
from pipeline.runtime.stage import Stage, check_fits
from pipeline.storage.params_file import overlaid, read_input, validate
from quatrain.memory import GIB
from quatrain.presets import read_raw
from quatrain.registry import MODELS, load
from tests.campaign.promises import Outcome, accepted, refused, run, see
from tests.campaign.served import FORMS
from tests.conftest import ROOT, SMALL, params_with, shapes_unchecked
from tests.pipeline.small_project import Project

Capture = pytest.CaptureFixture[str]
VERBS = ("collect", "train", "evaluate")
LARGE = {"hidden": 4096, "layers": 16}
HUGE: dict[str, tuple[str, str, dict[str, Any], float, str]] = {
    # name: model, verb, changes to the small config, free GiB, and what takes the memory.
    "seeds x layers x units": ("allo", "train", {"seeds": 1000, "network": LARGE}, 64, "moments"),
    "layers x units": ("allo", "train", {"network": LARGE}, 4, "moments"),
    "seeds": ("allo", "train", {"seeds": 1024, "network": {"hidden": 512}}, 4, "moments"),
    "judged": ("allo", "evaluate", {"seeds": 1000, "network": LARGE}, 64, "moments"),
    "batch": (
        "allo",
        "train",
        {
            "network": {"hidden": 4096},
            "env": {"layout": "maze", "maze": {"width": 199, "height": 199, "braid": 0, "seed": 0}},
            "train": {"batch_size": 10**6, "record_every": 20},
        },
        0.5,
        "hidden units of a batch",
    ),
    "walks": (
        "allo",
        "collect",
        {"collect": {"num_envs": 80_000, "steps_per_env": 1000}},
        0.4,
        "transitions",
    ),
    "walks to learn from": (
        "allo",
        "train",
        {"collect": {"num_envs": 10**5, "steps_per_env": 1000}},
        0.4,
        "transitions",
    ),
    "pairs of states": (
        "allo",
        "evaluate",
        {"env": {"layout": "maze", "maze": {"width": 87, "height": 87, "braid": 0, "seed": 0}}},
        0.1,
        "all pairs of states",
    ),
    "hosted": ("allo-hosted", "train", {"seeds": 700, "network": LARGE}, 64, "moments"),
    "iqn seeds": ("iqn", "train", {"seeds": 64, "network": {"hidden": 4096}}, 16, "networks"),
    "iqn units": ("iqn", "train", {"network": {"hidden": 4096, "frames": 9}}, 1, "networks"),
    "iqn agents": (
        "iqn",
        "train",
        {"env": {"agents": 9}, "network": {"hidden": 4096}},
        4,
        "networks",
    ),
    "iqn replay": ("iqn", "train", {"train": {"capacity": 4 * 10**6}}, 0.25, "replay"),
    "iqn evaluation worlds": (
        "iqn",
        "train",
        {
            "network": {"hidden": 512},
            "train": {"evaluation_worlds": 20_000, "acting": {"quantiles": 32}},
        },
        2.4,
        "hidden units of acting",
    ),
    "iqn-hosted worlds": (
        "iqn-hosted",
        "train",
        {
            "network": {"hidden": 1024},
            "train": {"evaluation_worlds": 4096, "acting": {"quantiles": 32}},
        },
        0.9,
        "hidden units of acting",
    ),
    "iqn judged": ("iqn", "evaluate", {"seeds": 64, "network": {"hidden": 4096}}, 16, "networks"),
    "iqn-hosted units": ("iqn-hosted", "train", {"network": {"hidden": 4096}}, 0.25, "networks"),
    "actor_critic units": (
        "actor_critic",
        "train",
        {"network": {"encoder": "graph", "d": 4096, "layers": 64}},
        16,
        "moments",
    ),
    "actor_critic attention": (
        "actor_critic",
        "train",
        {"network": {"d": 4096, "layers": 64, "heads": 4}},
        64,
        "moments",
    ),
    "actor_critic seeds": (
        "actor_critic",
        "train",
        {"seeds": 256, "network": {"encoder": "graph", "d": 1024, "layers": 8}},
        16,
        "moments",
    ),
    "actor_critic rollout": (
        "actor_critic",
        "train",
        {"train": {"num_envs": 2**15, "horizon": 1000, "minibatch_size": 2**15 * 250}},
        1,
        "rollout|minibatch",
    ),
    "actor_critic judged": (
        "actor_critic",
        "evaluate",
        {"network": {"d": 4096, "layers": 64, "heads": 4}},
        64,
        "moments",
    ),
    "actor_critic colonies": (
        "actor_critic",
        "evaluate",
        {"collect": {"held_out_colonies": 65536}, "network": {"d": 4096, "heads": 4}},
        4,
        "held-out colonies",
    ),
    "actor_critic-hosted units": (
        "actor_critic-hosted",
        "train",
        {"network": {"d": 4096, "layers": 64}},
        16,
        "moments",
    ),
    "active_dynamics seeds": (
        "active_dynamics",
        "train",
        {"seeds": 100, "network": {"rbf": {"side": 25, "length": 0.3}}},
        2,
        "learners",
    ),
    "active_dynamics transitions": (
        "active_dynamics",
        "train",
        {"train": {"transitions": 10**6}},
        0.25,
        "transitions of all learners",
    ),
    "active_dynamics checkpoints": (
        "active_dynamics",
        "train",
        {
            "seeds": 100,
            "train": {"checkpoints": 1000, "transitions": 1000},
            "network": {"rbf": {"side": 15}},
        },
        0.5,
        "checkpoints",
    ),
    "active_dynamics held out": (
        "active_dynamics",
        "collect",
        {"collect": {"held_out_rollouts": 65536}},
        0.25,
        "transitions",
    ),
    "active_dynamics judged": (
        "active_dynamics",
        "evaluate",
        {"seeds": 100, "network": {"rbf": {"side": 25, "length": 0.3}}},
        1,
        "learners",
    ),
    "seq_vae units": (
        "active_dynamics-seq_vae",
        "train",
        {"network": {"seq_vae": {"hidden": 4096}}},
        1,
        "learners",
    ),
    "seq_vae seeds": (
        "active_dynamics-seq_vae",
        "train",
        {"seeds": 1000, "network": {"seq_vae": {"hidden": 1024}}},
        16,
        "learners",
    ),
    "seq_vae batch": (
        "active_dynamics-seq_vae",
        "train",
        {"train": {"seq_vae": {"batch_size": 65536}}, "network": {"seq_vae": {"hidden": 512}}},
        4,
        "windows of a batch",
    ),
}


def stage_of(verb: str, form: str, changes: dict[str, Any]) -> Stage:
    model, variant = FORMS[form]
    section = overlaid(overlaid({model: SMALL[model]}, {model: variant}), {model: changes})
    return Stage(verb, model, Path.cwd(), params_with(section | {"device": "cpu"}))


def checked(
    stage: Stage, free: float | None, capsys: Capture, patch: pytest.MonkeyPatch
) -> Outcome:
    """What a stage says that has so many GiB, before it loads anything."""
    patch.setattr(stages, "free_memory", lambda: None if free is None else int(free * GIB))
    return see(lambda: run_guarded(stage.name, lambda: check_fits(stage)), capsys)


@pytest.mark.parametrize("case", HUGE)
def test_a_config_that_does_not_fit_is_refused_with_the_numbers(
    case: str, capsys: Capture, monkeypatch: pytest.MonkeyPatch
):
    form, verb, changes, free, part = HUGE[case]
    stage = stage_of(verb, form, changes)
    says = (
        rf"{stage.model}: {verb} needs at least [\d,.]+ GiB of memory \(.*({part}).* GiB\), and "
        rf"{free:,.1f} GiB are free here; lower {stage.model}\."
    )
    refused(checked(stage, free, capsys, monkeypatch), 5, says)
    accepted(checked(stage, 10**6, capsys, monkeypatch))
    accepted(checked(stage, None, capsys, monkeypatch))


PRESETS = ["default", *sorted(path.stem for path in (ROOT / "presets").glob("*.yaml"))]


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("preset", PRESETS)
def test_every_preset_fits_into_four_gibibytes(
    preset: str, verb: str, capsys: Capture, monkeypatch: pytest.MonkeyPatch
):
    params = validate(read_raw(ROOT, preset), lambda name: read_input(ROOT, str(name)))
    params = params.model_copy(update={"device": "cpu"})
    for model in MODELS:
        accepted(checked(Stage(verb, model, ROOT, params), 4, capsys, monkeypatch))


@pytest.mark.parametrize("form", FORMS)
def test_what_a_learner_is_said_to_need_is_what_its_arrays_take(form: str):
    """At least a third of what the state holds is counted, and never more than two copies of it."""
    larger: dict[str, dict[str, Any]] = {
        "allo": {"network": {"hidden": 256, "layers": 3}},
        "iqn": {"network": {"hidden": 256}},
        "actor_critic": {"network": {"d": 256, "layers": 4}},
        "active_dynamics": {"network": {"rbf": {"side": 9}, "seq_vae": {"hidden": 128}}},
    }
    config = stage_of("train", form, larger[FORMS[form][0]]).config
    model = load(FORMS[form][0], config)
    with shapes_unchecked():
        dataset = model.collect.collect(config, 1)
        state = model.train.to_arrays(model.train.init_state(config, dataset, 2))
    state_bytes = sum(array.nbytes for array in state.values())
    said = model.memory.needs(config).train
    passing = ("batch", "acting", "sample", "rollout", "pairs", "transitions", "colonies", "plates")
    lasting = sum(size for name, size in said.items() if not any(word in name for word in passing))
    replays = said.get("transitions of all learners", 0)
    assert state_bytes / 3 < lasting + replays < 2.5 * state_bytes


def test_a_process_refuses_before_it_loads_a_framework(tmp_path: Path):
    project = Project.create(tmp_path / "project", "allo")
    project.choose({"device": "cpu", "allo": {"seeds": 1000, "network": LARGE}})
    trace = "import sys; sys.modules.update(jax=None, torch=None, flax=None); "
    start = "import runpy; sys.argv[1:] = ['allo']; "
    start += "runpy.run_module('pipeline.train', run_name='__main__')"
    outcome = run(sys.executable, "-c", trace + start, cwd=project.root)
    refused(outcome, 5, r"train@allo: allo: train needs at least [\d,]+.\d GiB of memory \(weights")


MEMINFO = "MemTotal: 64 kB\nMemFree: 8 kB\nMemAvailable: {} kB\nSwapFree: {} kB\n"
UNLIMITED = "9223372036854771712"
MACHINES: dict[str, tuple[dict[str, str], int | None]] = {
    "nothing is known": ({}, None),
    "memory and swap": ({"proc/meminfo": MEMINFO.format(32, 4)}, 36),
    "an old kernel": ({"proc/meminfo": "MemFree: 8 kB\n"}, 8),
    "not a table": ({"proc/meminfo": "MemAvailable\n: kB\nMemAvailable: x kB\n"}, None),
    "v2": ({"proc/self/cgroup": "0::/a/b\n", "cgroup/a/b/memory.max": "16384\n"}, 16),
    "v2 max": ({"proc/self/cgroup": "0::/a/b\n", "cgroup/a/b/memory.max": "max\n"}, None),
    "v2 of the group around it": (
        {
            "proc/self/cgroup": "0::/a/b\n",
            "cgroup/a/b/memory.max": "max\n",
            "cgroup/a/memory.max": "8192\n",
        },
        8,
    ),
    "v2 the least of nested groups": (
        {
            "proc/self/cgroup": "0::/a/b\n",
            "cgroup/a/b/memory.max": "4096\n",
            "cgroup/a/memory.max": "8192\n",
        },
        4,
    ),
    "v2 used": (
        {
            "proc/self/cgroup": "0::/a\n",
            "cgroup/a/memory.max": "16384\n",
            "cgroup/a/memory.current": "12288\n",
        },
        4,
    ),
    "v2 used by file caches": (
        {
            "proc/self/cgroup": "0::/a\n",
            "cgroup/a/memory.max": "16384\n",
            "cgroup/a/memory.current": "12288\n",
            "cgroup/a/memory.stat": "anon 4096\nfile 8192\n",
        },
        12,
    ),
    "v2 over its limit": (
        {
            "proc/self/cgroup": "0::/a\n",
            "cgroup/a/memory.max": "4096\n",
            "cgroup/a/memory.current": "12288\n",
        },
        0,
    ),
    "v2 seen from inside a container": (
        {"proc/self/cgroup": "0::/docker/1234\n", "cgroup/memory.max": "16384\n"},
        16,
    ),
    "v2 beside v1": (
        {"proc/self/cgroup": "0::/a\n", "cgroup/unified/a/memory.max": "16384\n"},
        16,
    ),
    "v1": (
        {
            "proc/self/cgroup": "9:cpu,cpuacct:/x\n4:memory:/a\n",
            "cgroup/memory/a/memory.limit_in_bytes": "16384\n",
        },
        16,
    ),
    "v1 unlimited": (
        {
            "proc/meminfo": MEMINFO.format(32, 0),
            "proc/self/cgroup": "4:memory:/a\n",
            "cgroup/memory/a/memory.limit_in_bytes": UNLIMITED,
        },
        32,
    ),
    "v1 used": (
        {
            "proc/self/cgroup": "4:memory:/a\n",
            "cgroup/memory/a/memory.limit_in_bytes": "16384\n",
            "cgroup/memory/a/memory.usage_in_bytes": "12288\n",
            "cgroup/memory/a/memory.stat": "cache 1\ntotal_cache 4096\n",
        },
        8,
    ),
    "v1 seen from inside a container": (
        {
            "proc/self/cgroup": "4:memory:/docker/1234\n",
            "cgroup/memory/memory.limit_in_bytes": "16384\n",
        },
        16,
    ),
    "a group allows more than there is": (
        {
            "proc/meminfo": MEMINFO.format(8, 0),
            "proc/self/cgroup": "0::/a\n",
            "cgroup/a/memory.max": "16384\n",
        },
        8,
    ),
    "no numbers": (
        {
            "proc/self/cgroup": "0::/a\nx\n\n0:1\n",
            "cgroup/a/memory.max": "-3\n",
            "cgroup/a/memory.current": "many\n",
        },
        None,
    ),
    "a path that leads out": (
        {"proc/self/cgroup": "0::/../../b\n", "b/memory.max": "16384\n"},
        None,
    ),
}


@pytest.mark.parametrize("case", MACHINES)
def test_what_is_free_is_the_least_that_anybody_allows(case: str, tmp_path: Path):
    files, kibibytes = MACHINES[case]
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    free = free_memory(tmp_path / "proc", tmp_path / "cgroup")
    assert free == (None if kibibytes is None else 1024 * kibibytes)


def test_free_memory_of_this_machine_is_some():
    free = free_memory()
    assert free is None or free > 2**20


def of_numpy() -> Any:
    return np.empty(2**56)


def of_jax() -> Any:
    import jax

    raise jax.errors.JaxRuntimeError(
        "RESOURCE_EXHAUSTED: Out of memory allocating 4398046511104 bytes.\n  at a.cc:1\n  at b.cc"
    )


def of_torch() -> Any:
    import torch

    torch.empty(2**56)


def of_torch_on_a_gpu() -> Any:
    import torch

    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has ...")


def of_python() -> Any:
    raise MemoryError


def of_cpp() -> Any:
    raise MemoryError("std::bad_alloc")


def of_a_runtime() -> Any:
    raise RuntimeError("std::bad_alloc")


FAILURES: list[Callable[[], Any]] = [
    of_numpy,
    of_jax,
    of_torch,
    of_torch_on_a_gpu,
    of_python,
    of_cpp,
    of_a_runtime,
]


@pytest.mark.parametrize("failure", FAILURES)
@pytest.mark.parametrize("name", ["train@allo", "evaluate@iqn", "report"])
def test_an_allocation_that_fails_is_one_line(
    name: str, failure: Callable[[], Any], capsys: Capture
):
    refused(see(lambda: run_guarded(name, failure), capsys), 5, f"{name}: out of memory: .*; lower")
