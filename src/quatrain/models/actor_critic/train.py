"""plates -> weights: colonies act for some steps, the network learns from what they met, again and again."""

import os
import shutil
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from quatrain.envs.colony.dynamics import World, make_world
from quatrain.errors import DeviceMissing
from quatrain.frameworks.torch import packing, threads
from quatrain.frameworks.torch.adam_state import AdamState
from quatrain.frameworks.torch.rng import generator_from_seed
from quatrain.models.actor_critic import losses, network
from quatrain.models.actor_critic.collect import Dataset, check
from quatrain.models.actor_critic.config import ActorCriticConfig
from quatrain.models.actor_critic.ppo import agent as agents
from quatrain.models.actor_critic.ppo import memory, playing, records
from quatrain.models.actor_critic.ppo.acting import bucket, on_gpu, scale_of
from quatrain.models.actor_critic.ppo.agent import Agent, Rank, Scale, Seed, rank_of
from quatrain.models.actor_critic.ppo.policy import Parameters
from quatrain.models.actor_critic.ppo.ranks import helped
from quatrain.models.actor_critic.ppo.records import NOTED, Learned
from quatrain.models.actor_critic.ppo.team import Team
from quatrain.progress import Progress
from quatrain.replay.rollouts import buffer, gae
from quatrain.replay.rollouts.buffer import Minibatch, Rollout, Transitions
from quatrain.replay.rollouts.gae import Trace

HEADLINE = ("return", "success")
WEIGHTS = ("params/", "scale/")
to_arrays = packing.to_arrays
SMALL = 64
"""Units up to which a second thread costs more than it brings: measured, two took 2.5 times as long as one."""


class State(NamedTuple):
    """Everything that changes while learning: of each field one part per seed."""

    params: tuple[dict[str, Tensor], ...]
    scale: tuple[Scale, ...]
    optimizer: tuple[AdamState, ...]
    ranks: tuple[tuple[Rank, ...], ...]
    iterations: tuple[Tensor, ...]
    updates: tuple[Tensor, ...]

    @classmethod
    def of(cls, seeds: list[Seed]) -> "State":
        """The inverse of `seeds`."""
        return cls(*zip(*seeds, strict=True))

    @property
    def seeds(self) -> list[Seed]:
        """Each by itself."""
        return [Seed(*parts) for parts in zip(*self, strict=True)]


def iterate(agent: Agent) -> dict[str, float]:
    """One iteration: act, sum up advantages, learn. Changes the agent in place.

    Raises:
        TrainingDiverged: something is not finite.
    """
    rates = rates_of(agent)
    played = playing.play(agent.actor, agent.player, agent.rollout, agent.team)
    records.refuse_rewards(agent)
    transitions = judged(agent, agent.rollout)
    explained = losses.explained_variance(transitions.value, transitions.returns)
    learned = learn(agent, transitions, rates)
    agent.player = played.player
    agent.iterations += 1
    return records.metrics_of(
        agent, played, learned, rates | {"explained_variance": float(explained)}
    )


def rates_of(agent: Agent) -> dict[str, float]:
    """What falls linearly with transitions."""
    train = agent.config.train
    done = agent.iterations / train.steps
    return {
        "learning_rate": train.learning_rate * (1 - done * (1 - train.lr_final_fraction)),
        "entropy_coef": train.entropy_start + done * (train.entropy_end - train.entropy_start),
    }


def judged(agent: Agent, rollout: Rollout) -> Transitions:
    """The rollout's transitions with their advantages, normalised over all of them, and returns."""
    config, weights = agent.config.train, agent.actor.world.weights
    total = agent.config.network.value_heads == "total"
    paid = rollout.components @ weights if total else rollout.components
    trace = Trace(paid, rollout.value, rollout.next_value, rollout.terminated, rollout.truncated)
    found = gae.advantages(trace, config.discount, config.gae_lambda, config.gae)
    advantage = found.advantage if total else found.advantage @ weights
    everyone = gae.normalised(agent.team.gathered(advantage[None]))
    return buffer.flattened(rollout, everyone[agent.team.rank], found.returns)


