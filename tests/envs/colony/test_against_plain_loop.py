"""Batched colonies against an object a cell and loops over them, step by step."""

import math

import numpy as np
import pytest
import torch

from benchmarks.reference import colony as plain
from quatrain.envs.colony.config import REASONS, REWARDS, RUNNING, Reward
from quatrain.envs.colony.dynamics import advance, make_world
from quatrain.envs.colony.plates import EXPONENTIAL, LINEAR, Plates, make_plates, user_plate
from quatrain.envs.colony.rewards import components
from quatrain.envs.colony.world import colonies_at, start, step
from tests.colonies import rules
from tests.conftest import shapes_unchecked
from tests.envs.colony import plain_rewards

COLONIES, STEPS, SLOTS = 12, 80, 44
RULES = rules(
    width=300,
    height=200,
    max_nodes=SLOTS,
    target_nodes=14,
    n0_min=1,
    n0_max=31,
    left_limit=3,
    delta_intensity=0.23,
    bounds={"delete_ratio": (0, 1), "theta": (-np.pi, np.pi)},
)
"""Theta reaches all around, because otherwise no centroid ever moves to the left."""
TABLE = np.random.default_rng(4).uniform(0.1, 9, RULES.width).astype(np.float32)
FORMULAS = (("linear", 0.013, 0.61), ("linear", -0.0071, 1.1), ("exponential", 0.0079, 1.93))


def plain_plate(kind, slope, offset):
    columns = range(RULES.width)
    if kind == "linear":
        return plain.Plate([slope * column + offset for column in columns])
    return plain.Plate([offset * math.exp(slope * column) for column in columns])


PLAIN_PLATES = [*(plain_plate(*formula) for formula in FORMULAS), plain.Plate(TABLE.tolist())]


def plates():
    """Returns PLAIN_PLATES as a batch."""
    _, slopes, offsets = map(np.array, zip(*FORMULAS, strict=True))
    code = np.array([LINEAR, LINEAR, EXPONENTIAL])
    rows = (make_plates(code, slopes, offsets, RULES.width), user_plate(TABLE))
    return Plates(*map(np.concatenate, zip(*rows, strict=True)))


def in_mid_life(colonies, rng):
    """Returns colonies with older cells, random forests and elapsed time, some near the goal."""
    shape, used = colonies.parent.shape, (colonies.pid >= 0).numpy()
    parent = rng.integers(-1, np.maximum(np.arange(shape[1]), 1), shape)
    parent[:, 0] = -1
    age = rng.integers(0, 90, shape)
    pos = colonies.pos.clone()
    pos[1::4, :, 0] += 200 * (colonies.pid[1::4] >= 0)
    return colonies_at(pos, colonies.n, colonies.substrate)._replace(
        parent=torch.from_numpy(np.where(used, parent, -1)),
        age=torch.from_numpy(np.where(used, age, 0)).float(),
        t=torch.from_numpy(rng.integers(60, 110, shape[0])),
        left=torch.from_numpy(rng.integers(0, 2, shape[0])),
    )


def copied(colonies, row):
    """Returns a plain colony in the state of a colony of the batch."""
    colony = plain.Colony(RULES, PLAIN_PLATES[colonies.substrate[row]])
    n = int(colonies.n[row])
    colony.start(colonies.pos[row, :n].tolist(), colonies.parent[row, :n].tolist())
    for cell, age in zip(colony.cells, colonies.age[row].tolist(), strict=False):
        cell.age = int(age)
    colony.t, colony.left = int(colonies.t[row]), int(colonies.left[row])
    return colony


