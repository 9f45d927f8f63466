"""argv, params.yaml -> a stage with its files, seeds, device and threads, which ends with the right exit code."""

import argparse
import ctypes
import errno
import gc
import hashlib
import os
import signal
import sys
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

from pipeline.runtime import compile_cache
from pipeline.runtime.devices import on_device, settings
from pipeline.storage import artifacts
from pipeline.storage.artifacts import ArtifactError
from pipeline.storage.checkpoints import LockHeld, folder_lock, loaded_code, run_key
from pipeline.storage.params_file import ConfigError, read_params
from quatrain.errors import DataError, DeviceFull, DeviceMissing
from quatrain.params import Params
from quatrain.progress import TrainingDiverged
from quatrain.registry import MODELS, Framework, load

CHECKOUT = Path(__file__).resolve().parents[2]
"""Where this code lies; a stage works in the current folder, which is another one in tests."""
PR_SET_PDEATHSIG = 1
PATIENCE_SECONDS = 60.0
"""How long a predecessor may take to save and leave: longer than its last delivery to a tracking server."""
OBJECTS_PER_COLLECTION = 100_000
"""Tracing makes many objects and hardly a cycle: looking for cycles every 700 was a tenth of a start."""
REFUSALS = (
    errno.ENOSPC,
    errno.EDQUOT,
    errno.EFBIG,
    errno.EROFS,
    errno.EACCES,
    errno.EPERM,
    errno.EIO,
)
"""What a disk answers that is full, broken or not ours to write."""


class Interrupted(Exception):
    """A signal came and what must be kept is kept. Exit code 128 + signal."""


class Stage(NamedTuple):
    """One verb on one model: where its files are and what its randomness is."""

    verb: str
    model: str
    root: Path
    params: Params

    @property
    def name(self) -> str:
        """As DVC calls it."""
        return f"{self.verb}@{self.model}"

    @property
    def config(self) -> Any:
        """The model's section of params.yaml."""
        return getattr(self.params, self.model)

    @property
    def framework(self) -> Framework:
        """What the model's rooms compute with."""
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
        """What outlives an interruption, outside everything that DVC hashes."""
        return self.root / ".state"

    def seed(self, purpose: str) -> int:
        """The seed of one purpose: from `seed` and names alone, so that stages do not share random numbers."""
        digest = hashlib.sha256(f"{self.params.seed}/{self.name}/{purpose}".encode()).digest()
        return int.from_bytes(digest[:4], "little")

    def load_dataset(self) -> tuple[Any, str]:
        """The verified dataset of this model and its digest.

        Raises:
            ArtifactError: it is missing, damaged or of another form.
            DataError: it was collected for another config.
        """
        loaded = artifacts.load(self.data)
        collecting = load(self.model).collect
        dataset = artifacts.from_arrays(collecting.Dataset, loaded.contents["dataset.npz"])
        collecting.check(self.config, dataset)
        return dataset, loaded.digest

    def key(self, inputs: list[str]) -> str:
        """Names this very computation: what it reads, the code that it has loaded, device, threads and versions.

        Call it when the rooms that shape the outputs are imported.
        """
        params = self.params.model_dump(mode="json", exclude={"checkpoint_seconds", "preset"})
        shared = {name: value for name, value in params.items() if name not in MODELS}
        shared["seed"] = self.seed(self.verb)
        return run_key(
            stage=self.name,
            params={**shared, self.model: params[self.model]},
            code=[*loaded_code(CHECKOUT, self.model), CHECKOUT / "pipeline" / f"{self.verb}.py"],
            inputs=inputs,
            settings=settings(self.params, self.framework),
        )


def prepare_process(params: Params) -> None:
    """The variables by which jax and torch are told threads, device and determinism; before either is imported."""
    threads = str(params.threads)
    os.environ |= {
        "NPROC": threads,
        "OMP_NUM_THREADS": threads,
        "OMP_WAIT_POLICY": "PASSIVE",
        "MPLBACKEND": "Agg",
    }
    if params.device != "auto":
        os.environ["JAX_PLATFORMS"] = params.device
    if params.deterministic:
        os.environ["XLA_FLAGS"] = (
            f"{os.environ.get('XLA_FLAGS', '')} --xla_gpu_deterministic_ops=true".strip()
        )
        os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
    warnings.showwarning = lambda message, *_, **__: say(
        f"warning: {' '.join(str(message).split())}"
    )


