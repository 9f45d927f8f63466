"""A folder with a file of each format, and what is in it."""

import numpy as np

ARRAYS = {
    "train/state": np.arange(11, dtype=np.int32),
    "train/weight": np.linspace(-1, 1, 15, dtype=np.float32).reshape(3, 5),
    "held_out/state": np.zeros((0, 7), np.int8),
    "goal": np.asarray(-1, np.int64),
    "terminated": np.asarray([True, False, True]),
}
CONTENTS = {
    "data.safetensors": ARRAYS,
    "config.json": {"name": "rooms — 4", "sizes": [3, 5.5], "seed": None},
    "history.csv": "step,loss\n100,0.25\n",
    "loss.png": b"\x89PNG\r\n\x1a\n" + bytes(range(256)),
}
INFO = {"config": "5ac1", "versions": {"numpy": "2.4.6"}}
FILES = [*CONTENTS, "manifest.json"]
