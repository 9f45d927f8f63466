"""One update of an agent: its targets, where gradients go, how the target network follows."""

from functools import lru_cache, partial
from operator import itemgetter
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from quatrain.models.iqn import learn, network, train
from quatrain.models.iqn.collect import collect
from quatrain.models.iqn.config import IqnConfig
from quatrain.models.iqn.learn import Agent, Experience
from quatrain.replay.frames.ring import FrameRing
from quatrain.replay.frames.sampling import Batch, valid_starts
from tests.conftest import shapes_unchecked, small
from tests.quick_jit import quick_jit

hunt = partial(small, "iqn")
BATCH, TARGETS = 6, 4


def batch(config: IqnConfig, bootstrap: float = 0.5) -> Batch:
    rng = np.random.default_rng(4)
    stacks = rng.integers(0, 2, (2, BATCH, config.inputs)).astype(np.int8)
    columns = (
        stacks[0],
        rng.integers(0, 4, BATCH).astype(np.int8),
        rng.normal(size=BATCH).astype(np.float32),
        np.full(BATCH, bootstrap, np.float32),
        stacks[1],
    )
    return Batch(*map(jnp.asarray, columns))


def agent(config: IqnConfig, target: int = 1) -> Agent:
    """Any weights; those of the target network are drawn from that seed."""
    key = jax.random.key(0)
    shapes = jax.eval_shape(lambda: network.init(config.network, key, config.inputs, 4))

    def drawn(seed: int) -> network.Params:
        rng = np.random.default_rng(seed)
        return jax.tree.map(lambda leaf: np.float32(rng.normal(size=leaf.shape) / 5), shapes)

    return Agent(drawn(0), drawn(target), None)


def targets(config: IqnConfig, selected: Agent, drawn: Batch) -> np.ndarray:
    return np.asarray(jitted_targets(config, selected, drawn, jax.random.key(2)))


jitted_targets = quick_jit(learn.targets, static_argnums=0)


def test_every_parameter_gets_a_gradient_with_those_of_the_noise():
    config = hunt(network={"noisy": "independent"})
    gradient_of = quick_jit(jax.grad(learn.objective, has_aux=True), static_argnums=1)
    targets_bp, key = jnp.arange(BATCH * TARGETS, dtype=jnp.float32), jax.random.key(6)
    gradients, _ = gradient_of(
        agent(config).params, config, batch(config), targets_bp.reshape(BATCH, TARGETS), key
    )
    assert len(jax.tree.leaves(gradients)) == 16
    assert all(np.abs(np.asarray(leaf)).max() > 0 for leaf in jax.tree.leaves(gradients))


def test_the_target_network_shapes_the_targets_but_for_those_after_an_end():
    config, ended = hunt(), batch(hunt(), 0.0)
    agents = [agent(config, target=seed) for seed in (1, 2)]
    item, other = (targets(config, selected, batch(config)) for selected in agents)
    assert np.abs(item - other).max() > 0.01
    expected = np.repeat(np.asarray(ended.returns)[:, None], TARGETS, axis=1)
    for selected in agents:
        np.testing.assert_array_equal(targets(config, selected, ended), expected)


@pytest.mark.parametrize(("double_q", "value"), [(True, 2.0), (False, 5.0)])
def test_the_online_network_chooses_what_the_target_network_values(double_q: bool, value: float):
    config = hunt(network={"dueling": False}, train={"loss": {"double_q": double_q}})
    blank = jax.tree.map(np.zeros_like, agent(config))

    def worth(*values: float) -> network.Params:
        bias = np.float32(values)
        return blank.params | {"advantage": blank.params["advantage"] | {"bias": bias}}

    selected = blank._replace(params=worth(0, 0, 1, 0), target_params=worth(5, 1, 2, 3))
    drawn = batch(config)
    expected = np.repeat(np.asarray(drawn.returns)[:, None] + 0.5 * value, TARGETS, axis=1)
    np.testing.assert_allclose(targets(config, selected, drawn), expected, rtol=1e-6)


def test_polyak_by_hand():
    config = hunt(train={"target": {"kind": "polyak", "rate": 0.005}}).train
    online, target = {"w": jnp.ones(2)}, {"w": jnp.zeros(2)}
    for count in (1, 2):
        target = learn.update_target(config, online, target, jnp.int32(count))
    np.testing.assert_allclose(target["w"], 0.009975, rtol=1e-5)


# Whole updates of two agents side by side.


def hard() -> IqnConfig:
    """Adam's steps grow with the gradient, as long as that is far below `adam_eps`."""
    slow = {"adam_eps": 1.0, "max_grad_norm": 0.5, "learning_rate": 0.1}
    return hunt(train=slow | {"target": {"kind": "hard", "copy_every": 2}})


@lru_cache
def begun() -> tuple[Agent, FrameRing]:
    """Two untrained agents, and the replay that they begin with."""
    with shapes_unchecked():
        state = train.init_state(hunt(), collect(hunt(), 11), 0)
    parts = jax.device_get((state.params, state.target_params, state.optimizer, state.ring))
    *of_agents, ring = jax.tree.map(itemgetter(0), parts)
    return Agent(*of_agents), ring


def experience(config: IqnConfig, ring: FrameRing) -> Experience:
    return Experience(ring, valid_starts(ring, learn.window(config)))


@quick_jit
def update(ring: FrameRing, agents: Agent, number: jax.Array) -> tuple[Agent, dict[str, jax.Array]]:
    """The agents after an update, and what is recorded."""
    config = hard()

    def update_one(agent: Agent, index: jax.Array) -> tuple[Agent, dict[str, jax.Array]]:
        key = jax.random.fold_in(jax.random.fold_in(jax.random.key(5), number), index)
        return learn.update_agent(config, experience(config, ring), agent, index, key)

    return jax.vmap(update_one)(agents, jnp.arange(2))


def updated(agents: Agent, number: int) -> tuple[Agent, dict[str, np.ndarray]]:
    return jax.device_get(update(begun()[1], agents, number))


def equal(item: Any, other: Any) -> bool:
    return all(map(np.array_equal, jax.tree.leaves(item), jax.tree.leaves(other)))


def test_the_target_network_stands_still_between_its_copies():
    begin, _ = begun()
    first, _ = updated(begin, 0)
    second, _ = updated(first, 1)
    third, _ = updated(second, 2)
    assert equal(first.target_params, begin.target_params)
    assert not equal(first.params, begin.params)
    assert equal(second.target_params, second.params)
    assert equal(third.target_params, second.params)


def test_an_exploding_agent_leaves_the_updates_of_others_as_they_are():
    begin, _ = begun()
    exploding = begin._replace(
        params=jax.tree.map(lambda leaf: np.stack([leaf[0], 20 * leaf[1]]), begin.params)
    )
    (calm, quiet), (wild, loud) = (updated(agents, 0) for agents in (begin, exploding))
    first = itemgetter(0)
    for name in ("params", "optimizer"):
        ours, theirs = (jax.tree.map(first, getattr(end, name)) for end in (calm, wild))
        assert equal(ours, theirs)
    assert loud["grad_norm"][1] > 1e3 * quiet["grad_norm"][1]
    assert loud["clipped"][1] == 1
    moved = jax.tree.map(lambda new, old: new[1] - old[1], wild.params, exploding.params)
    squares = sum(float((leaf**2).sum()) for leaf in jax.tree.leaves(moved))
    assert np.sqrt(squares) <= 0.1 * 0.5 + 1e-3
