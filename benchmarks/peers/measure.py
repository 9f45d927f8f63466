"""rows of this project against other libraries, in one process: the interpreter of .bench/peers"""

from pathlib import Path

from benchmarks.peers import advantages, cartpole, jax_env, quantiles, scan
from benchmarks.rows import Row
from quatrain.frameworks.torch import threads


def measure(root: Path, rounds: int) -> list[Row]:
    """Returns all rows of all libraries."""
    with threads(1):
        parts = advantages.rows(rounds)
    parts += [*scan.rows(rounds), *quantiles.rows(root, rounds), *jax_env.rows(rounds)]
    return [*parts, *cartpole.rows()]
