"""dvc.yaml against the import graph: editing a file makes stale exactly what it can change."""

import re
from typing import Any, NamedTuple

import grimp
import pytest
from ruamel.yaml import YAML

from pipeline.storage.curves import file_name
from pipeline.storage.run_key import code_of
from quatrain.params import Params, schemas_of
from quatrain.presets import parse
from quatrain.registry import MODELS, PACKAGES, load
from tests.conftest import ROOT

VERBS = ("collect", "train", "evaluate")
WIRING = {"quatrain.params", "quatrain.registry"}
"""Name the models, but shape no out; a new model would make all others stale."""
WRITERS = {
    "collect": set(),
    "train": set(),
    "evaluate": {
        "pipeline/judging/scores.py",
        "pipeline/storage/curves.py",
        "pipeline/storage/figures.py",
        "pipeline/storage/run_key.py",
    },
    "report": {"pipeline/judging", "pipeline/reporting", "pipeline/storage/stored_pictures.py"},
}
SETTINGS = {"seed", "device", "threads", "deterministic"}
LEARNING = {"devices"}
"""What matters to train and evaluate alone."""
SECTIONS = ("seeds", "env", "collect", "network", "train", "evaluate")

GRAPH = grimp.build_graph("quatrain", "pipeline", include_external_packages=True, cache_dir=None)
DVC = YAML(typ="safe").load(ROOT / "dvc.yaml")
SLOTS = next(part["models"] for part in DVC["vars"] if "models" in part)


class Declared(NamedTuple):
    """A stage with its slots filled in."""

    verb: str
    model: str
    deps: list[str]
    params: set[str]
    outs: set[str]


def declared(verb: str, model: str, stage: dict[str, Any]) -> Declared:
    def filled(value: str) -> str:
        slots = SLOTS.get(model, {}) | {"key": model}
        return re.sub(r"\$\{(?:item\.)?(\w+)\}", lambda match: slots[match[1]], value)

    entries = [out for kind in ("outs", "metrics", "plots") for out in stage.get(kind, [])]
    outs = [next(iter(out)) if isinstance(out, dict) else out for out in entries]
    deps, params, created = (
        list(map(filled, each)) for each in (stage["deps"], stage["params"], outs)
    )
    return Declared(verb, model, deps, set(params), set(created))


PER_MODEL = {
    (verb, model): declared(verb, model, DVC["stages"][verb]["do"])
    for verb in VERBS
    for model in SLOTS
}
REPORT = declared("report", "", DVC["stages"]["report"])
STAGES = [*PER_MODEL.values(), REPORT]
every_stage = pytest.mark.parametrize(
    "stage", STAGES, ids=[f"{stage.verb}@{stage.model}" for stage in STAGES]
)


def file_of(module: str) -> str:
    path = ("src/" if module.startswith("quatrain") else "") + module.replace(".", "/")
    return f"{path}.py" if (ROOT / f"{path}.py").exists() else f"{path}/__init__.py"


def stage_modules(stage: Declared) -> set[str]:
    """Returns the modules that a stage loads by the registry; grimp cannot see these imports."""
    source = (ROOT / "pipeline" / "stages" / f"{stage.verb}.py").read_text()
    named = set(re.findall(r"stage\.modules\.(\w+)", source))
    named |= {"collect"} if "load_dataset" in source else set()
    named |= {"train"} if "load_trained" in source else set()
    schemas = schemas_of(stage.model).values() if stage.model else ()
    worlds = {schema.WORLD for schema in schemas} - {""}
    modules = {f"quatrain.models.{stage.model}.{name}" for name in named}
    return modules & GRAPH.modules | worlds


def needed(stage: Declared) -> set[str]:
    """Files of the inside that shape a stage's outs."""
    writers = [dep for dep in stage.deps if dep.startswith("pipeline/")]
    body = f"pipeline.stages.{stage.verb}"
    direct: set[str] = set()
    for module in {body, *GRAPH.find_upstream_modules(body)}:
        if any(covers(dep, file_of(module)) for dep in writers):
            direct |= GRAPH.find_modules_directly_imported_by(module)
    inside = {module for module in direct if module.startswith("quatrain.")}
    start = inside - WIRING | stage_modules(stage)
    modules = start.union(*map(GRAPH.find_upstream_modules, start))
    return {file_of(module) for module in modules if module.startswith("quatrain.")}


def covers(dep: str, file: str) -> bool:
    return file == dep or file.startswith(f"{dep}/")


@every_stage
def test_dependencies_are_what_shapes_an_out(stage: Declared):
    files = needed(stage)
    assert {file for file in files if not any(covers(dep, file) for dep in stage.deps)} == set()
    writers = {f"pipeline/stages/{stage.verb}.py", *WRITERS[stage.verb]}
    assert {dep for dep in stage.deps if dep.startswith("pipeline/")} == writers
    created = [out for other in STAGES for out in other.outs]
    absent = [dep for dep in stage.deps if not (ROOT / dep).exists()]
    assert [dep for dep in absent if not any(covers(dep, out) for out in created)] == []


