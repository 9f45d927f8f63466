"""The ring of windows equals a list of transitions, starts are those of whole windows, draws are
uniform over them.
"""

import pytest
import torch
from scipy.stats import chisquare
from torch import Generator

from quatrain.replay import windows
from quatrain.replay.windows import View, WindowRing

ROWS, SIZE, OBS, ACTION, WRITES, LENGTH = 3, 7, 5, 2, 30, 4
ENDS = ({4, 5, 17}, set(), {0, 9, 10, 23, 29})
"""Of each row the transitions that end an episode."""


def entry(number: int) -> View:
    """Returns transition `number`, with numbers that no other transition has."""
    first = 1000.0 * number + 100 * torch.arange(ROWS)[:, None]
    ended = torch.tensor([number in of_row for of_row in ENDS])
    return View(first + torch.arange(OBS), first + 50 + torch.arange(ACTION), ended)


def written(count: int, size: int = SIZE) -> WindowRing:
    ring = windows.allocate(ROWS, size, OBS, ACTION)
    for number in range(count):
        windows.write(ring, *entry(number), LENGTH)
    return ring


def listed(numbers: range) -> View:
    """Returns the same transitions from a list."""
    columns = zip(*(entry(number) for number in numbers), strict=True)
    return View(*(torch.stack(parts, 1) for parts in columns))


def whole(count: int, row: int, size: int = SIZE, length: int = LENGTH) -> list[int]:
    """Returns the starts of stored windows within one episode."""
    starts = range(max(0, count - size), count - length + 1)
    return [start for start in starts if not ENDS[row] & set(range(start, start + length - 1))]


def test_every_window_is_that_of_a_list_and_a_view_of_memory_allocated_once():
    ring = windows.allocate(ROWS, SIZE, OBS, ACTION)
    memory = [storage.untyped_storage().data_ptr() for storage in ring[:3]]
    for number in range(3 * SIZE + 2):
        windows.write(ring, *entry(number), LENGTH)
        oldest, count = max(0, number + 1 - SIZE), min(number + 1, SIZE)
        kept = listed(range(oldest, number + 1))
        for length in range(1, count + 1):
            for first in range(count - length + 1):
                view = windows.window(ring, 1, oldest + first, length)
                for result, expected in zip(view, kept, strict=True):
                    assert torch.equal(result, expected[1, first : first + length])
                assert [part.untyped_storage().data_ptr() for part in view] == memory


def test_windows_that_are_not_stored_raise():
    ring = written(12)
    message = (
        r"Transitions 4 to 6 are not in the ring, which holds 5 to 11; ask for fewer or "
        r"allocate a larger ring\."
    )
    with pytest.raises(ValueError, match=message):
        windows.window(ring, 0, 4, 3)
    with pytest.raises(ValueError, match="Transitions 10 to 12 are not in the ring"):
        windows.window(ring, 0, 10, 3)


@pytest.mark.parametrize(
    ("size", "length"), [(SIZE, LENGTH), (SIZE, SIZE), (SIZE, 1), (40, LENGTH)]
)
def test_starts_are_those_of_whole_windows_in_one_episode(size: int, length: int):
    ring = windows.allocate(ROWS, size, OBS, ACTION)
    for number in range(WRITES):
        windows.write(ring, *entry(number), length)
        for row in range(ROWS):
            expected = whole(number + 1, row, size, length)
            numbers, first, end, _ = ring.starts
            ranks = torch.arange(int(first[row]), int(end[row]))
            assert numbers[row, ranks % size].tolist() == expected
            assert int(windows.window_counts(ring)[row]) == len(expected)


def test_drawn_windows_contain_the_transitions_from_their_starts():
    ring, kept = written(WRITES, 20), listed(range(WRITES))
    for row in range(ROWS):
        drawn = windows.sample(ring, row, 11, LENGTH, Generator().manual_seed(row))
        times = drawn.starts + torch.arange(LENGTH)[:, None]
        assert set(drawn.starts.tolist()) <= set(whole(WRITES, row, 20))
        assert torch.equal(drawn.observations, kept.observations[row, times])
        assert torch.equal(drawn.actions, kept.actions[row, times])


@pytest.mark.parametrize("size", [20, 40])
def test_starts_are_drawn_uniformly(size: int):
    ring, draws = written(WRITES, size), 20_000
    drawn = windows.sample(ring, 2, draws, LENGTH, Generator().manual_seed(3)).starts
    starts, counts = drawn.unique(return_counts=True)
    expected = whole(WRITES, 2, size)
    assert starts.tolist() == expected
    assert chisquare(counts).pvalue > 1e-4
    again = windows.sample(ring, 2, draws, LENGTH, Generator().manual_seed(3)).starts
    assert torch.equal(again, drawn)
