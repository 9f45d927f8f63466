"""What must be true of every model, whatever it learns."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from pipeline.runtime.devices import on_device
from pipeline.storage.artifacts import to_arrays
from quatrain.progress import history, rows
from quatrain.registry import MODELS, load
from tests.conftest import VARIANTS, params_with, small


class Small:
    """A model's rooms, a config that trains in a second, and its dataset."""

    def __init__(self, name: str, changes: dict[str, Any]) -> None:
        self.config = small(name, **changes)
        self.rooms = {
            kind: getattr(load(name), kind)
            for kind in ("collect", "losses", "train", "evaluate", "plots")
        }
        self.dataset = self.rooms["collect"].collect(self.config, 11)

    def train(self, seed: int = 5, state: Any = None) -> list[Any]:
        return list(self.rooms["train"].train(self.config, self.dataset, seed, state))

    def arrays(self, state: Any) -> dict[str, np.ndarray]:
        return self.rooms["train"].to_arrays(state)


def equal(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> bool:
    return one.keys() == other.keys() and all(
        np.array_equal(one[name], other[name]) for name in one
    )


def copied(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {name: array.copy() for name, array in arrays.items()}


@pytest.fixture(scope="module", params=[*MODELS, *VARIANTS])
def model(request: pytest.FixtureRequest) -> Iterator[Small]:
    name, changes = VARIANTS.get(request.param, (request.param, {}))
    with on_device(params_with({}), MODELS[name]):
        yield Small(name, changes)


@pytest.fixture(scope="module")
def trained(model: Small) -> list[Any]:
    return model.train()


def test_training_yields_at_least_twice_with_the_same_finite_metrics(trained: list[Any]):
    assert len(trained) >= 2
    for progress in trained:
        assert progress.metrics.keys() == trained[0].metrics.keys()
        for name, values in progress.metrics.items():
            assert np.isfinite(values).all(), name
            if len(values):
                assert (trained[1].step - trained[0].step) % len(values) == 0


def test_the_metrics_shown_while_training_are_among_those_recorded(
    model: Small, trained: list[Any]
):
    assert set(model.rooms["train"].HEADLINE) <= trained[0].metrics.keys()


def test_every_loss_term_is_recorded(model: Small, trained: list[Any]):
    assert set(model.rooms["losses"].TERMS) <= trained[0].metrics.keys()


def test_same_seed_learns_the_same_bits_and_another_seed_others(model: Small, trained: list[Any]):
    reference = model.arrays(trained[-1].state)
    assert equal(model.arrays(model.train()[-1].state), reference)
    assert not equal(model.arrays(model.train(seed=6)[-1].state), reference)


def test_same_seed_collects_the_same_bits_and_another_seed_others(model: Small):
    collect = model.rooms["collect"].collect
    again, other = collect(model.config, 11), collect(model.config, 12)
    assert equal(to_arrays(again), to_arrays(model.dataset))
    assert not equal(to_arrays(again.train), to_arrays(other.train))
    assert not equal(to_arrays(again.held_out), to_arrays(other.held_out))
    assert not equal(to_arrays(again.train), to_arrays(again.held_out))


def test_resumed_from_any_yield_equals_uninterrupted(model: Small, trained: list[Any]):
    reference = model.arrays(trained[-1].state)
    for progress in trained[:-1]:
        saved = model.rooms["train"].from_arrays(
            model.config, model.dataset, model.arrays(progress.state)
        )
        rest = model.train(state=saved)
        assert [one.step for one in rest] == [
            one.step for one in trained if one.step > progress.step
        ]
        assert equal(model.arrays(rest[-1].state), reference)


def test_every_weight_moves(model: Small, trained: list[Any]):
    first, last = (model.arrays(one.state) for one in (trained[0], trained[-1]))
    weights = [name for name in first if name.startswith("params/")]
    assert weights
    for name in weights:
        assert not np.array_equal(first[name], last[name]), f"{name} gets no gradient"


def test_training_beats_no_training_in_what_is_judged(model: Small, trained: list[Any]):
    judged = model.rooms["evaluate"].GATED[0]
    scores = [
        model.rooms["evaluate"].evaluate(model.config, progress.state, model.dataset, 0)
        for progress in (trained[0], trained[-1])
    ]
    assert all(np.isfinite(list(one.values())).all() for one in scores)
    gain = scores[1][judged.metric] - scores[0][judged.metric]
    assert gain > 0 if judged.direction == "higher" else gain < 0
    named = {
        name
        for gated in model.rooms["evaluate"].GATED
        for name in (gated.metric, *gated.lower_references, *gated.upper_references)
    }
    assert named <= scores[1].keys()


def test_inputs_are_not_mutated(model: Small, trained: list[Any]):
    state = trained[0].state
    dataset, copies = copied(to_arrays(model.dataset)), copied(model.arrays(state))
    model.train(state=state)
    model.rooms["evaluate"].evaluate(model.config, state, model.dataset, 0)
    assert equal(model.arrays(state), copies)
    assert equal(to_arrays(model.dataset), dataset)


def test_plots_are_figures_with_something_on_them(model: Small, trained: list[Any]):
    starts = [0, *(progress.step for progress in trained)]
    recorded = history(
        row
        for start, progress in zip(starts, trained, strict=False)
        for row in rows(progress, start)
    )
    state = trained[-1].state
    scores = model.rooms["evaluate"].evaluate(model.config, state, model.dataset, 0)
    figures = model.rooms["plots"].plots(model.config, state, model.dataset, recorded, scores)
    assert figures
    assert all(any(axes.has_data() for axes in figure.axes) for figure in figures.values())
