"""rows about learning: the update of a minibatch, graph by graph and at once; half precision; compilation; memory."""

import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple

import torch
from torch import Generator
from torch._inductor import config as inductor

from benchmarks.actor_critic.sides import (
    Sides,
    colonies_of,
    plain_graphs,
    sized,
    with_images,
)
from benchmarks.harness import Contestant, race
from benchmarks.reference import actor_critic as reference
from benchmarks.table import NotTheSame, Row
from benchmarks.torch_threads import threads
from quatrain.models.actor_critic import train
from quatrain.models.actor_critic.config import ActorCriticConfig
from quatrain.models.actor_critic.ppo import agent as agents
from quatrain.models.actor_critic.ppo.acting import see
from quatrain.models.actor_critic.ppo.agent import Agent
from quatrain.replay.rollouts.buffer import Minibatch

UNIT = "ms/step"
SEED = 0
ENTROPY_COEF = 0.002
GRAPHS = 64
SIZES = (10, 20)
BATCH, CELLS = 256, 40
UPDATES = 10
"""Of ours, in a call."""


class Both(NamedTuple):
    """The same minibatch twice, and what its loss weighs."""

    ours: Minibatch
    plain: list[reference.Taken]
    chosen: reference.Coefficients


def rows(sides: Sides, rounds: int) -> list[Row]:
    """Updates of 64 graphs as in the original, then what the seed left for later, with the default's batch."""
    found = [row for cells in SIZES for row in update_rows(sides, cells, rounds)]
    return [*found, *precision_rows(sides, rounds)]


def update_rows(sides: Sides, cells: int, rounds: int) -> list[Row]:
    """Forward, backward, one step of Adam."""
    both = minibatch_of(sides, GRAPHS, cells)
    refuse_another_gradient(sides, both)
    with threads(1):
        times = race(
            {
                "images": plain_update(sides, with_images(sides), both),
                "before": plain_update(sides, plain_copy(sides), both),
                "ours": own_update(agent_of(sides, sides.config), both.ours),
            },
            rounds,
        )
    row = partial(Row, seed_item="-", claimed="-", unit=UNIT, ours=times["ours"])
    return [
        row(f"update of {GRAPHS} graphs of {cells} cells; before: frozen ResNet18", before=times["images"]),
        row("  before: no ResNet18, graph by graph", before=times["before"]),
    ]


def precision_rows(sides: Sides, rounds: int) -> list[Row]:
    """The same update in bfloat16, and compiled; both against eager float32."""
    batch = minibatch_of(sides, BATCH, CELLS).ours
    arms = {
        "float32": agent_of(sides, sides.config),
        "bfloat16": agent_of(sides, changed(sides.config, amp="bf16")),
        "compiled": agent_of(sides, changed(sides.config, compile=True)),
    }
    with threads(1), uncached():
        seconds = refuse_another_program(arms, batch)
        times = race({name: own_update(agent, batch) for name, agent in arms.items()}, rounds)
    backward = times["compiled"].compile_seconds
    times["compiled"] = times["compiled"]._replace(compile_seconds=seconds + backward)
    name = f"update of {BATCH} graphs of {CELLS} cells, before: eager float32; ours:"
    row = partial(Row, unit=UNIT, before=times["float32"])
    return [
        row(f"{name} bfloat16", "002 AMP", "1.3-1.5x", ours=times["bfloat16"]),
        row(f"{name} torch.compile", "002 torch.compile", "1.2-1.3x", ours=times["compiled"]),
    ]


def changed(config: ActorCriticConfig, **keys: object) -> ActorCriticConfig:
    """Keys of train, without another check: a CPU is refused half precision, because of these rows."""
    return config.model_copy(update={"train": config.train.model_copy(update=keys)})


def agent_of(sides: Sides, config: ActorCriticConfig) -> Agent:
    """The project's agent before its first gradient step."""
    draws = [[Generator().manual_seed(SEED + purpose) for purpose in range(3)]]
    seed = agents.fresh(config, sides.world, sides.actor.scale, sides.network, draws)
    return agents.restored(config, sides.world, seed)


