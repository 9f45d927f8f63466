"""results that DVC's cache restored -> a tag on the pipeline's run, and no run of their own."""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from pipeline.storage.params_file import read_params
from pipeline.tracking.outbox import Outbox
from pipeline.tracking.run import Run, outboxes, path_of, report_path
from quatrain.errors import DataError
from quatrain.storage import folders

# Names the stages whose results were made elsewhere, and restored by DVC.
TAG = "quatrain.restored"


def record_restored(root: Path, models: Iterable[str]) -> None:
    """Records in a tag of the pipeline's run which results DVC restored, once.

    Raises:
        ConfigError: params.yaml cannot be used.
        DataError, OSError: the outbox of the pipeline is damaged, or the disk is full.
    """
    names = ", ".join(name for model in models for name in restored(root, model))
    params = read_params(root)
    if names and not report_path(root, params, names).is_file():
        with Run.of_pipeline(root, params, names) as run:
            run.outbox.put("tag", TAG, names)


def restored(root: Path, model: str) -> Iterator[str]:
    """Yields the stages of a model whose results are here, and of which no outbox is."""
    try:
        manifest = folders.read_json(root / "models" / model / folders.MANIFEST)
        key = str(manifest["info"]["run_key"])
    except (DataError, KeyError, TypeError):
        return
    if not path_of(root, f"train@{model}", key).is_file():
        yield f"train@{model}"
    evaluations = outboxes(root).glob(f"evaluate@{model}-*.sqlite")
    is_evaluated = key in map(run_key_of, evaluations)
    if (root / "reports" / model / "scores.json").is_file() and not is_evaluated:
        yield f"evaluate@{model}"


def run_key_of(path: Path) -> str | None:
    """Returns the key of the run in an outbox; None if it is damaged, which `make sync` says."""
    with suppress(DataError, OSError):
        header = Outbox(path).header
        return header and header.run_key
    return None
