"""The outside: disk, clock, argv, MLflow, DVC and signals."""

import os
import sys
import traceback
from pathlib import Path
from types import TracebackType

# quatrain of this very copy of the code: `dvc exp run --temp` and presets run in copies.
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))


def _report_interrupt(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    """Prints one line for Ctrl-C while a command's modules are imported, and a traceback without
    secrets for anything else.
    """
    if issubclass(kind, KeyboardInterrupt):
        sys.stderr.write("interrupted by SIGINT [exit 130]\n")
    else:
        from pipeline.runtime.console import redact

        sys.stderr.write(redact("".join(traceback.format_exception(kind, error, trace))))


def _same_blas_everywhere() -> None:
    """Makes OpenBLAS use its AVX2 kernels, as on any x86-64 processor of the last ten years: the
    ones that it would choose itself give eigenvectors other last bits on each type.

    OpenBLAS reads the variable when numpy is loaded, so this package sets it first.
    """
    try:
        with Path("/proc/cpuinfo").open() as cpus:
            has_avx2 = " avx2 " in cpus.read(4096)
    except OSError:
        return
    if has_avx2:
        os.environ.setdefault("OPENBLAS_CORETYPE", "Haswell")


_same_blas_everywhere()

# Set while `python -m pipeline.NAME` looks for NAME, but not where a program imports this package.
if sys.argv[0] == "-m":
    sys.excepthook = _report_interrupt
