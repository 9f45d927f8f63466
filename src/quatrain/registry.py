"""name of a model -> its framework and its rooms, imported on demand: the one table that names the models.

Each room of a model offers (no base class; values and functions are shared, control flow is not):

    config.py     one Section, a field of `Params`                  seeds, env, collect, network, train, evaluate;
                                                                    `train.steps`: the Progress.step of the last yield
    collect.py    Dataset                                           NamedTuple of arrays: train, held_out, shared
                  collect(config, seed) -> Dataset
                  check(config, dataset)                            raises DataError where it is of another config
    losses.py     TERMS                                             names of the loss terms
    train.py      HEADLINE                                          the two metrics that a progress bar shows
                  WEIGHTS                                           how names of arrays begin that inference needs
                  train(config, dataset, seed, learner=None) -> Iterator[Progress]
                  pack(learner) -> {name: array}                    `params/...` is what gradients change
                  unpack(config, dataset, arrays) -> Learner        raises ValueError where they are of another config
    evaluate.py   GATED                                             the metrics that a baseline judges
                  evaluate(config, learner, dataset, seed) -> {metric: number}
    plots.py      plots(config, learner, dataset, history, scores) -> {name: Figure}
    serve.py      export(config, learner, dataset) -> {name: array}   all that answering needs, of the first learner
                  request(config, dataset) -> {name: array}         an example; the first axis counts questions
                  answer(config, arrays, request) -> {name: array}  raises ValueError where a request does not fit

What models share in that: a learner is packed by `frameworks.FRAMEWORK.packing`. Recorded metrics have an
axis of learners, which `progress.by_learner` turns into names, so that `NAME` is there whatever `seeds` is. Scores of
several learners become means and intervals by `statistics.over_learners`.

A torch model offers the same; datasets, metrics and scores are numpy arrays and numbers there too. It never changes a
learner that it was given or has yielded: `train` works on copies, and yields copies. Its tensors are
on torch's default device, which the caller has set (`pipeline.runtime.devices.on_device`). A learner holds tensors alone: a
counter is a tensor without axes, a generator its `get_state()`.
"""

from importlib import import_module
from types import ModuleType
from typing import Literal

Framework = Literal["jax", "torch"]

MODELS: dict[str, Framework] = {
    "allo": "jax",
    "iqn": "jax",
    "actor_critic": "torch",
    "active_dynamics": "torch",
}


def room(model: str, name: str) -> ModuleType:
    """The room `name` of a model, e.g. room("allo", "train")."""
    return import_module(f"quatrain.models.{model}.{name}")
