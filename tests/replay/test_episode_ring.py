"""The ring of trajectories drops whole trajectories, and drops them completely."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quatrain.replay.episodes.pairs import pair_matrix
from quatrain.replay.episodes.trajectories import Episodes, ReplayError
from tests.replay.episode_ring import EpisodeRing
from tests.replay.trajectories import Trajectory, from_trajectories

CAPACITY, STATES = 23, 6


def trajectory(state, terminated=False) -> Trajectory:
    steps = len(state) - 1
    last = np.arange(steps) == steps - 1
    return Trajectory(
        np.array(state), np.arange(steps) % 4, last & terminated, last & (not terminated)
    )


def survivors_of_a_plain_list(capacity, trajectories) -> list[Trajectory]:
    """Keeps (first slot, trajectory) and drops what overlaps a new one."""
    stored, cursor = [], 0
    for new in trajectories:
        begin = cursor if cursor + len(new.state) <= capacity else 0
        cursor = begin + len(new.state)
        stored = [(at, old) for at, old in stored if at + len(old.state) <= begin or at >= cursor]
        stored.append((begin, new))
    return [old for _, old in stored]


def reachable_from_starts(episodes: Episodes) -> list[tuple]:
    """For each start, the rest of its trajectory: what sampling can reach, without slot numbers."""
    reachable = []
    for slot in episodes.starts:
        rest = slice(slot, slot + episodes.horizon[slot] + 1)
        reachable.append(tuple(tuple(column[rest].tolist()) for column in episodes[:5]))
    return sorted(reachable)


def assert_same_replay(ring: EpisodeRing, fresh: Episodes) -> None:
    episodes = ring.episodes()
    assert reachable_from_starts(episodes) == reachable_from_starts(fresh)
    assert sorted(episodes.starts.tolist()) == episodes.horizon.nonzero()[0].tolist()
    np.testing.assert_allclose(
        pair_matrix(episodes, STATES, (0.5, 1.0)),
        pair_matrix(fresh, STATES, (0.5, 1.0)),
        atol=1e-15,
    )


trajectories = st.builds(
    trajectory, st.lists(st.integers(0, STATES - 1), min_size=2, max_size=CAPACITY), st.booleans()
)


@settings(deadline=None, max_examples=150)
@given(st.lists(trajectories, min_size=1, max_size=40))
def test_any_history_leaves_what_a_fresh_buffer_of_the_survivors_holds(history):
    ring = EpisodeRing(CAPACITY, STATES)
    for new in history:
        ring.append(new)
    assert_same_replay(ring, from_trajectories(survivors_of_a_plain_list(CAPACITY, history)))


def test_many_short_trajectories_overwrite_long_ones_several_times_round():
    rng = np.random.default_rng(0)
    history = [
        trajectory(rng.integers(STATES, size=22)),
        trajectory(rng.integers(STATES, size=23), True),
    ]
    history += [trajectory(rng.integers(STATES, size=rng.integers(2, 7))) for _ in range(70)]
    ring = EpisodeRing(CAPACITY, STATES)
    for appended, new in enumerate(history, start=1):
        ring.append(new)
        survivors = survivors_of_a_plain_list(CAPACITY, history[:appended])
        assert_same_replay(ring, from_trajectories(survivors))


def test_a_trajectory_that_does_not_fit_before_the_end_starts_at_slot_0_unsplit():
    ring = EpisodeRing(8, STATES)
    ring.append(trajectory([0, 1, 2]))
    ring.append(trajectory([3, 4, 5]))
    ring.append(trajectory([1, 1, 2], terminated=True))
    episodes = ring.episodes()
    assert episodes.state.tolist() == [1, 1, 2, 3, 4, 5, 0, 0]
    assert episodes.horizon.tolist() == [2, 1, 0, 2, 1, 0, 0, 0]
    assert sorted(episodes.starts.tolist()) == [0, 1, 3, 4]


def test_an_old_trajectory_is_dropped_whole_even_if_one_slot_is_touched():
    ring = EpisodeRing(8, STATES)
    ring.append(trajectory([0, 1]))
    ring.append(trajectory([2, 3, 4, 5, 5, 5], terminated=True))
    ring.append(trajectory([4, 4, 4]))
    episodes = ring.episodes()
    assert episodes.state.tolist() == [4, 4, 4, 0, 0, 0, 0, 0]
    assert episodes.horizon.tolist() == [2, 1, 0, 0, 0, 0, 0, 0]
    assert not episodes.terminated.any()
    assert sorted(episodes.starts.tolist()) == [0, 1]


def test_a_new_ring_holds_no_transition():
    assert EpisodeRing(5, STATES).episodes().starts.tolist() == []


def test_a_refused_trajectory_leaves_the_ring_unchanged():
    ring = EpisodeRing(4, STATES)
    ring.append(trajectory([1, 2, 3]))
    before = reachable_from_starts(ring.episodes())
    with pytest.raises(
        ReplayError,
        match="of 4 transitions needs 5 slots, the ring has 4; raise its capacity or cut",
    ):
        ring.append(trajectory([1, 2, 3, 4, 5]))
    for wrong in (6, -1):
        with pytest.raises(
            ReplayError,
            match=rf"State {wrong} at position 1 .* outside \[0, 6\); was it collected on",
        ):
            ring.append(trajectory([1, wrong]))
    with pytest.raises(ReplayError, match="without transitions"):
        ring.append(trajectory([1]))
    with pytest.raises(ReplayError, match="terminated at transition 0, before its last"):
        ring.append(trajectory([1, 2, 3])._replace(terminated=np.array([True, False])))
    assert reachable_from_starts(ring.episodes()) == before
