"""name of a model -> its rooms, imported on demand: the one table that names the models.

Each room of a model offers (no base class; values and functions are shared, control flow is not):

    collect.py    Dataset                                           NamedTuple of arrays: train, held_out, shared
                  collect(config, seed) -> Dataset
                  check(config, dataset)                            raises where a dataset was made for another config
    losses.py     TERMS                                             names of the loss terms
    train.py      HEADLINE                                          the two metrics that a progress bar shows
                  train(config, dataset, seed, learner=None) -> Iterator[Progress]
                  pack(learner) -> {name: array}                    `params/...` are the weights
                  unpack(config, dataset, arrays) -> Learner
    evaluate.py   GATED                                             the metrics that a baseline judges
                  evaluate(config, learner, dataset, seed) -> {metric: number}
    plots.py      plots(config, learner, dataset, history, scores) -> {name: Figure}
"""

from importlib import import_module
from types import ModuleType

MODELS = ("allo",)


def room(model: str, name: str) -> ModuleType:
    """The room `name` of a model, e.g. room("allo", "train")."""
    return import_module(f"quatrain.models.{model}.{name}")
