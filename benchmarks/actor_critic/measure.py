"""colonies -> rows: training and playing, and the policy's entropy"""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Generator
from torch.distributions import Beta, Normal

from benchmarks.reference import actor_critic as reference
from benchmarks.reference.actor_critic import AS_IT_WAS, PROPOSED, Actor, Decision, Player
from benchmarks.reference.colony import RUNNING, Colony, Plate
from benchmarks.rows import ORIGINAL, OURS, PROPOSAL, Claim, Row
from benchmarks.timing import Work, check_same, race
from pipeline.storage.params_file import read_params
from quatrain.envs.colony.config import GRAPH_FEATURES, NODE_FEATURES, REASONS
from quatrain.envs.colony.dynamics import Colonies, World, make_world
from quatrain.envs.colony.plates import TRAINING, sample_plates
from quatrain.envs.colony.world import start, step
from quatrain.frameworks.torch import Adam, init_adam, seeded, threads
from quatrain.models.actor_critic import colony as colony_world
from quatrain.models.actor_critic import network as networks
from quatrain.models.actor_critic import ppo, train
from quatrain.models.actor_critic.policy import beta_entropy
from quatrain.models.actor_critic.ppo import Learner
from quatrain.replay.rollouts import Minibatch

SEED, PLATES, CELLS = 0, 16, 40
COLONIES, HORIZON = 64, 16
"""Colonies and steps of ours in an iteration; the original has as many steps of one colony."""
HALF = 0.5
"""Share of the cells that each step removes: an even colony then keeps its size."""
PAST, CHECKED = 5, 4
"""Steps of colonies before they are compared, and colonies."""
STATES, NUMBERS, SAMPLES = 256, 5, 100
CHANGES: Mapping[str, Any] = {
    "env": {
        "action": {
            "active_params": ["gamma", "alpha", "noise", "theta"],
            "fixed_params": {"delete_ratio": HALF},
        }
    },
    "network": {"encoder": "attention", "d": 32, "layers": 1, "heads": 4},
    "train": {
        "num_envs": COLONIES,
        "horizon": HORIZON,
        "minibatch_size": 256,
        "epochs": 2,
        "target_kl": 1e6,
    },
}
"""Attention over cells, as the original has it; the policy never ends an epoch early."""
LEFT_OUT = "without the original's frozen ResNet18s, with which it takes 40 to 50 times as long"


def measure(root: Path, rounds: int) -> list[Row]:
    """Measures all rows, with one thread."""
    with threads(1):
        check_learning(root)
        return [training_row(root, rounds), playing_row(root, rounds), entropy_row(rounds)]


# Playing and learning.


def training_row(root: Path, rounds: int) -> Row:
    """Measures rollout, advantages and two epochs of updates, by transition."""
    works = {
        ORIGINAL: plain_training(root, AS_IT_WAS),
        PROPOSAL: plain_training(root, PROPOSED),
        OURS: partial(ppo.run_iteration, learner_of(root)),
    }
    units = {ORIGINAL: HORIZON, PROPOSAL: HORIZON, OURS: COLONIES * HORIZON}
    times = race(works, rounds, units)
    claim = Claim("colony", "40-50 % faster overall", 1.4)
    return Row(f"training, colonies of {CELLS} cells", "ms/step", times, claim, LEFT_OUT)


def playing_row(root: Path, rounds: int) -> Row:
    """Measures observation, network, a drawn action and the step, by colony."""
    actor = actor_of(root)
    draw = partial(actor.playing.draw, generator=Generator().manual_seed(SEED))
    act = actor.view.playing(draw)
    generator, state = Generator().manual_seed(SEED), [colonies_of(actor.world, COLONIES)]
    colony, positions = plain_colony(actor.world, state[0], 0)

    def ours() -> None:
        action = act(state[0].n, state[0])
        state[0] = step(actor.world, state[0], action, generator).colonies

    def original() -> None:
        if reference.act(actor, colony, generator).reason != RUNNING:
            colony.start(positions)

    times = race({ORIGINAL: original, OURS: ours}, rounds, {OURS: COLONIES})
    work = f"environment and policy, {COLONIES} colonies at once"
    return Row(work, "ms/step", times, Claim("colony", "10x throughput", 10.0), LEFT_OUT)


def actor_of(root: Path) -> Actor:
    """Returns an actor before its first gradient step; its colonies begin with CELLS cells."""
    config = read_params(root, None, {"actor_critic": CHANGES}).actor_critic
    plates = sample_plates(TRAINING, PLATES, config.env.width, np.random.default_rng(SEED))
    rules = config.env.model_copy(update={"n0_min": CELLS, "n0_max": CELLS})
    node, graph = NODE_FEATURES["light"], GRAPH_FEATURES["light"]  # scaled by hand
    moments = torch.zeros(node), torch.ones(node), torch.zeros(graph), torch.ones(graph)
    view = colony_world.view_in(config, make_world(rules, plates), colony_world.Scale(*moments))
    spec = colony_world.spec_of(config)
    network = seeded(lambda: networks.make_network(config, spec), SEED)
    return Actor(config, view, networks.make_actor(config, spec, network))