def actions(colonies, turn, rng):
    """Sizes are held, more or less, and in the last colony not; by colony: slow, to the right, to
    the left, random.
    """
    n = colonies.n.numpy()
    ratio = (n - RULES.target_nodes / 2 + rng.uniform(-3, 4, len(n))) / np.maximum(n, 1)
    ratio = np.where(rng.random(len(n)) < 0.02, rng.integers(0, 2, len(n)), ratio.clip(0, 0.75))
    ratio[-1] = rng.uniform(0, 0.6)
    low, high = np.array(RULES.bounds).T
    action = rng.uniform(low, high, (len(n), 5))
    action[:, 0] = ratio
    group = np.arange(len(n)) % 4
    action[group == 0, 1] = rng.uniform(0.5, 1)
    ahead = group < 2
    action[ahead, 4] = rng.uniform(-0.1, 1.3) * (-1) ** (turn // 40)
    action[group == 2, 1] = 15
    action[group == 2, 4] = rng.uniform(2.5, 3.5)
    return torch.from_numpy(action.astype(np.float32))


def assert_lawful(colonies):
    """Padding is empty, nothing is not a number."""
    used = torch.arange(SLOTS) < colonies.n[:, None]
    for name, empty in (("pos", 0), ("parent", -1), ("pid", -1), ("age", 0), ("new", False)):
        assert (getattr(colonies, name)[~used] == empty).all(), name
    assert all(torch.isfinite(leaf).all() for leaf in colonies)


def assert_equal(colonies, row, colony):
    """Asserts that a colony of the batch equals the plain one, up to its slots."""
    state = colony.state()
    shown = min(state.size, SLOTS)
    of = lambda name: getattr(colonies, name)[row].numpy()  # noqa: E731
    positions = np.array([state.x, state.y]).T[:shown].reshape(-1, 2)
    np.testing.assert_allclose(of("pos")[:shown], positions, atol=1e-4)
    for name in ("pid", "age", "new", "parent"):
        np.testing.assert_array_equal(of(name)[:shown], getattr(state, name)[:shown], name)
    np.testing.assert_allclose(of("furthest"), colony.furthest, atol=1e-4)
    assert of("n") == state.size
    for name in ("t", "left", "next_pid"):
        assert of(name) == getattr(colony, name), name
    if state.size:
        np.testing.assert_allclose(of("centroid"), state.centroid, rtol=1e-4, atol=1e-4)


def adopted(colony, taken_step, position):
    """The step and its colony at the float32 positions of the batch, so that rounding does not add
    up over steps.
    """
    for cell, (x, y) in zip(colony.cells, position.tolist(), strict=False):
        cell.x, cell.y = x, y
    after = colony.state()
    colony.furthest = max([taken_step.furthest_before, *after.x])
    born = slice(after.size // 2, None)
    return taken_step._replace(
        after=after,
        children=list(zip(after.x[born], after.y[born], after.intensity[born], strict=True)),
        furthest=colony.furthest,
    )


def in_doubt(points):
    """Counts the points so near to the hull of the others that rounding decides whether they are
    vertices of it.
    """

    def beyond(index):
        others = [point for other, point in enumerate(points) if other != index]
        try:
            sides = plain.ConvexHull(np.array(others)).equations
        except plain.QhullError:
            return 0.0
        return max(sides @ [*points[index], 1])

    return sum(len(points) > 2 and abs(beyond(index)) < 2e-3 for index in range(len(points)))


def assert_paid(taken_step, preset, result):
    """Asserts every component of a preset."""
    expected = plain_rewards.PRESETS[preset](taken_step)
    assert tuple(expected) == tuple(REWARDS[preset])
    for (name, value), paid in zip(expected.items(), result.tolist(), strict=True):
        # For `centroid` five times the difference of two float32 in pixels.
        slack = 5e-4 if name == "centroid" else 1e-4
        if name == "node" and paid != pytest.approx(value, rel=1e-4, abs=slack):
            cells = zip(taken_step.after.x, taken_step.after.y, strict=True)
            slack += 0.1 * in_doubt(list(cells))
        assert paid == pytest.approx(value, rel=1e-4, abs=slack), (preset, name)


def test_every_step_equals_that_of_the_plain_loop():
    rng, generator = np.random.default_rng(2), torch.Generator().manual_seed(2)
    world = make_world(RULES, plates())
    rewards = {preset: Reward(preset=preset, weights={}) for preset in REWARDS}
    paid_by = {
        preset: world._replace(rules=RULES.model_copy(update={"reward": reward}))
        for preset, reward in rewards.items()
    }
    colonies = in_mid_life(start(world, COLONIES, generator), rng)
    copies = [copied(colonies, row) for row in range(COLONIES)]
    weights, reasons = dict(RULES.reward_weights), set()
    for turn in range(STEPS):
        action = actions(colonies, turn, rng)
        with shapes_unchecked():
            transition = advance(world, colonies, action)
            stepped = step(world, colonies, action, generator)
            paid = {preset: components(some, transition) for preset, some in paid_by.items()}
        assert_lawful(stepped.colonies)
        for row, colony in enumerate(copies):
            taken_step = colony.step(action[row].tolist())
            assert_equal(stepped.final, row, colony)
            assert int(stepped.reason[row]) == taken_step.reason
            going_on = taken_step.reason in (RUNNING, plain.TIMEOUT)
            assert stepped.terminated[row] == (not going_on)
            assert stepped.truncated[row] == (taken_step.reason == plain.TIMEOUT)
            taken_step = adopted(colony, taken_step, stepped.final.pos[row])
            for preset in REWARDS:
                assert_paid(taken_step, preset, paid[preset][row])
            earned = plain.goal_control(taken_step).items()
            total = sum(weights[name] * value for name, value in earned)
            assert stepped.reward[row].item() == pytest.approx(total, rel=1e-4, abs=1e-4)
            reasons.add(REASONS[taken_step.reason])
            if taken_step.reason != RUNNING:
                copies[row] = copied(stepped.colonies, row)
                assert stepped.colonies.t[row] == 0
                assert (stepped.colonies.age[row] == 0).all()
            assert_equal(stepped.colonies, row, copies[row])
        colonies = stepped.colonies
    assert reasons == set(REASONS) - {"out_of_bounds"}
