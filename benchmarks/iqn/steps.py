"""config -> rows about a gradient step of iqn: the plain reference, the seed's way, this project's, and the limit."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch

from benchmarks.harness import Contestant, Times, race
from benchmarks.iqn.sides import Sides, params_of, refuse_another_gradient
from benchmarks.reference import iqn as reference
from benchmarks.reference import iqn_seed as seed
from benchmarks.table import Goal, NotTheSame, Row
from benchmarks.torch_threads import threads
from quatrain.models.iqn import losses
from quatrain.models.iqn.config import IqnConfig
from quatrain.models.iqn.cycle.axes import side_by_side
from quatrain.models.iqn.network import ACTIONS
from quatrain.models.iqn.train import Agent, learn

MATMULS = 20  # of a turn
LOSSES = 200  # of a call of the compiled program


class Arm:
    """The project's agents, which go on learning: each call is `updates_per_cycle` more updates of each."""

    def __init__(self, config: IqnConfig, sides: Sides) -> None:
        self.experience, self.learner = sides.experience, sides.learner
        self.program, self.updates = jax.jit(partial(learn, config)), config.train.updates_per_cycle

    def __call__(self) -> None:
        agents, recorded = self.program(self.learner, self.experience)
        jax.block_until_ready(recorded)
        self.learner = self.learner._replace(**agents._asdict(), updates=self.learner.updates + self.updates)


def changed(config: IqnConfig, noisy: str | None = None, **train: Any) -> IqnConfig:
    """Keys that a made learner does not depend on, changed without another check."""
    network = config.network if noisy is None else config.network.model_copy(update={"noisy": noisy})
    return config.model_copy(update={"network": network, "train": config.train.model_copy(update=train)})


def original_rows(sides: Sides, rounds: int, goals: tuple[float, float, float]) -> list[Row]:
    """The original's network and noise; goals: against two threads, against one, and of the matmul rate."""
    refuse_another_gradient(sides)
    quiet = changed(sides.config, noisy="none")
    more = {"quiet": own_arm(quiet, sides), "limit": limit(sides.config)}
    times = raced(sides, more, rounds)
    size, count = sides.config.train.batch_size, sides.config.train.loss.quantiles
    row = partial(Row, unit="ms/step", before=times["two threads"])
    return [
        row(
            f"train step of an agent, B={size}, Q={count}", "004 networks", "2-5x",
            ours=times["auto"], seed_way=times["one by one"], goal=Goal(goals[0], "before"),
        ),
        row(
            "  before: 1 thread", "-", "-",
            ours=times["auto"], before=times["one thread"], goal=Goal(goals[1], "before"),
        ),
        row("  one agent alone", "-", "-", ours=times["alone"], seed_way=times["one by one"]),
        row(
            "  agents side by side (vmap)", "004 agents in parallel", "2-4x",
            ours=times["vmap"], seed_way=times["side by side"],
        ),
        row("  agents in turn; seed's way: ours, vmap", "004 agents in parallel", "2-4x",
            ours=times["scan"], seed_way=times["vmap"]),
        row("  before: its FLOP as matmuls; no noise", "-", "-",
            ours=times["quiet"], before=times["limit"], goal=Goal(goals[2], "before")),
    ]  # fmt: skip


def raced(sides: Sides, more: dict[str, Contestant], rounds: int) -> dict[str, Times]:
    """Times of all contestants; "auto" is the way that the project itself takes here."""
    times = race(plain_arms(sides) | seed_arms(sides) | own_arms(sides) | more, rounds)
    return times | {"auto": times["vmap" if side_by_side(sides.config) else "scan"]}


def small_rows(sides: Sides, rounds: int) -> list[Row]:
    """64 units: before has one thread, which is faster there."""
    refuse_another_gradient(sides)
    times = raced(sides, {}, rounds)
    row = partial(Row, unit="ms/step", before=times["one thread"], ours=times["vmap"])
    name = f"train step, {_shape(sides.config)}"
    return [
        row(name, "004 networks", "2-5x", seed_way=times["side by side"], goal=Goal(1.5, "before")),
        row("  seed's way: one by one", "004 agents in parallel", "2-4x",
            seed_way=times["one by one"], goal=Goal(1.3, "seed's way")),
        row("  seed's way: ours, agents in turn", "-", "-", seed_way=times["scan"]),
    ]  # fmt: skip


def large_rows(sides: Sides, rounds: int) -> list[Row]:
    """256 units, where a CPU is busy with matmuls whoever asks for them."""
    refuse_another_gradient(sides)
    times = raced(sides, {"limit": limit(sides.config)}, rounds)
    row = partial(Row, unit="ms/step", ours=times["auto"], before=times["two threads"])
    return [
        row(f"train step, {_shape(sides.config)}", "004 networks", "2-5x",
            seed_way=times["one by one"], goal=Goal(0.9, "before")),
        row("  before: its FLOP as matmuls", "-", "-", before=times["limit"], goal=Goal(0.3, "before")),
    ]  # fmt: skip


def _shape(config: IqnConfig) -> str:
    return f"{config.network.hidden} units, B={config.train.batch_size}, Q={config.train.loss.quantiles}"


# The contestants; all count gradient steps of one agent, and all but the limit sample them.


def plain_arms(sides: Sides) -> dict[str, Contestant]:
    """PyTorch, an agent after the other, with the threads of the process and with one."""

    def steps(count: int) -> Callable[[], None]:
        def run() -> None:
            with threads(count):
                for agent, memory in zip(sides.agents, sides.memories, strict=True):
                    agent.learn(memory.sample(sides.config.train.batch_size))

        return run

    agents = len(sides.agents)
    return {
        "two threads": Contestant(steps(torch.get_num_threads()), agents),
        "one thread": Contestant(steps(1), agents),
    }


