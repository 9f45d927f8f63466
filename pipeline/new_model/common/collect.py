"""config, seed -> samples of the function, to train and to evaluate on."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Float32

from quatrain.errors import DataError
from quatrain.models.sketch.config import Env, SketchConfig

INPUTS = 2


class Samples(NamedTuple):
    """Holds points of the square [-1, 1]², and the function's values there."""

    inputs: Float32[np.ndarray, "sample input"]
    targets: Float32[np.ndarray, " sample"]


class Dataset(NamedTuple):
    """Holds noisy samples to train on, and others without noise."""

    train: Samples
    held_out: Samples


def truth(env: Env, inputs: Float[np.ndarray, "sample input"]) -> Float[np.ndarray, " sample"]:
    """Computes the function to learn."""
    return np.sin(env.frequency * inputs[:, 0]) * np.cos(env.frequency * inputs[:, 1])


def collect(config: SketchConfig, seed: int) -> Dataset:
    """Draws uniform points; training, noise and held-out points have random numbers of their own.

    Replace this by your environment, or by a file of inputs/.
    """
    train, noise, held_out = (np.random.default_rng([seed, purpose]) for purpose in range(3))
    samples = _draw(config.env, config.collect.samples, train)
    errors = config.env.noise * noise.standard_normal(len(samples.targets))
    return Dataset(
        train=samples._replace(targets=(samples.targets + errors).astype(np.float32)),
        held_out=_draw(config.env, config.collect.held_out_samples, held_out),
    )


def check(config: SketchConfig, dataset: Dataset) -> None:
    """Raises DataError if the dataset was collected under another config."""
    counts = {
        "samples": (len(dataset.train.targets), config.collect.samples),
        "held_out_samples": (len(dataset.held_out.targets), config.collect.held_out_samples),
    }
    for name, (actual, expected) in counts.items():
        if actual != expected:
            raise DataError(
                f"the dataset has {name} {actual}, "
                f"sketch.collect.{name} is {expected}; run `dvc repro`"
            )


def _draw(env: Env, count: int, rng: np.random.Generator) -> Samples:
    inputs = rng.uniform(-1, 1, (count, INPUTS)).astype(np.float32)
    return Samples(inputs, truth(env, inputs).astype(np.float32))
