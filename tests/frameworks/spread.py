"""On four devices of a CPU: writes what functions of a seed return, spread over 1, 2 and 4 of them.

`python -m tests.frameworks.spread` does so for a small function, with a model's name for its
training. A line is a JSON object.
"""

import json
import os
import sys
from hashlib import sha256
from typing import Any

os.environ["JAX_NUM_CPU_DEVICES"] = "4"

import jax
import jax.numpy as jnp
import numpy as np

from quatrain.frameworks.jax import over_devices, over_seeds
from quatrain.registry import load
from tests.conftest import shapes_unchecked, small

BRIEF = {"allo": {"steps": 40}, "iqn": {"turns": 40, "evaluate_every": 0}}
DEVICES = jax.devices()


def use_devices(count: int) -> None:
    """Lets the models see so many devices."""
    jax.devices = lambda *_: DEVICES[:count]


def walk(learner: tuple[jax.Array, jax.Array], drift: jax.Array) -> dict[str, jax.Array]:
    """Adds random steps and a drift to a position; keeps the path."""
    key, position = learner

    def step(position: jax.Array, number: jax.Array) -> tuple[jax.Array, jax.Array]:
        noise = jax.random.normal(jax.random.fold_in(key, number), position.shape)
        return position + noise * drift, position

    end, path = jax.lax.scan(step, position, jnp.arange(50))
    return {"end": end, "path": path}


@jax.jit
def walk_all(learners: Any, drift: jax.Array) -> Any:
    return over_seeds(walk, "scan")(learners, drift)


def describe(count: int, seeds: int) -> dict[str, Any]:
    """Walks with so many devices and seeds; `alone` are the same walks, one call each."""
    use_devices(count)
    keys, starts = jax.random.split(jax.random.key(0), seeds), jnp.arange(seeds * 3.0)
    learners, drift = (keys, starts.reshape(seeds, 3)), jnp.arange(3.0)
    programs = walk_all._cache_size()
    run = over_devices(walk_all, seeds)
    result = run(learners, drift)
    for _ in range(30):  # threads that list shards of one array at once are rare
        run((keys, result["end"]), drift)
    alone = [walk(learner, drift) for learner in zip(*learners, strict=True)]
    return {
        "available": count,
        "seeds": seeds,
        "devices": len(result["end"].sharding.device_set),
        "programs": walk_all._cache_size() - programs,
        "digest": digest(jax.device_get(result)),
        "end": result["end"].tolist(),
        "alone": [each["end"].tolist() for each in alone],
    }


def trained(model: str, count: int) -> dict[str, Any]:
    """Trains with so many devices, and once more from the first record to the end."""
    use_devices(count)
    seeds = 2
    config = small(model, seeds=seeds, train=BRIEF[model])
    collected = load(model).collect.collect(config, 0)
    learner = load(model).train
    first, *_, end = learner.train(config, collected, 3)
    restored = learner.from_arrays(config, collected, learner.to_arrays(first.state))
    *_, resumed = learner.train(config, collected, 3, restored)
    kernels = np.asarray(jax.tree.leaves(end.state.params)[1]).reshape(seeds, -1)
    return {
        "devices": len(end.state.base_key.sharding.device_set),
        "seeds": seeds,
        "learners": len(np.unique(kernels, axis=0)),
        "digest": digest(learner.to_arrays(end.state) | end.metrics),
        "resumed": digest(learner.to_arrays(resumed.state) | resumed.metrics),
    }


def digest(arrays: dict[str, np.ndarray]) -> str:
    return sha256(b"".join(array.tobytes() for array in arrays.values())).hexdigest()


if __name__ == "__main__":
    sys.setswitchinterval(1e-6)  # seconds: threads meet in the middle of what they do
    with shapes_unchecked():
        if sys.argv[1:]:
            lines = (trained(model, count) for model in sys.argv[1:] for count in (1, 2))
        else:
            lines = (describe(*each) for each in ((1, 8), (2, 8), (4, 8), (4, 4), (2, 3), (4, 6)))
        for line in lines:
            sys.stdout.write(f"{json.dumps(line)}\n")
