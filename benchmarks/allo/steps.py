"""worlds -> rows about one gradient step of allo: plain loop, proposal, ours, and parts of it."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.allo.worlds import World, fit, refuse_another_gradient, truth_of
from benchmarks.harness import Contestant, Measured, race
from benchmarks.reference import allo as reference
from benchmarks.reference.replay_loop import sample_with_terminal_table
from benchmarks.table import Goal, NotTheSame, Point, Row, Without
from quatrain.models.allo.config import AlloConfig
from quatrain.models.allo.train import State, encoder_is_table, run_chunk

STEPS = 20
"""Steps per round; the slow ways take up to half a second."""
TRIED = (
    "Adam's weights written in place: +7 %, used. Gradient norms by vdot, one scatter for both "
    "batches, a one-hot product backwards, an unrolled scan, other matrix products of XLA: within "
    "the spread. Two thirds of a step are matrix products."
)


class Turn(NamedTuple):
    """Holds an arm's state after a round, and the loss at the start of the round, if any."""

    state: Any
    loss: float | None = None


class Arm:
    """Runs a learner on from its last state: each call is `turn` more steps."""

    def __init__(self, advance: Callable[[Any], Turn], state: Any, turn: int) -> None:
        self.advance, self.state, self.turn, self.steps = advance, state, turn, 0
        self.losses: list[float | None] = []

    def __call__(self) -> None:
        self.state, loss = jax.block_until_ready(self.advance(self.state))
        self.steps += self.turn
        self.losses.append(loss)


def step_rows(world: World, rounds: int) -> tuple[list[Row], str]:
    """Measures every variant of a step on the original's map, the whole step first."""
    one_call = reference.Way(world.programs.one_call, sample_with_terminal_table)
    arms = main_arms(world) | {
        "proposed": looping(world, proposed(world)),
        "phase 1": looping(world, one_call),
        "batch rows": ours(world, encoder_rows="batch", record_every=STEPS),
        "no scan": ours(world, record_every=1),
        "neither": ours(world, record_every=1, encoder_rows="batch"),
    }
    times, note = compared(world, arms, rounds)
    part = partial(Row, unit="ms/step", before=times["before"])
    return [
        whole_row(world, times),
        part("  phase 1: ends noted, one encoder call", seed_way=times["phase 1"],
             ours=times["ours"], claims=("allo-phase-1",)),
        part("  one scan", ours=times["ours"],
             without=Without("the scan: a step is a call", times["no scan"])),
        part("  one scan, every state once", ours=times["ours"],
             without=Without("both: batches encoded, a step is a call", times["neither"])),
    ], note  # fmt: skip


def step_row(world: World, rounds: int) -> tuple[Row, str]:
    """Measures the whole step on a larger map, where encoding every state gains less."""
    arms = main_arms(world) | {"ours": ours(world, record_every=STEPS)}
    times, note = compared(world, arms, rounds)
    return whole_row(world, times), note


def main_arms(world: World) -> dict[str, Arm]:
    original = reference.Way(world.programs.original)
    return {"before": looping(world, original), "ours": ours(world), "limit": matmuls(world)}


def proposed(world: World) -> reference.Way:
    """Returns the step with all parts of the proposal."""
    programs = world.programs
    return reference.Way(
        programs.proposed, sample_with_terminal_table, reference.one_gather, reference.all_together
    )


def compared(world: World, arms: dict[str, Arm], rounds: int) -> tuple[dict[str, Measured], str]:
    """Checks equality, measures times, and describes what the timed steps learned."""
    refuse_another_gradient(world)
    times = race({name: Contestant(arm, arm.turn) for name, arm in arms.items()}, rounds)
    return times, learned(world, arms)


def whole_row(world: World, times: dict[str, Measured]) -> Row:
    """Returns the row of a step; goal: 5x as fast on the original's map, not slower elsewhere."""
    states, chief = len(world.data.inputs), "proposed" in times
    row = Row(
        f"step, {world.config.env.map.name} ({states} states)",
        "ms/step",
        times["ours"],
        before=times["before"],
        seed_way=times.get("proposed"),
        limit=times["limit"],
        without=Without("the table: batches are encoded", times["batch rows"]) if chief else None,
        goal=Goal(5 if chief else 1, "before"),
        claims=("allo-overall",) if chief else (),
        point=Point("states", "states", states),
    )
    return row if row.goal_reached else row._replace(tried=TRIED)


