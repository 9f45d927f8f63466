"""Batched colonies against an object a cell and loops over them, step by step."""

import numpy as np
import pytest
import torch

from benchmarks.reference import colony as plain
from benchmarks.reference import colony_features, colony_rewards
from quatrain.envs.colony.dynamics import advance, make_world
from quatrain.envs.colony.features import observe
from quatrain.envs.colony.plates import EXPONENTIAL, LINEAR, Plates, make_plates, user_plate
from quatrain.envs.colony.rewards import components
from quatrain.envs.colony.rules import REASONS, REWARDS, RUNNING, Bounds
from quatrain.envs.colony.world import start, step
from tests.colonies import rules

COLONIES, STEPS, SLOTS = 8, 200, 44
CLOSE = {"rtol": 1e-4, "atol": 1e-4}
RULES = rules(
    width=300,
    height=200,
    max_nodes=SLOTS,
    target_nodes=14,
    n0_min=1,
    n0_max=31,
    left_limit=3,
    delta_intensity=0.23,
    bounds=(
        Bounds(0, 1),
        Bounds(0.5, 15),
        Bounds(0.5, 4),
        Bounds(0.05, 0.5),
        Bounds(-np.pi, np.pi),
    ),
)
"""Theta reaches all around, because otherwise no centroid ever moves to the left."""
SLOPES = {"linear": (0.013, 0.071, -0.0071), "exponential": (0.0031, 0.0079, 0.0113)}
OFFSETS = (0.61, 1.93, 1.1)


def plates_of(kind):
    """Returns the same three plates as Plates and in the form of the plain loop."""
    if kind == "user":
        tables = np.random.default_rng(4).uniform(0.1, 9, (3, RULES.width)).astype(np.float32)
        rows = [user_plate(table) for table in tables]
        return Plates(*map(np.concatenate, zip(*rows, strict=True))), [
            plain.Plate("user", table=table.tolist()) for table in tables
        ]
    code = np.full(3, {"linear": LINEAR, "exponential": EXPONENTIAL}[kind])
    batched = make_plates(code, np.array(SLOPES[kind]), np.array(OFFSETS), RULES.width)
    return batched, [plain.Plate(kind, m, b) for m, b in zip(SLOPES[kind], OFFSETS, strict=True)]


def in_mid_life(colonies, rng):
    """Returns colonies with older cells, random forests and elapsed time."""
    shape, used = colonies.parent.shape, (colonies.pid >= 0).numpy()
    parent = rng.integers(-1, np.maximum(np.arange(shape[1]), 1), shape)
    parent[:, 0] = -1
    age = rng.integers(0, 90, shape)
    return colonies._replace(
        parent=torch.from_numpy(np.where(used, parent, -1)),
        age=torch.from_numpy(np.where(used, age, 0)).float(),
        t=torch.from_numpy(rng.integers(60, 110, shape[0])),
        left=torch.from_numpy(rng.integers(0, 2, shape[0])),
    )


def copied(colonies, row, plate):
    """Returns a plain colony in the state of a colony of the batch."""
    colony, n = plain.Colony(RULES, plate), int(colonies.n[row])
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
    """Parents come before their children, survivors are sorted by age, padding is empty, nothing is
    not a number.
    """
    used = torch.arange(SLOTS) < colonies.n[:, None]
    assert (colonies.parent < torch.arange(SLOTS))[used].all()
    assert (colonies.pid.diff(dim=1) > 0)[used[:, 1:]].all()
    for name, empty in (("pos", 0), ("parent", -1), ("pid", -1), ("age", 0), ("new", False)):
        assert (getattr(colonies, name)[~used] == empty).all(), name
    assert all(torch.isfinite(leaf).all() for leaf in colonies)


def assert_equal(colonies, row, colony):
    """Asserts that a colony of the batch equals the plain one, up to its slots."""
    state = colony.state()
    shown = min(state.size, SLOTS)
    of = lambda name: getattr(colonies, name)[row].numpy()  # noqa: E731
    np.testing.assert_allclose(
        of("pos")[:shown], np.array([state.x, state.y]).T[:shown].reshape(-1, 2), atol=1e-4
    )
    for name in ("pid", "age", "new"):
        np.testing.assert_array_equal(of(name)[:shown], getattr(state, name)[:shown], name)
    np.testing.assert_array_equal(of("parent")[:shown], state.parent[:shown])
    np.testing.assert_allclose(of("furthest"), colony.furthest, atol=1e-4)
    for name, expected in (
        ("n", state.size),
        ("t", colony.t),
        ("left", colony.left),
        ("next_pid", colony.next_pid),
    ):
        assert of(name) == expected, name
    if state.size:
        np.testing.assert_allclose(of("centroid"), state.centroid, **CLOSE)


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
    """Which points lie so near to the hull of the others that rounding decides whether they are
    vertices of it.
    """

    def beyond(index):
        others = [point for other, point in enumerate(points) if other != index]
        try:
            sides = colony_features.ConvexHull(np.array(others)).equations
        except colony_features.QhullError:
            return 0.0
        return max(sides @ [*points[index], 1])

    return [len(points) > 2 and abs(beyond(index)) < 2e-3 for index in range(len(points))]


def paid_by(world, transition):
    """Computes the components of all colonies per preset."""
    worlds = {
        preset: world._replace(rules=RULES._replace(reward=tuple(REWARDS[preset].items())))
        for preset in REWARDS
    }
    return {preset: components(world, transition).tolist() for preset, world in worlds.items()}


