"""config -> a row about the quantile Huber loss by itself, value and gradient."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch

from benchmarks.harness import Contestant, race
from benchmarks.iqn.sides import Sides
from benchmarks.reference import iqn as reference
from benchmarks.reference import iqn_seed as seed
from benchmarks.table import Goal, NotTheSame, Row, Without
from benchmarks.torch_threads import threads
from quatrain.models.iqn import losses

LOSSES = 200  # of a call of the compiled program
CALLS = 20  # of a turn


def often(work: Callable[[], Any]) -> None:
    for _ in range(CALLS):
        work()


def loss_row(sides: Sides, rounds: int) -> Row:
    """Measures value and gradient with respect to Z; the project's inside a compiled program."""
    size, count = sides.config.train.batch_size, sides.config.train.loss.quantiles
    rng = np.random.default_rng(0)
    values, target, taus = (rng.random((size, count), np.float32) * scale for scale in (4, 4, 1))
    contestants, result = loss_arms(values, target, taus)
    expected = result["before"]
    for name, (value, gradient) in result.items():
        factor = count if name == "ours" else 1  # a sum over quantiles, not a mean
        if not (
            np.isclose(value, factor * expected[0])
            and np.allclose(gradient, factor * expected[1], atol=1e-6)
        ):
            raise NotTheSame(f"loss alone: {name} is {value}, before {expected[0]}")
    times = race(contestants, rounds)
    return Row(
        f"loss and its gradient, B={size}, Q=P={count}",
        "us/call",
        times["ours"],
        times["before"],
        times["seed"],
        without=Without("the scan: each loss called from Python", times["called"]),
        goal=Goal(1, "before"),
        claims=("agents-loss",),
    )


def loss_arms(
    values: np.ndarray, target: np.ndarray, taus: np.ndarray
) -> tuple[dict[str, Contestant], dict[str, tuple[Any, Any]]]:
    """Contestants, and what each computes of the arguments."""
    ones = np.ones(len(values), np.float32)

    def plain() -> tuple[Any, Any]:
        with threads(1):
            selected = torch.tensor(values, requires_grad=True)
            errors = torch.from_numpy(target)[:, None, :] - selected[:, :, None]
            loss = reference.quantile_huber(errors, torch.from_numpy(taus), torch.from_numpy(ones))
            loss.backward()
        return loss.item(), selected.grad

    targets, online, valid = jnp.asarray(target), jnp.asarray(taus), jnp.asarray(ones)
    proposed = jax.jit(
        jax.value_and_grad(
            lambda z: seed.quantile_huber(targets[:, None] - z[..., None], online, valid)
        )
    )
    gradient = jax.value_and_grad(
        lambda z: losses.quantile_huber(losses.td_errors(z, targets), online, 1.0).mean()
    )

    @jax.jit
    def many(start: jax.Array) -> jax.Array:
        # Each starts where the one before left: else they would be computed once.
        return jax.lax.scan(lambda z, _: (z - gradient(z)[1], None), start, None, length=LOSSES)[0]

    alone = jax.jit(gradient)
    contestants = {
        "before": Contestant(partial(often, plain), CALLS),
        "called": Contestant(partial(often, lambda: jax.block_until_ready(alone(values))), CALLS),
        "seed": Contestant(partial(often, lambda: jax.block_until_ready(proposed(values))), CALLS),
        "ours": Contestant(lambda: jax.block_until_ready(many(jnp.asarray(values))), LOSSES),
    }
    return contestants, {
        "before": plain(),
        "seed": proposed(values),
        "ours": gradient(jnp.asarray(values)),
    }
