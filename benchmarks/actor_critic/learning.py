"""updates and iterations of training -> rows: what the proposal left for later, and all of it"""

import time
from functools import partial

import torch
from torch import Generator
from torch._inductor.utils import fresh_cache

from benchmarks.actor_critic.playing import CELLS, CLAIM
from benchmarks.actor_critic.sides import (
    Sides,
    colonies_of,
    plain_colony,
    plain_graphs,
    plain_network,
    sized,
)
from benchmarks.reference import actor_critic as reference
from benchmarks.reference.actor_critic_iteration import BEFORE, SEED, Iteration, Ways, iterate
from benchmarks.table import Row
from benchmarks.torch_rows import Work, check_same, measured_row
from benchmarks.torch_threads import threads
from quatrain.models.actor_critic.config import ActorCriticConfig
from quatrain.models.actor_critic.network import Output
from quatrain.models.actor_critic.ppo import iteration
from quatrain.models.actor_critic.ppo import trainer as trainers
from quatrain.models.actor_critic.ppo.acting import Actor, observe
from quatrain.models.actor_critic.ppo.trainer import Trainer
from quatrain.replay.rollouts.buffer import Graphs, Minibatch

ENTROPY_COEF = 0.002
BATCH = 256
COMPARED = 4
"""Graphs whose gradient is compared."""
EPOCHS = 2
COLONIES, HORIZON, MINIBATCH = 64, 16, 256
"""Of ours, in an iteration."""
PLAIN_STEPS, COSTLY_STEPS = 16, 2
"""Of the original's one colony in an iteration: without residual networks, and with."""


def rows(sides: Sides, rounds: int) -> list[Row]:
    """Measures updates in half precision, compiled networks, and iterations of all items."""
    row = partial(measured_row, "ms/step", rounds)
    batch = minibatch_of(sides, BATCH, CELLS)
    with threads(1):
        refuse_another_gradient(sides, minibatch_of(sides, COMPARED, CELLS))
        updates = [precision_row(row, sides, batch), compiled_row(row, sides, batch)]
        return [*updates, *iteration_rows(row, sides)]


# Updates.


def precision_row(row: partial[Row], sides: Sides, batch: Minibatch) -> Row:
    """Measures a step as training takes it, with all metrics."""
    arms = {"ours": trainer_of(sides, sides.config), "seed_way": trainer_of(sides, sides.config)}
    arms["seed_way"].actor = in_bfloat16(arms["seed_way"])
    losses = [iteration.objective(arm, batch, ENTROPY_COEF)[0] for arm in arms.values()]
    check_same("update in bfloat16", *losses, rtol=0.05, atol=0.05)

    def update(trainer: Trainer) -> None:
        iteration.gradient_step(trainer, *iteration.objective(trainer, batch, ENTROPY_COEF))

    name = f"update of {BATCH} graphs of {CELLS} cells; before, ours: float32; seed's way: bfloat16"
    works = {side: partial(update, trainer) for side, trainer in arms.items()}
    result = row(name, works, claims=("colony-amp",))
    return result._replace(before=result.ours)


def in_bfloat16(trainer: Trainer) -> Actor:
    """Returns the actor in half precision, which the project itself uses on a GPU only."""

    def forward(*groups: Graphs) -> Output:
        with torch.autocast("cpu", torch.bfloat16):
            return trainer.network(*groups)

    return trainer.actor._replace(forward=forward)


def compiled_row(row: partial[Row], sides: Sides, batch: Minibatch) -> Row:
    """Measures without gradients, which triple the kernels to build; ignores earlier programs."""
    configs = (sides.config, changed(sides.config, compile=True))
    eager, compiled = (
        partial(trainer_of(sides, config).actor.forward, *batch.groups) for config in configs
    )
    name = f"policy and value of {BATCH} graphs of {CELLS} cells; before, ours: eager"
    with torch.no_grad(), fresh_cache():
        begin = time.perf_counter()
        compiled()
        seconds = time.perf_counter() - begin
        result = row(
            f"{name}; seed's way: torch.compile",
            {"ours": eager, "seed_way": compiled},
            alike=("ours", "seed_way"),
            claims=("colony-compile",),
        )
    proposed = result.seed_way._replace(compile_seconds=seconds)
    return result._replace(before=result.ours, seed_way=proposed)


def changed(config: ActorCriticConfig, **keys: object) -> ActorCriticConfig:
    """Returns a config with keys of train replaced."""
    return config.model_copy(update={"train": config.train.model_copy(update=keys)})


def trainer_of(sides: Sides, config: ActorCriticConfig) -> Trainer:
    """Returns the project's trainer before its first gradient step."""
    draws = [[Generator().manual_seed(purpose) for purpose in range(3)]]
    seed = trainers.init_seed_state(config, sides.world, sides.actor.scale, sides.network, draws)
    return trainers.from_state(config, sides.world, seed)


