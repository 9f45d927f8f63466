"""a world -> rows about parts of a step that a proposal names, and about plots

XLA removes some of them when it compiles the step; they are measured all the same.
"""

import time
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure

from benchmarks.allo.steps import World
from benchmarks.harness import Contestant, Measured, NotTheSame, Row, race
from benchmarks.jax_work import declaring, refuse_difference, timed
from benchmarks.reference import allo as reference
from benchmarks.reference import allo_plots
from benchmarks.reference.allo_terms import TERMS, Terms
from pipeline.storage.figures import png
from quatrain.models.allo import losses
from quatrain.models.allo.plots import on_map, plots
from quatrain.models.allo.train import tables

GATHERED = 100
UPDATED = 300
LOGGED = 200
PLOTS_OF_A_RUN = 20
"""Of 20,000 steps: one every 1000."""


def gather_row(world: World, rounds: int) -> Row:
    """Measures the inputs of 3 x 256 states: JAX arrays indexed in a loop or in a compiled scan."""
    table, host = world.data.inputs, np.asarray(world.data.inputs)
    shape = GATHERED, 3, world.config.train.batch_size
    states = np.random.default_rng(0).integers(len(table), size=shape)
    batch, every, flat = tuple(map(jnp.asarray, states[0])), jnp.asarray(states), states[0].ravel()
    out = np.empty((flat.size, host.shape[1]), host.dtype)
    scan = jax.jit(lambda table, states: jax.lax.map(lambda each: table[each], states))
    works = {
        "before": lambda: reference.three_gathers(table, batch),
        "seed_way": lambda: reference.one_gather(table, batch),
        "ours": lambda: scan(table, every),
        "limit": lambda: np.take(host, flat, axis=0, out=out, mode="clip"),
    }
    plain = {name: jnp.stack(works[name]()) for name in ("before", "seed_way")}
    refuse_difference("gather", plain | {"ours": works["ours"]()[0]})
    times = timed(works, rounds, ours=GATHERED)
    return Row("  inputs of three batches", "us/call", **times, claims=("allo-4",))


def term_rows(world: World, rounds: int) -> list[Row]:
    """Measures the constraints' terms and gradient, compiled: equal sums in several spellings."""
    rng, d = np.random.default_rng(0), world.config.network.d
    shape = world.config.train.batch_size, d
    phi, phi_2 = (jnp.asarray(rng.normal(size=shape), jnp.float32) for _ in range(2))
    arguments = phi, phi_2, -2 * jnp.tril(jnp.ones((d, d)))
    programs = {name: updates(terms) for name, terms in ({"ours": terms_here} | TERMS).items()}
    works = {name: partial(program, *arguments) for name, program in programs.items()}
    refuse_difference("terms", {name: work() for name, work in works.items()}, 1e-3, 1e-3)
    times = timed(works, rounds, **dict.fromkeys(works, UPDATED))
    row = declaring(times, "us/call")
    one_eye, helper = "  terms: one identity matrix", "  terms: a jitted helper"
    return [
        row("  terms: einsum or @", before="einsum", seed_way="product", claims=("allo-5",)),
        row(one_eye, before="einsum", seed_way="one eye", claims=("allo-7",)),
        row(helper, before="helper", seed_way="jitted helper", claims=("allo-8",)),
    ]


def terms_here(phi: jax.Array, phi_2: jax.Array, duals: jax.Array, barrier: jax.Array) -> jax.Array:
    """Computes the project's dual term and barrier term."""
    constraints = losses.two_batches(losses.Features(phi, phi, phi_2[None]))
    return losses.total(losses.lagrangian(jnp.float32(0), constraints, duals, barrier, 1.0))


def updates(terms: Terms) -> Any:
    """Compiles UPDATED gradient steps of the terms in the features of the first batch.

    The second batch changes too: a constant would be computed once.
    """

    def body(carry, _):
        phi, phi_2, duals = carry
        gradient = jax.grad(terms)(phi, phi_2, duals, jnp.abs(duals[0, 0]) / 4)
        return (phi - 0.1 * gradient, 0.999 * phi_2, duals), None

    return jax.jit(lambda *carry: jax.lax.scan(body, carry, length=UPDATED)[0][0])


def metrics_row(rounds: int) -> Row:
    """Measures the transfer of eight numbers: one by one, per step, or per 100 steps.

    An array keeps a number that was fetched once: each call fetches new arrays.
    """
    steps = 100
    make = jax.jit(lambda start: {name: start + place for place, name in enumerate("abcdefgh")})

    def fetching(fetch, start):
        ready = [
            [jax.block_until_ready(make(start + step)) for step in range(LOGGED)]
            for _ in range(rounds + 3)
        ]
        return lambda: [fetch(metrics) for metrics in ready.pop()]

    works = {
        "before": fetching(reference.one_by_one, jnp.float32(0)),
        "seed_way": fetching(reference.all_together, jnp.float32(0)),
        "ours": fetching(jax.device_get, jnp.arange(steps, dtype=jnp.float32)),
    }
    results = {name: work()[0] for name, work in works.items()}
    results["ours"] = {name: values[0] for name, values in results["ours"].items()}
    refuse_difference("metrics", results)
    units = {"before": LOGGED, "seed_way": LOGGED, "ours": LOGGED * steps}
    times = race({name: Contestant(work, units[name]) for name, work in works.items()}, rounds)
    return Row("  eight metrics of a step fetched", "us/call", **times, claims=("allo-6",))


def plots_row(world: World) -> Row:
    """Measures plots of 1000 steps; ours plots once for all of them, outside the loop.

    In two rounds: one of the original's plots takes seconds.
    """
    config, dataset = world.config, world.dataset
    names = [*allo_plots.CURVES, "manifold_distance", "grad_norm", "cosine_mean"]
    for name in ("cosine", "eigenvalue_dual", "duals_diag"):
        names += [f"{name}/{i}" for i in range(config.network.d)]
    steps = np.arange(1, config.train.record_every + 1)
    history = dict.fromkeys(names, (steps, steps / (len(steps) + 1)))

    def learned() -> np.ndarray:
        table = tables(config, world.state, dataset)[0]
        return np.stack([on_map(column, dataset) for column in table.T])

    def ours() -> None:
        figures = plots(config, world.state, dataset, history, {"cosine_mean": 0.5})
        if "vectors" not in figures or not all(png(figure) for figure in figures.values()):
            raise NotTheSame("plots: the learned vectors are not among the project's")

    true = learned()  # any maps take as long
    works = {
        "before": lambda: allo_plots.blocking_plots(learned(), true, history),
        "seed_way": lambda: allo_plots.proposed_plots(learned(), history),
        "ours": ours,
    }
    allo_plots.save([Figure()], dpi=10)  # loads matplotlib
    seconds: dict[str, list[float]] = {name: [] for name in works}
    for name in [*works, *works]:
        begin = time.perf_counter()
        works[name]()
        seconds[name].append(time.perf_counter() - begin)
    seconds["ours"] = [each / PLOTS_OF_A_RUN for each in seconds["ours"]]
    times = {name: Measured(np.array(each)) for name, each in seconds.items()}
    return Row(f"  plots, of each {PLOTS_OF_A_RUN}th of a run", "s", **times, claims=("allo-3",))
