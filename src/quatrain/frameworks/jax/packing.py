"""learner of a JAX model <-> flat arrays by name, which any file format can hold."""

from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from quatrain.frameworks.arrays import ArraySpec, verify

State = TypeVar("State")


def to_arrays(learner: Any) -> dict[str, np.ndarray]:
    """Each leaf of a pytree under its path (`params/hidden/bias`); typed random keys as their uint32 data."""
    return {name: np.asarray(_plain(leaf)) for name, leaf in _named(learner).items()}


def from_arrays(template: State, arrays: dict[str, np.ndarray]) -> State:
    """The inverse of `pack`; of the template only structure, shapes and dtypes count (`jax.eval_shape` gives them).

    Raises:
        ValueError: names, shapes or dtypes are not those of the template.
    """
    wanted = _named(template)
    verify(arrays, {name: _form(like) for name, like in wanted.items()})
    leaves = [_restored(like, arrays[name]) for name, like in wanted.items()]
    return jax.tree.unflatten(jax.tree.structure(template), leaves)


def _named(tree: Any) -> dict[str, Any]:
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {jax.tree_util.keystr(path, simple=True, separator="/"): leaf for path, leaf in leaves}


def _is_key(leaf: Any) -> bool:
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _plain(leaf: Any) -> Any:
    return jax.random.key_data(leaf) if _is_key(leaf) else leaf


def _form(like: Any) -> ArraySpec:
    plain = jax.eval_shape(_plain, like)
    return ArraySpec(plain.dtype, plain.shape)


def _restored(like: Any, array: np.ndarray) -> jax.Array:
    if not _is_key(like):
        return jnp.asarray(array)
    one = jnp.empty(
        (), like.dtype
    )  # key_impl wants an array, and `like` may be but its shape and dtype
    return jax.random.wrap_key_data(jnp.asarray(array), impl=jax.random.key_impl(one))
