"""argv, params.yaml -> a stage with its files, seeds, device and threads, which ends with the right
exit code.
"""

import gc
import os
import warnings
from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from pipeline.runtime import console
from pipeline.runtime.command import Parser, run_guarded
from pipeline.runtime.costs import Meter
from pipeline.runtime.devices import enable_jax_cache, free_memory, settings
from pipeline.runtime.processes import Signals, die_with_parent, folder_lock
from pipeline.storage.params_file import checkout_of, dvc_root, read_params
from quatrain.devices import framework_environment, on_device
from quatrain.errors import DataError
from quatrain.frameworks.settings import JAX_FLAGS
from quatrain.memory import check_memory, lack_explained
from quatrain.nvidia import has_nvidia_gpu
from quatrain.params import Params
from quatrain.registry import MODELS, Framework, Model, load
from quatrain.seeds import named_seed

# How long a predecessor may take to save and leave: longer than its last delivery to a tracking
# server.
PATIENCE_SECONDS = 60.0
# Tracing makes many objects and hardly a cycle: looking for cycles every 700 was a tenth of a
# start.
OBJECTS_PER_COLLECTION = 100_000
DATASET = "dataset.safetensors"


class Stage(NamedTuple):
    verb: str
    model: str
    root: Path
    params: Params
    meter: Meter | None = None

    @property
    def name(self) -> str:
        return f"{self.verb}@{self.model}"

    @property
    def config(self) -> Any:
        return getattr(self.params, self.model)

    @property
    def framework(self) -> Framework:
        return MODELS[self.model]

    @property
    def data(self) -> Path:
        return self.root / "data" / self.model

    @property
    def weights(self) -> Path:
        return self.root / "models" / self.model

    @property
    def reports(self) -> Path:
        return self.root / "reports" / self.model

    @property
    def state(self) -> Path:
        """Returns the folder that survives an interruption, outside everything that DVC hashes."""
        return self.root / ".state"

    @property
    def costs(self) -> Path:
        """Returns the file of what the stage took with these params and the code on the disk."""
        from pipeline.storage.run_key import code_digest, params_of
        from quatrain.storage.folders import digest_of

        code = code_digest(self.root, self.model, self.params, self.verb)
        key = digest_of([code, params_of(self.params, self.model)])
        return self.state / "costs" / f"{self.name}-{key[:16]}.json"

    @property
    def modules(self) -> Model:
        """Returns the model's modules, those of its config."""
        return load(self.model)

    def seed(self, purpose: str) -> int:
        """Returns the seed of a purpose, from `seed` and names alone: stages do not share random
        numbers.
        """
        return named_seed(self.params.seed, self.name, purpose)

    def load_dataset(self) -> tuple[Any, str]:
        """Returns the verified dataset of this model and its digest.

        Raises:
            DataError: it is missing, damaged or of another form.
            DataError: it was collected for another config.
        """
        from quatrain.frameworks.packing import to_dataset
        from quatrain.storage import folders

        loaded = folders.load(self.data, [DATASET])
        collecting = self.modules.collect
        dataset = to_dataset(collecting.dataset_type(self.config), loaded.contents[DATASET])
        check_fits(self, getattr(dataset, "interface", None))
        collecting.check(self.config, dataset)
        return dataset, loaded.digest

    def key(self, inputs: list[str]) -> str:
        """Returns the key of this computation: a digest of params, code, a user's environment,
        device, threads, versions, flags and `inputs`, which are digests, too.

        A checkpoint of another key is never continued.
        """
        from pipeline.storage.run_key import environment_of, params_of, sources_of
        from quatrain.storage.folders import digest_of

        return digest_of(
            {
                "stage": self.name,
                "inputs": inputs,
                "seed": self.seed(self.verb),
                "params": params_of(self.params, self.model),
                "sources": sources_of(self.root, self.model, self.params, self.verb),
                "environment": environment_of(self.config.env),
                "settings": settings(self.params, self.framework),
            }
        )


# Returns what it made, for the line that is printed of the stage.
Body = Callable[[Stage, Signals], str]


