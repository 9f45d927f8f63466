"""sides -> rows about a gradient step of iqn, and about its loss alone"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import torch

from benchmarks.harness import Contestant, Goal, Row
from benchmarks.iqn.sides import SEED, Sides, changed
from benchmarks.jax_work import Continued, declaring, refuse_difference, timed
from benchmarks.reference import iqn as reference
from benchmarks.reference import iqn_seed as seed
from quatrain.frameworks.torch.threads import threads
from quatrain.models.iqn import losses
from quatrain.models.iqn.config import IqnConfig
from quatrain.models.iqn.cycle.updating import Agent, update_agents
from quatrain.models.iqn.network import ACTIONS

JITTED = "jitted, one by one"
TRIED = "whole stacks gathered at once: draws take a quarter of the time; the rest was not profiled"
LOSSES = 200  # of a call of the compiled program
SHARE = {"before": None, "limit": "limit"}


def train_rows(sides: Sides, rounds: int) -> list[Row]:
    """Measures the original's network, noise and batch."""
    names = ("two threads", "one thread", "one by one", "side by side", "ours", "quiet", "limit")
    row = step_row(sides, names, rounds)
    main = {"seed_way": "one by one", "limit": "limit", "claims": ("agents-train",)}
    together = {"seed_way": "side by side", "claims": ("agents-train-together",)}
    same = "  the same against the jitted step of one agent after the other"
    return [
        row(title(sides), **main, goal=Goal(1.4, "before")),
        row("  B=256, before: 1 thread", before="one thread", goal=Goal(2.4, "before")),
        row("  seed's way: all agents side by side (vmap)", **together),
        row(same, before="one by one", against=JITTED, **together),
        row("  B=256, no noise", ours="quiet", **SHARE, goal=Goal(0.65, "limit")),
    ]


def batch_rows(sides: Sides, rounds: int) -> list[Row]:
    """Measures the same network with a smaller batch."""
    row = step_row(sides, ("two threads", "one thread", "ours", "quiet", "limit"), rounds)
    return [
        row(title(sides), limit="limit", goal=Goal(1.5, "before")),
        row("  B=64, before: 1 thread", before="one thread", goal=Goal(2.2, "before")),
        row("  B=64, no noise", ours="quiet", **SHARE, goal=Goal(0.5, "limit")),
    ]


def small_rows(sides: Sides, rounds: int) -> list[Row]:
    """Measures 64 units; the reference uses one thread, which is faster there."""
    row = step_row(sides, ("one thread", "one by one", "side by side", "ours"), rounds)
    main = {"seed_way": "one by one", "claims": ("agents-train",)}
    together = {"seed_way": "side by side", "claims": ("agents-train-together",)}
    name, jitted = "  64 units, before: jitted, one agent after the other", "one by one"
    return [
        row(title(sides), before="one thread", **main, goal=Goal(1.5, "before")),
        row(name, before=jitted, against=JITTED, **together, goal=Goal(1.3, "before")),
    ]


def large_rows(sides: Sides, rounds: int) -> list[Row]:
    """Measures 256 units, where matrix products dominate on either side."""
    row = step_row(sides, ("two threads", "one by one", "ours", "limit"), rounds)
    main = {"seed_way": "one by one", "limit": "limit", "claims": ("agents-train",)}
    return [
        row(title(sides), **main, goal=Goal(0.9, "before")),
        row("  256 units, its share of the matmul rate", **SHARE, goal=Goal(0.3, "limit")),
    ]


def title(sides: Sides) -> str:
    config, size = sides.config, sides.config.train.batch_size
    return f"train step, {config.network.hidden} units, B={size}, Q={config.train.loss.quantiles}"


