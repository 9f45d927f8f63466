"""dvc.yaml against the import graph: editing a file makes stale exactly what it can change."""

import re
from typing import Any, NamedTuple

import grimp
import pytest
from ruamel.yaml import YAML

from pipeline.storage.params_file import parse
from quatrain.params import Params
from quatrain.registry import MODELS
from tests.conftest import ROOT

VERBS = ("collect", "train", "evaluate")
WIRING = {"quatrain.params", "quatrain.registry"}
"""Name the models, but shape no out; a new model would make all others stale."""
WRITERS = {"pipeline/storage/artifacts.py", "pipeline/storage/formats.py"}
FURTHER_WRITERS = {
    "collect": set(),
    "train": {"pipeline/storage/history.py"},
    "evaluate": {
        "pipeline/judging/verdicts.py",
        "pipeline/storage/figures.py",
        "pipeline/storage/history.py",
    },
    "report": {"pipeline/judging/verdicts.py", "pipeline/reporting"},
}
SETTINGS = {"seed", "device", "threads", "deterministic"}
SECTIONS = ("seeds", "env", "collect", "network", "train", "evaluate")

GRAPH = grimp.build_graph("quatrain", "pipeline")
DVC = YAML(typ="safe").load(ROOT / "dvc.yaml")
SLOTS = next(part["models"] for part in DVC["vars"] if "models" in part)


class Declared(NamedTuple):
    """A stage with its slots filled in."""

    name: str
    verb: str
    model: str
    deps: list[str]
    params: set[str]
    outs: set[str]


def filled(value: str, model: str) -> str:
    return re.sub(
        r"\$\{(?:item\.(\w+)|key)\}", lambda m: SLOTS[model][m[1]] if m[1] else model, value
    )


def declared(name: str, verb: str, model: str, stage: dict[str, Any]) -> Declared:
    entries = [out for kind in ("outs", "metrics", "plots") for out in stage.get(kind, [])]
    outs = [next(iter(out)) if isinstance(out, dict) else out for out in entries]
    lists = [
        [filled(value, model) for value in values]
        for values in (stage["deps"], stage["params"], outs)
    ]
    return Declared(name, verb, model, lists[0], set(lists[1]), set(lists[2]))


PER_MODEL = [declared(f"{v}@{m}", v, m, DVC["stages"][v]["do"]) for v in VERBS for m in SLOTS]
REPORT = declared("report", "report", "", DVC["stages"]["report"])
STAGES = [*PER_MODEL, REPORT]
every_stage = pytest.mark.parametrize("stage", STAGES, ids=[stage.name for stage in STAGES])


def file_of(module: str) -> str:
    path = "/".join(module.split("."))
    prefix = "src/" if module.startswith("quatrain") else ""
    return (
        f"{prefix}{path}.py"
        if (ROOT / f"{prefix}{path}.py").exists()
        else f"{prefix}{path}/__init__.py"
    )


def stage_modules(stage: Declared) -> set[str]:
    """Returns the modules that a stage loads by the registry; grimp cannot see these imports."""
    source = (ROOT / "pipeline" / f"{stage.verb}.py").read_text()
    named = set(re.findall(r"(?<![.\w])load\([^()]+\)\.(\w+)", source))
    named |= {"collect"} if "load_dataset" in source else set()
    named |= {"train"} if "load_trained" in source else set()
    return {f"quatrain.models.{stage.model}.{name}" for name in named}


def needed(stage: Declared) -> set[str]:
    """Files of the inside that shape a stage's outs."""
    shaping = [
        f"pipeline.{stage.verb}",
        *(dep[:-3].replace("/", ".") for dep in stage.deps if is_writer(dep)),
    ]
    direct = {
        result for module in shaping for result in GRAPH.find_modules_directly_imported_by(module)
    }
    start = {
        module for module in direct if module.startswith("quatrain.")
    } - WIRING | stage_modules(stage)
    return {
        file_of(m) for m in start.union(*(GRAPH.find_upstream_modules(module) for module in start))
    }


def is_writer(dep: str) -> bool:
    return dep.startswith("pipeline/")


def covers(dep: str, file: str) -> bool:
    return file == dep or file.startswith(f"{dep}/")


@every_stage
def test_each_module_that_shapes_an_out_is_a_dependency(stage: Declared):
    assert {
        file for file in needed(stage) if not any(covers(dep, file) for dep in stage.deps)
    } == set()


@every_stage
def test_no_dependency_is_idle(stage: Declared):
    inside = [
        dep for dep in stage.deps if dep.startswith("src/") and not dep.endswith("/__init__.py")
    ]
    idle = {dep for dep in inside if not any(covers(dep, file) for file in needed(stage))}
    assert idle == set()
    assert len(stage.deps) == len(set(stage.deps))


