"""trials, options of a command -> the place that runs them: this machine, or a Ray cluster."""

from collections.abc import Sequence
from pathlib import Path
from typing import TypedDict

from pipeline.runtime.command import Options
from pipeline.runtime.processes import core_count
from pipeline.trials.cluster import Cluster
from pipeline.trials.engine import Place
from pipeline.trials.local import Machine
from pipeline.trials.trial import Trial
from quatrain.devices import device_of
from quatrain.registry import MODELS

# How often a trial begins again whose stage was killed, where nobody says it.
RETRIES = 1


class Needs(TypedDict):
    """Holds what a trial takes of its machine."""

    cpus: int
    gpus: float


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


def needs_of(trials: Sequence[Trial]) -> Needs:
    """Returns a core for two threads, and whole GPUs: two trainings on one would each want the
    larger part of its memory.

    Threads wait often: of eight small trainings of two threads, two at a time on two cores took 55
    seconds, one at a time 90.
    """
    threads = max((trial.params.threads for trial in trials), default=1)
    on_gpus = [each for each in trials if device_of(each.params, MODELS[each.model]) == "cuda"]
    gpus = max((trial.params.devices for trial in on_gpus), default=0)
    return {"cpus": min((threads + 1) // 2, core_count()), "gpus": gpus}
