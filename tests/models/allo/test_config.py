"""Every key of params.yaml's section `allo` is read, and those of a map change what is seen."""

from functools import partial

import pytest

from quatrain.models.allo.collect import collect
from quatrain.models.allo.config import AlloConfig
from quatrain.models.allo.evaluate import evaluate
from quatrain.models.allo.train import train
from tests.config_keys import unread_keys
from tests.conftest import shapes_unchecked, small

allo = partial(small, "allo")
FOURIER = {"observation": "fourier", "fourier": {"scale": 6.0, "count": 5}}
TWO_ROOMS = {"rows": 1, "cols": 2, "height": 6, "width": 4, "extra_doors": 0, "seed": 0}
ROOMS = {"layout": "rooms", "rooms": TWO_ROOMS}
MAZE = {"layout": "maze", "maze": {"width": 7, "height": 9, "braid": 0.0, "seed": 0}}


@pytest.mark.full
def test_every_key_is_read_by_what_runs():
    """The keys of the map were read when the config was made."""
    config = allo(env=FOURIER, network={"hidden": 13}, train={"steps": 20})
    with shapes_unchecked(), unread_keys(AlloConfig) as unread:
        dataset = collect(config, 0)
        *_, last = train(config, dataset, 0)
        evaluate(config, last.state, dataset, 0)
    of_map = {f"Env.{key}" for key in (*ROOMS, *MAZE, "layout_components", "observation")}
    others = {key for key in unread if not key.startswith(("Rooms.", "Maze."))}
    assert others <= of_map
