"""Figures of every run, and the numbers that they state."""

import functools
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from quatrain.envs.colony.dynamics import hill_length
from quatrain.models.actor_critic import colony_plots as colonies
from quatrain.models.actor_critic.collect import collect
from quatrain.models.actor_critic.colony_data import Dataset
from quatrain.models.actor_critic.colony_plots import capture_frames, median_colony
from quatrain.models.actor_critic.config import ActorCriticConfig
from quatrain.models.actor_critic.evaluate import evaluate
from quatrain.models.actor_critic.plots import plots
from quatrain.models.actor_critic.train import State, train
from quatrain.progress import Evaluation, History, history, rows
from quatrain.validation import overlaid
from tests.conftest import shapes_unchecked, small

COLONIES = 40
FIGURES = {"learning_curve", "updates", "laws"}
FIXED = {"delete_ratio": 0.55, "gamma": 12.0, "alpha": 1.0, "noise": 0.4, "theta": 0.0}
ONE_PLATE = {"n_train": 1, "n_held_out": 1, "n_outside": 0}


def free(name: str) -> dict[str, Any]:
    """Only this number of an action is chosen."""
    fixed = {other: value for other, value in FIXED.items() if other != name}
    return {"active_params": [name], "fixed_params": fixed}


RUNS: dict[str, dict[str, Any]] = {
    "as it is": {},
    "a flat plate, a number that hardly matters, no success and no settled size": {
        "seeds": 2,
        "env": {
            "max_steps": 3,
            "features": "full",
            "reward": {"preset": "centroid_distance_only"},
            "action": free("noise"),
        },
        "network": {"policy": "squashed_gaussian", "value_heads": "components"},
        "collect": ONE_PLATE
        | {"plates": "user", "plates_file": {"name": "plate.npy", "numbers": [1.5] * 60}},
    },
    "the original's plate, before any episode has ended": {
        "env": {"reward": {"preset": "centroid_distance_only"}, "action": free("delete_ratio")},
        "collect": ONE_PLATE | {"plates": "fixed"},
        "train": {"horizon": 2, "transitions": 48, "minibatch_size": 24},
    },
}


class Run(NamedTuple):
    """A trained actor_critic, with what its figures are of."""

    config: ActorCriticConfig
    state: State
    dataset: Dataset
    history: History
    evaluation: Evaluation


@functools.cache
def trained(name: str) -> Run:
    brief = {"collect": {"held_out_colonies": COLONIES}, "train": {"transitions": 24 * 8 * 4}}
    config = small("actor_critic", **overlaid(brief, RUNS[name]))
    with shapes_unchecked():
        dataset, recorded, last = collect(config, 0), [], 0
        for progress in train(config, dataset, 1):
            recorded += rows(progress, last)
            last = progress.step
        evaluation = evaluate(config, progress.state, dataset, 0)
    return Run(config, progress.state, dataset, history(recorded), evaluation)


@pytest.mark.filterwarnings("ignore:actor_critic.env.max_steps .* is impossible:UserWarning")
@pytest.mark.parametrize("name", RUNS)
def test_every_figure_is_drawn_for_every_run(name: str):
    result = trained(name)
    figures = plots(*result)
    several_slopes = {"slopes"} if result.config.collect.plates == "default_law" else set()
    moving = figures.pop("growth")
    assert len(moving.frames) == len(np.unique(moving.frames[:, -1], axis=0)) > 1  # the bar grows
    assert set(figures) == FIGURES | several_slopes
    for drawn, figure in figures.items():
        figure.draw_without_rendering()
        assert all(axes.has_data() for axes in figure.axes), drawn
        said = [text.get_text() for axes in figure.axes for text in axes.texts]
        assert not [text for text in said if "nan" in text], drawn
    assert ("no success" in name) == np.isnan(result.evaluation.scores["size_rmse"])
    assert ("before any" in name) != result.history["episodes"][1].any()


# What was learned.


def test_steps_stand_beside_the_state_that_they_answered():
    config, _, dataset, _, evaluation = trained("as it is")
    held_out, ((outcome, _),) = dataset.held_out, evaluation.outcomes
    expected = []
    for time in range(len(outcome.n)):
        for colony in np.flatnonzero(time < outcome.lengths):
            size, plate = held_out.colonies.n[colony], held_out.colonies.substrate[colony]
            x, y = held_out.colonies.pos[colony, :size].mean(0, dtype=np.float64)
            if time:
                size, (x, y) = outcome.n[time - 1, colony], outcome.centroid[time - 1, colony]
            stiffness = float(held_out.plates.intensity[plate, int(x)])
            action = torch.tensor(outcome.action[time, colony])
            throw = float(hill_length(*action[1:4, None], torch.tensor([[stiffness]])))
            height = y - config.env.height / 2
            expected.append((size, height, stiffness, action[0], action[4], throw))
    result = colonies.steps_of(config, held_out, outcome)
    np.testing.assert_allclose(np.transpose(result), expected, rtol=1e-6)


# Where it stands.


def test_the_film_shows_the_episode_that_was_judged():
    config, state, dataset, _, evaluation = trained("as it is")
    ((outcome, _),) = evaluation.outcomes
    colony = median_colony(outcome)
    assert outcome.returns[colony] == np.sort(outcome.returns)[COLONIES // 2]
    frames = capture_frames(config, state, dataset, colony)
    length = outcome.lengths[colony]
    assert [len(frame.pos) for frame in frames[1:]] == outcome.n[:length, colony].tolist()
    last = outcome.centroid[length - 1, colony]
    np.testing.assert_allclose(frames[-1].pos.mean(0), last, rtol=1e-4)
