"""An episode as the environment shows itself: its pictures, at even distances, or a line."""

from typing import Any

import numpy as np
import pytest

from quatrain.envs.host.film import LARGEST_SIDE, MOST_FRAMES, film_episode, film_if_rendered
from quatrain.errors import DataError
from tests.envs.host.test_envs import Counter, host_env


class Shown(Counter):
    """Renders the number of its steps."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}  # noqa: RUF012

    def __init__(self, limit: int = 3, render_mode: str | None = None, width: int = 3) -> None:
        super().__init__(limit)
        self.render_mode = render_mode
        self.width = width

    def render(self) -> Any:
        assert self.render_mode == "rgb_array"
        return np.full((2, self.width, 3), self.steps, np.uint8)


class Torn(Shown):
    """Is one whose package for pictures is missing."""

    def render(self) -> Any:
        raise ImportError("no pygame")


def stand_still(obs: np.ndarray) -> np.ndarray:
    return np.zeros(obs.shape[:2], int)


def film(**kwargs: Any) -> Any:
    config = host_env("Counter", steps=999, **kwargs)
    config = config.model_copy(update={"import_": f"{__name__}:Shown"})
    return film_episode(config, lambda: stand_still, seed=0)


def test_a_film_has_the_picture_after_each_step_and_none_of_the_next_episode():
    animation = film()
    assert animation.frames[:, 0, 0, 0].tolist() == [1, 2, 3]
    assert animation.milliseconds == 100


def test_of_a_long_episode_some_pictures_are_left_out_and_large_ones_are_made_smaller():
    animation = film(limit=255, width=2 * LARGEST_SIDE)
    numbers = animation.frames[:, 0, 0, 0].astype(int)
    assert len(numbers) <= MOST_FRAMES
    assert set(np.diff(numbers)) == {2}
    assert animation.milliseconds == 200
    assert animation.frames.shape[1:] == (1, LARGEST_SIDE, 3)


def test_an_environment_that_renders_nothing_has_no_film():
    config, begin = host_env("Counter"), lambda: stand_still
    with pytest.raises(DataError, match="env Counter renders no pictures; metadata"):
        film_episode(config, begin, seed=0)
    in_jax = config.model_copy(update={"kind": "jax"})
    assert film_if_rendered(config, begin, seed=0) == film_if_rendered(in_jax, begin, seed=0) == {}


def test_an_environment_that_fails_to_render_has_no_film_and_a_warning():
    config = host_env("Counter").model_copy(update={"import_": f"{__name__}:Torn"})
    with pytest.warns(UserWarning, match="there is no film: env Torn .* no pygame"):
        assert film_if_rendered(config, lambda: stand_still, seed=0) == {}
