"""options of a command -> the place that runs its trials: this machine, or a Ray cluster."""

from pathlib import Path

from pipeline.runtime.command import Options
from pipeline.trials.cluster import Cluster
from pipeline.trials.engine import Place
from pipeline.trials.local import Machine


def make_place(
    root: Path, options: Options, *, cpus: int, gpus: float, watch: str, retries: int
) -> Place:
    """Returns the cluster at `options.address`, or so many `options.cpus` of this machine.

    cpus, gpus: what a trial takes. watch: a train metric. retries: how often a trial whose process
    or node was lost begins again.

    Raises:
        CommandFailed: a trial needs more than this machine offers.
    """
    if options.address is None:
        return Machine(root, cpus, gpus, watch=watch, retries=retries, cores=options.cpus)
    return Cluster(root, options.address, options.storage, cpus, gpus, watch, retries)
