""".state/journal -> MLflow: records what a cache restored, delivers what is left, sets aliases;
exit 6 until then.
"""

from pathlib import Path

from pipeline.dvc.workspace import environment
from pipeline.runtime import console
from pipeline.runtime.errors import StoreUnavailable
from pipeline.runtime.redaction import shown
from pipeline.tracking import backfill, registry
from pipeline.tracking.pending import JournalDelivery, deliver
from pipeline.tracking.store import reason_of, resolve_uri
from quatrain.errors import ConfigError
from quatrain.registry import MODELS

# A pattern finds a link that leads nowhere, a name does not.
JOURNALS = (
    ".state/journal/*/journal.json[l]",
    ".presets/*/.state/journal/*/journal.json[l]",
    ".state/sweeps/*/journal/*/journal.json[l]",
)


def workspaces(root: Path) -> dict[str, Path]:
    folders = {"default": root} | {path.name: path for path in sorted(root.glob(".presets/*"))}
    return {name: path for name, path in folders.items() if (path / "params.yaml").is_file()}


def record_restored(root: Path) -> int:
    """Records what DVC restored; returns the first exit code that is not 0."""
    codes = []
    for preset, work in workspaces(root).items():
        try:
            codes.append(backfill.catch_up(work, list(MODELS), environment(root, work)))
        except ConfigError as error:
            console.info(
                f"sync: preset {preset}: "
                f"{error}; what a cache restored there is not recorded"
                f" [exit {error.exit_code}]"
            )
            codes.append(error.exit_code)
    return next((code for code in codes if code), 0)


def set_aliases(root: Path) -> str | None:
    """Sets the aliases of registered models; returns why that failed, if it did."""
    try:
        for preset, work in workspaces(root).items():
            for line in registry.set_aliases(
                root,
                registry.expected_aliases(root, work, preset, list(MODELS)),
                refresh=True,
            ):
                print(line)
    except Exception as error:
        return reason_of(error, resolve_uri(root))
    return None


def sync(root: Path, wait_seconds: float, from_start: bool = False) -> int:
    """Records, delivers and sets aliases; each is tried even if another fails. Returns the exit
    code.

    Journals that the store has, it is asked about: it may be restored from an older backup. With
    `from_start` all are sent anew.

    Raises:
        StoreUnavailable: journals or aliases are pending.
    """
    uri = resolve_uri(root)
    code = record_restored(root)
    deliveries = [
        JournalDelivery(folder, uri, is_checked=True, from_start=from_start)
        for folder in sorted(path.parent for pattern in JOURNALS for path in root.glob(pattern))
    ]
    pending = deliver(deliveries, wait_seconds)
    for delivery in deliveries:
        print(delivery.summary())
    metrics = sum(delivery.metrics for delivery in deliveries)
    files = sum(delivery.files for delivery in deliveries)
    print(
        f"{len(deliveries) - len(pending)} of {len(deliveries)} journals are complete"
        f" at {shown(uri)}; {metrics:,} metrics and {files} files sent"
    )
    remedy = "run `make sync` when that is mended"
    if pending:
        raise StoreUnavailable(
            f"{len(pending)} journals are pending: {pending[0].pending}; {remedy}"
        )
    failure = set_aliases(root)
    if failure:
        raise StoreUnavailable(f"the registry's aliases are pending: {failure}; {remedy}")
    return code
