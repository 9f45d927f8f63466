"""rounds -> a row about a gradient step of iqn, against the way of dqn_zoo

dqn_zoo compiles a step of one agent, with rlax's loss, and calls it from Python with a batch of the
host. Its agent is written out here: it is no package. Network and optimiser are the project's.
"""

from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

from benchmarks.rows import OURS, Row
from benchmarks.timing import Continued, Work, check_same, race
from pipeline.storage.params_file import read_params
from quatrain.models.iqn import learn, losses, network, train
from quatrain.models.iqn.collect import collect
from quatrain.models.iqn.config import IqnConfig
from quatrain.models.iqn.learn import Agent, Experience
from quatrain.replay.frames.sampling import Batch, draw_starts, gather_transitions, valid_starts

SEED, STORED = 0, 4096
"""Transitions of an agent from which dqn_zoo's side draws."""
NOTE = "dqn_zoo's step never copies its target network here, and draws by NumPy's indexing"


def rows(root: Path, rounds: int) -> list[Row]:
    """Measures the network and the batch of params.yaml, counted by agent.

    Raises:
        NotComparable: the losses differ.
    """
    config = read_params(root).iqn
    dataset = collect(config, SEED)
    state = jax.tree.map(lambda leaf: leaf[0], train.init_state(config, dataset, SEED))
    starts = jax.jit(valid_starts, static_argnums=1)(state.ring, learn.window(config))
    experience = Experience(state.ring, starts)
    check_loss(config.train.loss.kappa)
    agents = state.agents
    works = {
        OURS: own_steps(config, agents, experience, state.base_key),
        "dqn_zoo": zoo_steps(config, agents, experience),
    }
    updates = {OURS: config.train.updates_per_cycle * config.env.agents}
    times = race(works, rounds, updates | {"dqn_zoo": config.env.agents})
    name = f"IQN step, {config.network.hidden} units, batch {config.train.batch_size}"
    return [Row(name, "ms/step", times, note=NOTE)]


def own_steps(config: IqnConfig, agents: Agent, experience: Experience, key: Array) -> Work:
    """Returns the project's updates of all agents, many per call."""
    update = jax.jit(learn.update_agents, static_argnums=0)

    def advance(state: tuple[Agent, Array]) -> tuple[tuple[Agent, Array], Any]:
        changed, metrics = update(config, state[0], experience, key, state[1])
        return (changed, state[1] + config.train.updates_per_cycle), metrics

    return Continued(advance, (agents, jnp.int32(0)))


def zoo_steps(config: IqnConfig, agents: Agent, experience: Experience) -> Work:
    """Returns an update of each agent in turn."""
    draw = jax.jit(draw_starts, static_argnums=3)
    gather = jax.jit(gather_transitions, static_argnums=3)
    window, count = learn.window(config), config.env.agents
    drawn = [draw(jax.random.key(agent), *experience, STORED) for agent in range(count)]
    stored = [
        jax.device_get(gather(experience.ring, jnp.int32(agent), starts, window))
        for agent, starts in enumerate(drawn)
    ]
    learners = [jax.tree.map(itemgetter(agent), agents) for agent in range(count)]
    rng, keys = np.random.default_rng(SEED), [jax.random.key(agent) for agent in range(count)]
    update = jax.jit(partial(zoo_step, config))

    def work() -> None:
        for agent in range(count):
            picks = rng.integers(STORED, size=config.train.batch_size)
            batch = Batch(*(column[picks] for column in stored[agent]))
            learners[agent], keys[agent] = update(learners[agent], batch, keys[agent])
        jax.block_until_ready(learners)

    return work


def zoo_step(config: IqnConfig, agent: Agent, batch: Batch, key: Array) -> tuple[Agent, Array]:
    """Takes one gradient step; returns the next key, too."""
    from rlax import quantile_q_learning

    key, *draws = jax.random.split(key, 4)
    size, selected = len(batch.action), config.train.loss
    taus = [jax.random.uniform(each, (size, selected.quantiles)) for each in draws]
    apply = partial(network.apply, config.network)
    losses_of = jax.vmap(partial(quantile_q_learning, huber_param=selected.kappa))

    def loss(params: network.Params) -> Array:
        selecting = apply(params, batch.next_stack, taus[0])
        following = apply(agent.target_params, batch.next_stack, taus[1])
        values = apply(params, batch.stack, taus[2])
        transition = batch.action, batch.returns, batch.bootstrap
        return losses_of(values, taus[2], *transition, selecting, following).mean()

    gradients = jax.grad(loss)(agent.params)
    updates, adam = learn.optimizer(config.train).update(gradients, agent.optimizer)
    return agent._replace(params=optax.apply_updates(agent.params, updates), optimizer=adam), key


def check_loss(kappa: float) -> None:
    """Compares rlax's loss of random values with the project's."""
    from rlax import quantile_regression_loss

    values, taus, targets = jax.random.uniform(jax.random.key(SEED), (3, 5, 7))
    theirs = jax.vmap(partial(quantile_regression_loss, huber_param=kappa))(values, taus, targets)
    ours = losses.quantile_huber(losses.td_errors(values, targets), taus, kappa)
    check_same("IQN loss", {OURS: ours, "dqn_zoo": theirs}, 1e-5, 1e-6)
