"""What must be true of every model, whatever it learns."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from pipeline.runtime.devices import on_device
from pipeline.storage.artifacts import to_arrays
from quatrain.progress import Progress, history, rows
from quatrain.registry import MODELS, load
from tests.conftest import VARIANTS, params_with, shapes_unchecked, small


class Small:
    """Holds a model, a config that trains in a second, and its dataset."""

    def __init__(self, name: str, changes: dict[str, Any]) -> None:
        self.config = small(name, **changes)
        self.model = load(name)
        self.dataset = self.model.collect.collect(self.config, 11)

    def steps(self, seed: int = 5, state: Any = None) -> Iterator[Progress]:
        return self.model.train.train(self.config, self.dataset, seed, state)

    def train(self, seed: int = 5, state: Any = None) -> list[Progress]:
        """Trains without shape checks, which the first training had."""
        with shapes_unchecked():
            return list(self.steps(seed, state))

    def update(self, state: Any) -> tuple[Any, dict[str, Any]]:
        after, metrics = self.model.train.update(self.config, self.dataset, state)
        return after, dict(metrics)

    def evaluate(self, state: Any) -> dict[str, float]:
        return self.model.evaluate.evaluate(self.config, state, self.dataset, 0)

    def arrays(self, state: Any) -> dict[str, np.ndarray]:
        return self.model.train.to_arrays(state)


def equal(item: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> bool:
    return item.keys() == other.keys() and all(
        np.array_equal(item[name], other[name]) for name in item
    )


def close(item: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> bool:
    """Returns whether counters and random states are equal and numbers equal to rounding."""
    return all(
        np.allclose(array, other[name], rtol=1e-3, atol=1e-5)
        if array.dtype.kind == "f"
        else np.array_equal(array, other[name])
        for name, array in item.items()
    )


def copied(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {name: array.copy() for name, array in arrays.items()}


@pytest.fixture(scope="module", params=[*MODELS, *VARIANTS])
def model(request: pytest.FixtureRequest) -> Iterator[Small]:
    name, changes = VARIANTS.get(request.param, (request.param, {}))
    with on_device(params_with({}), MODELS[name]):
        yield Small(name, changes)


@pytest.fixture(scope="module")
def trained(model: Small) -> list[Progress]:
    return list(model.steps())


def test_training_yields_at_least_twice_with_the_same_finite_metrics(trained: list[Progress]):
    assert len(trained) >= 2
    for progress in trained:
        assert progress.metrics.keys() == trained[0].metrics.keys()
        for name, values in progress.metrics.items():
            assert np.isfinite(values).all(), name
            if len(values):
                assert (trained[1].step - trained[0].step) % len(values) == 0


def test_same_seed_learns_the_same_bits_and_another_seed_others(
    model: Small, trained: list[Progress]
):
    assert equal(model.arrays(model.train()[-1].state), model.arrays(trained[-1].state))
    with shapes_unchecked():
        other = next(model.steps(seed=6))
    assert not equal(model.arrays(other.state), model.arrays(trained[0].state))


def test_same_seed_collects_the_same_bits_and_another_seed_others(model: Small):
    collect = model.model.collect.collect
    again, other = collect(model.config, 11), collect(model.config, 12)
    assert equal(to_arrays(again), to_arrays(model.dataset))
    assert not equal(to_arrays(again.train), to_arrays(other.train))
    assert not equal(to_arrays(again.held_out), to_arrays(other.held_out))
    assert not equal(to_arrays(again.train), to_arrays(again.held_out))


def test_resumed_from_any_yield_equals_uninterrupted(model: Small, trained: list[Progress]):
    reference = model.arrays(trained[-1].state)
    for progress in trained[:-1]:
        saved = model.model.train.from_arrays(
            model.config, model.dataset, model.arrays(progress.state)
        )
        rest = model.train(state=saved)
        assert [item.step for item in rest] == [
            item.step for item in trained if item.step > progress.step
        ]
        assert equal(model.arrays(rest[-1].state), reference)


def test_every_weight_moves(model: Small, trained: list[Progress]):
    first, last = (model.arrays(item.state) for item in (trained[0], trained[-1]))
    weights = [name for name in first if name.startswith("params/")]
    assert weights
    for name in weights:
        assert not np.array_equal(first[name], last[name]), f"{name} gets no gradient"


def test_training_from_the_initial_state_is_training(model: Small, trained: list[Progress]):
    initial = model.model.train.init_state(model.config, model.dataset, 5)
    resumed = model.train(seed=6, state=initial)
    assert equal(model.arrays(resumed[-1].state), model.arrays(trained[-1].state))


def test_repeated_updates_are_training(model: Small, trained: list[Progress]):
    first = model.arrays(trained[0].state)
    state = model.model.train.init_state(model.config, model.dataset, 5)
    for _ in range(trained[0].step):
        before = copied(model.arrays(state))
        after, metrics = model.update(state)
        assert metrics
        assert equal(model.arrays(state), before), "update changed the state that it was given"
        assert not equal(model.arrays(after), before)
        if close(model.arrays(after), first):
            return
        state = after
    pytest.fail("no number of updates gives the state of the first yield")


def test_the_headline_and_the_terms_of_this_config_are_recorded_and_no_others(
    model: Small, trained: list[Progress]
):
    name, headline = model.model.name, {*model.model.train.HEADLINE}
    variants = [changes for other, changes in VARIANTS.values() if other == name]
    configs = [small(name), *(small(name, **changes) for changes in variants)]
    terms = {term for config in configs for term in model.model.losses.terms(config)}
    own_terms = {*model.model.losses.terms(model.config)}
    assert own_terms
    assert headline <= trained[0].metrics.keys()
    # A headline metric is recorded under every config, also where it is not optimised.
    assert own_terms <= terms & trained[0].metrics.keys() <= own_terms | headline


def test_training_improves_the_gated_score(model: Small, trained: list[Progress]):
    gated = model.model.evaluate.GATED
    before, after = (model.evaluate(progress.state) for progress in (trained[0], trained[-1]))
    assert np.isfinite([*before.values(), *after.values()]).all()
    gain = after[gated[0].metric] - before[gated[0].metric]
    assert gain > 0 if gated[0].direction == "higher" else gain < 0
    for rule in gated:
        names = {rule.metric, *rule.lower_references, *rule.upper_references}
        assert names <= after.keys()


def test_inputs_are_not_mutated(model: Small, trained: list[Progress]):
    state = trained[0].state
    dataset, copies = copied(to_arrays(model.dataset)), copied(model.arrays(state))
    model.train(state=state)
    model.evaluate(state)
    assert equal(model.arrays(state), copies)
    assert equal(to_arrays(model.dataset), dataset)


def test_plots_are_figures_with_something_on_them(model: Small, trained: list[Progress]):
    starts = [0, *(progress.step for progress in trained)]
    recorded = history(
        row
        for start, progress in zip(starts, trained, strict=False)
        for row in rows(progress, start)
    )
    state = trained[-1].state
    scores = model.evaluate(state)
    figures = model.model.plots.plots(model.config, state, model.dataset, recorded, scores)
    assert figures
    assert all(any(axes.has_data() for axes in figure.axes) for figure in figures.values())
