"""a world -> rows about parts of a step that a proposal names: encoder, gather, terms, transfers.

XLA removes some of them when it compiles the step; they are measured all the same.
"""

import itertools
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.allo.worlds import World, first_inputs, gradient_here
from benchmarks.harness import Contestant, race
from benchmarks.reference import allo as reference
from benchmarks.reference.allo_terms import TERMS, Terms
from benchmarks.table import NotTheSame, Row
from quatrain.models.allo import losses

GRADIENTS = 5
"""Calls per round; one takes up to ten milliseconds."""
GATHERED = 100
INDEXED = 20
UPDATED = 300
LOGGED = 200


def part_rows(world: World, rounds: int) -> list[Row]:
    """Measures every part; the world's gradients have been compared before."""
    return [
        encoder_row(world, rounds),
        gather_row(world, rounds),
        *term_rows(world, rounds),
        metrics_row(rounds),
    ]


def encoder_row(world: World, rounds: int) -> Row:
    """Measures L and its gradient on one batch: three encoder calls, one, or one of all states."""
    state, inputs = reference.start(world.config, world.state), first_inputs(world)
    here = gradient_here(world)
    programs: dict[str, Callable[[], Any]] = {
        "before": lambda: world.programs.gradient(state.params, state, inputs),
        "proposed": lambda: world.programs.gradient_of_one_call(state.params, state, inputs),
        "ours": lambda: here(state.params),
    }
    times = race(
        {name: _repeated(program, GRADIENTS) for name, program in programs.items()}, rounds
    )
    return Row(
        "  encoder: loss and gradient",
        "ms/step",
        times["ours"],
        times["before"],
        times["proposed"],
        claims=("allo-2",),
    )


def gather_row(world: World, rounds: int) -> Row:
    """Measures the inputs of 3 x 256 states: JAX arrays indexed in a loop or in a compiled scan."""
    table, host = world.data.inputs, np.asarray(world.data.inputs)
    states = np.random.default_rng(0).integers(
        len(table), size=(GATHERED, 3, world.config.train.batch_size)
    )
    batch = tuple(map(jnp.asarray, states[0]))
    every = jnp.asarray(states)
    scan = jax.jit(
        lambda inputs, all_states: jax.lax.scan(
            lambda _, each: (None, inputs[each]), None, all_states
        )[1]
    )
    flat, out = states[0].ravel(), np.empty((states[0].size, host.shape[1]), host.dtype)
    for gathered in (
        reference.three_gathers(table, batch),
        reference.one_gather(table, batch),
        scan(table, every)[0],
    ):
        if not np.array_equal(np.stack(gathered), host[states[0]]):
            raise NotTheSame("gather: not the inputs of these states")
    scan.clear_cache()
    times = race(
        {
            "before": _repeated(lambda: reference.three_gathers(table, batch), INDEXED),
            "proposed": _repeated(lambda: reference.one_gather(table, batch), INDEXED),
            "ours": Contestant(lambda: jax.block_until_ready(scan(table, every)), GATHERED),
            "limit": _repeated(
                lambda: np.take(host, flat, axis=0, out=out, mode="clip"), 10 * GATHERED
            ),
        },
        rounds,
    )
    name = "  inputs of three batches"
    row = Row(name, "us/call", times["ours"], times["before"], times["proposed"], times["limit"])
    return row._replace(claims=("allo-4",))