def say(line: str) -> None:
    """Print to stderr; a reader that has gone (`make repro | tee`, then Ctrl-C) keeps no stage from saving its work."""
    with suppress(OSError):
        print(line, file=sys.stderr, flush=True)


def die_with_parent() -> None:
    """Linux: be sent SIGTERM when the parent (dvc) dies, so that no orphan writes beside the next run.

    Raises:
        Interrupted: dvc died before we could ask for that signal, and process 1 is our parent now.
    """
    if sys.platform != "linux":
        return
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if (
        "DVC_STAGE" in os.environ
        and os.getppid() == 1
        and b"dvc" not in Path("/proc/1/cmdline").read_bytes()
    ):
        raise Interrupted(signal.SIGTERM)


class Signals:
    """SIGTERM and SIGINT: raised at once while there is nothing to save, then remembered until the stage asks."""

    def __init__(self) -> None:
        self.received: int | None = None
        self.working = False
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._note)

    def _note(self, number: int, _frame: FrameType | None) -> None:
        if not self.working:
            raise Interrupted(number)
        if self.received is None:
            self.received = number
            with suppress(
                OSError
            ):  # no print: it may be what was interrupted, and cannot be entered twice
                os.write(
                    2,
                    f"{signal.Signals(number).name}: saving, then leaving (Ctrl-C: at once)\n".encode(),
                )
        elif (
            number == signal.SIGINT
        ):  # a second SIGTERM comes by itself where a whole process group is ended
            os._exit(128 + number)

    def check(self) -> None:
        """Raise Interrupted if one came."""
        if self.received is not None:
            raise Interrupted(self.received)


Body = Callable[[Stage, Signals], None]


def main(
    verb: str,
    about: str,
    body: Body,
    argv: list[str] | None = None,
    patience_seconds: float = PATIENCE_SECONDS,
) -> int:
    """Run a verb of one model; any way it can end is an exit code and, if it is not 0, one line on stderr."""
    parser = argparse.ArgumentParser(prog=f"python -m pipeline.{verb}", description=about)
    parser.add_argument("model", choices=MODELS)
    model = parser.parse_args(argv).model
    return guarded(f"{verb}@{model}", lambda: _run(verb, model, body, patience_seconds))


def _run(verb: str, model: str, body: Body, patience_seconds: float) -> None:
    signals = Signals()
    die_with_parent()
    stage = Stage(verb, model, Path.cwd(), read_params(Path.cwd()))
    prepare_process(stage.params)
    if stage.framework == "jax":
        gc.set_threshold(OBJECTS_PER_COLLECTION)
        compile_cache.keep(stage.root, stage.params)
    with folder_lock(stage.state / "locks" / stage.name, patience_seconds):
        signals.working = True
        work(stage, body, signals)
        signals.check()


def work(stage: Stage, body: Body, signals: Signals) -> None:
    """What the stage is for, with the threads and on the device of params.yaml.

    Raises:
        DeviceMissing: there is no such device.
    """
    with on_device(stage.params, stage.framework):
        body(stage, signals)


def guarded(name: str, work: Callable[[], None]) -> int:
    """The exit code of `work`, with one line on stderr for each way to fail that a user can mend."""
    try:
        work()
    except Interrupted as error:
        number = int(error.args[0])
        return _said(
            name,
            f"interrupted by {signal.Signals(number).name}; the next run continues",
            128 + number,
        )
    except KeyboardInterrupt:
        return _said(name, "interrupted by SIGINT", 130)
    except ConfigError as error:
        return _said(name, error, 2)
    except (ArtifactError, DataError) as error:
        return _said(name, error, 3)
    except (DeviceMissing, DeviceFull, LockHeld) as error:
        return _said(name, error, 5)
    except TrainingDiverged as error:
        return _said(name, error, 7)
    except OSError as error:
        if error.errno not in REFUSALS:
            raise
        what = error.filename or "a file"
        return _said(
            name, f"cannot write {what}: {error.strerror}; nothing half-written was left", 5
        )
    return 0


def _said(name: str, why: object, code: int) -> int:
    say(f"{name}: {' '.join(str(why).split())} [exit {code}]")
    return code