def learn(agent: Agent, transitions: Transitions, rates: dict[str, float]) -> Learned:
    """`epochs` passes over the transitions in minibatches, until the policy has moved by `target_kl`."""
    config, noted, moved = agent.config.train, list[Tensor](), 0.0
    for group in agent.optimizer.param_groups:
        group["lr"] = rates["learning_rate"]
    count, size = len(transitions.n), config.minibatch_size // agent.team.size
    width = (
        None
        if transitions.n.is_cpu and not config.compile
        else bucket(agent.actor, int(transitions.n.max()))
    )
    for _ in range(config.epochs):
        for place, index in enumerate(buffer.shuffled(count, size, agent.order)):
            loss, row = objective(
                agent, buffer.minibatch(transitions, index, width), rates["entropy_coef"]
            )
            # On a GPU the question waits for the device: it is asked once per epoch.
            if transitions.n.is_cpu or place == 0:
                moved = float(row[NOTED.index("approx_kl")])
            if moved > config.target_kl:
                return finished(agent, noted or [row], moved, stopped=True)
            noted.append(update(agent, loss * len(index) / size, row))
    return finished(agent, noted, moved, stopped=False)


def finished(agent: Agent, noted: list[Tensor], moved: float, stopped: bool) -> Learned:
    """What was noted, when it is finite."""
    rows = torch.stack(noted).cpu()
    records.refuse_divergence(agent, rows, agent.updates - len(noted))
    return Learned(rows, moved, stopped)


def objective(
    agent: Agent, batch: Minibatch, entropy_coef: float
) -> tuple[Float[Tensor, ""], Float[Tensor, " noted"]]:
    """The loss of a minibatch, and what is noted of it."""
    config, policy = agent.config.train, agent.actor.policy
    output = agent.actor.forward(*batch.groups)
    chosen = policy.distribution(output.raw)
    ratio = losses.ratio(policy.log_prob(chosen, batch.z), batch.log_prob)
    weights = value_weights(agent)
    terms = {
        "loss_policy": losses.policy(ratio, batch.advantage, config.clip).mean(),
        "loss_value": losses.value(
            output.value, batch.value, batch.returns, weights, config.value_clip
        ).mean(),
        "loss_entropy": losses.entropy(policy.entropy(chosen)).mean(),
    }
    scales = {"loss_policy": 1.0, "loss_value": config.value_coef, "loss_entropy": entropy_coef}
    assert terms.keys() == scales.keys() == set(losses.TERMS)
    loss = torch.stack([scales[name] * terms[name] for name in losses.TERMS]).sum()
    with torch.no_grad():
        moved = agent.team.averaged(policy.kl(Parameters(batch.first, batch.second), chosen).mean())
        others = {
            "loss": loss,
            "grad_norm": loss * 0,
            "entropy": -terms["loss_entropy"],
            "approx_kl": moved,
            "clip_fraction": losses.clip_fraction(ratio, config.clip),
            "raw_entropy": policy.raw_entropy(chosen).mean(),
            "ratio_max_dev": (ratio - 1).abs().max(),
        }
        return loss, torch.stack([(terms | others)[name].detach() for name in NOTED])


def update(
    agent: Agent, loss: Float[Tensor, ""], row: Float[Tensor, " noted"]
) -> Float[Tensor, " noted"]:
    """One step of the clipped gradient, in place; on a CPU only if it is finite. The row, with the gradient's norm."""
    agent.optimizer.zero_grad()
    loss.backward()
    params = list(agent.network.parameters())
    agent.team.average_gradients(params)
    norm = nn.utils.clip_grad_norm_(params, agent.config.train.max_grad_norm)
    row[NOTED.index("grad_norm")] = norm
    if row.is_cpu:
        records.refuse_divergence(agent, row[None], agent.updates)
    agent.optimizer.step()
    agent.updates += 1
    return row


def value_weights(agent: Agent) -> Float[Tensor, "*component"]:
    """Of squared errors of values."""
    weights = agent.actor.world.weights
    return (
        torch.ones_like(weights[0])
        if agent.config.network.value_heads == "total"
        else weights.abs()
    )


