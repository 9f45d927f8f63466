"""baselines/MODEL.json: unchecked, for `quatrain.judgement` checks the entry that it judges by."""

from pathlib import Path
from typing import Any

from quatrain.errors import DataError
from quatrain.storage import folders


def baseline_path(root: Path, model: str) -> Path:
    return root / "baselines" / f"{model}.json"


def read_baseline(root: Path, model: str) -> dict[str, Any] | None:
    """Returns the unchecked content of a baseline file; None if there is no file.

    Raises:
        DataError: it is not JSON, or belongs to another model.
    """
    path = baseline_path(root, model)
    if not path.exists():
        return None
    try:
        baseline = folders.read_json(path)
    except DataError as error:
        raise damaged(model, error.reason) from None
    if not isinstance(baseline, dict) or baseline.get("model") != model:
        raise damaged(model, f"baselines/{path.name}: is not the baseline of {model}")
    return baseline


def damaged(model: str, reason: str) -> DataError:
    return DataError(reason, remedy=f"`git checkout baselines/{model}.json` restores it")
