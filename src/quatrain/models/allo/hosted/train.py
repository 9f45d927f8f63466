"""replay -> weights: as allo.train, on walks in a user's environment"""

from collections.abc import Iterator

from quatrain.models.allo.hosted.collect import check
from quatrain.models.allo.hosted.config import HostedAlloConfig
from quatrain.models.allo.hosted.dataset import HostedDataset
from quatrain.models.allo.learning.state import State
from quatrain.models.allo.learning.state import init_state as init_state
from quatrain.models.allo.train import WEIGHTS as WEIGHTS
from quatrain.models.allo.train import from_arrays as from_arrays
from quatrain.models.allo.train import headline as headline
from quatrain.models.allo.train import to_arrays as to_arrays
from quatrain.models.allo.train import train_on
from quatrain.models.allo.train import update as update
from quatrain.progress import Progress


def train(
    config: HostedAlloConfig, dataset: HostedDataset, seed: int, state: State | None = None
) -> Iterator[Progress]:
    """Trains as allo.train does.

    Raises:
        DatasetMismatch: the dataset was collected in another environment.
        TrainingDiverged: a term is not finite; no step since the last yield is yielded.
    """
    check(config, dataset)
    yield from train_on(config, dataset, seed, state)
