"""jax.jit for tests: compiles in a third of the time to programs that run a few times slower."""

from functools import partial

import jax

quick_jit = partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})
