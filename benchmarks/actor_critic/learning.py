"""rows about learning: the update of a minibatch, graph by graph and at once; half precision;
compilation.
"""

import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple

import torch
from torch import Generator, Tensor
from torch._inductor import config as inductor
from torch.nn.functional import pad
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.actor_critic.playing import products
from benchmarks.actor_critic.sides import (
    Sides,
    colonies_of,
    plain_graphs,
    sized,
    with_images,
)
from benchmarks.harness import Contestant, race
from benchmarks.reference import actor_critic as reference
from benchmarks.repeat import repeat
from benchmarks.table import NotTheSame, Row, Without
from benchmarks.torch_threads import threads
from quatrain.models.actor_critic.config import ActorCriticConfig
from quatrain.models.actor_critic.network import Block, Output
from quatrain.models.actor_critic.ppo import iteration
from quatrain.models.actor_critic.ppo import trainer as trainers
from quatrain.models.actor_critic.ppo.acting import observe
from quatrain.models.actor_critic.ppo.trainer import Trainer
from quatrain.replay.rollouts.buffer import Graphs, Minibatch

UNIT = "ms/step"
SEED = 0
ENTROPY_COEF = 0.002
GRAPHS = 64
COSTLY = 4
"""Of them, that pass through residual networks in a call, counted up: each takes as long as any
other.
"""
SIZES = (10, 20)
BATCH, CELLS = 256, 40
UPDATES = 4
"""Of ours, in a call."""


class Both(NamedTuple):
    """Holds the same minibatch for both implementations, and the coefficients of the loss."""

    ours: Minibatch
    plain: list[reference.Sample]
    coefs: reference.Coefficients


def rows(sides: Sides, rounds: int) -> list[Row]:
    """Updates of 64 graphs as in the original, then what the proposal left for later, with the
    default's batch.
    """
    result = [row for cells in SIZES for row in update_rows(sides, cells, rounds)]
    batch = minibatch_of(sides, BATCH, CELLS).ours
    return [*result, *precision_rows(sides, batch, rounds), compiled_row(sides, batch, rounds)]


def update_rows(sides: Sides, cells: int, rounds: int) -> list[Row]:
    """Measures forward and backward pass, and one step of Adam."""
    both = minibatch_of(sides, GRAPHS, cells)
    refuse_another_gradient(sides, both)
    trainer, wide = trainer_of(sides, sides.config), padded(both.ours, sides.world.rules.max_nodes)
    with threads(1):
        flops = products(update_flops(trainer, both.ours), sides.config.network.d, 1)
        times = race(
            {
                "images": plain_update(sides, with_images(sides), both, min(COSTLY, GRAPHS)),
                "before": plain_update(sides, plain_copy(sides), both, GRAPHS),
                "ours": own_update(trainer, both.ours),
                "wide": own_update(trainer_of(sides, sides.config), wide),
                "limit": flops,
            },
            rounds,
        )
    row = partial(Row, unit=UNIT, ours=times["ours"])
    name = (
        f"update of {GRAPHS} graphs of {cells} cells; before: frozen ResNet18, {COSTLY} graphs, "
        f"counted up"
    )
    trimmed = Without("trimming to the largest graph: all slots", times["wide"])
    return [
        row(
            f"{name}; limit: its products",
            before=times["images"],
            limit=times["limit"],
            without=trimmed,
        ),
        row("  before: no ResNet18, graph by graph", before=times["before"]),
    ]


def precision_rows(sides: Sides, batch: Minibatch, rounds: int) -> list[Row]:
    """Measures the same update in bfloat16, against the project's float32."""
    arms = {
        "float32": trainer_of(sides, sides.config),
        "bfloat16": trainer_of(sides, changed(sides.config, amp="bf16")),
        "everyone": asking_everyone(trainer_of(sides, sides.config)),
    }
    with threads(1):
        refuse_another_program(arms, batch)
        limit = products(update_flops(arms["float32"], batch), sides.config.network.d, 1)
        times = race(
            {name: own_update(trainer, batch) for name, trainer in arms.items()} | {"limit": limit},
            rounds,
        )
    name, row = (
        f"update of {BATCH} graphs of {CELLS} cells",
        partial(Row, unit=UNIT, ours=times["float32"]),
    )
    asked = Without("one query in the last block: all cells ask", times["everyone"])
    return [
        row(f"{name}; limit: its products", limit=times["limit"], without=asked),
        row(f"{name}; before, ours: float32; seed's way: bfloat16", before=times["float32"],
            seed_way=times["bfloat16"], claims=("colony-amp",)),
    ]  # fmt: skip


