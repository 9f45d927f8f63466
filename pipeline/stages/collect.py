"""params -> data/MODEL: the dataset that training and evaluation read."""

from pipeline.judging import drift
from pipeline.runtime.processes import Signals
from pipeline.runtime.stage import Stage
from pipeline.storage.params_file import checkout_of, dvc_root
from quatrain.frameworks.packing import flatten
from quatrain.registry import summary
from quatrain.storage import folders


def collect(stage: Stage, signals: Signals) -> str:
    """Collects the dataset, and saves it with its manifest; returns a line on it."""
    dataset = stage.modules.collect.collect(stage.config, stage.seed("collect"))
    signals.check()
    arrays = flatten(dataset)
    if channels := drift.channels_of(stage.config, arrays):
        learned = drift.accepted(checkout_of(dvc_root(stage.root)), stage.model, stage.params)
        place = f"baselines/{stage.model}.json, preset {stage.params.preset}"
        drift.check(place, learned, channels, stage.params.drift)
    folders.save(stage.data, {"dataset.safetensors": arrays}, {"stage": stage.name})
    megabytes = sum(array.nbytes for array in arrays.values()) / 1e6
    size = f"{stage.data.relative_to(stage.root)}, {megabytes:.1f} MB"
    return ", ".join(filter(None, (size, summary(stage.model, stage.config, dataset))))
