"""Every key of params.yaml's section `allo` changes what is learned."""

from functools import cache, partial
from typing import Any

import numpy as np
import pytest

from pipeline.storage.params_file import overlaid
from quatrain.models.allo.collect import collect
from quatrain.models.allo.train import to_arrays, train
from tests.conftest import small

allo = partial(small, "allo")


@cache
def weights(config: Any) -> np.ndarray:
    *_, last = train(config, collect(config, 0), 0)
    return np.concatenate(
        [array.ravel() for array in to_arrays(last.state).values() if array.dtype == np.float32]
    )


PLAIN: dict[str, Any] = {}
FALLING = {"train": {"dual_init": -1.0}}
RISING = {"train": {"lr_barrier": 0.1, "b_max": 3.0}}
FOURIER = {"env": {"observation": "fourier", "fourier": {"scale": 6.0, "count": 5}}}
TWO_ROOMS = {"rows": 1, "cols": 2, "height": 6, "width": 4, "extra_doors": 0, "seed": 0}
ROOMS = {"env": {"layout": "rooms", "rooms": TWO_ROOMS}}
MAZE = {"env": {"layout": "maze", "maze": {"width": 7, "height": 9, "braid": 0.0, "seed": 0}}}


@pytest.mark.parametrize(
    ("base", "change"),
    [
        (PLAIN, {"env": {"layout": "maze9"}}),
        (PLAIN, {"env": {"observation": "corner"}}),
        (PLAIN, {"env": {"doors": 3}}),
        ({"env": {"doors": 3}}, {"env": {"door_seed": 7}}),
        ({"env": {"layout": "obstacles"}}, {"env": {"start": "layout"}}),
        (PLAIN, {"env": {"max_episode_steps": 7}}),
        (FOURIER, {"env": {"fourier": {"scale": 3.0}}}),
        (FOURIER, {"env": {"fourier": {"count": 6}}}),
        (ROOMS, {"env": {"rooms": {"width": 5}}}),
        (ROOMS, {"env": {"rooms": {"seed": 1}}}),
        (MAZE, {"env": {"maze": {"seed": 1}}}),
        (MAZE, {"env": {"maze": {"braid": 1.0}}}),
        (PLAIN, {"collect": {"num_envs": 14}}),
        (PLAIN, {"collect": {"steps_per_env": 50}}),
        (PLAIN, {"network": {"d": 4}}),
        (PLAIN, {"network": {"hidden": 17}}),
        (PLAIN, {"network": {"layers": 3}}),
        (PLAIN, {"train": {"discount": 0.3}}),
        (PLAIN, {"train": {"discount": (0.3, 0.9)}}),
        (PLAIN, {"train": {"batch_size": 33}}),
        (PLAIN, {"train": {"learning_rate": 2e-3}}),
        (PLAIN, {"train": {"lr_schedule": "constant"}}),
        (PLAIN, {"train": {"lr_final": 0.5}}),
        (PLAIN, {"train": {"graph_coef": 1.0}}),
        (PLAIN, {"train": {"constraint": "three"}}),
        (PLAIN, FALLING),
        (FALLING, {"train": {"dual_init_mask": "lower"}}),
        (PLAIN, {"train": {"lr_dual": 0.01}}),
        (PLAIN, {"train": {"dual_clip": 1e-6}}),
        (PLAIN, {"train": {"b_init": 0.25}}),
        (PLAIN, RISING),
        (RISING, {"train": {"b_max": 1.01}}),
        (RISING, {"train": {"barrier_update": "positive_ema"}}),
        (PLAIN, {"train": {"mode": "exact"}}),
    ],
    ids=str,
)
def test_every_key_changes_what_is_learned(base: dict[str, Any], change: dict[str, Any]):
    quick = {"train": {"steps": 40}}
    before, after = (
        weights(allo(**overlaid(quick, sections))) for sections in (base, overlaid(base, change))
    )
    assert before.shape != after.shape or not np.array_equal(before, after)