def compiled_row(sides: Sides, batch: Minibatch, rounds: int) -> Row:
    """Measures the compiled forward pass without gradients, which triple the kernels to build."""
    configs = (sides.config, changed(sides.config, compile=True))
    eager, compiled = (trainer_of(sides, config).actor.forward for config in configs)
    with threads(1), uncached(), torch.no_grad():
        begin = time.perf_counter()
        compiled(*batch.groups)
        seconds = time.perf_counter() - begin
        refuse_another_output(compiled(*batch.groups), eager(*batch.groups))
        programs = {
            "eager": partial(eager, *batch.groups),
            "compiled": partial(compiled, *batch.groups),
        }
        times = race({name: repeat(work) for name, work in programs.items()}, rounds)
    times["compiled"] = times["compiled"]._replace(compile_seconds=seconds)
    name = (
        f"policy and value of {BATCH} graphs of {CELLS} cells; before, ours: eager; seed's way: "
        f"torch.compile"
    )
    return Row(
        name, UNIT, times["eager"], times["eager"], times["compiled"], claims=("colony-compile",)
    )


def update_flops(trainer: Trainer, batch: Minibatch) -> float:
    """Returns operations of matrix products, forward and backward."""
    with FlopCounterMode(display=False) as counter:
        iteration.objective(trainer, batch, ENTROPY_COEF)[0].backward()
    trainer.optimizer.zero_grad()
    return float(counter.get_total_flops())


def padded(batch: Minibatch, slots: int) -> Minibatch:
    """Returns the same graphs, padded to this number of slots."""

    def widened(graphs: Graphs) -> Graphs:
        more = slots - graphs.mask.shape[1]
        node, parent, mask = graphs.node, graphs.parent, graphs.mask
        return Graphs(
            pad(node, (0, 0, 0, more)),
            graphs.graph,
            pad(parent, (0, more), value=-1),
            pad(mask, (0, more)),
        )

    return batch._replace(groups=tuple(map(widened, batch.groups)))


def asking_everyone(trainer: Trainer) -> Trainer:
    """Replaces the last block by one with queries from all cells, though only the colony token's
    output is used.
    """
    block = trainer.network.blocks[-1]
    assert isinstance(block, Block)

    def of_colony(colony: Tensor, cells: Tensor, mask: Tensor) -> Tensor:
        return block(torch.cat([colony[:, None], cells], 1), pad(mask, (1, 0), value=True))[:, 0]

    block.of_colony = of_colony  # type: ignore[method-assign]
    return trainer


def changed(config: ActorCriticConfig, **keys: object) -> ActorCriticConfig:
    """Returns a config with keys of train replaced, unchecked: bf16 is refused on a CPU."""
    return config.model_copy(update={"train": config.train.model_copy(update=keys)})


def trainer_of(sides: Sides, config: ActorCriticConfig) -> Trainer:
    """Returns the project's trainer before its first gradient step."""
    draws = [[Generator().manual_seed(SEED + purpose) for purpose in range(3)]]
    seed = trainers.init_seed_state(config, sides.world, sides.actor.scale, sides.network, draws)
    return trainers.from_state(config, sides.world, seed)


def minibatch_of(sides: Sides, count: int, cells: int) -> Both:
    """Graphs of one size, with draws of the policy, and random advantages and returns."""
    generator, config = Generator().manual_seed(SEED), sides.config.train
    world = sized(sides.world, cells)
    actor = sides.actor._replace(world=world)
    with torch.no_grad():
        graphs = observe(actor, colonies_of(world, count))
        output = actor.forward(graphs)
        params = actor.policy.distribution(output.raw)
        z = actor.policy.sample(params, generator)
        log_prob = actor.policy.log_prob(params, z)
    advantage, returns = torch.randn(2, count, generator=generator)
    ours = Minibatch(
        (graphs,), z, log_prob, torch.stack(params, 1), output.value, advantage, returns
    )
    columns = zip(plain_graphs(graphs), z, log_prob, advantage, returns, strict=True)
    volume = (sides.box.high - sides.box.low).log().sum().item()
    coefs = reference.Coefficients(
        config.clip, config.value_coef, ENTROPY_COEF, config.max_grad_norm, volume
    )
    return Both(ours, [reference.Sample(*each) for each in columns], coefs)