def main(
    verb: str,
    about: str,
    body: Body | None = None,
    argv: list[str] | None = None,
    patience_seconds: float = PATIENCE_SECONDS,
) -> int:
    """Runs a verb of one model; every way to end is an exit code and, if it is not 0, one line on
    stderr.

    body: `VERB` of `pipeline.stages.VERB` if it is None, loaded when params.yaml is known to be
    right.
    """
    parser = Parser(prog=f"python -m pipeline.{verb}", description=about)
    parser.add_argument("model", choices=MODELS, help="the model that the stage works on")
    model = parser.parse_args(argv).model
    return run_guarded(f"{verb}@{model}", lambda: run_stage(verb, model, body, patience_seconds))


def run_stage(verb: str, model: str, body: Body | None, patience_seconds: float) -> None:
    """Runs a verb of one model in the current folder, if its params and memory are right."""
    signals = Signals()
    die_with_parent()
    stage = Stage(verb, model, Path.cwd(), read_params(Path.cwd()))
    before = dependencies(stage)
    check_fits(stage)
    prepare_process(stage.params)
    if stage.framework == "jax":
        gc.set_threshold(OBJECTS_PER_COLLECTION)
        enable_jax_cache(checkout_of(dvc_root(stage.root)), stage.params)
    # Loaded while a signal ends the stage at once, and after the variables are set.
    run: Body = body or getattr(import_module(f"pipeline.stages.{verb}"), verb)
    with folder_lock(stage.state / "locks" / stage.name, patience_seconds):
        signals.working = True
        line = run_measured(stage, run, signals)
        signals.check()
        if dependencies(stage) != before:
            raise DataError(
                f"code, inputs or params of {model} changed while this stage ran, so that what it "
                "made is not recorded",
                remedy="run again; a training continues if you set them back",
            )
        print(f"{stage.name}: {line}")


def run_measured(stage: Stage, body: Body, signals: Signals) -> str:
    """Runs the body, and stores what it took; returns what it returns, with its seconds."""
    meter = Meter(stage.costs)
    try:
        result = run_on_device(stage._replace(meter=meter), body, signals)
    except BaseException as error:
        if not isinstance(error, DataError):  # which is refused before there is any work
            meter.save()
        raise
    meter.save(is_done=True)
    return f"{result}, {duration(meter.stop())}"


def duration(costs: Mapping[str, float]) -> str:
    """Returns the seconds of a stage, with those of compilation, for its line."""
    compilation = costs.get("compile_seconds", 0.0)
    part = f" ({compilation:.1f} s of them compiling)" if compilation else ""
    return f"{costs['seconds']:.1f} s{part}"


def dependencies(stage: Stage) -> tuple[str, dict[str, Any]]:
    """Returns digest and values of the code and params as they are on the disk now: DVC records
    them at the end of a stage, and they may be edited while it runs.
    """
    from pipeline.storage.run_key import code_digest, params_of

    params = read_params(stage.root)
    code = code_digest(stage.root, stage.model, params, stage.verb)
    return code, params_of(params, stage.model)


def check_fits(stage: Stage, interface: Any = None) -> None:
    """Checks that the stage's largest arrays fit into memory.

    interface: sizes of a user's environment, once the dataset tells them. What a GPU holds is found
    out when it is allocated.

    Raises:
        DeviceFull: they do not; the line has the numbers and the keys to lower.
    """
    device = stage.params.device
    if device == "cpu" or (device == "auto" and not has_nvidia_gpu()):
        needs = stage.modules.memory.needs(stage.config, interface and interface.restored)
        check_memory(stage.model, stage.verb, needs, free_memory())


def prepare_process(params: Params) -> None:
    """Sets threads, devices and determinism in the variables that jax and torch read when they are
    imported. Variables of jax that change numbers have no effect.
    """
    for name in JAX_FLAGS:
        os.environ.pop(f"JAX_{name.upper()}", None)
    os.environ |= framework_environment(params, os.environ) | {"MPLBACKEND": "Agg"}
    warnings.showwarning = lambda message, *_, **__: console.info(
        f"warning: {' '.join(str(message).split())}"
    )


def run_on_device(stage: Stage, body: Body, signals: Signals) -> str:
    """Runs the body with the threads and on the device of params.yaml; returns what it returns.

    Raises:
        DeviceMissing: there is no such device.
        DeviceFull: it has no memory left.
        Interrupted: a signal came before data or an environment failed, for it may be why they did:
            a terminal sends Ctrl-C to the processes of an environment, too.
    """
    needs = partial(stage.modules.memory.needs, stage.config)
    with on_device(stage.params, stage.framework), lack_explained(stage.model, needs):
        try:
            return body(stage, signals)
        except DataError:
            signals.check()
            raise
