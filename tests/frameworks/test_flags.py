"""What a user set in jax or torch changes no number inside, and is as it was afterwards."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import Any

import jax
import jax.numpy as jnp
import pytest
import torch

from quatrain.frameworks import jax as jax_flags
from quatrain.frameworks import torch as torch_flags
from quatrain.frameworks.settings import JAX_FLAGS

OTHER: dict[str, Any] = {
    "allow_f16_reductions": False,
    "default_device": "cpu",
    "default_matmul_precision": "bfloat16",
    "default_prng_impl": "rbg",
    "enable_custom_prng": True,
    "enable_x64": True,
    "legacy_prng_key": "error",
    "numpy_dtype_promotion": "strict",
    "numpy_rank_promotion": "raise",
    "softmax_custom_jvp": True,
    "threefry_partitionable": False,
}


@pytest.mark.parametrize("name", JAX_FLAGS)
def test_a_flag_of_jax_has_its_default_inside_and_is_restored(name: str):
    read = lambda: getattr(jax.config, f"jax_{name}")  # noqa: E731
    default = read()
    with getattr(jax, name)(OTHER[name]):
        changed = read()
        assert changed != default
        with jax_flags.default_flags():
            assert read() == default == JAX_FLAGS[name]
            assert jnp.zeros(3, float).dtype == jnp.float32
        assert read() == changed


def of(holder: Any, name: str, other: Any) -> tuple[Callable[[], Any], Callable[[Any], Any], Any]:
    return (lambda: getattr(holder, name)), (lambda value: setattr(holder, name, value)), other


TORCH = {
    "type": (torch.get_default_dtype, torch.set_default_dtype, torch.float64),
    "gradients": (torch.is_grad_enabled, torch.set_grad_enabled, False),
    "autocast": (
        lambda: torch.is_autocast_enabled("cpu"),
        lambda on: torch.set_autocast_enabled("cpu", on),
        True,
    ),
    **{
        f"{place} {name}": of(holder, name, "ieee" if isinstance(default, str) else not default)
        for place, (holder, name, default) in enumerate(torch_flags.FLAGS)
    },
}


def computed() -> list[Any]:
    """What the flags decide."""
    weight = torch.full((3, 5), 1 / 3, requires_grad=True)
    product = weight @ weight.detach().T
    precisions = [getattr(holder, name) for holder, name, _ in torch_flags.FLAGS]
    return [product.dtype, product.requires_grad, product.is_inference(), precisions]


@pytest.mark.parametrize("case", TORCH)
def test_a_flag_of_torch_has_its_default_inside_and_is_restored(case: str):
    read, write, other = TORCH[case]
    before, expected = read(), computed()
    write(other)
    try:
        assert computed() != expected
        with torch_flags.default_flags():
            assert computed() == expected
        assert read() == other
    finally:
        write(before)
    assert computed() == expected


def test_a_thread_that_ends_takes_no_flag_from_one_that_still_computes():
    first_is_in, first_is_out = Event(), Event()

    def first() -> None:
        with torch_flags.default_flags():
            first_is_in.set()
            second_is_in.wait(30)
        first_is_out.set()

    second_is_in = Event()
    torch.set_default_dtype(torch.float64)
    try:
        with ThreadPoolExecutor(1) as pool:
            pool.submit(first)
            assert first_is_in.wait(30)
            with torch_flags.default_flags():
                second_is_in.set()
                assert first_is_out.wait(30)
                assert torch.zeros(1).dtype == torch.float32
        assert torch.zeros(1).dtype == torch.float64
    finally:
        torch.set_default_dtype(torch.float32)
