"""updates and iterations of training -> rows: what the proposal left for later, and all of it"""

import time
from collections.abc import Callable
from functools import partial

import torch
from torch import Generator
from torch._inductor.utils import fresh_cache

from benchmarks.actor_critic import sides
from benchmarks.actor_critic.playing import CELLS
from benchmarks.harness import Row
from benchmarks.reference import actor_critic as reference
from benchmarks.reference.actor_critic_parts import BEFORE, SEED, Iteration, Ways, iterate
from benchmarks.torch_rows import Work, check_same, measured_row
from quatrain.frameworks.torch.threads import threads
from quatrain.models.actor_critic.config import ActorCriticConfig
from quatrain.models.actor_critic.network import Output
from quatrain.models.actor_critic.ppo import colony_rollouts, iteration
from quatrain.models.actor_critic.ppo import trainer as trainers
from quatrain.models.actor_critic.ppo.acting import Actor, observe
from quatrain.models.actor_critic.ppo.trainer import Trainer
from quatrain.replay.rollouts.buffer import Graphs, Minibatch

ENTROPY_COEF = 0.002
BATCH, COMPARED = 256, 4
"""Graphs of an update, and those whose gradient is compared."""
EPOCHS = 2
COLONIES, HORIZON, MINIBATCH = 64, 16, 256
"""Of ours, in an iteration."""
PLAIN_STEPS, COSTLY_STEPS = 16, 2
"""Of the original's one colony in an iteration: without residual networks, and with."""


def rows(actor: Actor, rounds: int) -> list[Row]:
    """Measures updates in half precision, compiled networks, and iterations of all items."""
    row = partial(measured_row, "ms/step", rounds)
    actor = sides.sized(actor, CELLS)
    batch = minibatch_of(actor, BATCH)
    with threads(1):
        refuse_another_gradient(actor, minibatch_of(actor, COMPARED))
        updates = [precision_row(row, actor, batch), compiled_row(row, actor, batch)]
        return [*updates, *iteration_rows(row, actor)]


# Updates.


def precision_row(row: partial[Row], actor: Actor, batch: Minibatch) -> Row:
    """Measures a step as training takes it, with all metrics."""
    arms = {"ours": trainer_of(actor), "seed_way": trainer_of(actor)}
    arms["seed_way"].forward = in_bfloat16(arms["seed_way"])
    losses = [iteration.objective(arm, batch, ENTROPY_COEF)[0] for arm in arms.values()]
    check_same("update in bfloat16", *losses, rtol=0.05, atol=0.05)

    def update(trainer: Trainer) -> None:
        iteration.gradient_step(trainer, *iteration.objective(trainer, batch, ENTROPY_COEF))

    name = f"update of {BATCH} graphs of {CELLS} cells; before, ours: float32; seed's way: bfloat16"
    works = {side: partial(update, trainer) for side, trainer in arms.items()}
    result = row(name, works, claims=("colony-amp",))
    return result._replace(before=result.ours)


def in_bfloat16(trainer: Trainer) -> Callable[..., Output]:
    """Returns the network in half precision, which the project itself uses on a GPU only."""

    def forward(*groups: Graphs) -> Output:
        with torch.autocast(torch.get_default_device().type, torch.bfloat16):
            return trainer.network(*groups)

    return forward


def compiled_row(row: partial[Row], actor: Actor, batch: Minibatch) -> Row:
    """Measures without gradients, which triple the kernels to build; ignores earlier programs."""
    eager, compiled = (
        partial(trainer_of(actor, compile=flag).actor.forward, *batch.groups)
        for flag in (False, True)
    )
    name = f"policy and value of {BATCH} graphs of {CELLS} cells; before, ours: eager"
    name = f"{name}; seed's way: torch.compile"
    works = {"ours": eager, "seed_way": compiled}
    with torch.no_grad(), fresh_cache():
        begin = time.perf_counter()
        compiled()
        seconds = time.perf_counter() - begin
        result = row(name, works, alike=works, claims=("colony-compile",))
    proposed = result.seed_way._replace(compile_seconds=seconds)
    return result._replace(before=result.ours, seed_way=proposed)


def trainer_of(actor: Actor, **keys: object) -> Trainer:
    """Returns the project's trainer before its first gradient step, with keys of train changed."""
    train = actor.config.train.model_copy(update=keys)
    config = actor.config.model_copy(update={"train": train})
    draws = [Generator().manual_seed(purpose) for purpose in range(3)]
    seed = trainers.init_seed_state(config, actor.world, actor.scale, actor.eager, draws)
    return trainers.from_state(config, actor.world, seed)


