"""What every model offers: modules, their functions and arguments, behind `registry.load(name)`.

Models share values and functions, never control flow, so there is no base class: a model is a
package whose modules have the functions of `CONTRACT`. `config` is its section of params.yaml,
`dataset` a NamedTuple of arrays (`train`, `held_out` and what both share), `state` a NamedTuple of
**everything that changes while learning**: parameters, targets, optimiser state, random state,
environments, replay, counters. `arrays` map names to numpy arrays, which any file format can hold;
`params/...` is what gradients change.

Datasets, metrics and scores are numpy arrays and numbers in every framework. A function never
changes a state or a dataset that it was given. Torch tensors are on torch's default device, which
the caller has set.

| function | what it returns |
|---|---|
| `memory.needs` | `memory.Needs`: the bytes of the largest arrays, of the sizes in \
`interface` where a user's environment tells them; loads no framework |
| `collect.dataset_type` | the NamedTuple type of datasets |
| `collect.collect` | what training and evaluation read; the same seed gives the same bits |
| `collect.check` | nothing; raises DataError if the dataset is of another config |
| `losses.terms` | the names of the terms of the objective; each is a recorded metric |
| `train.headline` | the names of the two metrics that a progress bar shows |
| `train.init_state` | the state before the first update, which has all randomness of `seed` |
| `train.update` | the state after one iteration, and its metrics: for tests and notebooks |
| `train.train` | yields `Progress` once per `train.record_every` steps, to the end, \
from `state` if given; raises DataError for a dataset of another config, TrainingDiverged before \
it would yield what is not finite |
| `train.to_arrays` | the arrays of a state, all of them |
| `train.from_arrays` | the state, bit for bit; raises ValueError for those of another config |
| `rules.gated` | `baselines.Rule` of each judged score; loads no framework. `config`: a section, \
its class, or None: one with an environment of this project |
| `evaluate.evaluate` | `progress.Evaluation`: scores on held-out data, those of reference \
policies, and `seeds`, the number of learners; and what pictures of them need |
| `plots.plots` | the pictures of a report by name, of what is recorded, in the order of the \
story: task, learning, result, comparison, details; a figure's label is its caption |
| `serve.export` | all arrays that answering needs, of the first seed |
| `serve.request` | an example request; the first axis counts questions |
| `serve.load` | `serving.Served`: the inputs of a request, and what computes answers by exported \
arrays; raises ValueError for those of another config. Its docstring tells what inputs and outputs \
mean: MLflow's card of the model shows it |

An iteration is the unit that `train` repeats: a gradient step (allo), turns of all environments and
the updates that follow (iqn), a rollout and its epochs (actor_critic), a transition of every
learner and what is learned from it (active_dynamics). A model may have `collect.summary(config,
dataset)`, one line on what there is to learn from. `train.WEIGHTS` lists the prefixes of the
arrays that inference needs.
"""

# Module -> function -> arguments.
CONTRACT: dict[str, dict[str, str]] = {
    "memory": {"needs": "config, interface=None"},
    "collect": {"dataset_type": "config", "collect": "config, seed", "check": "config, dataset"},
    "losses": {"terms": "config"},
    "train": {
        "headline": "config",
        "init_state": "config, dataset, seed",
        "update": "config, dataset, state",
        "train": "config, dataset, seed, state=None",
        "to_arrays": "state",
        "from_arrays": "config, dataset, arrays",
    },
    "rules": {"gated": "config=None"},
    "evaluate": {"evaluate": "config, state, dataset, seed"},
    "plots": {"plots": "config, state, dataset, history, evaluation"},
    "serve": {
        "export": "config, state, dataset",
        "request": "config, dataset",
        "load": "config, arrays",
    },
}
