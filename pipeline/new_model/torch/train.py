"""samples -> weights: Adam on random batches."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int64, UInt8
from torch import Generator, Tensor

from quatrain.frameworks.torch import packing, threads
from quatrain.frameworks.torch.rng import generator_from_seed, generator_from_state
from quatrain.models.sketch import losses, network
from quatrain.models.sketch.collect import Dataset, check
from quatrain.models.sketch.config import SketchConfig
from quatrain.progress import Progress, TrainingDiverged, by_seed

HEADLINE = ("error", "grad_norm")
WEIGHTS = ("params/",)
MOMENTS = ("exp_avg", "exp_avg_sq")
to_arrays = packing.to_arrays


class State(NamedTuple):
    """Holds everything that changes while learning; moments are those of Adam, by MOMENTS."""

    params: network.Params
    moments: dict[str, network.Params]
    generator: UInt8[Tensor, " state"]
    step: Int64[Tensor, ""]


# name of a metric -> its value at each step, of each learner.
Recorded = dict[str, Float[np.ndarray, "step seed"]]


class Learner:
    """Holds what gradient steps change in place, made of a state that stays as it is."""

    def __init__(self, config: SketchConfig, dataset: Dataset, state: State) -> None:
        self._config = config
        self._inputs = torch.tensor(dataset.train.inputs)
        self._targets = torch.tensor(dataset.train.targets)
        self._generator = generator_from_state(state.generator)
        self.step = int(state.step)
        self._params = {name: leaf.clone().requires_grad_() for name, leaf in state.params.items()}
        self._adam = torch.optim.Adam(self._params.values(), lr=config.train.learning_rate)
        for name, leaf in self._params.items():
            moments = {key: state.moments[key][name].clone() for key in MOMENTS}
            self._adam.state[leaf] = moments | {"step": torch.tensor(float(self.step))}

    def run_step(self) -> dict[str, Float[Tensor, " seed"]]:
        """Takes a gradient step of all learners, each on a random batch of its own."""
        shape = (self._config.seeds, self._config.train.batch_size)
        batch = torch.randint(len(self._targets), shape, generator=self._generator)
        predictions = network.apply(self._params, self._inputs[batch])
        terms = losses.compute(predictions, self._targets[batch])
        self._adam.zero_grad()
        torch.stack(list(terms.values())).sum().backward()
        norms = self._gradient_norms()
        self._adam.step()
        self.step += 1
        return {name: term.detach() for name, term in terms.items()} | {"grad_norm": norms}

    def state(self) -> State:
        """Returns a copy of everything that changes."""
        return State(
            params={name: leaf.detach().clone() for name, leaf in self._params.items()},
            moments={
                key: {name: self._adam.state[leaf][key].clone() for name, leaf in self._named()}
                for key in MOMENTS
            },
            generator=self._generator.get_state(),
            step=torch.tensor(self.step),
        )

    def _named(self) -> list[tuple[str, Tensor]]:
        return list(self._params.items())

    def _gradient_norms(self) -> Float[Tensor, " seed"]:
        gradients = [leaf.grad for leaf in self._params.values() if leaf.grad is not None]
        return (
            torch.stack(
                [
                    leaf.flatten(1).square().sum(1) if leaf.dim() > 1 else leaf.square()
                    for leaf in gradients
                ]
            )
            .sum(0)
            .sqrt()
        )


def init_state(config: SketchConfig, dataset: Dataset, seed: int) -> State:
    """Returns `seeds` learners before their first step."""
    generator: Generator = generator_from_seed(np.random.SeedSequence(seed))
    params = network.init(config, generator)
    zeros = {name: torch.zeros_like(leaf) for name, leaf in params.items()}
    return State(
        params=params,
        moments={key: {name: leaf.clone() for name, leaf in zeros.items()} for key in MOMENTS},
        generator=generator.get_state(),
        step=torch.tensor(0),
    )


def update(config: SketchConfig, dataset: Dataset, state: State) -> tuple[State, Recorded]:
    """Takes one gradient step of all learners; the given state stays as it is."""
    learner = Learner(config, dataset, state)
    recorded = _run_steps(learner, 1)
    return learner.state(), recorded


def train(
    config: SketchConfig, dataset: Dataset, seed: int, state: State | None = None
) -> Iterator[Progress]:
    """Trains to the end, from `state` if given; yields once per `record_every` steps.

    Raises:
        DataError: the dataset was collected under another config.
        TrainingDiverged: a term of the loss is not finite.
    """
    check(config, dataset)
    state = init_state(config, dataset, seed) if state is None else state
    learner = Learner(config, dataset, state)
    while learner.step < config.train.steps:
        metrics = _run_steps(learner, config.train.record_every)
        step = learner.step
        if not np.isfinite(metrics["error"]).all():
            raise TrainingDiverged(
                f"sketch: error not finite at step {step:,}; lower learning_rate"
            )
        yield Progress(step, learner.state(), by_seed(metrics))


def from_arrays(config: SketchConfig, dataset: Dataset, arrays: dict[str, np.ndarray]) -> State:
    """Returns the state that `to_arrays` wrote.

    Raises:
        ValueError: it is that of another config.
    """
    return packing.from_arrays(init_state(config, dataset, 0), arrays)


@threads.single_threaded(if_small=True)
def _run_steps(learner: Learner, steps: int) -> Recorded:
    rows = [learner.run_step() for _ in range(steps)]
    return {name: torch.stack([row[name] for row in rows]).numpy(force=True) for name in rows[0]}