def minibatch_of(actor: Actor, count: int) -> Minibatch:
    """Returns graphs of one size, draws of the policy, random advantages and returns."""
    generator = Generator().manual_seed(0)
    with torch.no_grad():
        graphs = observe(actor, sides.colonies_of(actor.world, count))
        output = actor.forward(graphs)
        params = actor.policy.distribution(output.raw)
        z = actor.policy.sample(params, generator)
        log_prob = actor.policy.log_prob(params, z)
    targets = torch.randn(2, count, generator=generator)
    return Minibatch((graphs,), z, log_prob, torch.stack(params, 1), output.value, *targets)


def refuse_another_gradient(actor: Actor, batch: Minibatch) -> None:
    """Compares loss and gradient, with the residual networks and without."""
    trainer = trainer_of(actor)
    loss, _ = iteration.objective(trainer, batch, ENTROPY_COEF)
    loss.backward()
    [graphs] = batch.groups
    columns = (batch.raw_action, batch.log_prob, batch.advantage, batch.returns)
    samples = []
    for node, graph, parent, mask, *targets in zip(*graphs, *columns, strict=True):
        observed = reference.Graph(node[mask], graph, parent[mask].tolist())
        samples.append(reference.Sample(observed, *targets))
    for passes in (0, 1):
        player = sides.plain_player(actor, passes)
        expected = reference.loss(player.network, samples, coefs_of(actor.config, player))
        expected.backward()
        check_same("update: loss", loss, expected, rtol=1e-4)
        theirs = dict(player.network.named_parameters())
        for name, param in trainer.network.named_parameters():
            atol = 1e-5 * max(1.0, float(param.grad.abs().max()))
            check_same(f"update: gradient of {name}", param.grad, theirs[name].grad, atol=atol)


def coefs_of(config: ActorCriticConfig, player: reference.Player) -> reference.Coefficients:
    train, volume = config.train, player.box.log_volume
    return reference.Coefficients(
        train.clip, train.value_coef, ENTROPY_COEF, train.max_grad_norm, volume
    )


# Iterations.


def iteration_rows(row: partial[Row], actor: Actor) -> list[Row]:
    """Measures a rollout, advantages, and two epochs of updates, by transition."""
    ways = {"before": BEFORE, "seed_way": SEED}
    ours = {"ours": own_training(actor, COLONIES)}
    plain = {side: plain_training(actor, way, PLAIN_STEPS) for side, way in ways.items()}
    costly = {side: plain_training(actor, way, COSTLY_STEPS, 2) for side, way in ways.items()}
    costly["without"] = own_training(actor, 1)
    units = {"ours": COLONIES * HORIZON, "without": HORIZON}
    plain_units = units | dict.fromkeys(ways, PLAIN_STEPS)
    costly_units = units | dict.fromkeys(ways, COSTLY_STEPS)
    name = f"training iteration, {CELLS} cells, by transition; before: ResNet18, twice"
    name = f"{name}; seed's way: all four items"
    alone = "the batch: one colony, minibatches of its steps"
    claims = ("colony-overall",)
    no_images = "  before: no ResNet18"
    return [
        row(name, ours | costly, alone, costly_units, ways, claims=claims),
        row(no_images, ours | plain, "", plain_units, ways, claims=claims),
    ]


def own_training(actor: Actor, colonies: int) -> Work:
    """Trains as `train` does, however much the policy moves."""
    sizes = {"num_envs": colonies, "horizon": HORIZON, "minibatch_size": MINIBATCH}
    trainer = trainer_of(actor, **sizes, epochs=EPOCHS, target_kl=1e9)
    return partial(iteration.run_iteration, trainer, colony_rollouts.collect)


def plain_training(actor: Actor, ways: Ways, steps: int, passes: int = 0) -> Work:
    """Trains one plain colony, which begins again with each iteration."""
    begun = sides.colonies_of(actor.world, 1)
    colony = sides.plain_colony(actor.world, begun, 0)
    player, train = sides.plain_player(actor, passes), actor.config.train
    params = [param for param in player.network.parameters() if param.requires_grad]
    optimiser = torch.optim.Adam(params, lr=train.learning_rate, eps=train.adam_eps)
    coefs = coefs_of(actor.config, player)
    asked = Iteration(steps, EPOCHS, train.discount, train.gae_lambda, coefs)

    def work() -> list[float]:
        colony.start(begun.pos[0, : begun.n[0]].tolist())
        with torch.random.fork_rng():
            torch.manual_seed(0)
            return iterate(player, colony, optimiser, ways, asked)

    return work
