"""Other libraries are refused where they do other work, or fail."""

import numpy as np
import pytest

from benchmarks.peers.scan import Transition, check_draws
from benchmarks.timing import NotComparable


def drawn(data: Transition, most: int = 1000, later: int = 0, **columns) -> Transition:
    numbers = np.random.default_rng(0).integers(0, most - later, 20_000)
    batch = Transition(*(column[numbers] for column in data))
    return batch._replace(next_obs=data.next_obs[numbers + later], **columns)


@pytest.mark.parametrize(
    ("message", "changes"),
    [
        ("it: 20,000 samples do not follow the sampling law", {"most": 990}),
        ("it: draws transitions in parts of several", {"later": 1}),
        ("samples do not follow", {"reward": np.full(20_000, 1000.0)}),
    ],
    ids=["law", "parts", "others"],
)
def test_draws_of_other_transitions_are_refused(message, changes):
    numbers, frames = np.arange(1000), np.random.default_rng(1).random((2, 1000, 3), np.float32)
    data = Transition(frames[0], numbers % 4, numbers.astype(np.float32), frames[1], numbers < 0)
    check_draws("it", drawn(data), data)
    with pytest.raises(NotComparable, match=message):
        check_draws("it", drawn(data, **changes), data)
