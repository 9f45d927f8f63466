"""A run that was cut off ends as the whole one, whatever policy, heads and seeds it has."""

from typing import Any

import numpy as np
import pytest

from quatrain.models.actor_critic import train
from quatrain.models.actor_critic.collect import collect
from quatrain.progress import Progress
from tests.conftest import shapes_unchecked, small

VARIANTS: dict[str, dict[str, Any]] = {
    "all that can be another": {
        "env": {"features": "full"},
        "network": {"layers": 2, "policy": "squashed_gaussian", "value_heads": "components"},
    },
    "stopped by KL, two seeds": {"train": {"target_kl": 1e-3, "value_clip": 0.1}, "seeds": 2},
}


def assert_same(item: Progress, other: Progress) -> None:
    assert item.step == other.step
    np.testing.assert_equal(dict(other.metrics), dict(item.metrics))
    np.testing.assert_equal(train.to_arrays(other.state), train.to_arrays(item.state))


@pytest.mark.parametrize("variant", VARIANTS)
def test_resumed_after_two_iterations_nothing_differs(variant: str):
    changes = VARIANTS[variant]
    length = {"record_every": 2, "transitions": 24 * 8 * 4}
    config = small("actor_critic", **changes | {"train": changes.get("train", {}) | length})
    with shapes_unchecked():
        dataset = collect(config, 0)
        first, last = train.train(config, dataset, 0)
        assert (first.step, last.step) == (2, 4)
        saved = train.from_arrays(config, dataset, train.to_arrays(first.state))
        (rest,) = train.train(config, dataset, 0, saved)
        assert_same(rest, last)
        assert list(train.train(config, dataset, 0, last.state)) == []
