"""config -> the project's agents and the reference's weights and experience alike; refused where
they differ.
"""

from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import torch

from benchmarks.reference import iqn as reference
from benchmarks.reference import iqn_seed as seed
from benchmarks.reference.iqn_ring import NumpyRing
from benchmarks.reference.iqn_training import CAPACITY, Memory
from benchmarks.table import NotTheSame
from pipeline.storage.params_file import overlaid, read_input, read_raw, validate
from quatrain.models.iqn import network, train
from quatrain.models.iqn.collect import Dataset, collect
from quatrain.models.iqn.config import IqnConfig
from quatrain.models.iqn.train import Agent, Experience, State
from quatrain.replay import frames

PRESET = "original"
SEED = 0
SAME_TARGET = {"n_step": 1, "discount": 0.99**3}
"""The target that the original computes: its n_step only raises the discount's power."""


NARROW = {"batch_size": 64, "updates_per_cycle": 10, "record_every": 10, "evaluate_every": 0}
"""Of train: ten updates in a call, so that the call itself does not count."""


class Sides(NamedTuple):
    """Holds the same agents of both sides, before their first gradient step."""

    config: IqnConfig
    state: State
    """Of one seed, without that axis."""
    experience: Experience
    plan: seed.Plan
    agents: list[reference.Agent]
    memories: list[Memory]
    dataset: Dataset


def config_of(root: Path, preset: str | None = PRESET, **sections: Any) -> IqnConfig:
    """Returns a preset's config (None: params.yaml as it is) with sections of iqn changed."""
    raw = overlaid(read_raw(root, preset), {"iqn": sections})
    return validate(raw, lambda name: read_input(root, str(name))).iqn


def narrow_sides(root: Path, hidden: int, dataset: Dataset | None = None) -> Sides:
    """Returns both sides without noise, with this number of units and less work per agent."""
    train_section = NARROW | {"loss": SAME_TARGET | {"quantiles": 8, "target_quantiles": 8}}
    return sides_of(
        config_of(root, network={"hidden": hidden, "noisy": "none"}, train=train_section), dataset
    )


def settings_of(config: IqnConfig) -> reference.Settings:
    """Returns the reference's settings for the same work.

    Its loss is a mean over quantiles, so its clip is divided by Q.
    """
    selected = config.train
    assert selected.loss.n_step == 1, "the reference's target has one reward"
    assert selected.target.kind == "polyak"
    return reference.Settings(
        inputs=config.inputs,
        hidden=config.network.hidden,
        cosines=config.network.cosines,
        noisy=config.network.noisy == "independent",
        quantiles=selected.loss.quantiles,
        acting_quantiles=selected.acting.quantiles,
        learning_rate=selected.learning_rate,
        discount=selected.loss.discount,
        max_grad_norm=selected.max_grad_norm / selected.loss.quantiles,
        target_rate=selected.target.rate,
    )


def sides_of(config: IqnConfig, dataset: Dataset | None = None) -> Sides:
    """Returns both sides after the prefill (or another prefill); the config has one env, as the
    reference.
    """
    dataset = dataset or collect(config, SEED)
    learners = train.init_state(config, dataset, SEED)
    state, experience = _first(train.window(config), learners)
    settings, generator = settings_of(config), torch.Generator().manual_seed(SEED)
    agents = [reference.Agent(settings, generator) for _ in range(config.env.agents)]
    for index, agent in enumerate(agents):
        load(agent.online, params_of(state, index))
        agent.copy_to_target()
    rng = np.random.default_rng(SEED)
    memories = [memory_of(config, rng) for _ in agents]
    for index, memory in enumerate(memories):
        fill(memory.ring, jax.tree.map(lambda leaf: leaf[0], dataset.train), index)
    return Sides(
        config, state, experience, seed.Plan(settings, config.network), agents, memories, dataset
    )


@partial(jax.jit, static_argnums=0)
def _first(window: frames.Window, learners: State) -> tuple[State, Experience]:
    """The first seed's learner, and what it draws from."""
    state = jax.tree.map(lambda leaf: leaf[0], learners)
    return state, Experience(state.ring, frames.valid_starts(state.ring, window))


