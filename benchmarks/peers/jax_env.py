"""rounds -> a row about training in an environment that is written in JAX: iqn's loop against
rejax's IQN and DQN

All play gymnax's CartPole-v1 in a compiled scan, on the same schedule: 8 environments, 2 updates of
64 transitions per step of all, a replay of 51,200.
"""

import time
from functools import partial
from typing import Any

import jax

from benchmarks.rows import OURS, Row
from benchmarks.timing import Continued, Work, race

ENVS, UPDATES, BATCH, CAPACITY, LAYER = 8, 2, 64, 51_200, 64
"""Environments of a step; updates after it; transitions of an update; of the replay; units of a
layer."""
QUANTILES = (8, 32)
"""Of a loss, and by which ours selects actions; rejax always selects by 32."""
PREFILL, STEPS = 128, 128
"""Steps of random actions; steps of a call."""
NOTE = (
    "CPU seconds of one thread; both IQN have equal networks and quantiles; rejax selects by 32, "
    "and draws batches without replacement; DQN has two layers of 64"
)
ENV = {"kind": "jax", "import": "gymnax:make", "kwargs": {"env_id": "CartPole-v1"}}


def rows(rounds: int) -> list[Row]:
    """Trains with each number of quantiles; evaluations are not counted."""
    return [quantiles_row(rounds, quantiles) for quantiles in QUANTILES]


def quantiles_row(rounds: int, quantiles: int) -> Row:
    works = {"rejax IQN": rejax("IQN", quantiles), "rejax DQN": rejax("DQN", quantiles)}
    works = {OURS: ours(quantiles)} | works
    times = race(works, rounds, dict.fromkeys(works, ENVS * STEPS), time.process_time)
    name = f"IQN in a CartPole-v1 written in JAX, {quantiles} quantiles"
    return Row(name, "us/agent-step", times, note=NOTE)


def ours(quantiles: int) -> Work:
    """Returns cycles of one seed."""
    import quatrain
    from quatrain.models.iqn import collect, train

    cycle = 16
    config = quatrain.config(
        "iqn",
        env=ENV | {"worlds": ENVS},
        collect={"turns": PREFILL},
        network={"hidden": LAYER, "cosines": LAYER, "dueling": False},
        train={
            "turns_per_cycle": cycle,
            "updates_per_cycle": UPDATES * cycle,
            "batch_size": BATCH,
            "capacity": CAPACITY,
            "loss": {"quantiles": quantiles, "target_quantiles": quantiles, "n_step": 1},
            "acting": {"quantiles": quantiles},
        },
    )
    state = train.init_state(config, collect.collect(config, 0), 0)
    loop = train.loop_of(config, state)
    return Continued(partial(loop.run, cycles=STEPS // cycle), state)


def rejax(name: str, quantiles: int) -> Work:
    """Returns iterations of one of its algorithms."""
    import rejax

    from benchmarks.peers.cartpole import five_values

    sizes = {"hidden_layer_sizes": (LAYER,)} if name == "IQN" else {}
    samples = {"num_tau_samples": quantiles, "num_tau_prime_samples": quantiles}
    algorithm = getattr(rejax, name).create(
        env=five_values(),
        agent_kwargs={"activation": "relu", **sizes},
        num_envs=ENVS,
        num_epochs=UPDATES,
        batch_size=BATCH,
        buffer_size=CAPACITY,
        fill_buffer=PREFILL * ENVS,
        **(samples if name == "IQN" else {}),
    )

    @jax.jit
    def advance(state: Any) -> tuple[Any, Any]:
        def iterate(_: int, state: Any) -> Any:
            return algorithm.train_iteration(state)

        state = jax.lax.fori_loop(0, STEPS, iterate, state)
        return state, state.global_step

    return Continued(advance, jax.jit(algorithm.init_state)(jax.random.key(0)))
