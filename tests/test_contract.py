"""What must be true of every model, whatever it learns and answers."""

import inspect
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from matplotlib import rc_context
from matplotlib.figure import Figure
from safetensors.numpy import load as load_tensors
from safetensors.numpy import save

from quatrain import serving
from quatrain.animation import Animation
from quatrain.baselines import SCHEMA, Rule, entry_of
from quatrain.contract import CONTRACT
from quatrain.devices import on_device
from quatrain.frameworks.packing import flatten
from quatrain.judgement import judge
from quatrain.params import Params
from quatrain.progress import Evaluation, Progress, history, rows
from quatrain.registry import MODELS, load
from quatrain.seeds import SEEDS_OF_INTERVAL
from tests.conftest import VARIANTS, in_forms, params_with, shapes_unchecked, small

Named = dict[str, np.ndarray]


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

    def evaluation(self, state: Any) -> Evaluation:
        return self.model.evaluate.evaluate(self.config, state, self.dataset, 0)

    def evaluate(self, state: Any) -> dict[str, float]:
        return self.evaluation(state).scores

    def arrays(self, state: Any) -> Named:
        return self.model.train.to_arrays(state)


def equal(item: Named, other: Named) -> bool:
    return item.keys() == other.keys() and all(
        np.array_equal(item[name], other[name]) for name in item
    )


def close(item: Named, other: Named) -> bool:
    """Returns whether counters and random states are equal and numbers equal to rounding."""
    return all(
        np.allclose(array, other[name], rtol=1e-3, atol=1e-5)
        if array.dtype.kind == "f"
        else np.array_equal(array, other[name])
        for name, array in item.items()
    )


def copied(arrays: Named) -> Named:
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
    assert equal(flatten(again), flatten(model.dataset))
    assert not equal(flatten(again.train), flatten(other.train))
    assert not equal(flatten(again.held_out), flatten(other.held_out))
    assert not equal(flatten(again.train), flatten(again.held_out))


def test_resumed_from_the_start_or_any_yield_equals_uninterrupted(
    model: Small, trained: list[Progress]
):
    """Whatever the seed: the state has all that is random."""
    reference, learner = model.arrays(trained[-1].state), model.model.train
    start = Progress(0, learner.init_state(model.config, model.dataset, 5), {})
    for progress in [start, *trained[:-1]]:
        arrays = model.arrays(progress.state)
        saved = learner.from_arrays(model.config, model.dataset, arrays)
        rest = model.train(seed=6, state=saved)
        assert [item.step for item in rest] == [
            item.step for item in trained if item.step > progress.step
        ]
        assert equal(model.arrays(rest[-1].state), reference)
    assert model.train(state=trained[-1].state) == []


def test_every_weight_moves(model: Small, trained: list[Progress]):
    first, last = (model.arrays(item.state) for item in (trained[0], trained[-1]))
    weights = [name for name in first if name.startswith("params/")]
    assert weights
    for name in weights:
        assert not np.array_equal(first[name], last[name]), f"{name} gets no gradient"


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
    name, headline = model.model.name, {*model.model.train.headline(model.config)}
    variants = [changes for other, changes in VARIANTS.values() if other == name]
    configs = [small(name), *(small(name, **changes) for changes in variants)]
    terms = {term for config in configs for term in load(name).losses.terms(config)}
    own_terms = {*model.model.losses.terms(model.config)}
    assert own_terms
    assert headline <= trained[0].metrics.keys()
    # A headline metric is recorded under every config, also where it is not optimised.
    assert own_terms <= terms & trained[0].metrics.keys() <= own_terms | headline


UNDEFINED = ("transition_ratio.random",)
"""Scores that may be none (NaN): an arm that has learned nothing reaches no error."""


def undefined(scores: dict[str, float]) -> list[str]:
    return [name for name, score in scores.items() if not np.isfinite(score)]


def test_training_improves_the_gated_score(model: Small, trained: list[Progress]):
    gated = model.model.rules.gated(model.config)
    before, after = (model.evaluate(progress.state) for progress in (trained[0], trained[-1]))
    assert {*undefined(before), *undefined(after)} <= {*UNDEFINED}
    gain = after[gated[0].metric] - before[gated[0].metric]
    assert gain > 0 if gated[0].direction == "higher" else gain < 0
    for rule in gated:
        names = {rule.metric, *rule.lower_references, *rule.upper_references}
        assert names <= after.keys()


def test_inputs_are_not_mutated(model: Small, trained: list[Progress]):
    state = trained[0].state
    dataset, copies = copied(flatten(model.dataset)), copied(model.arrays(state))
    model.train(state=state)
    model.evaluate(state)
    assert equal(model.arrays(state), copies)
    assert equal(flatten(model.dataset), dataset)


