"""the flags of jax that shape numbers -> their defaults, for a while, in the calling thread."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

# By the name of jax's context manager; `jax.config.jax_NAME` and the variable JAX_NAME set it, too.
DEFAULTS: dict[str, Any] = {
    "allow_f16_reductions": True,
    "default_device": None,
    "default_matmul_precision": None,
    "default_prng_impl": "threefry2x32",
    "enable_custom_prng": False,
    "enable_x64": False,
    "legacy_prng_key": "allow",
    "numpy_dtype_promotion": "standard",
    "numpy_rank_promotion": "allow",
    "softmax_custom_jvp": False,
    "threefry_partitionable": True,
}


@contextmanager
def default_flags() -> Iterator[None]:
    """Sets the flags that change what is computed to jax's defaults, and restores them."""
    # Here, because a stage reads DEFAULTS before it loads jax.
    import jax

    with ExitStack() as afterwards:
        for name, default in DEFAULTS.items():
            # A context of its own, even of the same value, would make jax trace all anew.
            if getattr(jax.config, f"jax_{name}") != default:
                afterwards.enter_context(getattr(jax, name)(default))
        yield
