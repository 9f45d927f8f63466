"""a policy in an environment that renders -> an animation of an episode"""

from contextlib import closing
from typing import Any

import numpy as np
from jaxtyping import UInt8
from PIL import Image

from quatrain.animation import Animation
from quatrain.envs.host.config import HostEnv, Pairs
from quatrain.envs.host.envs import Begin, HostEnvs, play
from quatrain.envs.host.user_code import make, user_code
from quatrain.errors import DataError, warn

MODE = "rgb_array"
# Pixels of the longer side; larger pictures are made smaller.
LARGEST_SIDE = 320
# Of a longer episode every second is left out, and again.
MOST_FRAMES = 200
# Where the environment does not tell.
FRAMES_PER_SECOND = 30
# What GIFs can show, and a reader waits for.
MOST_PER_SECOND = 50
LEAST_PER_SECOND = 5


class NotRendered(DataError):
    """Signals an environment that does not say that it renders pictures."""


class Camera:
    """Keeps at most MOST_FRAMES pictures of an episode, at even distances."""

    def __init__(self) -> None:
        self.frames: list[UInt8[np.ndarray, "height width 3"]] = []
        self.every = 1
        self._steps = 0

    def __call__(self, env: Any) -> None:
        """Keeps the picture of an environment after a step.

        Raises:
            DataError: what it renders is no picture.
        """
        if self._steps % self.every == 0:
            picture = _small(env.render())
            if self.frames and picture.shape != self.frames[0].shape:
                raise DataError(
                    f"render() returned pictures of {self.frames[0].shape} and {picture.shape}; "
                    "return one size"
                )
            self.frames.append(picture)
        self._steps += 1
        if len(self.frames) > MOST_FRAMES:
            self.frames = self.frames[::2]
            self.every *= 2


def _small(rendered: Any) -> UInt8[np.ndarray, "height width 3"]:
    picture = np.asarray(rendered)
    if picture.dtype != np.uint8 or picture.ndim != 3 or picture.shape[-1] != 3:
        raise DataError(
            f"render() returned {picture.dtype} of the shape {picture.shape}; with render_mode "
            f"{MODE} it is to be uint8 of the shape (height, width, 3)"
        )
    factor = -(-max(picture.shape) // LARGEST_SIDE)
    return np.asarray(Image.fromarray(picture).reduce(factor))


def film_episode(config: HostEnv, begin: Begin, seed: int) -> Animation:
    """Plays an episode by a policy, and returns it as the environment renders it.

    Raises:
        DataError: it does not render arrays, or raised.
    """
    with user_code(lambda reason: f"env {config.name}: {reason}"), closing(make(config)) as env:
        metadata = getattr(env, "metadata", {})
        renders = getattr(env, "render_mode", None) == MODE
    if MODE not in metadata.get("render_modes", ()):
        raise NotRendered(
            f'env {config.name} renders no pictures; metadata["render_modes"] of its class is to '
            f"list {MODE}, and render() to return them"
        )
    if not renders:
        kwargs = Pairs(sorted({**dict(config.kwargs), "render_mode": MODE}.items()))
        config = config.model_copy(update={"kwargs": kwargs})
    camera = Camera()
    try:
        envs = HostEnvs(config, 1, seed)
    except DataError as error:
        raise DataError(
            f"{error}; it was made with render_mode={MODE!r}, which its class lists in "
            'metadata["render_modes"]: let its constructor take that, or take it off the list'
        ) from None
    with closing(envs):
        envs.after_step = camera
        play(envs, begin())
    per_second = (metadata.get("render_fps") or FRAMES_PER_SECOND) / camera.every
    milliseconds = 1000 / np.clip(per_second, LEAST_PER_SECOND, MOST_PER_SECOND)
    return Animation(np.stack(camera.frames), round(float(milliseconds)))


def film_if_rendered(config: HostEnv, begin: Begin, seed: int) -> dict[str, Animation]:
    """Returns `film_episode` as a report's picture `film`; nothing where the environment renders
    none, with a warning where it fails to.
    """
    if config.kind not in ("gymnasium", "pettingzoo"):
        return {}
    try:
        return {"film": film_episode(config, begin, seed)}
    except NotRendered:
        return {}
    except DataError as error:
        warn(f"there is no film: {error}")
        return {}
