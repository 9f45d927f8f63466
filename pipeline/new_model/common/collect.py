"""config, seed -> samples of the function, to train and to evaluate on."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Float32

from quatrain.errors import DatasetMismatch
from quatrain.models.sketch.config import Env, SketchConfig

INPUTS = 2


class Samples(NamedTuple):
    """Holds points of the square [-1, 1]², and the function's values there."""

    inputs: Float32[np.ndarray, "sample input"]
    targets: Float32[np.ndarray, " sample"]


class Dataset(NamedTuple):
    """Holds samples to train on, and as many others to evaluate on."""

    train: Samples
    held_out: Samples


def truth(env: Env, inputs: Float[np.ndarray, "sample input"]) -> Float[np.ndarray, " sample"]:
    """Computes the function to learn."""
    return np.sin(env.frequency * inputs[:, 0]) * np.cos(env.frequency * inputs[:, 1])


def dataset_type(config: SketchConfig) -> type[Dataset]:
    return Dataset


def collect(config: SketchConfig, seed: int) -> Dataset:
    """Draws uniform points, held-out ones with a random generator of their own.

    Replace this by your environment, or by a file of inputs/.
    """
    train, held_out = (np.random.default_rng([seed, purpose]) for purpose in range(2))
    return Dataset(_draw(config, train), _draw(config, held_out))


def check(config: SketchConfig, dataset: Dataset) -> None:
    """Raises DatasetMismatch if the dataset was collected under another config."""
    expected = config.collect.samples
    if len(dataset.train.targets) != expected:
        raise DatasetMismatch(
            f"sketch: the dataset has not the {expected} samples of the config",
            remedy="run `dvc repro`",
        )


def _draw(config: SketchConfig, rng: np.random.Generator) -> Samples:
    inputs = rng.uniform(-1, 1, (config.collect.samples, INPUTS)).astype(np.float32)
    return Samples(inputs, truth(config.env, inputs).astype(np.float32))
