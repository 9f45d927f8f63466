"""What every model offers, module by module: the types behind `registry.load(name)`.

Models share values and functions, never control flow, so there is no base class: a model is a
package whose modules have these names and signatures. `Config` is its section of params.yaml,
`Dataset` a NamedTuple of arrays (`train`, `held_out` and what both share), `State` a NamedTuple of
**everything that changes while learning**: parameters, targets, optimiser state, random state,
environments, replay, counters.

Datasets, metrics and scores are numpy arrays and numbers in every framework. A function never
changes a state or a dataset that it was given. Torch tensors are on torch's default device, which
the caller has set.
"""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, runtime_checkable

if TYPE_CHECKING:  # loading a contract must load neither numpy nor matplotlib
    import numpy
    from matplotlib.figure import Figure

    from quatrain.animation import Animation
    from quatrain.baselines import Rule
    from quatrain.memory import Needs
    from quatrain.progress import History, Progress
    from quatrain.serving import Served

# Name -> array, which any file format can hold; `params/...` is what gradients change.
Arrays = dict[str, "numpy.ndarray"]

ConfigIn = TypeVar("ConfigIn", contravariant=True)
DatasetIn = TypeVar("DatasetIn", contravariant=True)
DatasetOut = TypeVar("DatasetOut", covariant=True)
State = TypeVar("State")
StateIn = TypeVar("StateIn", contravariant=True)


@runtime_checkable
class MemoryModule(Protocol[ConfigIn]):
    """Describes memory.py: config -> bytes; it imports config.py, and no framework."""

    def needs(self, config: ConfigIn) -> "Needs":
        """Returns the least bytes that each verb needs, a sum over the largest arrays."""


@runtime_checkable
class CollectModule(Protocol[ConfigIn, DatasetOut]):
    """Describes collect.py: config -> dataset."""

    def dataset_type(self, config: ConfigIn) -> type[DatasetOut]:
        """Returns the NamedTuple type of datasets."""

    def collect(self, config: ConfigIn, seed: int) -> DatasetOut:
        """Collects what training and evaluation read; the same seed gives the same bits."""

    def check(self, config: ConfigIn, dataset: Any) -> None:
        """Raises DataError if the dataset was collected under another config."""


@runtime_checkable
class LossesModule(Protocol[ConfigIn]):
    """Describes losses.py: predictions and targets -> per-sample losses."""

    def terms(self, config: ConfigIn) -> tuple[str, ...]:
        """Returns the names of the terms of the objective; each is a recorded metric."""


@runtime_checkable
class TrainModule(Protocol[ConfigIn, DatasetIn, State]):
    """Describes train.py: dataset -> state."""

    def headline(self, config: ConfigIn) -> tuple[str, str]:
        """Returns the names of the two metrics that a progress bar shows."""

    @property
    def WEIGHTS(self) -> tuple[str, ...]:
        """Lists the prefixes of the arrays that inference needs."""

    def init_state(self, config: ConfigIn, dataset: DatasetIn, seed: int) -> State:
        """Returns the state before the first update; training draws all randomness from `seed`."""

    def update(
        self, config: ConfigIn, dataset: DatasetIn, state: State
    ) -> tuple[State, Mapping[str, Any]]:
        """Returns the state after one iteration of learning, and what was measured in it.

        An iteration is the unit that `train` repeats: a gradient step (allo), turns of all
        environments and the updates that follow (iqn), a rollout and its epochs (actor_critic), a
        transition of every learner and what is learned from it (active_dynamics). For tests and
        notebooks: `train` runs many of them per call.
        """

    def train(
        self, config: ConfigIn, dataset: DatasetIn, seed: int, state: State | None = None
    ) -> "Iterator[Progress]":
        """Trains to the end, from `state` if given; yields once per `train.record_every` steps.

        Raises:
            DataError: the dataset was collected under another config.
            TrainingDiverged: something is not finite; raised before that state is yielded.
        """

    def to_arrays(self, state: State) -> Arrays:
        """Returns every array of the state by name; `from_arrays` restores it bit for bit."""

    def from_arrays(self, config: ConfigIn, dataset: DatasetIn, arrays: Arrays) -> State:
        """Returns the state that these arrays hold.

        Raises:
            ValueError: names, shapes or dtypes are not those of a state of this config.
        """


@runtime_checkable
class RulesModule(Protocol):
    """Describes rules.py: which scores are judged, and how; it loads no framework, because the
    gate reads it.
    """

    def gated(self, config: Any = None) -> "tuple[Rule, ...]":
        """Returns the scores that are compared with a baseline.

        config: a model's section, or its class; None: one with an environment of this project.
        """


@runtime_checkable
class EvaluateModule(Protocol[ConfigIn, DatasetIn, StateIn]):
    """Describes evaluate.py: state -> scores."""

    def evaluate(
        self, config: ConfigIn, state: StateIn, dataset: DatasetIn, seed: int
    ) -> dict[str, float]:
        """Returns the scores on held-out data, beside those of reference policies; `seeds` tells of
        how many learners they are.
        """


@runtime_checkable
class PlotsModule(Protocol[ConfigIn, DatasetIn, StateIn]):
    """Describes plots.py: state, history, scores -> figures."""

    def plots(
        self,
        config: ConfigIn,
        state: StateIn,
        dataset: DatasetIn,
        history: "History",
        scores: dict[str, float],
    ) -> "dict[str, Figure | Animation]":
        """Draws the pictures of a report, in the order that tells the story: task, learning,
        result, comparison, details. A figure's label is its caption.
        """


@runtime_checkable
class ServeModule(Protocol[ConfigIn, DatasetIn, StateIn]):
    """Describes serve.py: state -> arrays that answer requests without a dataset."""

    def export(self, config: ConfigIn, state: StateIn, dataset: DatasetIn) -> Arrays:
        """Returns all that answering needs, of the first seed."""

    def request(self, config: ConfigIn, dataset: DatasetIn) -> Arrays:
        """Returns an example request; the first axis counts questions."""

    def load(self, config: ConfigIn, arrays: Arrays) -> "Served":
        """Returns the inputs of a request, and what computes answers by exported arrays.

        Its docstring tells what inputs and outputs mean: MLflow's card of the model shows it.

        Raises:
            ValueError: the arrays are of another config.
        """
