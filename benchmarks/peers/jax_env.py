"""rounds -> a row about training in an environment that is written in JAX: iqn's loop against
rejax's IQN and DQN

All play gymnax's CartPole-v1 in a compiled scan, on the same schedule: 8 environments, 2 updates of
64 transitions per step of all, a replay of 51,200.
"""

from functools import partial
from typing import Any

import jax

from benchmarks.rows import OURS, Row
from benchmarks.timing import Continued, Work, race

ENVS, UPDATES, BATCH, CAPACITY, LAYER, QUANTILES = 8, 2, 64, 51_200, 64, 32
"""Environments of a step; updates after it; transitions of an update; of the replay; units of a
layer; quantiles of a loss, and by which actions are selected (fixed in rejax)."""
PREFILL, STEPS = 128, 128
"""Steps of random actions; steps of a call."""
NOTE = (
    "IQN of both with equal networks and quantiles, DQN with two layers of 64; rejax draws its "
    "batches without replacement"
)
ENV = {"kind": "jax", "import": "gymnax:make", "kwargs": {"env_id": "CartPole-v1"}}


def rows(rounds: int) -> list[Row]:
    """Trains all three from their first step on; evaluations are not counted."""
    works = {OURS: ours(), "rejax IQN": rejax("IQN"), "rejax DQN": rejax("DQN")}
    times = race(works, rounds, dict.fromkeys(works, ENVS * STEPS))
    return [Row("IQN in CartPole-v1 in JAX", "us/agent-step", times, note=NOTE)]


def ours() -> Work:
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
            "loss": {"quantiles": QUANTILES, "target_quantiles": QUANTILES, "n_step": 1},
            "acting": {"quantiles": QUANTILES},
        },
    )
    state = train.init_state(config, collect.collect(config, 0), 0)
    loop = train.loop_of(config, state)
    return Continued(partial(loop.run, cycles=STEPS // cycle), state)


def rejax(name: str) -> Work:
    """Returns iterations of one of its algorithms."""
    import rejax

    from benchmarks.peers.cartpole import five_values

    sizes = {"hidden_layer_sizes": (LAYER,)} if name == "IQN" else {}
    quantiles = {"num_tau_samples": QUANTILES, "num_tau_prime_samples": QUANTILES}
    algorithm = getattr(rejax, name).create(
        env=five_values(),
        agent_kwargs={"activation": "relu", **sizes},
        num_envs=ENVS,
        num_epochs=UPDATES,
        batch_size=BATCH,
        buffer_size=CAPACITY,
        fill_buffer=PREFILL * ENVS,
        **(quantiles if name == "IQN" else {}),
    )

    @jax.jit
    def advance(state: Any) -> tuple[Any, Any]:
        def iterate(_: int, state: Any) -> Any:
            return algorithm.train_iteration(state)

        state = jax.lax.fori_loop(0, STEPS, iterate, state)
        return state, state.global_step

    return Continued(advance, jax.jit(algorithm.init_state)(jax.random.key(0)))
