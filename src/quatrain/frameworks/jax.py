"""What the JAX models share: a function of one seed -> a program of several, spread over devices;
a pytree <-> flat arrays by name; flags that shape numbers -> their defaults, for a while; images,
filters -> their convolution.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, Literal, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Float

from quatrain.frameworks.packing import ArraySpec, flatten, unflatten
from quatrain.frameworks.settings import JAX_FLAGS

Tree = TypeVar("Tree")
BY_SEED = PartitionSpec("seed")
WHOLE = PartitionSpec()


def over_seeds(
    function: Callable[..., Any], parallelism: Literal["auto", "vmap", "scan"]
) -> Callable[..., Any]:
    """Returns the function of several seeds for one of a seed and of what all seeds share.

    Leaves of its first argument and of its result begin with axis seed. `scan` takes one seed after
    the other, with the same bits however many there are; `vmap` takes them together, and the last
    bits depend on their number; `auto` is scan on a CPU, else vmap. A single seed has no loop
    around it.
    """
    if parallelism == "auto":
        parallelism = "scan" if jax.default_backend() == "cpu" else "vmap"

    def call(seeds: Any, *shared: Any) -> Any:
        def call_one(seed: Any) -> Any:
            return function(seed, *shared)

        if len(jax.tree.leaves(seeds)[0]) == 1:
            result = call_one(jax.tree.map(lambda leaf: leaf[0], seeds))
            return jax.tree.map(lambda leaf: leaf[None], result)
        return jax.vmap(call_one)(seeds) if parallelism == "vmap" else jax.lax.map(call_one, seeds)

    return call


def over_devices(program: Callable[..., Any], seeds: int) -> Callable[..., Any]:
    """Returns the program of all seeds that runs `program` on each device, on a share of them.

    `program` takes any number of seeds (`over_seeds`). Each device has its own, because XLA
    optimizes a program that it partitions (`jax.shard_map`) otherwise than that of one device, and
    the bits differ. Results are arrays of all seeds, which stay where they are.
    """
    mesh = seed_mesh(seeds)
    devices = list(mesh.devices.flat)
    if len(devices) == 1:
        return program

    def call(state: Any, *shared: Any) -> Any:
        arguments = (lay_out(state, seeds, BY_SEED), *lay_out(shared, seeds, WHOLE))
        # Here, because a thread may find an array whose shards another one is still listing.
        shares = [jax.tree.map(partial(_part, device), arguments) for device in devices]

        def run_share(share: Any) -> Any:
            with default_flags():  # a thread begins with those of the process
                return program(*share)

        # Threads, because each device compiles, too.
        with ThreadPoolExecutor(len(devices)) as pool:
            results = list(pool.map(run_share, shares))
        return jax.tree.map(partial(_join, mesh), *results)

    return call


def seed_mesh(seeds: int) -> Mesh:
    """Returns the devices that share the seeds equally: their largest number that divides seeds."""
    devices = jax.devices()
    count = max(number for number in range(1, len(devices) + 1) if seeds % number == 0)
    return Mesh(devices[:count], ("seed",))


def lay_out(tree: Tree, seeds: int, spec: PartitionSpec) -> Tree:
    """Returns the arrays where `over_devices` wants them: BY_SEED, or WHOLE on each device."""
    mesh = seed_mesh(seeds)
    return tree if mesh.size == 1 else jax.device_put(tree, NamedSharding(mesh, spec))


def _part(device: jax.Device, leaf: Array) -> Array:
    return next(shard.data for shard in leaf.addressable_shards if shard.device == device)


def _join(mesh: Mesh, *leaves: Array) -> Array:
    shape = (len(leaves) * len(leaves[0]), *leaves[0].shape[1:])
    sharding = NamedSharding(mesh, BY_SEED)
    return jax.make_array_from_single_device_arrays(shape, sharding, leaves)


# Rows per call of a compiled program that answers requests of any length: few programs do.
BLOCKS = (1, 16, 128, 1024)


def in_blocks(program: Callable[[np.ndarray], Any], rows: np.ndarray) -> Any:
    """Returns a compiled program's outputs of all rows, as NumPy arrays; it gets them in blocks of
    one of BLOCKS, of which the last one is padded.
    """
    size = next((size for size in BLOCKS if size >= len(rows)), BLOCKS[-1])
    outputs = []
    for start in range(0, len(rows), size):
        block = rows[start : start + size]
        if len(block) < size:
            block = block.take(np.arange(size), 0, mode="clip")
        outputs.append(jax.tree.map(np.asarray, program(block)))
    if len(outputs) == 1:
        return jax.tree.map(lambda part: part[: len(rows)].copy(), outputs[0])
    return jax.tree.map(lambda *parts: np.concatenate(parts)[: len(rows)], *outputs)


# Packing.


def to_arrays(state: Any) -> dict[str, np.ndarray]:
    """Returns each leaf of a pytree under its path (`params/hidden/bias`); keys as uint32."""
    return flatten(state, lambda leaf: np.asarray(_key_data(leaf)))


def from_template(template: Tree, arrays: dict[str, np.ndarray]) -> Tree:
    """Returns the pytree that these arrays hold; the inverse of `to_arrays`.

    Only structure, shapes and dtypes of the template are read (`jax.eval_shape` provides them).
    Leaves that are numpy arrays in the template stay so, with 64 bits if they have them.

    Raises:
        ValueError: names, shapes or dtypes are not those of the template.
    """
    return unflatten(template, arrays, _spec, _to_leaf)


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


# Flags.


@contextmanager
def default_flags() -> Iterator[None]:
    """Sets the flags that change what is computed to jax's defaults in the calling thread, and
    restores them.
    """
    with ExitStack() as afterwards:
        for name, default in JAX_FLAGS.items():
            # A context of its own, even of the same value, would make jax trace all anew.
            if getattr(jax.config, f"jax_{name}") != default:
                afterwards.enter_context(getattr(jax, name)(default))
        yield


def convolve(
    images: Float[Array, "batch row column channel"],
    kernel: Float[Array, "side side channel filter"],
    stride: int,
    padding: int,
) -> Float[Array, "batch new_row new_column filter"]:
    """Computes what `lax.conv_general_dilated` does, which a loop on a CPU runs ten times slower.

    Squares of `stride` pixels become channels, of which a filter reads those of some neighbours.
    """
    side, _, channels, filters = kernel.shape
    reach = -(-side // stride)
    kernel = jnp.pad(kernel, ((0, reach * stride - side),) * 2 + ((0, 0),) * 2)
    counts = [(length + 2 * padding - side) // stride + 1 for length in images.shape[1:3]]
    squares = [count + reach - 1 for count in counts]
    pads = [
        (padding, square * stride - padding - length, 0)
        for square, length in zip(squares, images.shape[1:3], strict=True)
    ]
    padded = lax.pad(images, jnp.zeros((), images.dtype), [(0, 0, 0), *pads, (0, 0, 0)])
    blocks = padded.reshape(-1, squares[0], stride, squares[1], stride, channels).swapaxes(2, 3)
    wide = blocks.reshape(-1, *squares, stride**2 * channels)
    parts = [
        wide[:, row : row + counts[0], column : column + counts[1]]
        for row in range(reach)
        for column in range(reach)
    ]
    by_square = kernel.reshape(reach, stride, reach, stride, channels, filters).swapaxes(1, 2)
    return jnp.concatenate(parts, -1) @ by_square.reshape(-1, filters)