def seed_arms(sides: Sides) -> dict[str, Contestant]:
    """A jitted step called from Python, of one agent after the other, and of all under a vmap."""
    keys = jax.random.split(jax.random.key(1), len(sides.agents))
    agents = [seed.Agent(sides.plan, params_of(sides.learner, index), key) for index, key in enumerate(keys)]
    together = _together(agents)

    def batches() -> list[reference.Batch]:
        return [memory.sample(sides.config.train.batch_size) for memory in sides.memories]

    def one_by_one() -> None:
        for agent, batch in zip(agents, batches(), strict=True):
            agent.learn(batch)

    def side_by_side() -> None:
        nonlocal together
        stacked = reference.Batch(*(np.stack(column) for column in zip(*batches(), strict=True)))
        together, values = seed.step_of_all(sides.plan, together, stacked, keys)
        jax.block_until_ready(values)

    return {
        "one by one": Contestant(one_by_one, len(agents)),
        "side by side": Contestant(side_by_side, len(agents)),
    }


def _together(agents: list[seed.Agent]) -> seed.State:
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *(agent.state for agent in agents))


def own_arms(sides: Sides) -> dict[str, Contestant]:
    """The project's either way, and with one agent only."""
    arms = {way: own_arm(changed(sides.config, agent_parallelism=way), sides) for way in ("vmap", "scan")}
    env = sides.config.env.model_copy(update={"agents": 1})
    learner = sides.learner
    agents = Agent(learner.params, learner.target_params, learner.optimizer)
    only = jax.jit(partial(jax.tree.map, lambda leaf: leaf[:1]))(agents)
    one = sides._replace(learner=learner._replace(**only._asdict()))
    alone = own_arm(sides.config.model_copy(update={"env": env}), one)
    return arms | {"alone": alone}


def own_arm(config: IqnConfig, sides: Sides) -> Contestant:
    return Contestant(Arm(config, sides), config.train.updates_per_cycle * config.env.agents)


def limit(config: IqnConfig) -> Contestant:
    """As many FLOP as a gradient step has, as the matmul that has the most of them, by PyTorch."""
    rows, hidden = config.train.batch_size * config.train.loss.quantiles, config.network.hidden
    left, right = torch.randn(rows, hidden), torch.randn(hidden, hidden)

    def run() -> None:
        for _ in range(MATMULS):
            left @ right

    return Contestant(run, MATMULS * 2 * rows * hidden**2 / flop(config))


def flop(config: IqnConfig) -> float:
    """Of a gradient step's matmuls: three forward passes and one backward, without gradients of inputs nobody needs."""
    hidden, rows = config.network.hidden, config.train.batch_size * config.train.loss.quantiles
    trunk = config.train.batch_size * config.inputs * hidden + rows * config.network.cosines * hidden
    behind = rows * hidden * (hidden + ACTIONS + 1)
    return 2 * (3 * (trunk + behind) + trunk + 2 * behind)


# The loss by itself.


def loss_row(sides: Sides, rounds: int) -> Row:
    """Value and gradient with respect to Z; the project's inside a compiled program, as it learns."""
    size, count = sides.config.train.batch_size, sides.config.train.loss.quantiles
    rng = np.random.default_rng(0)
    values, wanted, taus = (rng.random((size, count), np.float32) * scale for scale in (4, 4, 1))
    contestants, found = loss_arms(values, wanted, taus)
    expected = found["before"]
    for name, (value, gradient) in found.items():
        factor = count if name == "ours" else 1  # a sum over quantiles, not a mean
        if not (np.isclose(value, factor * expected[0]) and np.allclose(gradient, factor * expected[1], atol=1e-6)):
            raise NotTheSame(f"loss alone: {name} is {value}, before {expected[0]}")
    times = race(contestants, rounds)
    return Row(
        f"loss and its gradient, B={size}, Q=P={count}", "004 loss", "1.5-2x", "us/call",
        times["ours"], times["before"], times["seed"], Goal(1, "before"),
    )  # fmt: skip


def loss_arms(
    values: np.ndarray, wanted: np.ndarray, taus: np.ndarray
) -> tuple[dict[str, Contestant], dict[str, tuple[Any, Any]]]:
    """Contestants, and what each computes of the arguments."""
    ones = np.ones(len(values), np.float32)

    def plain() -> tuple[Any, Any]:
        chosen = torch.tensor(values, requires_grad=True)
        errors = torch.from_numpy(wanted)[:, None, :] - chosen[:, :, None]
        loss = reference.quantile_huber(errors, torch.from_numpy(taus), torch.from_numpy(ones))
        loss.backward()
        return loss.item(), chosen.grad

    targets, online, valid = jnp.asarray(wanted), jnp.asarray(taus), jnp.asarray(ones)
    proposed = jax.jit(
        jax.value_and_grad(lambda z: seed.quantile_huber(targets[:, None] - z[..., None], online, valid))
    )
    gradient = jax.value_and_grad(lambda z: losses.quantile_huber(losses.errors(z, targets), online, 1.0).mean())

    @jax.jit
    def many(start: jax.Array) -> jax.Array:
        # Each starts where the one before left: else they would be computed once.
        return jax.lax.scan(lambda z, _: (z - gradient(z)[1], None), start, None, length=LOSSES)[0]

    contestants = {
        "before": Contestant(plain),
        "seed": Contestant(lambda: jax.block_until_ready(proposed(values))),
        "ours": Contestant(lambda: jax.block_until_ready(many(jnp.asarray(values))), LOSSES),
    }
    return contestants, {"before": plain(), "seed": proposed(values), "ours": gradient(jnp.asarray(values))}
