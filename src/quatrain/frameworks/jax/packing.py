"""state of a JAX model <-> flat arrays by name, which any file format can hold."""

from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from quatrain.frameworks.arrays import ArraySpec, verify

State = TypeVar("State")


def to_arrays(state: Any) -> dict[str, np.ndarray]:
    """Returns each leaf of a pytree under its path (`params/hidden/bias`); keys as uint32."""
    return {name: np.asarray(_key_data(leaf)) for name, leaf in _named_leaves(state).items()}


def from_arrays(template: State, arrays: dict[str, np.ndarray]) -> State:
    """Returns the pytree that these arrays hold; the inverse of `to_arrays`.

    Only structure, shapes and dtypes of the template are read (`jax.eval_shape` provides them).
    Leaves that are numpy arrays in the template stay so, with 64 bits if they have them.

    Raises:
        ValueError: names, shapes or dtypes are not those of the template.
    """
    expected = _named_leaves(template)
    verify(arrays, {name: _spec(leaf) for name, leaf in expected.items()})
    return jax.tree.unflatten(
        jax.tree.structure(template),
        [_to_leaf(leaf, arrays[name]) for name, leaf in expected.items()],
    )


def _named_leaves(tree: Any) -> dict[str, Any]:
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {jax.tree_util.keystr(path, simple=True, separator="/"): leaf for path, leaf in leaves}


def _is_key(leaf: Any) -> bool:
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _key_data(leaf: Any) -> Any:
    return jax.random.key_data(leaf) if _is_key(leaf) else leaf


def _spec(leaf: Any) -> ArraySpec:
    stored = leaf if isinstance(leaf, np.ndarray) else jax.eval_shape(_key_data, leaf)
    return ArraySpec(stored.dtype, stored.shape)


def _to_leaf(template: Any, array: np.ndarray) -> Any:
    if isinstance(template, np.ndarray):
        return array
    if not _is_key(template):
        return jnp.asarray(array)
    # key_impl needs an array, and the template may be a ShapeDtypeStruct.
    return jax.random.wrap_key_data(
        jnp.asarray(array), impl=jax.random.key_impl(jnp.empty((), template.dtype))
    )