def test_plots_are_figures_with_something_on_them(model: Small, trained: list[Progress]):
    starts = [0, *(progress.step for progress in trained)]
    recorded = history(
        row
        for start, progress in zip(starts, trained, strict=False)
        for row in rows(progress, start)
    )
    state = trained[-1].state
    evaluation = model.evaluation(state)
    with rc_context({"text.usetex": True}):  # a user's setting, which no text of a figure follows
        pictures = model.model.plots.plots(model.config, state, model.dataset, recorded, evaluation)
    assert 1 <= sum(not isinstance(picture, Animation) for picture in pictures.values()) <= 5
    for name, picture in pictures.items():
        if isinstance(picture, Animation):
            assert len(np.unique(picture.frames, axis=0)) > 1, name
            assert "?" in picture.caption, name
        else:
            assert any(axes.has_data() for axes in picture.axes), name
            assert picture.get_suptitle().endswith("?"), name
            assert axes_without_labels(picture) == [], name


def axes_without_labels(figure: Figure) -> list[str]:
    """Returns axes whose numbers nobody names, neither there nor where they are shared."""
    figure.draw_without_rendering()
    nameless = []
    for place, axes in enumerate(figure.axes):
        for axis, shared in (
            (axes.xaxis, axes.get_shared_x_axes()),
            (axes.yaxis, axes.get_shared_y_axes()),
        ):
            which = axis.axis_name
            same = [getattr(each, f"{which}axis") for each in shared.get_siblings(axes)]
            numbers = [tick.get_text() for tick in axis.get_ticklabels() if tick.get_visible()]
            is_words = all(any(c.isalpha() for c in text) for text in numbers if text)
            if not is_words and not any(each.get_label_text() for each in same):
                nameless.append(f"{place} {which}")
    return nameless


# How a model is judged.


@pytest.fixture(scope="module")
def untrained(model: Small) -> dict[str, float]:
    """Returns the scores of the state before the first update."""
    return model.evaluate(model.model.train.init_state(model.config, model.dataset, 5))


def status(rule: Rule, scores: dict[str, float], stored: float) -> str:
    """Returns how a score of five seeds, with a huge interval, is judged by a stored value."""
    wide = 1000 * rule.tolerance
    ends = {f"{rule.metric}_low": -wide, f"{rule.metric}_high": wide, "seeds": 5.0}
    entry = entry_of(rule, scores | ends | {rule.metric: stored})
    content = {"metrics": {rule.metric: entry}, "provenance": {}}
    baseline = {"schema": SCHEMA, "presets": {"default": content}}
    (line,) = judge(scores | ends, baseline, [rule], "default").lines
    return line.status


def rules_of(model: Small, scores: dict[str, float]) -> list[Rule]:
    """Returns the rules of scores that exist; the others are broken whatever is stored."""
    rules = [gated.under("default") for gated in model.model.rules.gated(model.config)]
    missing = [rule for rule in rules if rule.metric in undefined(scores)]
    assert {rule.metric for rule in missing} <= {*UNDEFINED}
    assert all(status(rule, scores, 1.0) == "not finite" for rule in missing)
    return [rule for rule in rules if rule not in missing]


def test_scores_tell_of_how_many_learners_they_are(model: Small, untrained: dict[str, float]):
    assert untrained["seeds"] == model.config.seeds
    if model.config.seeds < SEEDS_OF_INTERVAL:
        ends = {f"{gated.metric}_low" for gated in model.model.rules.gated(model.config)}
        assert not ends & untrained.keys()


@pytest.mark.full
def test_gated_scores_of_six_learners_have_intervals(model: Small):
    config = model.config.model_copy(update={"seeds": 6})
    dataset = model.model.collect.collect(config, 11)
    state = model.model.train.init_state(config, dataset, 5)
    scores = model.model.evaluate.evaluate(config, state, dataset, 0).scores
    assert scores["seeds"] == 6
    for gated in rules_of(model, scores):
        low, high = scores[f"{gated.metric}_low"], scores[f"{gated.metric}_high"]
        assert low <= scores[gated.metric] <= high


def test_what_is_worthless_is_broken_even_by_a_baseline_that_is_as_bad(
    model: Small, untrained: dict[str, float]
):
    rules = rules_of(model, untrained)
    assert rules[0].lower_references
    for rule in rules:
        for name in rule.lower_references:
            # A little better by luck than what it must beat.
            lucky = -0.9 if rule.direction == "lower" else 0.9
            value = untrained[name] + lucky * rule.tolerance
            scores = untrained | {rule.metric: value}
            assert status(rule, scores, value) in ("below floor", "below goal")
    statuses = {status(rule, untrained, untrained[rule.metric]) for rule in rules}
    assert statuses & {"below floor", "below goal"}


