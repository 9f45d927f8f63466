"""config -> the same agents in the project's form, the reference's and the proposal's"""

from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import torch

from benchmarks.reference import iqn as reference
from benchmarks.reference import iqn_seed as proposal
from benchmarks.reference.iqn_training import CAPACITY, NumpyRing
from benchmarks.rows import ORIGINAL, OURS
from benchmarks.timing import check_same
from pipeline.storage.params_file import read_params
from quatrain.models.iqn import learn, network, train
from quatrain.models.iqn.collect import collect
from quatrain.models.iqn.config import IqnConfig
from quatrain.models.iqn.learn import Agent, Experience, State
from quatrain.replay.frames.ring import Transitions
from quatrain.replay.frames.sampling import draw_starts, gather_transitions, valid_starts

SEED = 0
SAME_TARGET = {"n_step": 1, "discount": 0.99**3}
"""The target that the original computes: its n_step only raises the discount's power."""


class Sides(NamedTuple):
    """Holds the same agents of all sides, before their first gradient step."""

    config: IqnConfig
    state: State
    """Of one seed, without that axis."""
    experience: Experience
    agents: list[reference.Agent]
    proposed: list[proposal.Agent]
    rings: list[NumpyRing]


def config_of(root: Path, **sections: Any) -> IqnConfig:
    """Returns the preset of the original program with changed sections of iqn."""
    return read_params(root, "original", {"iqn": sections}).iqn


def sides_of(config: IqnConfig) -> Sides:
    """Returns all sides after the prefill, with the same turns in every replay.

    Raises:
        NotComparable: loss or gradient differ.
    """
    assert config.train.loss.n_step == 1, "the reference's target has one reward"
    assert config.train.target.kind == "polyak"
    dataset, generator = collect(config, SEED), torch.Generator().manual_seed(SEED)
    state = jax.tree.map(lambda leaf: leaf[0], train.init_state(config, dataset, SEED))
    starts = jax.jit(valid_starts, static_argnums=1)(state.ring, learn.window(config))
    agents = [reference.Agent(config, generator) for _ in range(config.env.agents)]
    weights = [dump(agent.online) for agent in agents]
    params = jax.tree.map(lambda *leaves: jnp.stack(leaves), *weights)
    optimizer = jax.vmap(learn.optimizer(config.train).init)(params)
    sides = Sides(
        config,
        state._replace(params=params, target_params=params, optimizer=optimizer),
        Experience(state.ring, starts),
        agents,
        [proposal.Agent(config, each, jax.random.key(i)) for i, each in enumerate(weights)],
        [ring_of(config, dataset.train, agent) for agent in range(len(agents))],
    )
    check_gradient(sides)
    return sides


def ring_of(config: IqnConfig, turns: Transitions, agent: int) -> NumpyRing:
    """Returns a replay with the turns of one agent in the first env."""
    frames = config.network.frames
    ring = NumpyRing(CAPACITY, config.inputs // frames, frames)
    turns = jax.tree.map(lambda leaf: leaf[0], turns)
    for number, turn in enumerate(turns.turn[:, 0]):
        if turn == 0:
            ring.begin_episode()
        frame, action = turns.frames[number, agent, 0], int(turns.actions[number, agent, 0])
        reward = float(turns.rewards[number, agent, 0])
        ring.add(frame, action, reward, bool(turns.final[number, 0]))
    return ring


def dump(iqn: reference.Iqn, gradients: bool = False) -> network.Params:
    """Returns the weights, or their gradients, in the project's form; unused ones are 0."""
    params: dict[str, dict[str, Any]] = {}
    for path, tensor in iqn.named_parameters():
        layer, name = path.replace("weight", "kernel").split(".")
        values = tensor.grad if gradients else tensor.detach()
        array = np.zeros(tensor.shape, np.float32) if values is None else values.numpy()
        params.setdefault(layer, {})[name] = jnp.array(array.T)
    return params


def check_gradient(sides: Sides) -> None:
    """Raises NotComparable unless loss and gradient of both networks agree on one batch, without
    noise; the proposal computes the project's.
    """
    quiet = sides.config.network.model_copy(update={"noisy": "none"})
    config, key = sides.config.model_copy(update={"network": quiet}), jax.random.key(SEED)
    size, quantiles = config.train.batch_size, config.train.loss.quantiles
    starts = jax.jit(draw_starts, static_argnums=3)(key, *sides.experience, size)
    gather = jax.jit(gather_transitions, static_argnums=3)
    batch = gather(sides.experience.ring, jnp.int32(0), starts, learn.window(config))
    stacks = [np.array(stack, np.float32) for stack in (batch.stack, batch.next_stack)]
    action, reward = np.array(batch.action), np.array(batch.returns)
    transitions = reference.Batch(stacks[0], action, reward, stacks[1])
    # The quantiles that the project draws from these keys.
    target_key, online_key = jax.random.split(key)
    tau_keys = (*jax.random.split(target_key, 4)[:2], jax.random.split(online_key)[0])
    taus = [jax.random.uniform(each, (size, quantiles)) for each in tau_keys]

    def objective(params: network.Params, target: network.Params, batch: Any) -> Any:
        targets = learn.targets(config, Agent(params, target, None), batch, target_key)
        return learn.objective(params, config, batch, targets, online_key)[0]

    # The target is another agent's network, so that mixing up the two shows.
    online, other = (agent.online.eval() for agent in sides.agents[:2])
    params = dump(online), dump(other)
    tensors = [torch.tensor(np.array(each)) for each in taus]
    # The project's loss is a sum over quantiles.
    discount = config.train.loss.discount
    loss = quantiles * reference.loss_of(online, other, transitions, tensors, discount)
    loss.backward()
    results = {ORIGINAL: (loss.item(), dump(online, gradients=True))}
    for used in (online, other):
        used.train().zero_grad()
    # Not timed: without optimisation, which takes longer than the program.
    options = {"xla_backend_optimization_level": 0}
    gradient = jax.jit(jax.value_and_grad(objective), compiler_options=options)
    results[OURS] = gradient(*params, batch)
    check_same("iqn: loss or gradient of one batch", results, 1e-3, 1e-5)
