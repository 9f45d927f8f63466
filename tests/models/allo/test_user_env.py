"""allo in a user's environment: states, what is learned of them, and what is refused."""

import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from quatrain.errors import ConfigError, DataError, DatasetMismatch
from quatrain.models.allo.config import AlloUserEnvConfig
from quatrain.models.allo.learning.truth import true_spectrum
from quatrain.models.allo.worlds.user_env import Dataset, input_constants, inputs
from quatrain.progress import Progress, history, rows
from quatrain.registry import Model, load
from tests.conftest import ROOT, params_with, shapes_unchecked
from tests.models.allo.user_envs import section


def config_with(
    bins: int | None = None, name: str = "Corridor", **kwargs: Any
) -> AlloUserEnvConfig:
    config = params_with({"allo": section(name, bins, **kwargs)}).allo
    assert isinstance(config, AlloUserEnvConfig)
    return config


def train(config: AlloUserEnvConfig, dataset: Dataset, state: Any = None) -> list[Progress]:
    with shapes_unchecked():
        return list(modules(config).train.train(config, dataset, 5, state))


def modules(config: AlloUserEnvConfig) -> Model:
    return load("allo", config)


@pytest.fixture(scope="module")
def trained() -> tuple[AlloUserEnvConfig, Dataset, list[Progress]]:
    config = config_with()
    dataset = modules(config).collect.collect(config, 1)
    return config, dataset, train(config, dataset)


def test_every_different_observation_is_a_state(trained):
    config, dataset, _ = trained
    assert dataset.table.observations[:, 0].tolist() == list(range(7))
    slots = np.asarray(dataset.train.state)
    moves = np.diff(slots.astype(int))[np.asarray(dataset.train.horizon)[:-1] > 0]
    assert set(moves) == {-1, 0, 1}
    assert len(dataset.held_out.starts) == config.collect.held_out_envs * 250


def test_bins_make_states_of_continuous_observations():
    config = config_with(bins=5, continuous=True, step=0.5)
    dataset = modules(config).collect.collect(config, 1)
    places = dataset.table.observations[:, 0]
    assert len(places) == 5
    assert (np.diff(places) > 0.5).all()
    assert np.isfinite(inputs(config, dataset, input_constants(config, dataset, 0))).all()


def test_the_vectors_of_a_corridor_are_learned(trained):
    config, dataset, progress = trained
    scores = modules(config).evaluate.evaluate(config, progress[-1].state, dataset, 0)
    assert scores["cosine_mean"] > 0.95 > 0.7 > scores["floor_untrained"]
    assert scores["floor_random"] < 0.6
    slowest = true_spectrum(config, dataset).spectrum.eigenvectors[:, 1]
    assert (np.diff(slowest) > 0).all() or (np.diff(slowest) < 0).all()


def test_a_resumed_training_ends_with_the_same_bytes(trained):
    config, dataset, progress = trained
    learning = modules(config).train
    arrays = learning.to_arrays(progress[1].state)
    resumed = train(config, dataset, learning.from_arrays(config, dataset, arrays))
    expected = learning.to_arrays(progress[-1].state)
    for name, array in learning.to_arrays(resumed[-1].state).items():
        np.testing.assert_array_equal(array, expected[name])


def test_a_served_model_answers_for_observations(trained):
    config, dataset, progress = trained
    serve = modules(config).serve
    exported = serve.export(config, progress[-1].state, dataset)
    request = serve.request(config, dataset)
    answered = serve.answer(config, exported, request)["eigenvectors"]
    assert answered.shape == (3, 3)
    alone = {"observations": request["observations"][1:2]}
    np.testing.assert_allclose(
        serve.answer(config, exported, alone)["eigenvectors"], answered[1:2], rtol=1e-5
    )
    with pytest.raises(ValueError, match=r"give numbers \[questions, 2\]"):
        serve.answer(config, exported, {"observations": np.zeros((1, 3), np.float32)})


def test_figures_show_the_axes_that_change(trained):
    config, dataset, progress = trained
    model = modules(config)
    scores = model.evaluate.evaluate(config, progress[-1].state, dataset, 0)
    table = [row for part in progress for row in rows(part, part.step - 1000)]
    figures = model.plots.plots(config, progress[-1].state, dataset, history(table), scores)
    assert figures["visits"].axes[0].get_xlabel() == "observation 0"


def test_too_many_or_too_few_states_are_refused():
    continuous = config_with(continuous=True, step=0.5)
    with pytest.raises(DataError, match=r"visit .* states.*set allo\.env\.bins"):
        modules(continuous).collect.collect(
            continuous.model_copy(
                update={
                    "collect": continuous.collect.model_copy(
                        update={"num_envs": 20, "held_out_fraction": 0.0}
                    )
                }
            ),
            0,
        )
    short = config_with(length=2)
    with pytest.raises(DataError, match="2 states, fewer than the 3 eigenvectors"):
        modules(short).collect.collect(short, 0)


@pytest.mark.parametrize(("layouts", "parts"), [(2, "2"), (10**6, r"\d\d+")])
def test_walks_that_nothing_connects_are_neither_learned_nor_scored(layouts: int, parts: str):
    """A constant scored 1 with a new layout in each episode: all eigenvalues were 0."""
    config = config_with(name="Rooms", layouts=layouts)
    model = modules(config)
    dataset = model.collect.collect(config, 1)
    said = rf"no walk connects {parts} parts of .*Rooms.*give every episode the same layout"
    with pytest.raises(DataError, match=said):
        train(config, dataset)
    with pytest.raises(DataError, match=said):
        model.evaluate.evaluate(config, model.train.init_state(config, dataset, 5), dataset, 0)


def test_one_layout_is_learned_and_what_learned_nothing_does_not_score_as_the_truth():
    config = config_with(name="Rooms", layouts=1)
    model = modules(config)
    dataset = model.collect.collect(config, 1)
    untrained = model.train.init_state(config, dataset, 5)
    scores = model.evaluate.evaluate(config, untrained, dataset, 0)
    assert scores["ceiling_truth"] == pytest.approx(1)
    assert max(scores["cosine_mean"], scores["floor_constant"], scores["floor_random"]) < 0.7


def test_a_dataset_of_another_environment_is_refused(trained):
    config, dataset, _ = trained
    with pytest.raises(DatasetMismatch, match="as it is now: its action_count is 0, and was 2"):
        modules(config).collect.check(config_with(continuous=True), dataset)


def test_several_agents_are_refused():
    env = section("Corridor")["env"] | {"kind": "pettingzoo"}
    with pytest.raises(ConfigError, match=r"allo\.env.*allo walks alone"):
        params_with({"allo": section("Corridor") | {"env": env}})


def test_of_grids_only_the_sections_of_params_are_loaded():
    """All models' sections are; what walks and draws maps is not."""
    script = """
import sys
from tests.models.allo import test_user_env as here
config = here.config_with()
dataset = here.modules(config).collect.collect(config, 1)
model = here.modules(config)
state = model.train.init_state(config, dataset, 0)
model.evaluate.evaluate(config, state, dataset, 0)
model.serve.request(config, dataset), model.plots
print(*(name for name in sys.modules if name.startswith("quatrain.envs.grid.")))
"""
    run = subprocess.run([sys.executable, "-c", script], cwd=ROOT, check=True, capture_output=True)
    loaded = {name.rpartition(".")[2] for name in run.stdout.decode().split()}
    assert loaded == {"catalogue", "config", "layouts"}