def fewer(both: Both, count: int) -> Both:
    """Returns the first of them."""
    columns = (column[:count] for column in both.ours[1:])
    groups = tuple(Graphs(*(part[:count] for part in graphs)) for graphs in both.ours.groups)
    return Both(Minibatch(groups, *columns), both.plain[:count], both.coefs)


def own_update(trainer: Trainer, batch: Minibatch) -> Contestant:
    """Takes one step as training does, with all metrics."""

    def run() -> None:
        for _ in range(UPDATES):
            iteration.gradient_step(trainer, *iteration.objective(trainer, batch, ENTROPY_COEF))

    return Contestant(run, UPDATES)


def plain_update(
    sides: Sides, plain: reference.GraphNetwork, both: Both, graphs: int
) -> Contestant:
    """Takes one step on this number of graphs, extrapolated to all."""
    params = [param for param in plain.parameters() if param.requires_grad]
    optimiser = torch.optim.Adam(
        params, lr=sides.config.train.learning_rate, eps=sides.config.train.adam_eps
    )
    samples = both.plain[:graphs]
    return Contestant(
        lambda: reference.update(plain, optimiser, samples, both.coefs), graphs / len(both.plain)
    )


def plain_copy(sides: Sides) -> reference.GraphNetwork:
    """Copies the network, whose weights may then be changed."""
    shape = sides.plain.shape
    copy = reference.GraphNetwork(shape)
    copy.load_state_dict(sides.network.state_dict())
    return copy


def refuse_another_gradient(sides: Sides, both: Both) -> None:
    """Checks that loss and gradient are equal, with the residual networks and without.

    Raises:
        NotTheSame: they are not.
    """
    both = fewer(both, COSTLY)
    trainer = trainer_of(sides, sides.config)
    loss, _ = iteration.objective(trainer, both.ours, ENTROPY_COEF)
    trainer.optimizer.zero_grad()
    loss.backward()
    project = dict(trainer.network.named_parameters())
    for name, plain in (("", plain_copy(sides)), (" with residual networks", with_images(sides))):
        expected = reference.loss(plain, both.plain, both.coefs)
        expected.backward()
        same = torch.allclose(loss, expected, rtol=1e-4, atol=1e-5)
        theirs = {key: param.grad for key, param in plain.named_parameters() if key in project}
        if not same or not all(_alike(project[key].grad, grad) for key, grad in theirs.items()):
            raise NotTheSame(
                f"update: the project's loss or gradient differs from the reference's{name}"
            )


def refuse_another_program(arms: dict[str, Trainer], batch: Minibatch) -> None:
    """Checks that the loss with queries from all cells is equal, and in half precision close.

    Raises:
        NotTheSame: it is not.
    """
    losses = {
        name: iteration.objective(trainer, batch, ENTROPY_COEF)[0].item()
        for name, trainer in arms.items()
    }
    for name, tolerance in (("bfloat16", 0.05), ("everyone", 1e-4)):
        if abs(losses[name] - losses["float32"]) > tolerance * max(1.0, abs(losses["float32"])):
            raise NotTheSame(
                f"update: the {name} loss {losses[name]:g} is not {losses['float32']:g}"
            )


def refuse_another_output(compiled: Output, eager: Output) -> None:
    """Checks that the compiled network returns the same.

    Raises:
        NotTheSame: it does not.
    """
    for name, item, other in zip(Output._fields, compiled, eager, strict=True):
        if not torch.allclose(item, other, rtol=1e-4, atol=1e-5):
            raise NotTheSame(f"compiled: another {name} than eager")


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


def _alike(item: torch.Tensor | None, other: torch.Tensor | None) -> bool:
    if item is None or other is None:
        return item is other
    return torch.allclose(item, other, rtol=1e-3, atol=1e-5 * max(1.0, float(other.abs().max())))
