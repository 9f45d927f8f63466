"""A learner comes back from flat arrays as it was, and never as something else."""

import re
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from jaxtyping import Float32, Int32

from quatrain.frameworks import jax as jax_packing
from quatrain.frameworks import torch as torch_packing
from quatrain.frameworks.packing import flatten, to_dataset


def assert_equal(arrays: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    assert arrays.keys() == expected.keys()
    for name, array in expected.items():
        np.testing.assert_array_equal(arrays[name], array, strict=True)


class State(NamedTuple):
    params: dict[str, Any]
    worlds: tuple[jax.Array, ...]
    keys: dict[str, jax.Array]
    step: jax.Array


def init(seed: int) -> State:
    key = jax.random.key(seed)
    return State(
        params={"hidden": {"kernel": jax.random.normal(key, (3, 5))}},
        worlds=(jnp.arange(7, dtype=jnp.int8), jnp.asarray(seed % 2 == 0)),
        keys={"lanes": jax.random.split(key, 4)},
        step=jnp.int32(seed),
    )


class TorchLearner(NamedTuple):
    params: dict[str, Any]
    optimizer: tuple[dict[str, torch.Tensor], ...]
    colonies: list[torch.Tensor]
    norm: torch.Tensor | None
    draws: torch.Tensor
    rate: torch.Tensor


def torch_init(seed: int) -> TorchLearner:
    generator = torch.Generator().manual_seed(seed)
    layer = torch.nn.Linear(3, 5)
    torch.nn.init.normal_(layer.weight, generator=generator)
    return TorchLearner(
        params={
            "net": layer.state_dict(keep_vars=True),
            "scale": torch.full((5,), 0.5, dtype=torch.float16),
        },
        optimizer=({"exp_avg": torch.rand((7, 2), dtype=torch.float64, generator=generator).T},),
        colonies=[torch.arange(6, dtype=torch.int16), torch.tensor([True, False])],
        norm=None,
        draws=generator.get_state(),
        rate=torch.tensor(3e-4, dtype=torch.float64),
    )


def test_tensors_are_on_the_devices_of_the_template():
    packed, elsewhere = torch_packing.to_arrays(torch_init(3)), torch_init(0)
    # The one other device that every machine has.
    elsewhere.params["scale"] = elsewhere.params["scale"].to("meta")
    with torch.device("meta"):
        restored = torch_packing.from_template(elsewhere, packed)
    devices = [leaf.device.type for leaf in jax.tree.leaves(restored)]
    assert restored.params["scale"].device.type == "meta"
    assert devices.count("cpu") == len(devices) - 1


def test_saved_arrays_do_not_change_with_the_learner_nor_it_with_them():
    state = torch_init(3)
    packed = torch_packing.to_arrays(state)
    expected = {name: array.copy() for name, array in packed.items()}
    unpacked = torch_packing.from_template(torch_init(0), packed)
    with torch.no_grad():
        for leaf in jax.tree.leaves(state):
            leaf.zero_()
    assert_equal(packed, expected)
    for array in packed.values():
        array[...] = 0
    assert_equal(torch_packing.to_arrays(unpacked), expected)


class Walk(NamedTuple):
    state: Int32[np.ndarray, "*env step"]
    weight: Float32[np.ndarray, " step"] | None
    goal: Int32[np.ndarray, ""]


class Walks(NamedTuple):
    train: Walk
    held_out: Walk


def walk(*shape: int) -> Walk:
    weight = np.ones(shape[-1], np.float32)
    return Walk(np.zeros(shape, np.int32), weight, np.asarray(7, np.int32))


LEARNERS: dict[str, Any] = {
    "jax": (init(0), jax_packing.to_arrays, jax_packing.from_template),
    "torch": (torch_init(0), torch_packing.to_arrays, torch_packing.from_template),
    "dataset": (walk(2, 5), flatten, lambda _, arrays: to_dataset(Walk, arrays)),
}


def test_a_dataset_comes_back_by_the_annotations_of_its_class():
    """Axes of the same name have one length in each part."""
    walks = Walks(walk(2, 3, 5), walk(4))
    packed = flatten(walks)
    assert set(packed) == {f"{part}/{name}" for part in Walks._fields for name in Walk._fields}
    restored = to_dataset(Walks, packed)
    assert type(restored.held_out) is Walk
    assert_equal(flatten(restored), packed)


@pytest.mark.parametrize(
    ("kind", "change", "why"),
    [
        ("jax", {"step": None}, "arrays missing ['step'], unknown []"),
        ("jax", {"worlds/0": np.zeros(7, np.int16)}, "worlds/0 is int16(7,), not int8(7,)"),
        ("jax", {"keys/lanes": np.zeros((4, 4), np.uint32)}, "keys/lanes is uint32(4, 4), not "),
        ("torch", {"rat": np.ones(3)}, "arrays missing [], unknown ['rat']"),
        ("torch", {"rate": np.zeros(())[None]}, "rate is float64(1,), not float64()"),
        ("dataset", {"goal": None, "aim": np.ones(1)}, "arrays missing ['goal'], unknown ['aim']"),
        ("dataset", {"state": np.array(0, np.int32)}, "state is int32(), not Int32[*env step]"),
        ("dataset", {"state": np.zeros(5)}, "state is float64(5,), not Int32[*env step]"),
        ("dataset", {"weight": np.float32([0, 0])}, "weight is float32(2,), not Float32[step]"),
        ("dataset", {"goal": np.zeros(1, np.int32)}, "goal is int32(1,), not Int32[]"),
    ],
)
def test_arrays_of_something_else_are_refused(kind: str, change: dict[str, Any], why: str):
    template, pack, unpack = LEARNERS[kind]
    arrays = pack(template) | change
    present = {name: array for name, array in arrays.items() if array is not None}
    what = "a Walk" if kind == "dataset" else "a learner of this config"
    with pytest.raises(ValueError, match=re.escape(f"not {what}: {why}")):
        unpack(template, present)