def init_state(config: ActorCriticConfig, world: World, dataset: Dataset, seed: int) -> State:
    """Fresh networks and new colonies; each seed draws from numbers of its own."""
    scale, made = scale_of(config, dataset), []
    for own in np.random.SeedSequence(seed).spawn(config.seeds):
        weights, *ranks = own.spawn(1 + config.train.world_size)
        fresh = network.init(config, int(weights.generate_state(1)[0]))
        draws = [[generator_from_seed(purpose) for purpose in rank.spawn(3)] for rank in ranks]
        made.append(agents.fresh(config, world, scale, fresh, draws))
    return State.of(made)


def train(
    config: ActorCriticConfig, dataset: Dataset, seed: int, state: State | None = None
) -> Iterator[Progress]:
    """Learn until `train.transitions` are met, from `learner` if one is given; a yield every `record_every` iterations.

    Raises:
        DatasetMismatch: the dataset was collected for another config.
        DeviceMissing: half precision is asked for, and there is no GPU.
        TrainingDiverged: something is not finite; nothing is yielded of the iterations since the last yield.
        DeviceFull: the device has no memory left.
    """
    check(config, dataset)
    check_device(config)
    if state is None:
        world = make_world(config.env.rules, dataset.train.plates)
        state = init_state(config, world, dataset, seed)
    with helped(config.train.world_size, follow, config, dataset, state) as team:
        yield from learn_from(team, config, dataset, state)


def follow(team: Team, config: ActorCriticConfig, dataset: Dataset, state: State) -> None:
    """What every rank but the first does."""
    for _ in learn_from(team, config, dataset, state):
        pass


def learn_from(
    team: Team, config: ActorCriticConfig, dataset: Dataset, state: State
) -> Iterator[Progress]:
    """The same in each rank of a team: all take the same steps, of what their own colonies meet."""
    world = make_world(config.env.rules, dataset.train.plates)
    with memory.told(config):
        rollout = agents.empty_rollout(config, config.train.num_envs // team.size)
        working = [agents.restored(config, world, one, team, rollout) for one in state.seeds]
    while (done := working[0].iterations) < config.train.steps:
        count = min(config.train.record_every, config.train.steps - done)
        with memory.told(config), threads.single_threaded(config.network.d <= SMALL):
            entries = [[iterate(agent) for agent in working] for _ in range(count)]
        told = team.told((entries, [rank_of(agent.player, agent.order) for agent in working]))
        ranks = zip(*(ranks for _, ranks in told), strict=True)
        seeds = [agents.snapshot(agent, own) for agent, own in zip(working, ranks, strict=True)]
        yield Progress(
            done + count, State.of(seeds), records.over_time([entries for entries, _ in told])
        )


def check_device(config: ActorCriticConfig) -> None:
    """Refuse what this machine cannot do: half precision without a GPU, a program without a compiler.

    Raises:
        DeviceMissing: names the key.
    """
    if config.train.amp == "bf16" and not on_gpu():
        raise DeviceMissing(
            "params.yaml: actor_critic.train.amp = 'bf16', but torch finds no NVIDIA device here (or is built without "
            "CUDA), and on a CPU it was measured slower than float32; set amp: none"
        )
    if (
        config.train.compile
        and not on_gpu()
        and not any(map(shutil.which, (os.environ.get("CXX", "g++"), "clang++")))
    ):
        raise DeviceMissing(
            "params.yaml: actor_critic.train.compile = True, but no C++ compiler (g++, or what CXX names) is found "
            "here; install one, or set compile: false"
        )


def from_arrays(
    config: ActorCriticConfig, dataset: Dataset, arrays: dict[str, np.ndarray]
) -> State:
    """The inverse of `pack`.

    Raises:
        ValueError: names, shapes or dtypes are not those of a learner of this config.
    """
    world = make_world(config.env.rules, dataset.train.plates)
    return packing.from_arrays(init_state(config, world, dataset, 0), arrays)
