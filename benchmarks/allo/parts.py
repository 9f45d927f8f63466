"""a world -> rows about parts of a step that a proposal names, and about plots

XLA removes some of them when it compiles the step; they are measured all the same.
"""

import io
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.allo.steps import World
from benchmarks.harness import Contestant, Row, race
from benchmarks.jax_work import declaring, refuse_difference, timed
from benchmarks.reference import allo as reference
from benchmarks.reference.allo import TERMS, Terms
from quatrain.models.allo import losses
from quatrain.models.allo.plots import plots

GATHERED = 100
UPDATED = 300
LOGGED = 200
PLOTS_OF_A_RUN = 20
"""Of 20,000 steps: one every 1000."""
DPI = {"before": 300, "seed_way": 150, "ours": 110}
PROPOSED_FIGURES = ("vectors", "losses")
# Scores that titles of figures show.
SHOWN_SCORES = (
    "cosine_mean",
    "cosine_min",
    "group_largest",
    "eigenvalue_error_dual",
    "eigenvalue_error_rayleigh",
)


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
    """Measures the project's figures of 1000 steps: drawn in the loop, fewer and smaller as
    proposed, or once for a whole run.
    """
    names = ["loss", "graph", "dual", "barrier_term", "total_error", "norm_error"]
    names += ["manifold_distance", "grad_norm", "cosine_mean", "cosine_min"]
    for name in ("cosine", "eigenvalue", "eigenvalue_dual", "duals_diag"):
        names += [f"{name}/{i}" for i in range(world.config.network.d)]
    steps = np.arange(1, world.config.train.record_every + 1)
    history = dict.fromkeys(names, (steps, steps / (len(steps) + 1)))
    scores = dict.fromkeys(SHOWN_SCORES, 0.5)

    def save(side: str) -> None:
        figures = plots(world.config, world.state, world.dataset, history, scores)
        for name in PROPOSED_FIGURES if side == "seed_way" else figures:
            figures[name].savefig(io.BytesIO(), format="png", dpi=DPI[side])

    sides = {
        side: Contestant(partial(save, side), PLOTS_OF_A_RUN if side == "ours" else 1)
        for side in DPI
    }
    name = f"  plots, of each {PLOTS_OF_A_RUN}th of a run"
    return Row(name, "s", **race(sides, 1), claims=("allo-3",))