def assert_paid(taken_step, preset, result):
    """Asserts every component of a preset."""
    expected = colony_rewards.PRESETS[preset](taken_step)
    assert tuple(expected) == tuple(REWARDS[preset])
    for (name, value), paid in zip(expected.items(), result, strict=True):
        slack = (
            5e-4 if name == "centroid" else 1e-4
        )  # five times the difference of two float32 in pixels
        if name == "node" and paid != pytest.approx(value, rel=1e-4, abs=slack):
            slack += 0.1 * sum(
                in_doubt(list(zip(taken_step.after.x, taken_step.after.y, strict=True)))
            )
        assert paid == pytest.approx(value, rel=1e-4, abs=slack), (preset, name)


def assert_seen(world, colonies, copies):
    """Features of both kinds; `full` has a flag that may be either where a cell lies on the hull of
    the others.
    """
    most = int(colonies.n.max())
    for kind, slots in (("light", most), ("full", SLOTS)):
        observed = observe(world._replace(rules=RULES._replace(features=kind)), colonies, slots)
        assert (observed.mask.sum(1) == colonies.n).all()
        for row, colony in enumerate(copies):
            state, n = colony.state(), len(colony.cells)
            expected = (
                colony_features.full(state)
                if kind == "full"
                else colony_features.light(state, RULES, colony.left)
            )
            node = observed.node[row, :n].numpy()
            if kind == "full":
                points = list(zip(state.x, state.y, strict=True))
                other = np.flatnonzero(node[:, 7] != np.array(expected.node)[:, 7])
                assert all(np.array(in_doubt(points))[other]) if len(other) else True
                node[other, 7] = np.array(expected.node)[other, 7]
            np.testing.assert_allclose(node, expected.node, **CLOSE)
            np.testing.assert_allclose(observed.graph[row], expected.graph, **CLOSE)
            np.testing.assert_array_equal(observed.parent[row, :n], state.parent)
            assert (observed.node[row, n:] == 0).all()
            assert (observed.parent[row, n:] == -1).all()


def test_plain_loop_takes_the_step_worked_out_by_hand():
    colony = plain.Colony(rules(), plain.Plate("linear", m=0, b=1))
    colony.start([(x, 200) for x in (50, 10, 20, 30, 40)], [-1, 0, 1, 2, 1])
    taken_step = colony.step((0.2, 5, 2, 0.5, 0))
    assert taken_step.after.x == [50, 20, 30, 40, 51.5, 21.5, 31.5, 41.5]
    assert taken_step.after.parent == [-1, 0, 1, 0, 0, 1, 2, 3]
    paid = colony_rewards.goal_control(taken_step)
    expected = {
        "progress": 0.0095993,
        "growth": -1,
        "metabolic": -0.0222222,
        "lane": 0,
        "time": -1,
        "terminal": 0,
    }
    assert paid == pytest.approx(expected, abs=1e-7)
    assert sum(dict(RULES.reward)[name] * value for name, value in paid.items()) == pytest.approx(
        -0.1751178, abs=1e-7
    )


@pytest.fixture(params=["linear", "exponential", "user"])
def kind(request):
    return request.param


def test_every_step_equals_that_of_the_plain_loop(kind):
    rng, generator = np.random.default_rng(2), torch.Generator().manual_seed(2)
    data, plates = plates_of(kind)
    world = make_world(RULES, data)
    colonies = in_mid_life(start(world, COLONIES, generator), rng)
    copies = [copied(colonies, row, plates[colonies.substrate[row]]) for row in range(COLONIES)]
    weights, reasons = dict(RULES.reward), set()
    for turn in range(STEPS):
        action = actions(colonies, turn, rng)
        transition, stepped = (
            advance(world, colonies, action),
            step(world, colonies, action, generator),
        )
        assert_lawful(stepped.colonies)
        paid = paid_by(world, transition)
        for row, colony in enumerate(copies):
            taken_step = colony.step(action[row].tolist())
            assert_equal(stepped.final, row, colony)
            assert int(stepped.reason[row]) == taken_step.reason
            assert (stepped.terminated[row], stepped.truncated[row]) == (
                taken_step.terminated,
                taken_step.truncated,
            )
            taken_step = adopted(colony, taken_step, stepped.final.pos[row])
            for preset in REWARDS:
                assert_paid(taken_step, preset, paid[preset][row])
            earned = sum(
                weights[name] * value
                for name, value in colony_rewards.goal_control(taken_step).items()
            )
            assert stepped.reward[row].item() == pytest.approx(earned, rel=1e-4, abs=1e-4)
            reasons.add(REASONS[taken_step.reason])
            if taken_step.reason != RUNNING:
                copies[row] = copied(stepped.colonies, row, plates[stepped.colonies.substrate[row]])
            assert_equal(stepped.colonies, row, copies[row])
        colonies = stepped.colonies
    assert reasons == set(REASONS) - {"out_of_bounds"}


def test_features_equal_those_of_the_plain_loop(kind):
    rng, generator = np.random.default_rng(3), torch.Generator().manual_seed(3)
    data, plates = plates_of(kind)
    world = make_world(RULES, data)
    colonies = in_mid_life(start(world, COLONIES, generator), rng)
    for turn in range(40):
        copies = [copied(colonies, row, plates[colonies.substrate[row]]) for row in range(COLONIES)]
        for row, colony in enumerate(copies):
            for cell, new in zip(colony.cells, colonies.new[row].tolist(), strict=False):
                cell.new = new
        if turn % 4 == 0:
            assert_seen(world, colonies, copies)
        colonies = step(world, colonies, actions(colonies, turn, rng), generator).colonies