def memory_of(config: IqnConfig, generator: np.random.Generator) -> Memory:
    """Returns an empty replay of one agent, as large as the original's."""
    frames = config.network.frames
    return Memory(NumpyRing(CAPACITY, config.inputs // frames, frames), generator)


def fill(host: NumpyRing, prefill: frames.Transitions, agent: int) -> None:
    """Stores the random policy's turns in the first env in the replay of one agent."""
    for turn in range(len(prefill.turn)):
        if prefill.turn[turn, 0] == 0:
            host.begin_episode()
        action, reward = (
            int(prefill.actions[turn, agent, 0]),
            float(prefill.rewards[turn, agent, 0]),
        )
        host.add(prefill.frames[turn, agent, 0], action, reward, bool(prefill.truncated[turn, 0]))


def params_of(state: State, agent: int) -> network.Params:
    return jax.tree.map(lambda leaf: leaf[agent], state.params)


def load(iqn: reference.Iqn, params: network.Params) -> None:
    """Loads the project's weights of an agent into the reference's network, whose kernels are
    transposed.
    """
    for layer, arrays in params.items():
        for name, array in arrays.items():
            kept = name.replace("kernel", "weight")
            getattr(getattr(iqn, layer), kept).data = torch.from_numpy(np.array(array.T))


def dump(iqn: reference.Iqn) -> network.Params:
    """Returns the weights in the project's form, the inverse of `load`."""
    return _named(iqn, lambda tensor: jnp.asarray(tensor.detach().numpy().T))


def gradients_of(iqn: reference.Iqn) -> network.Params:
    """Returns the gradients like `dump`; noise that was off has none."""
    return _named(
        iqn, lambda tensor: (0 * tensor.detach() if tensor.grad is None else tensor.grad).numpy().T
    )


def _named(iqn: reference.Iqn, read: Any) -> network.Params:
    return {
        layer: {
            name.replace("weight", "kernel"): read(tensor)
            for name, tensor in module.named_parameters()
        }
        for layer, module in iqn.named_children()
    }


def drawn(sides: Sides, agent: int, key: jax.Array) -> frames.Batch:
    """Transitions out of the project's replay."""
    config, experience = sides.config, sides.experience
    window, size = train.window(config), config.train.batch_size
    return jax.jit(frames.sample, static_argnums=(4, 5))(
        key, experience.ring, experience.starts, jnp.int32(agent), window, size
    )


def as_reference(batch: frames.Batch) -> reference.Batch:
    """Returns the transitions in the reference's form; none ends an episode or is masked."""
    ones = np.ones(len(batch.action), np.float32)
    stacks = (np.array(batch.stack, np.float32), np.array(batch.next_stack, np.float32))
    return reference.Batch(
        stacks[0], np.array(batch.action), np.array(batch.returns), stacks[1], 0 * ones, ones
    )


def refuse_other_values(sides: Sides) -> None:
    """Raises unless every agent's action values at the same quantiles agree.

    Raises:
        NotTheSame: they do not.
    """
    taus, apply = (
        (np.arange(32, dtype=np.float32)[None] + 0.5) / 32,
        jax.jit(network.apply, static_argnums=0),
    )
    for index, agent in enumerate(sides.agents):
        stack = as_reference(drawn(sides, index, jax.random.key(SEED))).stack
        rows = np.repeat(taus, len(stack), 0)
        agent.online.eval()
        with torch.no_grad():
            expected = agent.online(torch.from_numpy(stack), torch.from_numpy(rows))
        agent.online.train()
        result = apply(
            sides.config.network, dump(agent.online), jnp.asarray(stack), jnp.asarray(rows)
        )
        _refuse(f"agent {index}: the project's value", result, expected.numpy())


def refuse_another_gradient(sides: Sides) -> None:
    """Values, loss and gradient of project, reference and seed's way on one batch must agree; noise
    is off.

    Raises:
        NotTheSame: they do not.
    """
    config = sides.config.model_copy(
        update={"network": sides.config.network.model_copy(update={"noisy": "none"})}
    )
    key, agent = jax.random.key(SEED), sides.agents[0]
    params, other = params_of(sides.state, 0), params_of(sides.state, 1)
    target = reference.Iqn(agent.settings, agent.generator)
    load(agent.online, params)
    load(target, other)  # not a copy, so that mixing up the two networks shows
    batch = drawn(sides, 0, key)
    quiet = seed.Plan(sides.plan.settings._replace(noisy=False), config.network)
    ours = jax.jit(partial(_own_gradient, config))(params, other, batch, key)
    plain = as_reference(batch)
    proposed = jax.jit(jax.value_and_grad(seed.loss), static_argnums=3)(
        params, other, plain, quiet, key
    )
    quantiles = config.train.loss.quantiles
    for name, result, taus, factor in (
        ("the project", ours, _own_taus(config, key), quantiles),
        (
            "the seed's way",
            proposed,
            seed.draw_taus(quiet, len(plain.action), key),
            1,
        ),
    ):
        expected = _plain_gradient(
            agent, target, plain, reference.Taus(*(torch.tensor(np.array(t)) for t in taus))
        )
        _refuse(
            f"{name}'s loss or gradient",
            result,
            jax.tree.map(lambda leaf: factor * leaf, expected),  # noqa: B023
        )


def _own_gradient(
    config: IqnConfig,
    params: network.Params,
    target_params: network.Params,
    batch: frames.Batch,
    key: jax.Array,
) -> tuple[jax.Array, network.Params]:
    target_key, online_key = jax.random.split(key)
    targets = train.targets(config, Agent(params, target_params, None), batch, target_key)
    objective = lambda params: train.objective(params, config, batch, targets, online_key)[0]  # noqa: E731
    return jax.value_and_grad(objective)(params)


def _own_taus(config: IqnConfig, key: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """The quantiles that `train.targets` and `train.objective` draw from their keys."""
    target_key, online_key = jax.random.split(key)
    select_key, next_key, *_ = jax.random.split(target_key, 4)
    shape = (config.train.batch_size, config.train.loss.quantiles)
    online = jax.random.split(online_key)[0]
    select, target, request_arrays = (
        jax.random.uniform(each, shape) for each in (select_key, next_key, online)
    )
    return select, target, request_arrays


def _plain_gradient(
    agent: reference.Agent, target: reference.Iqn, batch: reference.Batch, taus: reference.Taus
) -> tuple[float, network.Params]:
    agent.online.eval()
    target.eval()
    agent.online.zero_grad()
    loss = reference.loss_of(agent.online, target, batch, taus, agent.settings)
    loss.backward()
    gradients = gradients_of(agent.online)
    agent.online.zero_grad()
    agent.online.train()
    return loss.item(), gradients


def _refuse(what: str, result: Any, expected: Any) -> None:
    for entry, other in zip(jax.tree.leaves(result), jax.tree.leaves(expected), strict=True):
        if not np.allclose(
            entry, other, rtol=1e-3, atol=1e-5 * max(1.0, float(np.abs(other).max()))
        ):
            raise NotTheSame(f"{what} differs from the reference's on one batch")
