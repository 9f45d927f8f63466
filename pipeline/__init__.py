"""The outside: disk, clock, argv, MLflow, DVC and signals, one verb per file."""

import sys
from pathlib import Path

# The inside of this very copy of the code: `dvc exp run --temp` and presets run in copies.
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))
