"""A learner comes back from flat arrays as it was, and never as something else."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from quatrain.packing import pack, unpack


class Learner(NamedTuple):
    params: dict[str, Any]
    worlds: tuple[jax.Array, ...]
    keys: dict[str, jax.Array]
    step: jax.Array


def init(seed: int) -> Learner:
    key = jax.random.key(seed)
    return Learner(
        params={"hidden": {"kernel": jax.random.normal(key, (3, 5))}, "bias": jnp.zeros(5, jnp.float16)},
        worlds=(jnp.arange(7, dtype=jnp.int8), jnp.asarray(seed % 2 == 0)),
        keys={"lanes": jax.random.split(key, 4), "other": jax.random.key(seed, impl="rbg")},
        step=jnp.int32(seed),
    )


def test_arrays_are_named_by_their_path_and_keys_are_plain_numbers() -> None:
    found = {name: (array.dtype.name, array.shape) for name, array in pack(init(3)).items()}
    assert found == {
        "params/bias": ("float16", (5,)),
        "params/hidden/kernel": ("float32", (3, 5)),
        "worlds/0": ("int8", (7,)),
        "worlds/1": ("bool", ()),
        "keys/lanes": ("uint32", (4, 2)),
        "keys/other": ("uint32", (4,)),
        "step": ("int32", ()),
    }


@pytest.mark.parametrize("template_of", [init, partial(jax.eval_shape, init)], ids=["a learner", "its shapes"])
def test_a_learner_comes_back_and_draws_what_it_would_have_drawn(template_of: Callable[[int], Learner]) -> None:
    learner = init(3)
    restored = unpack(template_of(0), pack(learner))
    assert jax.tree.structure(restored) == jax.tree.structure(learner)
    for one, other in zip(jax.tree.leaves(learner), jax.tree.leaves(restored), strict=True):
        assert jax.typeof(one) == jax.typeof(other)
    for name, array in pack(learner).items():
        np.testing.assert_array_equal(pack(restored)[name], array, strict=True)
    for name, key in learner.keys.items():
        drawn, again = (jax.random.bits(keys.ravel()[-1]) for keys in (key, restored.keys[name]))
        assert drawn == again


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"step": None}, r"differing arrays \['step'\]"),
        ({"noise": np.zeros(3)}, r"differing arrays \['noise'\]"),
        ({"worlds/0": np.zeros(8, np.int8)}, r"worlds/0 is int8\(8,\), not int8\(7,\)"),
        ({"worlds/0": np.zeros(7, np.int16)}, r"worlds/0 is int16\(7,\), not int8\(7,\)"),
        ({"keys/lanes": np.zeros((4, 4), np.uint32)}, r"keys/lanes is uint32\(4, 4\), not uint32\(4, 2\)"),
    ],
)
def test_arrays_of_another_learner_are_refused(change: dict[str, Any], why: str) -> None:
    arrays = {name: array for name, array in (pack(init(0)) | change).items() if array is not None}
    with pytest.raises(ValueError, match=f"not a learner of this config: {why}"):
        unpack(init(0), arrays)
