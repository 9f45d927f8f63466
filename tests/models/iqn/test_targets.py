"""One update of an agent: its targets, where gradients go, how the target network follows."""

from functools import lru_cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from quatrain.models.iqn import network, train
from quatrain.models.iqn.config import IqnConfig
from quatrain.models.iqn.train import Agent, Experience
from quatrain.replay import frames
from quatrain.replay.frames import Batch, Transitions
from tests.conftest import small

hunt = partial(small, "iqn")
BATCH, AGENTS, LANES, TURNS, FRAME, TARGETS = 6, 2, 4, 20, 125, 4
DENSE, BACKWARD = 5, 8
"""Matrix products of a forward pass, and of a backward pass: a kernel each, and the inputs of the
last three.
"""


@partial(jax.jit, static_argnums=(0, 1))
def batch(config: IqnConfig, bootstrap: float = 0.5) -> Batch:
    keys = jax.random.split(jax.random.key(4), 4)
    stacks = jax.random.randint(keys[0], (2, BATCH, config.inputs), 0, 2, jnp.int8)
    return Batch(
        stack=stacks[0],
        action=jax.random.randint(keys[1], (BATCH,), 0, 4, jnp.int8),
        returns=jax.random.normal(keys[2], (BATCH,)),
        bootstrap=jnp.full(BATCH, bootstrap),
        next_stack=stacks[1],
    )


@partial(jax.jit, static_argnums=0)
def agent(config: IqnConfig, online: int = 0, target: int = 1) -> Agent:
    params, target_params = (
        network.init(config.network, jax.random.key(i), config.inputs) for i in (online, target)
    )
    return Agent(params, target_params, train.optimizer(config.train).init(params))


def targets(config: IqnConfig, selected: Agent, drawn: Batch) -> np.ndarray:
    return np.asarray(jitted_targets(config, selected, drawn, jax.random.key(2)))


jitted_targets = jax.jit(train.targets, static_argnums=0)


def test_every_parameter_gets_a_gradient_with_those_of_the_noise():
    config = hunt(network={"noisy": "factorised"})
    gradient_of = jax.jit(jax.grad(train.objective, has_aux=True), static_argnums=1)
    targets_bp, key = jnp.arange(BATCH * TARGETS, dtype=jnp.float32), jax.random.key(6)
    gradients, _ = gradient_of(
        agent(config).params, config, batch(config), targets_bp.reshape(BATCH, TARGETS), key
    )
    assert len(jax.tree.leaves(gradients)) == 16
    assert all(np.abs(np.asarray(leaf)).max() > 0 for leaf in jax.tree.leaves(gradients))


def test_the_target_network_shapes_the_targets():
    config = hunt()
    item, other = (targets(config, agent(config, target=seed), batch(config)) for seed in (1, 2))
    assert np.abs(item - other).max() > 0.01


def test_after_an_end_the_target_is_the_return_whatever_the_networks():
    drawn = batch(hunt(), 0.0)
    expected = np.repeat(np.asarray(drawn.returns)[:, None], TARGETS, axis=1)
    for seed in (1, 2):
        result = targets(hunt(), agent(hunt(), target=seed), drawn)
        np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize(("double_q", "value"), [(True, 2.0), (False, 5.0)])
def test_the_online_network_chooses_what_the_target_network_values(double_q: bool, value: float):
    config = hunt(network={"dueling": False}, train={"loss": {"double_q": double_q}})
    blank = jax.tree.map(jnp.zeros_like, agent(config))

    def worth(*values: float) -> network.Params:
        return blank.params | {"advantage": blank.params["advantage"] | {"bias": jnp.array(values)}}

    selected = blank._replace(params=worth(0, 0, 1, 0), target_params=worth(5, 1, 2, 3))
    drawn = batch(config)
    expected = np.repeat(np.asarray(drawn.returns)[:, None] + 0.5 * value, TARGETS, axis=1)
    np.testing.assert_allclose(targets(config, selected, drawn), expected, rtol=1e-6)


def test_polyak_by_hand():
    config = hunt(train={"target": {"kind": "polyak", "rate": 0.005}}).train
    online, target = {"w": jnp.ones(2)}, {"w": jnp.zeros(2)}
    for count in (1, 2):
        target = train.update_target(config, online, target, jnp.int32(count))
    np.testing.assert_allclose(target["w"], 0.009975, rtol=1e-5)


