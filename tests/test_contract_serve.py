"""What must be true of every model that is served, whatever it answers."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load as load_tensors
from safetensors.numpy import save

from pipeline.runtime.devices import on_device
from quatrain.params import Params
from quatrain.registry import MODELS, load
from tests.conftest import VARIANTS, params_with, shapes_unchecked, small

Named = dict[str, np.ndarray]

LONGER = 7
"""Questions in a request that repeats those of the example."""
SIZE = {"height": None, "width": None}
COUNTS = {"plates": "user", "n_train": 1, "n_held_out": 1, "n_outside": 0}
OTHER_INPUTS: dict[str, dict[str, Any]] = {
    "allo": {"env": {"layout": "inputs/allo/one_way.txt"}, "train": {"discount": [0.5, 0.9]}},
    "iqn": {"env": {**SIZE, "layout_file": "inputs/iqn/two_halls.txt", "agents": 4}},
    "actor_critic": {"collect": {**COUNTS, "plates_file": "inputs/actor_critic/two_steps.npy"}},
    "active_dynamics": {
        "env": {"field": {"kind": "table", "table_file": "inputs/active_dynamics/wind.npz"}}
    },
}
"""Per model: changes to params.yaml that name its input file, and lists of numbers."""


class Served:
    """A model's config and arrays as they come back from disk, and an example of a request."""

    def __init__(self, name: str, changes: dict[str, Any]) -> None:
        self.name, config = name, small(name, **changes)
        rooms = {kind: getattr(load(name), kind) for kind in ("collect", "train", "serve")}
        with shapes_unchecked():
            dataset = rooms["collect"].collect(config, 11)
            self.state = next(rooms["train"].train(config, dataset, 5)).state
        self.packed = rooms["train"].to_arrays(self.state)
        self.to_arrays, self.answers = rooms["train"].to_arrays, rooms["serve"].answer
        self.exported = rooms["serve"].export(config, self.state, dataset)
        self.example: Named = rooms["serve"].request(config, dataset)
        self.config = revived(config)
        self.arrays = load_tensors(save(self.exported))

    def answer(self, request: Named) -> Named:
        return self.answers(self.config, self.arrays, request)


@pytest.fixture(scope="module", params=[*MODELS, *VARIANTS])
def model(request: pytest.FixtureRequest) -> Iterator[Served]:
    name, changes = VARIANTS.get(request.param, (request.param, {}))
    with on_device(params_with({}), MODELS[name]):
        yield Served(name, changes)


def revived(config: Any) -> Any:
    """What a model's config.json gives back."""
    return type(config).model_validate_json(config.model_dump_json())


def questions(named: Named) -> int:
    return len(next(iter(named.values())))


def picked(named: Named, rows: Any) -> Named:
    return {name: array[rows] for name, array in named.items()}


def close(result: Named, expected: Named) -> None:
    assert result.keys() == expected.keys()
    for name, array in expected.items():
        assert result[name].dtype == array.dtype, name
        np.testing.assert_allclose(result[name], array, rtol=1e-4, atol=1e-5, err_msg=name)


def test_each_question_of_the_example_has_a_finite_answer_of_its_own(model: Served):
    count, answered = questions(model.example), model.answer(model.example)
    assert count in (2, 3)
    assert answered
    for name, array in (model.example | answered).items():
        assert len(array) == count, name
        assert np.isfinite(array).all(), name
    assert any(len(np.unique(array, axis=0)) > 1 for array in answered.values())


def test_arrays_are_plain_survive_a_file_and_are_refused_if_one_is_missing(model: Served):
    assert model.arrays.keys() == model.exported.keys()
    for name, array in model.exported.items():
        assert array.dtype.name in ("float32", "float64", "int32", "uint8", "bool"), name
        np.testing.assert_array_equal(model.arrays[name], array)
    without = dict(model.arrays)
    name, _ = without.popitem()
    message = f"not a learner of this config: differing arrays .*{name}"
    with pytest.raises(ValueError, match=message):
        model.answers(model.config, without, model.example)


def test_an_answer_depends_on_its_own_question_alone(model: Served):
    together = model.answer(model.example)
    for row in range(questions(model.example)):
        close(model.answer(picked(model.example, [row])), picked(together, [row]))
    rows = np.arange(LONGER)[::-1] % questions(model.example)
    close(model.answer(picked(model.example, rows)), picked(together, rows))


def test_the_same_request_gets_the_same_bits_and_nothing_is_changed(model: Served):
    arrays, example = (
        {name: array.copy() for name, array in item.items()}
        for item in (model.arrays, model.example)
    )
    once, again = model.answer(model.example), model.answer(model.example)
    for result, expected in ((again, once), (model.arrays, arrays), (model.example, example)):
        assert result.keys() == expected.keys()
        assert all(np.array_equal(result[name], expected[name]) for name in expected)
    packed = model.to_arrays(model.state)
    assert all(np.array_equal(packed[name], model.packed[name]) for name in packed)


def wrong(example: Named) -> Iterator[tuple[str, Named]]:
    """Requests that do not fit, and the input that is to be named."""
    yield next(iter(example)), {}
    yield next(iter(example)), picked(example, slice(0))
    for name, array in example.items():
        yield name, {other: values for other, values in example.items() if other != name}
        for values in (array[..., None], np.asarray(array[0]), array.astype(str), 1j * array):
            yield name, example | {name: values}
        if array.ndim > 1:
            yield name, example | {name: np.concatenate([array, array], axis=-1)}
        if len(example) > 1:
            yield "", example | {name: array[:-1]}
        huge = np.nan if array.dtype.kind == "f" else np.iinfo(array.dtype).max
        yield name, example | {name: np.full_like(array, huge)}
    yield "surplus", example | {"surplus": np.zeros(questions(example), np.float32)}


def test_a_request_that_does_not_fit_is_refused_in_a_line_that_names_the_input(model: Served):
    for name, request in wrong(model.example):
        with pytest.raises(ValueError, match=f"^{model.name}: .*{name}") as caught:
            model.answer(request)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", MODELS)
def test_a_config_comes_back_from_its_file_with_what_its_input_file_held(name: str):
    for changes in ({}, {name: OTHER_INPUTS.get(name, {})}):
        config = getattr(params_with(changes), name)
        assert revived(config) == config
    assert {*OTHER_INPUTS} <= {*MODELS} <= {*Params.model_fields}
