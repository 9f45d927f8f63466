"""RGB pictures of one size, one after another -> an animation, and its GIF"""

import io
from typing import NamedTuple

import numpy as np
from jaxtyping import UInt8
from PIL import Image

Frames = UInt8[np.ndarray, "frame height width 3"]
# How many times as long as the others the last frame is shown.
LAST_FRAME = 10
# Rows and greys of the bar at the lower edge that shows how much has passed.
BAR = 4
TO_COME = 225
PASSED = 50


class Animation(NamedTuple):
    """Pictures that are shown one after another, for some milliseconds each, again and again.

    caption: a question and its answer, for a newcomer.
    """

    frames: Frames
    milliseconds: int
    caption: str = ""

    def gif(self, comment: str) -> bytes:
        """Returns a GIF that begins again after its last frame."""
        data = io.BytesIO()
        first, *others = (Image.fromarray(frame) for frame in self.frames)
        durations = [self.milliseconds] * len(self.frames)
        durations[-1] *= LAST_FRAME
        first.save(
            data,
            format="GIF",
            save_all=True,
            append_images=others,
            duration=durations,
            loop=0,
            comment=comment.encode(),
        )
        return data.getvalue()


def with_bar(frames: Frames) -> UInt8[np.ndarray, "frame taller width 3"]:
    """Returns the frames above a bar that grows from frame to frame."""
    count, _, width, _ = frames.shape
    passed = np.arange(width) < np.linspace(0, width, count).round()[:, None]
    bar = np.where(passed, PASSED, TO_COME).astype(np.uint8)
    rows = np.broadcast_to(bar[:, None, :, None], (count, BAR, width, 3))
    return np.concatenate([frames, rows], 1)