def test_a_hard_target_is_copied_at_exactly_its_updates():
    config = hunt(train={"target": {"kind": "hard", "copy_every": 3}}).train
    online, target = {"w": jnp.ones(())}, {"w": jnp.zeros(())}
    copied = [train.update_target(config, online, target, jnp.int32(i))["w"] for i in range(1, 8)]
    assert copied == [0, 0, 1, 0, 0, 1, 0]


# Whole updates of two agents side by side.


def hard() -> IqnConfig:
    """Adam's steps grow with the gradient, as long as that is far below `adam_eps`."""
    slow = {"adam_eps": 1.0, "max_grad_norm": 0.5, "learning_rate": 0.1}
    return hunt(train=slow | {"target": {"kind": "hard", "copy_every": 2}})


def experience(config: IqnConfig) -> Experience:
    rng = np.random.default_rng(3)
    collected = Transitions(
        frames=rng.integers(0, 2, (TURNS, AGENTS, LANES, FRAME)).astype(np.int8),
        actions=rng.integers(0, 4, (TURNS, AGENTS, LANES)).astype(np.int8),
        rewards=rng.normal(size=(TURNS, AGENTS, LANES)).astype(np.float32),
        terminated=np.zeros((TURNS, LANES), bool),
        truncated=np.zeros((TURNS, LANES), bool),
        turn=np.repeat(np.arange(TURNS, dtype=np.int16)[:, None], LANES, axis=1),
    )

    @jax.jit
    def stored() -> Experience:
        ring = frames.from_transitions(config.slots, collected)
        return Experience(ring, frames.valid_starts(ring, train.window(config)))

    return stored()


@lru_cache
def updated() -> Any:
    """All agents' update as one compiled program: experience, agents, number -> agents, what is
    recorded.
    """
    config = hard()

    def update_one(
        collected: Experience, agent: Agent, index: jax.Array, number: jax.Array
    ) -> tuple[Agent, dict[str, jax.Array]]:
        key = jax.random.fold_in(jax.random.fold_in(jax.random.key(5), number), index)
        return train.update_agent(config, collected, agent, index, key)

    every = jax.vmap(update_one, (None, 0, 0, None))
    return jax.jit(
        lambda collected, agents, number: every(collected, agents, jnp.arange(AGENTS), number)
    )


def agents() -> Agent:
    config = hard()
    each = (agent(config, i, i) for i in range(AGENTS))
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *each)


def equal(left_tree: Any, other: Any) -> bool:
    return all(
        np.array_equal(left, right)
        for left, right in zip(jax.tree.leaves(left_tree), jax.tree.leaves(other), strict=True)
    )


def test_the_target_network_stands_still_between_its_copies():
    begin, collected = agents(), experience(hard())
    first, _ = updated()(collected, begin, 0)
    second, _ = updated()(collected, first, 1)
    third, _ = updated()(collected, second, 2)
    assert equal(first.target_params, begin.target_params)
    assert not equal(first.params, begin.params)
    assert equal(second.target_params, second.params)
    assert equal(third.target_params, second.params)


def test_an_exploding_agent_leaves_the_updates_of_others_as_they_are():
    begin, collected = agents(), experience(hard())
    exploding = begin._replace(
        params=jax.tree.map(lambda leaf: leaf.at[1].multiply(20.0), begin.params)
    )
    (calm, quiet), (wild, loud) = (updated()(collected, item, 0) for item in (begin, exploding))
    for name in ("params", "optimizer"):
        ours, theirs = (
            jax.tree.map(lambda leaf: leaf[0], getattr(end, name)) for end in (calm, wild)
        )
        assert equal(ours, theirs)
    assert loud["grad_norm"][1] > 1e3 * quiet["grad_norm"][1]
    assert loud["clipped"][1] == 1
    moved = jax.tree.map(lambda new, old: new[1] - old[1], wild.params, exploding.params)
    squares = sum(float((leaf**2).sum()) for leaf in jax.tree.leaves(moved))
    assert np.sqrt(squares) <= 0.1 * 0.5 + 1e-3


@pytest.mark.parametrize(("double_q", "forward"), [(True, 3), (False, 2)])
def test_no_backward_pass_runs_through_a_target(double_q: bool, forward: int):
    config = hunt(train={"loss": {"double_q": double_q}})
    program = jax.jit(
        lambda collected, agent: train.update_agent(
            config, collected, agent, jnp.int32(0), jax.random.key(0)
        )
    )
    lowered = program.lower(experience(config), agent(config)).as_text()
    assert lowered.count("stablehlo.dot_general") == forward * DENSE + BACKWARD