def minibatch_of(sides: Sides, count: int, cells: int) -> Minibatch:
    """Returns graphs of one size, draws of the policy, random advantages and returns."""
    generator = Generator().manual_seed(0)
    world = sized(sides.world, cells)
    actor = sides.actor._replace(world=world)
    with torch.no_grad():
        graphs = observe(actor, colonies_of(world, count))
        output = actor.forward(graphs)
        params = actor.policy.distribution(output.raw)
        z = actor.policy.sample(params, generator)
        log_prob = actor.policy.log_prob(params, z)
    targets = torch.randn(2, count, generator=generator)
    return Minibatch((graphs,), z, log_prob, torch.stack(params, 1), output.value, *targets)


def refuse_another_gradient(sides: Sides, batch: Minibatch) -> None:
    """Compares loss and gradient, with the residual networks and without."""
    trainer = trainer_of(sides, sides.config)
    loss, _ = iteration.objective(trainer, batch, ENTROPY_COEF)
    loss.backward()
    columns = (batch.raw_action, batch.log_prob, batch.advantage, batch.returns)
    each = zip(plain_graphs(batch.groups[0]), *columns, strict=True)
    samples = [reference.Sample(*columns) for columns in each]
    for images in (False, True):
        plain = plain_network(sides.config, sides.network, images)
        expected = reference.loss(plain, samples, coefs_of(sides))
        expected.backward()
        check_same("update: loss", loss, expected, rtol=1e-4)
        theirs = dict(plain.named_parameters())
        for name, param in trainer.network.named_parameters():
            atol = 1e-5 * max(1.0, float(param.grad.abs().max()))
            check_same(f"update: gradient of {name}", param.grad, theirs[name].grad, atol=atol)


def coefs_of(sides: Sides) -> reference.Coefficients:
    train = sides.config.train
    return reference.Coefficients(
        train.clip, train.value_coef, ENTROPY_COEF, train.max_grad_norm, sides.box.log_volume
    )


# Iterations.


def iteration_rows(row: partial[Row], sides: Sides) -> list[Row]:
    """Measures a rollout, advantages, and two epochs of updates, by transition."""
    ways = {"before": BEFORE, "seed_way": SEED}
    ours = {"ours": own_training(sides, COLONIES)}
    plain = {side: plain_training(sides, way, PLAIN_STEPS) for side, way in ways.items()}
    costly = {side: plain_training(sides, way, COSTLY_STEPS, 2) for side, way in ways.items()}
    costly["without"] = own_training(sides, 1)
    units = {"ours": COLONIES * HORIZON}
    plain_units = units | dict.fromkeys(ways, PLAIN_STEPS)
    costly_units = units | dict.fromkeys(ways, COSTLY_STEPS) | {"without": HORIZON}
    name = f"training iteration, {CELLS} cells, by transition; before: ResNet18, twice"
    name = f"{name}; seed's way: all four items"
    alone = "the batch: one colony, minibatches of its steps"
    overall = ("colony-overall",)
    no_images = "  before: no ResNet18"
    return [
        row(name, ours | costly, alone, costly_units, ways, claims=(*overall, CLAIM)),
        row(no_images, ours | plain, "", plain_units, ways, claims=overall),
    ]


def own_training(sides: Sides, colonies: int) -> Work:
    """Trains as `train` does, however much the policy moves."""
    project = sides._replace(world=sized(sides.world, CELLS))
    sizes = {"num_envs": colonies, "horizon": HORIZON, "minibatch_size": MINIBATCH}
    config = changed(sides.config, **sizes, epochs=EPOCHS, target_kl=1e9)
    return partial(iteration.run_iteration, trainer_of(project, config))


def plain_training(sides: Sides, ways: Ways, steps: int, passes: int = 0) -> Work:
    """Trains one plain colony, which begins again with each iteration.

    passes: through residual networks per step, or 0.
    """
    world, train = sized(sides.world, CELLS), sides.config.train
    begun = colonies_of(world, 1)
    colony = plain_colony(world, begun, 0)
    network = plain_network(sides.config, sides.network, images=passes > 0)
    player = reference.Player(network, sides.actor.scale, sides.box, max(1, passes))
    params = [param for param in network.parameters() if param.requires_grad]
    optimiser = torch.optim.Adam(params, lr=train.learning_rate, eps=train.adam_eps)
    asked = Iteration(steps, EPOCHS, train.discount, train.gae_lambda, coefs_of(sides))

    def work() -> list[float]:
        colony.start(begun.pos[0, :CELLS].tolist())
        with torch.random.fork_rng():
            torch.manual_seed(0)
            return iterate(player, colony, optimiser, ways, asked)

    return work
