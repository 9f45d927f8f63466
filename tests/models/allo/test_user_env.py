"""allo in a user's environment: states, what is learned of them, and what is refused."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from quatrain.envs.host.config import NO_ENV
from quatrain.errors import ConfigError, DataError, DatasetMismatch
from quatrain.models.allo import user_env
from quatrain.models.allo.config import AlloUserEnvConfig
from quatrain.models.allo.held_out import draw, measure
from quatrain.models.allo.memory import needs
from quatrain.models.allo.plots import draw_functions
from quatrain.models.allo.train import inputs_for, tables
from quatrain.models.allo.truth import true_spectrum, true_table
from quatrain.models.allo.user_env import Dataset, input_constants, inputs
from quatrain.progress import Progress, history, rows
from quatrain.registry import load
from quatrain.serving import answer
from tests.conftest import params_with, shapes_unchecked
from tests.models.allo.user_envs import screen, section
from tests.pipeline.fixture_types import Patch

MODEL = load("allo")


def config_with(
    bins: int | None = None, name: str = "Corridor", seeds: int = 1, **kwargs: Any
) -> AlloUserEnvConfig:
    config = params_with({"allo": section(name, bins, **kwargs) | {"seeds": seeds}}).allo
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


def test_too_many_cells_or_too_few_states_are_refused(monkeypatch: Patch):
    short = config_with(length=2)
    with pytest.raises(DataError, match="2 states, fewer than the 3 eigenvectors"):
        MODEL.collect.collect(short, 0)
    monkeypatch.setattr(user_env, "COUNTED_STATES", 6)
    with pytest.raises(DataError, match=r"visit 7 cells.*lower allo\.env\.bins, or set it to null"):
        MODEL.collect.collect(config_with(bins=100), 0)


@pytest.fixture(scope="module")
def continuous() -> tuple[AlloUserEnvConfig, Dataset, list[Progress]]:
    """Returns two learners of a line whose places never repeat."""
    config = config_with(continuous=True, seeds=2)
    dataset = MODEL.collect.collect(config, 1)
    return config, dataset, train(config, dataset)


def test_observations_that_never_repeat_are_learned_without_a_truth(continuous):
    config, dataset, progress = continuous
    assert 2 * len(dataset.coords) > len(dataset.train.state)
    scores = MODEL.evaluate.evaluate(config, progress[-1].state, dataset, 0).scores
    assert scores["autocorrelation"] > 0.6 > scores["untrained_autocorrelation"]
    assert scores["consistency"] > 0.95 > 0.1 > abs(scores["permuted_consistency"])
    assert abs(scores["permuted_autocorrelation"]) < 0.05
    assert "cosine_mean" not in scores
    assert {rule.metric for rule in MODEL.rules.gated(config)} <= scores.keys()
    assert MODEL.train.headline(config)[0] in progress[-1].metrics


def test_where_states_are_counted_the_truth_keeps_as_much_as_what_is_learned(trained):
    config, dataset, progress = trained
    learned = MODEL.evaluate.evaluate(config, progress[-1].state, dataset, 0).scores
    true = true_table(true_spectrum(config, dataset).spectrum, config.network.d)
    pairs = draw(config, dataset, inputs_for(config, progress[-1].state, dataset), 0)
    kept = measure(true[None, pairs.states], true[None, pairs.later_states])
    np.testing.assert_allclose(learned["autocorrelation"], kept["autocorrelation"], atol=0.02)
    np.testing.assert_allclose(
        [learned[f"held_out_eigenvalue/{i}"] for i in range(3)],
        kept["held_out_eigenvalue"][0],
        atol=0.03,
    )


def test_functions_are_drawn_where_nothing_is_counted(continuous):
    config, dataset, progress = continuous
    evaluation = MODEL.evaluate.evaluate(config, progress[-1].state, dataset, 0)
    table = [row for part in progress for row in rows(part, part.step - 1000)]
    figures = MODEL.plots.plots(config, progress[-1].state, dataset, history(table), evaluation)
    assert list(figures) == ["kept", "functions", "losses"]
    wide = draw_functions(np.ones((9, 3)), np.eye(9)[:, :5], evaluation.scores)
    assert wide.axes[0].get_ylabel() == "principal component 1"


def test_the_encoder_takes_one_observation_or_a_batch(trained):
    config, dataset, progress = trained
    state = progress[-1].state
    encode = MODEL.serve.encoder(config, MODEL.serve.export(config, state, dataset))
    expected = tables(config, state, dataset)[0]
    np.testing.assert_allclose(encode(dataset.coords), expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(encode(dataset.coords[3]), expected[3], rtol=1e-5, atol=1e-5)
    with pytest.raises(
        ValueError, match=r"of agent has the shape \(3,\), not \(2,\), as its space"
    ):
        encode(np.zeros((5, 3)))


def test_the_encoder_reads_a_stack_of_images_as_the_walks_did():
    config = config_with(name="Screens")
    dataset = MODEL.collect.collect(config, 1)
    assert {column.dtype.name for column in dataset.table} == {"float32"}
    constants = input_constants(config, dataset, 0)
    read = user_env.encoder_inputs(config, constants)
    scaled = read(np.stack([screen(place) for place in range(7)]))
    np.testing.assert_array_equal(scaled, inputs(config, dataset, constants))
    np.testing.assert_array_equal(read(screen(4)), scaled[4])


def test_masks_are_no_part_of_states_or_of_what_the_encoder_takes():
    config = config_with(name="Masked")
    dataset = MODEL.collect.collect(config, 1)
    assert dataset.table.observations.tolist() == [[place] for place in range(7)]
    constants = input_constants(config, dataset, 0)
    read = user_env.encoder_inputs(config, constants)
    observation = {"action_mask": np.ones(2, np.int8), "place": np.array([4], np.float32)}
    expected = inputs(config, dataset, constants)[4]
    np.testing.assert_array_equal(read(observation), expected)
    np.testing.assert_array_equal(
        read([observation, {"place": observation["place"]}]), [expected] * 2
    )
    with pytest.raises(DataError, match="Masked shows 1, the encoder learned of 3 numbers"):
        user_env.encoder_inputs(config, np.zeros((2, 3), np.float32))


@pytest.mark.parametrize(("episodes", "held_out"), [(8, 2 * 19), (1, 79)])
def test_episodes_of_a_recording_are_held_out(tmp_path: Path, episodes: int, held_out: int):
    places = np.random.default_rng(0).normal(size=(160, 2))
    episode = np.arange(160) * episodes // 160
    np.savez(tmp_path / "walks.npz", observations=places, episode=episode)
    config = recorded(tmp_path / "walks.npz", held_out_fraction=0.25 if episodes > 1 else 0.5)
    dataset, other = (MODEL.collect.collect(config, seed) for seed in (1, 2))
    assert len(dataset.held_out.starts) == held_out
    assert len(dataset.train.starts) == 160 - max(episodes, 2) - held_out
    np.testing.assert_array_equal(dataset.held_out.state, other.held_out.state)
    MODEL.collect.check(config, dataset)
    steps = len(dataset.train.starts) + held_out
    read = needs(config, dataset.interface.restored)
    assert needs(config).collect["transitions"] == 0
    assert read.collect["transitions"] == 16 * steps
    assert config.env.name == "walks.npz"


def test_a_recording_too_short_to_hold_out_some_is_refused(tmp_path: Path):
    np.savez(tmp_path / "walks.npz", observations=np.eye(3), episode=np.zeros(3))
    with pytest.raises(DataError, match=r"walks\.npz has too few steps to learn from some"):
        MODEL.collect.collect(recorded(tmp_path / "walks.npz", held_out_fraction=0.5), 0)


WALKS = {"kind": "recording", "path": "walks.npz"}


def recorded(path: Path, held_out_fraction: float) -> AlloUserEnvConfig:
    values = section("Corridor")
    values["env"] |= {**NO_ENV, "kind": "recording", "path": str(path)}
    values["collect"] = values["collect"] | {"held_out_fraction": held_out_fraction}
    config: AlloUserEnvConfig = params_with({"allo": values}).allo
    return config


@pytest.mark.parametrize(
    ("env", "collect", "message"),
    [
        ({"kind": "recording"}, {}, "kind: recording and path go together"),
        ({"path": "walks.npz"}, {}, "kind: recording and path go together"),
        ({**NO_ENV, **WALKS, "max_episode_steps": 20}, {}, "max_episode_steps has no effect with"),
        ({**NO_ENV, **WALKS, "columns": ("x",)}, {}, "columns are of a .csv file, and path is wal"),
        ({**NO_ENV, **WALKS, "columns": ("x", "x")}, {}, "'x' is there twice; name each once"),
        ({"columns": ("x",)}, {}, "columns has no effect with kind: gymnasium"),
        ({}, {"held_out_fraction": 0.0}, "judged by held-out ones; set it to 0.1, or count cells"),
    ],
)
def test_keys_that_do_not_fit_together_are_refused(
    env: dict[str, Any], collect: dict[str, Any], message: str
):
    values = section("Corridor")
    values |= {"env": values["env"] | env, "collect": values["collect"] | collect}
    with pytest.raises(ConfigError, match=message):
        params_with({"allo": values})


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
    with pytest.raises(ConfigError, match=r"allo\.env\.kind.*an environment of one agent"):
        params_with({"allo": section("Corridor") | {"env": env}})
