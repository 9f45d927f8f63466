""".state/outbox -> MLflow: delivers what is left, and sets aliases; exit 6 until then."""

from contextlib import suppress
from pathlib import Path

from pipeline.tracking.champions import set_champions
from pipeline.tracking.delivery import Delivery, deliver
from pipeline.tracking.outbox import Outbox
from pipeline.tracking.run import end_abandoned
from pipeline.tracking.store import Unreachable, reason_of, resolve_uri
from quatrain.errors import DataError, QuatrainError
from quatrain.storage.disk_errors import escaped

FOLDERS = (".state/outbox", ".presets/*/.state/outbox", ".state/groups/*/outbox")
REMEDY = "run `make sync` when that is mended"


class AliasPending(QuatrainError):
    """Says which aliases are not at a version that their baseline allows."""

    exit_code = Unreachable.exit_code


def sync(root: Path, from_start: bool = False) -> int:
    """Delivers everything and sets aliases; returns 0.

    Runs whose process was killed are ended. With `from_start` all is sent again.

    Raises:
        Unreachable, AliasPending: outboxes or aliases are pending.
    """
    uri = resolve_uri(root)
    # The first to send makes the run, and the last one describes it.
    paths = [path for folder in FOLDERS for path in root.glob(f"{folder}/*.sqlite")]
    end_abandoned(paths)
    outboxes = sorted(map(Outbox, paths), key=_begun)
    deliveries = [Delivery(outbox, uri, from_start) for outbox in outboxes]
    pending = deliver(deliveries)
    for delivery in deliveries:
        error = pending.get(delivery)
        if delivery.metrics or delivery.files or error is not None:
            sent = f"{delivery.metrics:,} metrics and {delivery.files} files sent"
            rest = "" if error is None else f", the rest is pending: {reason_of(error)}"
            print(f"{escaped(delivery.outbox.name)}: {sent}{rest}")
    metrics = sum(delivery.metrics for delivery in deliveries)
    files = sum(delivery.files for delivery in deliveries)
    print(
        f"{len(deliveries) - len(pending)} of {len(deliveries)} outboxes are complete"
        f" at {uri}; {metrics:,} metrics and {files} files sent"
    )
    if pending:
        reason = reason_of(next(iter(pending.values())))
        raise Unreachable(f"{len(pending)} outboxes are pending: {reason}; {REMEDY}")
    set_aliases(root)
    return 0


def _begun(outbox: Outbox) -> int:
    """Returns when the work began; 0 if the outbox is damaged or empty."""
    with suppress(DataError, OSError):
        return outbox.begun_at
    return 0


def set_aliases(root: Path) -> None:
    """Sets the aliases of the models of all presets, and prints what moved.

    Raises:
        Unreachable: the store does not take them.
        AliasPending: it has no version that a baseline allows.
    """
    folders = {"default": root} | {path.name: path for path in sorted(root.glob(".presets/*"))}
    aliases = []
    try:
        for preset, work in folders.items():
            aliases += set_champions(root, work, preset, again=True)
    except Exception as error:
        reason = reason_of(error)
        raise Unreachable(f"the registry's aliases are pending: {reason}; {REMEDY}") from None
    for alias in aliases:
        if alias.is_set:
            print(alias.text)
    if pending := [alias.text for alias in aliases if not alias.is_set]:
        raise AliasPending("; ".join(pending))