# What a model answers.

LONGER = 7
"""Questions in a request that repeats those of the example."""


class Served:
    """A model's config and arrays as they come back from disk, and an example of a request."""

    def __init__(self, model: Small, state: Any) -> None:
        self.name, self.serve = model.model.name, model.model.serve
        self.exported = self.serve.export(model.config, state, model.dataset)
        self.example: Named = self.serve.request(model.config, model.dataset)
        self.config = revived(model.config)
        self.arrays = load_tensors(save(self.exported))
        self.loaded = self.serve.load(self.config, self.arrays)

    def answer(self, request: Named) -> Named:
        return serving.answer(self.name, self.loaded, request)


@pytest.fixture(scope="module")
def served(model: Small, trained: list[Progress]) -> Served:
    return Served(model, trained[0].state)


def revived(config: Any) -> Any:
    """What a model's config.json gives back."""
    return type(config).model_validate_json(config.model_dump_json())


def questions(named: Named) -> int:
    return len(next(iter(named.values())))


def picked(named: Named, rows: Any) -> Named:
    return {name: array[rows] for name, array in named.items()}


def agree(result: Named, expected: Named) -> None:
    assert result.keys() == expected.keys()
    for name, array in expected.items():
        assert result[name].dtype == array.dtype, name
        np.testing.assert_allclose(result[name], array, rtol=1e-4, atol=1e-5, err_msg=name)


def test_each_question_of_the_example_has_a_finite_answer_of_its_own(served: Served):
    count, answered = questions(served.example), served.answer(served.example)
    assert count in (2, 3)
    assert answered
    for name, array in (served.example | answered).items():
        assert len(array) == count, name
        assert np.isfinite(array).all(), name
    assert any(len(np.unique(array, axis=0)) > 1 for array in answered.values())


def test_arrays_are_plain_survive_a_file_and_are_refused_if_one_is_missing(served: Served):
    assert served.arrays.keys() == served.exported.keys()
    for name, array in served.exported.items():
        assert array.dtype.name in ("float32", "float64", "int32", "uint8", "bool"), name
        np.testing.assert_array_equal(served.arrays[name], array)
    for name in (min(served.arrays), max(served.arrays)):
        others = {each: array for each, array in served.arrays.items() if each != name}
        message = f"not a learner of this config: arrays missing .*{name}"
        with pytest.raises(ValueError, match=message):
            served.serve.load(served.config, others)


def test_an_answer_depends_on_its_own_question_alone(served: Served):
    together = served.answer(served.example)
    for row in range(questions(served.example)):
        agree(served.answer(picked(served.example, [row])), picked(together, [row]))
    rows = np.arange(LONGER)[::-1] % questions(served.example)
    agree(served.answer(picked(served.example, rows)), picked(together, rows))


def test_the_same_request_gets_the_same_bits_and_nothing_is_changed(
    model: Small, served: Served, trained: list[Progress]
):
    state = trained[0].state
    packed = copied(model.arrays(state))
    model.model.serve.export(model.config, state, model.dataset)
    arrays, example = copied(served.arrays), copied(served.example)
    once, again = served.answer(served.example), served.answer(served.example)
    for result, expected in ((again, once), (served.arrays, arrays), (served.example, example)):
        assert equal(result, expected)
    assert equal(model.arrays(state), packed)


def test_a_number_that_no_question_has_is_refused_in_a_line_that_names_the_input(served: Served):
    for name, array in served.example.items():
        huge = np.nan if array.dtype.kind == "f" else np.iinfo(array.dtype).max
        with pytest.raises(ValueError, match=f"^{served.name}: {name}.* give [^\\n]*$"):
            served.answer(served.example | {name: np.full_like(array, huge)})


@pytest.mark.parametrize("name", MODELS)
def test_a_model_has_the_functions_of_the_contract_with_their_arguments(name: str):
    for module, functions in CONTRACT.items():
        for function, arguments in functions.items():
            signature = inspect.signature(getattr(getattr(load(name), module), function))
            plain = [
                each.name + ("" if each.default is each.empty else f"={each.default}")
                for each in signature.parameters.values()
            ]
            assert ", ".join(plain) == arguments, f"{module}.{function}"


@pytest.mark.parametrize("name", MODELS)
def test_a_config_comes_back_from_its_file_with_what_its_input_file_held(name: str):
    for changes in ({}, {name: in_forms(name, "INPUTS")}):
        config = getattr(params_with(changes), name)
        assert revived(config) == config


def test_every_model_has_a_section_of_params():
    assert {*MODELS} <= {*Params.model_fields}
