"""Answers of a served model, compared with the tables that evaluation scores."""

import re
from functools import partial
from typing import Any

import numpy as np
import pytest

from quatrain.envs.grid.dynamics import make_grid
from quatrain.models.allo.config import AlloConfig
from quatrain.models.allo.grid import Dataset
from quatrain.models.allo.serve import encoder, export, load
from quatrain.models.allo.train import State, init_state, inputs_for, tables
from quatrain.serving import answer
from tests.conftest import small

allo = partial(small, "allo")
FOURIER = {"observation": "fourier", "fourier": {"scale": 2.0, "count": 5}}
DRAWN = {"name": "halls", "text": "#####\n#S..#\n#.#.#\n#####\n"}
"""Cells that can be walked on, by number: (1,1) 0, (1,2) 1, (1,3) 2, (2,1) 3, (2,3) 4."""


def untrained(config: AlloConfig) -> tuple[Dataset, State]:
    """Initial weights are enough where tables are compared, and of the dataset the map."""
    dataset = Dataset(None, None, make_grid(config.env.map))
    return dataset, init_state(config, dataset, 7)


def close(actual: np.ndarray, expected: np.ndarray) -> None:
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("env", [{}, FOURIER])
def test_the_encoder_takes_states_and_what_the_environment_observes(env: dict[str, Any]):
    config = allo(env=env)
    dataset, state = untrained(config)
    encode = encoder(config, export(config, state, dataset))
    (expected,) = tables(config, state, dataset)
    states = np.arange(6).reshape(2, 3)
    close(encode(states), expected[states])
    close(encode(4), expected[4])
    with pytest.raises(ValueError, match="states are whole numbers from 0 to"):
        encode(len(expected))
    observations = inputs_for(config, state, dataset)[:3, :2]
    if config.env.fourier:
        with pytest.raises(ValueError, match="without fourier the two coordinates"):
            encode(observations)
    else:
        close(encode(observations), expected[:3])


def test_of_several_learners_the_first_answers_with_what_evaluation_scores():
    config = allo(seeds=2, env=FOURIER)
    dataset, state = untrained(config)
    first, second = tables(config, state, dataset)
    every_cell = {"cells": np.asarray(dataset.grid.coords)[:, ::-1]}
    answered = answer("allo", load(config, export(config, state, dataset)), every_cell)
    close(answered["eigenvectors"], first)
    assert np.abs(answered["eigenvectors"] - second).max() > 0.01
    np.testing.assert_array_equal(answered["state"], np.arange(len(dataset.grid.coords)))


def test_a_cell_is_named_by_row_and_column_of_the_drawn_map():
    config = allo(env={"layout": DRAWN}, network={"d": 2})
    dataset, state = untrained(config)
    asked = {"cells": np.array([[2, 3], [1, 1], [2, 1], [1, 3]])}
    answered = answer("allo", load(config, export(config, state, dataset)), asked)
    assert answered["state"].tolist() == [4, 0, 3, 2]
    close(answered["eigenvectors"], tables(config, state, dataset)[0][[4, 0, 3, 2]])


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        ([1, 5], "cells[1, 1] is 5; give whole numbers in 0..4"),
        (
            [2, 2],
            "cells[1], row 2 and column 2, is a wall (halls); "
            "give cells that can be walked on, counted from 0 at the top left",
        ),
    ],
)
def test_what_is_no_cell_of_the_map_is_refused(cell: list[int], message: str):
    config = allo(env={"layout": DRAWN}, network={"d": 2})
    dataset, state = untrained(config)
    served = load(config, export(config, state, dataset))
    with pytest.raises(ValueError, match=f"^{re.escape(f'allo: {message}')}$"):
        answer("allo", served, {"cells": [[1, 1], cell]})