def minibatch_of(sides: Sides, count: int, cells: int) -> Both:
    """Graphs of one size, with draws of the policy, and random advantages and returns."""
    generator, config = Generator().manual_seed(SEED), sides.config.train
    world = sized(sides.world, cells)
    actor = sides.actor._replace(world=world)
    with torch.no_grad():
        graphs = see(actor, colonies_of(world, count))
        output = actor.forward(graphs)
        parameters = actor.policy.distribution(output.raw)
        z = actor.policy.sample(parameters, generator)
        log_prob = actor.policy.log_prob(parameters, z)
    advantage, returns = torch.randn(2, count, generator=generator)
    ours = Minibatch((graphs,), z, log_prob, *parameters, output.value, advantage, returns)
    columns = zip(plain_graphs(graphs), z, log_prob, advantage, returns, strict=True)
    volume = (sides.box.high - sides.box.low).log().sum().item()
    chosen = reference.Coefficients(config.clip, config.value_coef, ENTROPY_COEF, config.max_grad_norm, volume)
    return Both(ours, [reference.Taken(*each) for each in columns], chosen)


def own_update(agent: Agent, batch: Minibatch) -> Contestant:
    """As in training, with all that is noted."""

    def run() -> None:
        for _ in range(UPDATES):
            train.update(agent, *train.objective(agent, batch, ENTROPY_COEF))

    return Contestant(run, UPDATES)


def plain_update(sides: Sides, plain: reference.GraphNetwork, both: Both) -> Contestant:
    params = [param for param in plain.parameters() if param.requires_grad]
    optimiser = torch.optim.Adam(params, lr=sides.config.train.learning_rate, eps=sides.config.train.adam_eps)
    return Contestant(lambda: reference.update(plain, optimiser, both.plain, both.chosen))


def plain_copy(sides: Sides) -> reference.GraphNetwork:
    """Its weights may be changed."""
    shape = sides.plain.shape
    copy = reference.GraphNetwork(shape)
    copy.load_state_dict(sides.network.state_dict())
    return copy


def refuse_another_gradient(sides: Sides, both: Both) -> None:
    """The loss and its gradient must be the same, with the residual networks and without.

    Raises:
        NotTheSame: they are not.
    """
    agent = agent_of(sides, sides.config)
    loss, _ = train.objective(agent, both.ours, ENTROPY_COEF)
    agent.optimizer.zero_grad()
    loss.backward()
    own = dict(agent.network.named_parameters())
    for name, plain in (("", plain_copy(sides)), (" with residual networks", with_images(sides))):
        expected = reference.loss(plain, both.plain, both.chosen)
        expected.backward()
        same = torch.allclose(loss, expected, rtol=1e-4, atol=1e-5)
        theirs = {key: param.grad for key, param in plain.named_parameters() if key in own}
        if not same or not all(_alike(own[key].grad, grad) for key, grad in theirs.items()):
            raise NotTheSame(f"update: the project's loss or gradient differs from the reference's{name}")


def refuse_another_program(arms: dict[str, Agent], batch: Minibatch) -> float:
    """Compiled the loss must be the same, in half precision nearly so; the seconds that compiling forward took.

    Raises:
        NotTheSame: it is not.
    """
    losses, begin = {}, time.perf_counter()
    for name, agent in arms.items():
        begin = time.perf_counter()
        losses[name] = train.objective(agent, batch, ENTROPY_COEF)[0].item()
    seconds = time.perf_counter() - begin
    for name, tolerance in (("bfloat16", 0.05), ("compiled", 1e-4)):
        if abs(losses[name] - losses["float32"]) > tolerance * max(1.0, abs(losses["float32"])):
            raise NotTheSame(f"update: the {name} loss {losses[name]:g} is not {losses['float32']:g}")
    return seconds


@contextmanager
def uncached() -> Iterator[None]:
    """Programs of former runs are not taken from the disk."""
    before = inductor.force_disable_caches
    inductor.force_disable_caches = True
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*force disabled")
            yield
    finally:
        inductor.force_disable_caches = before


def _alike(one: torch.Tensor | None, other: torch.Tensor | None) -> bool:
    if one is None or other is None:
        return one is other
    return torch.allclose(one, other, rtol=1e-3, atol=1e-5 * max(1.0, float(other.abs().max())))
