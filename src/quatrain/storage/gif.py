"""an animation -> a GIF file that begins again after its last frame."""

import io

from PIL import Image

from quatrain.animation import Animation

# How many times as long as the others the last frame is shown.
LAST_FRAME = 10


def gif(animation: Animation, comment: str) -> bytes:
    """Returns the animation as GIF that begins again after its last frame."""
    data = io.BytesIO()
    frames = [Image.fromarray(frame, "P") for frame in animation.frames]
    for frame in frames:
        frame.putpalette(animation.palette.tobytes())
    durations = [animation.milliseconds] * len(frames)
    durations[-1] *= LAST_FRAME
    frames[0].save(
        data,
        format="GIF",
        save_all=True,
        append_images=frames[1:],
        duration=durations,
        loop=0,
        comment=comment.encode(),
    )
    return data.getvalue()