# Ways of making steps.


def looping(world: World, way: reference.Way) -> Arm:
    """Returns an arm that runs the reference's loop."""
    table, rng = np.asarray(world.data.inputs), np.random.default_rng(0)

    def advance(state: reference.State) -> Turn:
        state, logged = reference.learn(
            rng, state, world.buffer, table, world.config, way, range(STEPS)
        )
        return Turn(state, logged[0]["loss"])

    return Arm(advance, reference.start(world.config, world.state), STEPS)


def ours(world: World, **train: Any) -> Arm:
    """Returns an arm that runs the project's program, and transfers what it recorded."""
    config = world.config.model_copy(update={"train": world.config.train.model_copy(update=train)})
    turn = max(config.train.record_every, STEPS)

    def advance(state: State) -> Turn:
        losses = []
        for _ in range(turn // config.train.record_every):
            every = config.train.record_every
            state, recorded = run_chunk(config, every, state, world.data)
            losses.append(jax.device_get(recorded)["loss"])
        return Turn(state, float(losses[0][0, 0]))

    return Arm(advance, world.state, turn)


def matmuls(world: World) -> Arm:
    """Returns the limit: only the matrix products of the encoder's forward and backward pass.

    Weights are orthogonal, so that features keep their size over repeated passes; the products with
    the inputs' few columns are left out.
    """
    rng, config = np.random.default_rng(0), world.config
    moved, frozen = rows_encoded(config, len(world.data.inputs))
    width, layers = config.network.hidden, config.network.layers - 1
    squares = [
        jnp.asarray(np.linalg.qr(rng.normal(size=(width, width)))[0], jnp.float32)
        for _ in range(layers)
    ]
    last = jnp.asarray(np.linalg.qr(rng.normal(size=(width, config.network.d)))[0], jnp.float32)

    @jax.jit
    def chunk(carry: Any) -> Any:
        def body(carry: Any, _: None) -> Any:
            rows, still, _ = carry
            inputs = []
            for weights in squares:
                inputs, rows, still = [*inputs, rows], rows @ weights, still @ weights
            back = rows @ last
            gradients = [rows.T @ back]
            back = back @ last.T
            for weights, layer in zip(reversed(squares), reversed(inputs), strict=True):
                gradients, back = [*gradients, layer.T @ back], back @ weights.T
            return (back, still, gradients), None

        return jax.lax.scan(body, carry, length=STEPS)[0]

    rows, still = (
        jnp.asarray(rng.normal(size=(count, width)), jnp.float32) for count in (moved, frozen)
    )
    gradients = [jnp.zeros_like(last), *map(jnp.zeros_like, squares)]
    return Arm(lambda carry: Turn(chunk(carry)), (rows, still, gradients), STEPS)


def rows_encoded(config: AlloConfig, states: int) -> tuple[int, int]:
    """Returns how many rows the encoder passes in both directions, and how many only forwards."""
    if encoder_is_table(config.train, states):
        return states, 0
    return 2 * config.train.batch_size, config.train.batch_size


def learned(world: World, arms: dict[str, Arm]) -> str:
    """Describes how well the contestants' tables fit the truth after the timed steps.

    Raises:
        NotTheSame: a contestant did not learn: no round started with half of the first loss. (The
            loss oscillates at first.)
    """
    truth, name = truth_of(world), world.config.env.map.name
    learners = [contestant for contestant in ("before", "proposed", "ours") if contestant in arms]
    for contestant in learners:
        losses = [loss for loss in arms[contestant].losses if loss is not None]
        if not min(losses) < losses[0] / 2:
            raise NotTheSame(
                f"{name}: {contestant} began with loss {losses[0]:.3g} "
                f"and came to {min(losses):.3g}"
            )
    states = {contestant: arms[contestant].state for contestant in learners}
    states["ours"] = reference.start(world.config, arms["ours"].state)
    cosines = {
        contestant: fit(world, truth, state.params).cosine for contestant, state in states.items()
    }
    untrained = fit(world, truth, reference.start(world.config, world.state).params).cosine
    reached = ", ".join(
        f"{who} {cosine:.2f} after {arms[who].steps:,}" for who, cosine in cosines.items()
    )
    return (
        f"{name}, mean cosine after the timed steps, early in the learning and each with its own "
        f"random stream: {reached}; untrained {untrained:.2f}"
    )