@pytest.mark.parametrize("model", MODELS)
def test_code_that_makes_scores_stale_makes_their_stage_run_again(model: str):
    """`make repro` could not mend them otherwise; and they tell the report of a changed rule."""
    deps = PER_MODEL["evaluate", model].deps
    for schema in schemas_of(model).values():
        package = load(model).package
        files = code_of(package, schema.WORLD, "evaluate")
        code = [str(path.relative_to(ROOT)) for path in files]
        assert [file for file in code if not any(covers(dep, file) for dep in deps)] == []
        folder = f"src/{package.replace('.', '/')}"
        assert {f"{folder}/evaluate.py", f"{folder}/rules.py"} <= {*code}
    assert f"inputs/{model}" in deps


@every_stage
def test_a_dependency_makes_no_other_model_stale(stage: Declared):
    """Neither the files of another model, nor a world or buffer beside the model's own."""
    configs = [f"src/quatrain/models/{model}/config.py" for model in {*MODELS} - {stage.model}]
    others = configs if stage.model else []
    reached = ["src/quatrain/registry.py", *others]
    assert [file for file in reached for dep in stage.deps if covers(dep, file)] == []
    folder = f"src/quatrain/models/{stage.model}"
    shared = [dep for dep in stage.deps if dep.startswith("src/") and not covers(folder, dep)]
    assert [dep for dep in shared if list((ROOT / dep).glob("*/__init__.py"))] == []


@pytest.mark.parametrize("model", MODELS)
def test_each_stage_reads_what_the_one_before_it_makes(model: str):
    collect, train, evaluate = (PER_MODEL[verb, model] for verb in VERBS)
    data, weights, baseline = f"data/{model}", f"models/{model}", f"baselines/{model}.json"
    names = ("scores.json", "plots", "metrics.json", "curves")
    reports = {f"reports/{model}/{name}" for name in names}
    assert (collect.outs, train.outs, evaluate.outs) == ({data}, {weights}, reports)
    assert f"inputs/{model}" in collect.deps
    assert data in train.deps
    assert {data, weights} <= set(evaluate.deps)
    assert baseline not in evaluate.deps
    assert {"baselines", "models", f"reports/{model}"} <= set(REPORT.deps)


def test_params_are_declared_by_the_keys_that_a_stage_reads():
    for stage in PER_MODEL.values():
        names = ("seeds", "env", "collect") if stage.verb == "collect" else ()
        sections = {f"{stage.model}.{name}" for name in names} or {stage.model}
        preset = {"preset"} if stage.verb == "evaluate" else set()
        learning = set() if stage.verb == "collect" else LEARNING
        assert stage.params == SETTINGS | learning | sections | preset, stage
    assert REPORT.params == {"preset"}


def test_a_model_names_its_framework_and_packages_hold_no_code():
    """A package's __init__ is imported with each of its modules, but no dependency names it. That
    of quatrain exports the public API lazily, that of adapters registers ids, that of a model
    declares it; they shape no out.
    """
    root = ROOT / "src" / "quatrain"
    doors = {root, root / "envs" / "adapters", *(root / "models" / model for model in MODELS)}
    packages = set(root.rglob("__init__.py")) - {door / "__init__.py" for door in doors}
    assert [path for path in packages if len(path.read_text().splitlines()) > 1] == []
    assert {model: slots["framework"] for model, slots in SLOTS.items()} == MODELS
    assert len({tuple(slots) for slots in SLOTS.values()}) == 1


@pytest.mark.parametrize("model", MODELS)
def test_a_model_never_imports_another_framework(model: str):
    others = {name for key, names in PACKAGES.items() if key != MODELS[model] for name in names}
    package = f"quatrain.models.{model}"
    loaded = {package, *GRAPH.find_descendants(package)}
    upstream = loaded.union(*map(GRAPH.find_upstream_modules, loaded))
    assert upstream & {"jax", "torch"} == {MODELS[model]}
    assert upstream & others == set()


def test_plots_show_one_column_of_a_file_without_blanks_against_steps():
    settings = [each for plot in DVC["plots"] for each in plot.values()]
    assert {each["x"] for each in settings} == {"step"}
    columns = {path: column for each in settings for path, column in each["y"].items()}
    folders = {f"reports/{model}/curves" for model in MODELS}
    assert {path.rpartition("/")[0] for path in columns} == folders
    names = {path: path.rpartition("/")[2] for path in columns}
    assert names == {path: f"{file_name(column)}.csv" for path, column in columns.items()}


def test_registry_params_dvc_yaml_baselines_and_presets_name_the_same_models():
    assert set(SLOTS) == set(MODELS)
    shared = {"preset", "checkpoint_seconds", "drift"}
    assert set(Params.model_fields) == SETTINGS | LEARNING | shared | set(MODELS)
    assert {path.stem for path in (ROOT / "baselines").glob("*.json")} == set(MODELS)
    for preset in (ROOT / "presets").glob("*.yaml"):
        assert set(parse(preset)) <= set(Params.model_fields)
    for model in MODELS:
        assert tuple(parse(ROOT / "params.yaml")[model]) == SECTIONS
        assert (ROOT / "inputs" / model).is_dir()