def step_row(sides: Sides, names: tuple[str, ...], rounds: int) -> Callable[..., Row]:
    """Measures ways of a gradient step, counted per agent; all but the limit sample a batch."""
    config, count = sides.config, len(sides.agents)
    keys = jax.random.split(jax.random.key(1), count)
    rng, size = np.random.default_rng(SEED), config.train.batch_size

    def batches():
        return [ring.sample(rng, ring.starts(), size) for ring in sides.rings]

    def learn(agents, torch_threads=1):
        with threads(torch_threads):
            for agent, batch in zip(agents, batches(), strict=True):
                agent.learn(batch)

    def learn_together(states):
        stacked = reference.Batch(*(np.stack(column) for column in zip(*batches(), strict=True)))
        return seed.step_of_all(config, states, stacked, keys)

    states = jax.tree.map(lambda *leaves: jnp.stack(leaves), *(a.state for a in sides.seed_agents))
    rows, hidden = size * config.train.loss.quantiles, config.network.hidden
    left, right = torch.randn(rows, hidden), torch.randn(hidden, hidden)
    works = {
        "two threads": Contestant(lambda: learn(sides.agents, torch.get_num_threads()), count),
        "one thread": Contestant(lambda: learn(sides.agents), count),
        "one by one": Contestant(lambda: learn(sides.seed_agents), count),
        "side by side": Contestant(Continued(learn_together, states), count),
        "ours": own_steps(config, sides),
        "quiet": own_steps(changed(config, noisy="none"), sides),
        "limit": lambda: left @ right,
    }
    share = 2 * rows * hidden**2 / flop(config)
    times = timed({name: works[name] for name in names}, rounds, limit=share)
    return declaring(times, "ms/step", before="two threads", tried=TRIED)


update = jax.jit(update_agents, static_argnums=0)


def own_steps(config: IqnConfig, sides: Sides) -> Contestant:
    """Returns the project's updates of all agents, `updates_per_cycle` times per call."""
    updates = config.train.updates_per_cycle

    def advance(state):
        agents = Agent(state.params, state.target_params, state.optimizer)
        agents, recorded = update(config, agents, sides.experience, state.base_key, state.updates)
        return state._replace(**agents._asdict(), updates=state.updates + updates), recorded

    return Contestant(Continued(advance, sides.state), updates * config.env.agents)


def flop(config: IqnConfig) -> float:
    """Counts the FLOP of a gradient step: three forward passes, one backward to the weights."""
    hidden, size = config.network.hidden, config.train.batch_size
    rows = size * config.train.loss.quantiles
    trunk = size * config.inputs * hidden + rows * config.network.cosines * hidden
    behind = rows * hidden * (hidden + ACTIONS + 1)
    return 2 * (3 * (trunk + behind) + trunk + 2 * behind)


def loss_row(sides: Sides, rounds: int) -> Row:
    """Measures value and gradient with respect to Z; the project's inside a compiled program."""
    size, count = sides.config.train.batch_size, sides.config.train.loss.quantiles
    rng = np.random.default_rng(SEED)
    values, target, taus = (rng.random((size, count), np.float32) * scale for scale in (4, 4, 1))

    def plain():
        with threads(1):
            selected = torch.tensor(values, requires_grad=True)
            errors = torch.from_numpy(target)[:, None, :] - selected[:, :, None]
            loss = reference.quantile_huber(errors, torch.from_numpy(taus))
            loss.backward()
        return loss.item(), selected.grad.numpy()

    @jax.value_and_grad
    def ours(z):
        errors = losses.td_errors(z, jnp.asarray(target))
        return losses.quantile_huber(errors, jnp.asarray(taus), 1.0).mean()

    proposed = jax.jit(ours)

    @jax.jit
    def many(start):
        # Each starts where the one before left: else they would be computed once.
        return jax.lax.scan(lambda z, _: (z - ours(z)[1], None), start, None, length=LOSSES)[0]

    start = jnp.asarray(values)
    mean = jax.tree.map(lambda leaf: leaf / count, proposed(start))  # ours: a sum over quantiles
    refuse_difference("loss alone", {"before": plain(), "ours": mean}, rtol=1e-5, atol=1e-6)
    works = {"before": plain, "seed_way": lambda: proposed(values), "ours": lambda: many(start)}
    times, goal = timed(works, rounds, ours=LOSSES), Goal(1, "before")
    name = f"loss and its gradient, B={size}, Q=P={count}"
    return Row(name, "us/call", **times, goal=goal, claims=("agents-loss",))
