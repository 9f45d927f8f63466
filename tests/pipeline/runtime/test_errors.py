"""Errors: each has its exit code, and one line with reason and remedy."""

import errno
import pickle

import pytest

from pipeline.runtime.errors import (
    RESTORE,
    BaselineBroken,
    CommandFailed,
    Interrupted,
    LockHeld,
    described,
    exit_code_of,
)
from quatrain import errors
from quatrain.errors import FolderError, QuatrainError

FULL = "cannot write a file: No space left on device; nothing half-written was left; "


@pytest.mark.parametrize(
    ("kind", "code", "builtin"),
    [
        (errors.ConfigError, 2, ValueError),
        (errors.DataError, 3, ValueError),
        (errors.DatasetMismatch, 3, ValueError),
        (errors.FolderError, 3, ValueError),
        (BaselineBroken, 4, Exception),
        (errors.DeviceFull, 5, MemoryError),
        (errors.DeviceMissing, 5, Exception),
        (errors.DiskError, 5, OSError),
        (errors.PackageMissing, 5, ImportError),
        (LockHeld, 5, Exception),
        (errors.TrainingDiverged, 7, ArithmeticError),
    ],
)
def test_an_error_has_an_exit_code_a_remedy_and_one_line(
    kind: type[QuatrainError], code: int, builtin: type[Exception]
):
    error = pickle.loads(pickle.dumps(kind("allo.csv: is missing", remedy="restore it")))
    assert isinstance(error, builtin)
    assert (error.reason, error.remedy) == ("allo.csv: is missing", "restore it")
    assert described(error) == str(error) == "allo.csv: is missing; restore it"
    assert exit_code_of(error) == code


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (FolderError("data/allo: is damaged"), 3, f"data/allo: is damaged; {RESTORE}"),
        (CommandFailed("git failed", exit_code=9), 9, "git failed"),
        (Interrupted(15), 143, "interrupted by SIGTERM; the next run continues"),
        (OSError(errno.ENOSPC, "No space left on device"), 5, FULL),
        (FileNotFoundError(errno.ENOENT, "", "data/x"), 3, "data/x: is missing; restore it"),
        (MemoryError(), 5, "out of memory: an allocation failed; lower the seeds"),
        (RuntimeError("RESOURCE_EXHAUSTED: 4 G\nat 0"), 5, "out of memory: RESOURCE_EXHAUSTED: "),
        (RuntimeError("a bug"), None, "a bug"),
        (OSError(errno.ECONNREFUSED, "refused"), None, "[Errno 111] refused"),
    ],
)
def test_a_failure_of_the_machine_has_a_line_too(error: Exception, code: int | None, line: str):
    assert exit_code_of(error) == code
    assert described(error).startswith(line)
