"""samples -> weights: Adam on random batches."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int64, UInt8
from torch import Tensor, nn

from quatrain.frameworks.torch import (
    AdamState,
    adam_state,
    from_template,
    generator_from_seed,
    generator_from_state,
    init_adam,
    load_adam,
    single_threaded,
)
from quatrain.frameworks.torch import to_arrays as to_arrays
from quatrain.models.sketch import losses, network
from quatrain.models.sketch.collect import Dataset, check
from quatrain.models.sketch.config import SketchConfig
from quatrain.progress import Progress, TrainingDiverged, by_seed

WEIGHTS = ("params/",)


class State(NamedTuple):
    """Holds everything that changes while learning."""

    params: dict[str, Tensor]
    adam: AdamState
    generator: UInt8[Tensor, " state"]
    step: Int64[Tensor, ""]


# name of a metric -> its value at each step, of each learner.
Recorded = dict[str, Float[np.ndarray, "step seed"]]


def headline(config: SketchConfig) -> tuple[str, str]:
    return "error", "grad_norm"


def init_state(config: SketchConfig, dataset: Dataset, seed: int) -> State:
    """Returns `seeds` learners before their first step."""
    params = {name: torch.tensor(array) for name, array in network.init(config, seed).items()}
    generator = generator_from_seed(np.random.SeedSequence(seed))
    adam = init_adam(params)
    return State(params, adam, generator.get_state(), torch.tensor(0))


def update(config: SketchConfig, dataset: Dataset, state: State) -> tuple[State, Recorded]:
    """Takes one gradient step of all learners; `train` takes many per call."""
    return _run_steps(config, 1, dataset, state)


def train(
    config: SketchConfig, dataset: Dataset, seed: int, state: State | None = None
) -> Iterator[Progress]:
    """Trains to the end, from `state` if given; yields once per `record_every` steps.

    Raises:
        DatasetMismatch: the dataset was collected under another config.
        TrainingDiverged: a term of the loss is not finite.
    """
    check(config, dataset)
    state = init_state(config, dataset, seed) if state is None else state
    while (step := int(state.step)) < config.train.steps:
        state, metrics = _run_steps(config, config.train.record_every, dataset, state)
        if not np.isfinite(metrics["error"]).all():
            raise TrainingDiverged(
                f"sketch: error not finite after step {step:,}",
                remedy="lower sketch.train.learning_rate",
            )
        yield Progress(int(state.step), state, by_seed(metrics))


def from_arrays(config: SketchConfig, dataset: Dataset, arrays: dict[str, np.ndarray]) -> State:
    """Returns the state that `to_arrays` wrote.

    Raises:
        ValueError: it is that of another config.
    """
    return from_template(init_state(config, dataset, 0), arrays)


@single_threaded(if_small=True)
def _run_steps(
    config: SketchConfig, steps: int, dataset: Dataset, state: State
) -> tuple[State, Recorded]:
    """Takes gradient steps of all learners, each on random batches; the given state stays."""
    inputs, targets = (torch.tensor(array) for array in dataset.train)
    module = nn.ParameterDict({name: leaf.clone() for name, leaf in state.params.items()})
    weights = dict(module.items())
    optimizer = torch.optim.Adam(weights.values(), lr=config.train.learning_rate)
    load_adam(optimizer, module, state.adam)
    generator = generator_from_state(state.generator)
    rows = []
    for _ in range(steps):
        shape = (config.seeds, config.train.batch_size)
        batch = torch.randint(len(targets), shape, generator=generator)
        terms = losses.compute(network.apply(weights, inputs[batch]), targets[batch])
        optimizer.zero_grad()
        torch.stack(list(terms.values())).sum().backward()
        optimizer.step()
        rows.append({name: term.detach() for name, term in terms.items()} | _norms(weights))
    params = {name: leaf.detach() for name, leaf in weights.items()}
    adam = adam_state(optimizer, module)
    after = State(params, adam, generator.get_state(), state.step + steps)
    return after, {name: torch.stack([row[name] for row in rows]).numpy() for name in rows[0]}


def _norms(weights: dict[str, Tensor]) -> dict[str, Float[Tensor, " seed"]]:
    gradients = [leaf.grad for leaf in weights.values() if leaf.grad is not None]
    rows = [gradient.reshape(len(gradient), -1) for gradient in gradients]
    return {"grad_norm": torch.cat(rows, 1).norm(dim=1)}