@every_stage
def test_no_dependency_reaches_into_another_model(stage: Declared):
    others = {
        f"src/quatrain/models/{model}/config.py"
        for model in MODELS
        if stage.model and model != stage.model
    }
    assert {other for other in others for dep in stage.deps if covers(dep, other)} == set()
    assert not {dep for dep in stage.deps if covers(dep, "src/quatrain/registry.py")}


@every_stage
def test_no_dependency_is_a_folder_of_packages(stage: Declared):
    """Another world or buffer beside a model's own must not make it stale."""
    own_folder = f"src/quatrain/models/{stage.model}"
    others = [dep for dep in stage.deps if dep.startswith("src/") and not covers(own_folder, dep)]
    assert [dep for dep in others if list((ROOT / dep).glob("*/__init__.py"))] == []


@every_stage
def test_the_verb_and_the_writers_of_its_outs_are_dependencies(stage: Declared):
    assert {dep for dep in stage.deps if is_writer(dep)} == {
        f"pipeline/{stage.verb}.py",
        *WRITERS,
        *FURTHER_WRITERS[stage.verb],
    }


@every_stage
def test_every_dependency_that_no_stage_makes_is_in_the_repository(stage: Declared):
    created = {out for other in STAGES for out in other.outs}
    baselines = {f"baselines/{model}.json" for model in MODELS}
    assert {dep for dep in stage.deps if not (ROOT / dep).exists()} <= created | baselines


def test_each_stage_reads_what_the_one_before_it_makes():
    by_name = {stage.name: stage for stage in STAGES}
    for model in MODELS:
        data, weights, baseline = f"data/{model}", f"models/{model}", f"baselines/{model}.json"
        reports = {f"reports/{model}/{name}" for name in ("scores.json", "verdict.json", "plots")}
        assert by_name[f"collect@{model}"].outs == {data}
        assert by_name[f"train@{model}"].outs == {weights}
        assert by_name[f"evaluate@{model}"].outs == reports
        assert data in by_name[f"train@{model}"].deps
        assert {data, weights, baseline} <= set(by_name[f"evaluate@{model}"].deps)
        assert {*reports, weights, baseline} <= set(REPORT.deps)
        assert f"inputs/{model}" in by_name[f"collect@{model}"].deps


def test_params_are_declared_by_the_keys_that_a_stage_reads():
    read = {"collect": {"seeds", "env", "collect"}}
    for stage in PER_MODEL:
        sections = {f"{stage.model}.{name}" for name in read.get(stage.verb, ())} or {stage.model}
        preset = {"preset"} if stage.verb == "evaluate" else set()
        assert stage.params == SETTINGS | sections | preset, stage.name
    assert REPORT.params == {"preset"}


def test_slots_are_scalars_and_the_same_for_each_model():
    assert all(isinstance(value, str) for slots in SLOTS.values() for value in slots.values())
    assert len({tuple(slots) for slots in SLOTS.values()}) == 1


def test_a_model_depends_on_what_learners_of_its_framework_share():
    assert {model: slots["framework"] for model, slots in SLOTS.items()} == {
        model: f"src/quatrain/frameworks/{framework}" for model, framework in MODELS.items()
    }


def test_packages_hold_no_code_of_their_own():
    """A package's __init__ is imported with each of its modules, but no dependency names it."""
    for path in (ROOT / "src" / "quatrain").rglob("__init__.py"):
        assert len(path.read_text().splitlines()) <= 1, (
            f"{path.name} of {path.parent.name} is more than a docstring"
        )


def test_plots_show_columns_against_steps_of_a_history_that_a_stage_makes():
    for plot in DVC["plots"]:
        for settings in plot.values():
            assert settings["x"] == "step"
            for path in settings["y"]:
                assert re.fullmatch(rf"models/({'|'.join(MODELS)})/history.csv", path)


def test_registry_params_dvc_yaml_baselines_and_presets_name_the_same_models():
    assert set(SLOTS) == set(MODELS)
    assert set(Params.model_fields) == SETTINGS | {"preset", "checkpoint_seconds"} | set(MODELS)
    assert {path.stem for path in (ROOT / "baselines").glob("*.json")} == set(MODELS)
    for preset in (ROOT / "presets").glob("*.yaml"):
        overlay = parse(preset)
        assert overlay["preset"] == preset.stem
        assert set(overlay) <= set(Params.model_fields)


@pytest.mark.parametrize("model", MODELS)
def test_each_model_has_the_same_sections(model: str):
    assert tuple(parse(ROOT / "params.yaml")[model]) == SECTIONS
    assert (ROOT / "inputs" / model).is_dir()
