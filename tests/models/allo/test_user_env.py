"""allo in a user's environment: states, what is learned of them, and what is refused."""

from typing import Any

import numpy as np
import pytest

from quatrain.errors import ConfigError, DataError, DatasetMismatch
from quatrain.models.allo.config import AlloUserEnvConfig
from quatrain.models.allo.train import tables
from quatrain.models.allo.truth import true_spectrum
from quatrain.models.allo.user_env import Dataset, input_constants, inputs
from quatrain.progress import Progress, history, rows
from quatrain.registry import load
from quatrain.serving import answer
from tests.conftest import params_with, shapes_unchecked
from tests.models.allo.user_envs import section

MODEL = load("allo")


def config_with(
    bins: int | None = None, name: str = "Corridor", **kwargs: Any
) -> AlloUserEnvConfig:
    config = params_with({"allo": section(name, bins, **kwargs)}).allo
    assert isinstance(config, AlloUserEnvConfig)
    return config


def train(config: AlloUserEnvConfig, dataset: Dataset) -> list[Progress]:
    with shapes_unchecked():
        return list(MODEL.train.train(config, dataset, 5))


@pytest.fixture(scope="module")
def trained() -> tuple[AlloUserEnvConfig, Dataset, list[Progress]]:
    config = config_with()
    dataset = MODEL.collect.collect(config, 1)
    return config, dataset, train(config, dataset)


def test_every_different_observation_is_a_state(trained):
    config, dataset, _ = trained
    assert dataset.table.observations[:, 0].tolist() == list(range(7))
    slots = np.asarray(dataset.train.state)
    moves = np.diff(slots.astype(int))[np.asarray(dataset.train.horizon)[:-1] > 0]
    assert set(moves) == {-1, 0, 1}
    assert len(dataset.held_out.starts) == config.collect.held_out_envs * 250


def test_bins_make_states_of_continuous_observations_and_what_never_changes_tells_nothing():
    config = config_with(bins=5, continuous=True, step=0.5)
    dataset = MODEL.collect.collect(config, 1)
    places = dataset.table.observations[:, 0]
    assert len(places) == 5
    assert (np.diff(places) > 0.5).all()
    scaled = inputs(config, dataset, input_constants(config, dataset, 0))
    np.testing.assert_allclose(scaled[:, 0].std(), 1, rtol=0.2)
    np.testing.assert_allclose(scaled[:, 1], 0, atol=1e-6)


def test_the_vectors_of_a_corridor_are_learned(trained):
    config, dataset, progress = trained
    scores = MODEL.evaluate.evaluate(config, progress[-1].state, dataset, 0).scores
    assert scores["cosine_mean"] > 0.95 > 0.7 > scores["floor_untrained"]
    assert scores["floor_random"] < 0.6
    slowest = true_spectrum(config, dataset).spectrum.eigenvectors[:, 1]
    assert (np.diff(slowest) > 0).all() or (np.diff(slowest) < 0).all()


def test_a_served_model_answers_for_observations(trained):
    config, dataset, progress = trained
    state = progress[-1].state
    served = MODEL.serve.load(config, MODEL.serve.export(config, state, dataset))
    request = MODEL.serve.request(config, dataset)
    answered = answer("allo", served, request)["eigenvectors"]
    expected = tables(config, state, dataset)[0][[0, 3, 6]]
    np.testing.assert_allclose(answered, expected, rtol=1e-5, atol=1e-5)
    with pytest.raises(ValueError, match=r"give numbers \[questions, 2\]"):
        answer("allo", served, {"observations": np.zeros((1, 3), np.float32)})


def test_figures_show_the_axes_that_change(trained):
    config, dataset, progress = trained
    evaluation = MODEL.evaluate.evaluate(config, progress[-1].state, dataset, 0)
    table = [row for part in progress for row in rows(part, part.step - 1000)]
    figures = MODEL.plots.plots(config, progress[-1].state, dataset, history(table), evaluation)
    assert figures["visits"].axes[0].get_xlabel() == "observation 0"


def test_too_many_or_too_few_states_are_refused():
    continuous = config_with(continuous=True, step=0.5)
    many = continuous.collect.model_copy(update={"num_envs": 20, "held_out_fraction": 0.0})
    with pytest.raises(DataError, match=r"visit .* states.*set allo\.env\.bins"):
        MODEL.collect.collect(continuous.model_copy(update={"collect": many}), 0)
    short = config_with(length=2)
    with pytest.raises(DataError, match="2 states, fewer than the 3 eigenvectors"):
        MODEL.collect.collect(short, 0)


@pytest.mark.parametrize(("layouts", "parts"), [(2, "2"), (10**6, r"\d\d+")])
def test_walks_that_nothing_connects_are_neither_learned_nor_scored(layouts: int, parts: str):
    """A constant scored 1 with a new layout in each episode: all eigenvalues were 0."""
    config = config_with(name="Rooms", layouts=layouts)
    dataset = MODEL.collect.collect(config, 1)
    said = rf"no walk connects {parts} parts of .*Rooms.*give every episode the same layout"
    with pytest.raises(DataError, match=said):
        train(config, dataset)
    with pytest.raises(DataError, match=said):
        MODEL.evaluate.evaluate(config, MODEL.train.init_state(config, dataset, 5), dataset, 0)


def test_a_dataset_of_another_environment_is_refused(trained):
    _, dataset, _ = trained
    with pytest.raises(DatasetMismatch, match=r"now: its action_counts is \(\), and was"):
        MODEL.collect.check(config_with(continuous=True), dataset)


def test_several_agents_are_refused():
    env = section("Corridor")["env"] | {"kind": "pettingzoo"}
    with pytest.raises(ConfigError, match=r"allo\.env.*allo walks alone"):
        params_with({"allo": section("Corridor") | {"env": env}})