def learner_of(root: Path) -> Learner:
    """Returns the project's learner before its first gradient step."""
    actor = actor_of(root)
    config, view = actor.config, actor.view
    environment, draws, order = (Generator().manual_seed(purpose) for purpose in range(3))
    components = len(config.env.reward_weights)
    state = colony_world.ColonyState(
        colonies=start(view.world, COLONIES, environment),
        components=torch.zeros(COLONIES, components),
        episode_means=torch.zeros(2 + len(REASONS) + components),
        environment=environment.get_state(),
        policy=draws.get_state(),
        order=order.get_state(),
    )
    return Learner(
        config=config,
        actor=actor.playing,
        network=actor.eager,
        optimizer=Adam(
            actor.eager,
            init_adam(dict(actor.eager.named_parameters())),
            config.train.learning_rate,
            config.train.adam_eps,
        ),
        envs=colony_world.ColonyEnvs(view, state),
        scale=view.scale,
        draws=draws,
        order=order,
        rollout=train.allocate_rollout(config, None),
        best=train.Best({}, torch.tensor(0.0), None, torch.tensor(0)),
        iterations=0,
        updates=0,
    )


def plain_training(root: Path, ways: reference.Ways) -> Work:
    """Trains one plain colony, which begins again with each iteration."""
    actor = actor_of(root)
    colony, positions = plain_colony(actor.world, colonies_of(actor.world, 1), 0)
    train, params = actor.config.train, actor.eager.parameters()
    optimiser = torch.optim.Adam(params, train.learning_rate, eps=train.adam_eps)
    player = Player(actor, optimiser, Generator().manual_seed(SEED))

    def work() -> list[float]:
        colony.start(positions)
        return reference.iterate(player, colony, ways, HORIZON)

    return work


def colonies_of(world: World, count: int) -> Colonies:
    """Returns colonies after some steps in which they held their size."""
    generator = Generator().manual_seed(SEED)
    colonies = start(world, count, generator)
    low, high = torch.tensor(world.rules.bounds).T
    for _ in range(PAST):
        action = low + (high - low) * torch.rand(count, len(low), generator=generator)
        action[:, 0] = HALF
        colonies = step(world, colonies, action, generator).colonies
    return colonies


def plain_colony(
    world: World, colonies: Colonies, index: int
) -> tuple[Colony, list[tuple[float, float]]]:
    """Copies one colony into the plain loop; returns the positions of its cells, too."""
    pos, parent, _, age, new, n, t, left, *_ = (column[index].tolist() for column in colonies)
    colony = Colony(world.rules, Plate(world.intensity[colonies.substrate[index]].tolist()))
    colony.start(pos[:n], parent[:n])
    for cell, cell_age, is_new in zip(colony.cells, age, new, strict=False):
        cell.age, cell.new = int(cell_age), is_new
    colony.t, colony.left = t, left
    return colony, pos[:n]


def check_learning(root: Path) -> None:
    """Compares loss and gradient of some colonies: what is seen, the policy, values and PPO.

    Raises:
        NotComparable: they differ.
    """
    learner, actor = learner_of(root), actor_of(root)
    colonies, generator = colonies_of(actor.world, CHECKED), Generator().manual_seed(SEED)
    targets = torch.randn(2, CHECKED, generator=generator)
    with torch.no_grad():
        graphs = actor.view.observe(colonies)
        output = actor.eager(graphs)
        params = actor.policy.distribution(output.raw)
        z = actor.policy.sample(params, generator)
        log_prob = actor.policy.log_prob(params, z)
    batch = Minibatch((graphs,), z, log_prob, torch.stack(params, 1), output.value, *targets)
    decisions = []
    for index in range(CHECKED):
        graph = reference.graph_of(plain_colony(actor.world, colonies, index)[0], actor.scale)
        drawn = (part[index : index + 1] for part in (z, log_prob, output.value))
        decisions.append(Decision(graph, *drawn))
    ours, _ = ppo.objective(learner, batch, actor.config.train.entropy_start)
    losses = {ORIGINAL: reference.loss(actor, decisions, *targets), OURS: ours}
    results = {}
    for side, network in ((ORIGINAL, actor.eager), (OURS, learner.network)):
        losses[side].backward()
        results[side] = [losses[side], [param.grad for param in network.parameters()]]
    check_same("loss and gradient of one batch", results, 1e-4, 1e-5)


# The policy.


def entropy_row(rounds: int) -> Row:
    """Measures the policies of many states; the original's is a Gaussian, ours a Beta."""
    generator = Generator().manual_seed(SEED)
    params = tuple(1 + 5 * torch.rand(2, STATES, NUMBERS, generator=generator))
    normal, exact = Normal(*params), Beta(*params).entropy().sum(-1)
    check_same("entropy", {"torch": exact, OURS: beta_entropy(params)}, 1e-3, 1e-5)
    works: dict[str, Work] = {
        ORIGINAL: lambda: -normal.log_prob(normal.sample((SAMPLES,))).mean(0).sum(-1),
        PROPOSAL: lambda: normal.entropy().sum(-1),
        OURS: lambda: beta_entropy(params),
    }
    claim = Claim("colony", "entropy 5-10x as fast as Monte Carlo", 5.0)
    note = "the proposal's is that of a Gaussian before it is squashed, not of what is executed"
    return Row(f"entropy in {STATES} states", "us/call", race(works, rounds), claim, note)