def term_rows(world: World, rounds: int) -> list[Row]:
    """Measures the constraints' terms and gradient, compiled: equal sums in several spellings."""
    rng, (batch, d) = (
        np.random.default_rng(0),
        (world.config.train.batch_size, world.config.network.d),
    )
    phi, phi_2 = (jnp.asarray(rng.normal(size=(batch, d)), jnp.float32) for _ in range(2))
    duals = -2 * jnp.tril(jnp.ones((d, d)))
    programs = {name: updates(terms) for name, terms in ({"ours": terms_here} | TERMS).items()}
    moved = {name: program(phi, phi_2, duals) for name, program in programs.items()}
    for name, features in moved.items():
        if not np.allclose(features, moved["ours"], rtol=1e-3, atol=1e-3):
            raise NotTheSame(f"terms: {name} moves features elsewhere than the project's")
        programs[name].clear_cache()

    def contestant(program: Any) -> Contestant:
        return Contestant(lambda: jax.block_until_ready(program(phi, phi_2, duals)), UPDATED)

    times = race({name: contestant(program) for name, program in programs.items()}, rounds)
    row = partial(Row, unit="us/call", ours=times["ours"])
    return [
        row(
            "  terms: einsum or @",
            before=times["einsum"],
            seed_way=times["product"],
            claims=("allo-5",),
        ),
        row(
            "  terms: one identity matrix",
            before=times["einsum"],
            seed_way=times["one eye"],
            claims=("allo-7",),
        ),
        row(
            "  terms: a jitted helper",
            before=times["helper"],
            seed_way=times["jitted helper"],
            claims=("allo-8",),
        ),
    ]


def terms_here(phi: jax.Array, phi_2: jax.Array, duals: jax.Array, barrier: jax.Array) -> jax.Array:
    """Computes the project's dual term and barrier term."""
    constraints = losses.two_batches(losses.Features(phi, phi, phi_2[None]))
    loss = losses.lagrangian(jnp.float32(0), constraints, duals, barrier, 1.0)
    return losses.total(loss)


def updates(terms: Terms) -> Any:
    """Compiles UPDATED gradient steps of the terms in the features of the first batch.

    The second batch changes too: a constant would be computed once.
    """
    gradient = jax.grad(terms)

    def body(carry: tuple[jax.Array, ...], _: None) -> Any:
        phi, phi_2, duals = carry
        return (
            phi - 0.1 * gradient(phi, phi_2, duals, jnp.abs(duals[0, 0]) / 4),
            0.999 * phi_2,
            duals,
        ), None

    return jax.jit(lambda *carry: jax.lax.scan(body, carry, length=UPDATED)[0][0])


def metrics_row(rounds: int) -> Row:
    """Measures the transfer of eight numbers: one by one, per step, or per 100 steps.

    An array caches its number once it was fetched: each round has new ones.
    """
    names, scan = list("abcdefgh"), 100
    make = jax.jit(lambda start: {name: start + place for place, name in enumerate(names)})

    def fresh(start: Any) -> Iterator[list[reference.Metrics]]:
        turns = [
            [jax.block_until_ready(make(start + i)) for i in range(LOGGED)]
            for _ in range(rounds + 3)
        ]
        return iter(turns)

    scalars = {name: fresh(jnp.float32(0)) for name in ("before", "proposed")}
    stacked = fresh(jnp.arange(scan, dtype=jnp.float32))
    runs: dict[str, Callable[[], list[Any]]] = {
        "before": lambda: [reference.one_by_one(metrics) for metrics in next(scalars["before"])],
        "proposed": lambda: [
            reference.all_together(metrics) for metrics in next(scalars["proposed"])
        ],
        "ours": lambda: [jax.device_get(metrics) for metrics in next(stacked)],
    }
    fetched = {name: run()[0] for name, run in runs.items()}
    if (
        not fetched["before"]
        == fetched["proposed"]
        == {name: values[0] for name, values in fetched["ours"].items()}
    ):
        raise NotTheSame("metrics: another number was fetched")
    units = {"before": LOGGED, "proposed": LOGGED, "ours": LOGGED * scan}
    times = race({name: Contestant(run, units[name]) for name, run in runs.items()}, rounds)
    name = "  eight metrics of a step fetched"
    return Row(
        name, "us/call", times["ours"], times["before"], times["proposed"], claims=("allo-6",)
    )


def _repeated(call: Callable[[], Any], calls: int) -> Contestant:
    def run() -> None:
        for _ in itertools.repeat(None, calls):
            done = call()
        jax.block_until_ready(done)

    return Contestant(run, calls)
