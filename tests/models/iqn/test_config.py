"""Maps of the section iqn, from its text and from files; every key is read."""

import pytest

from quatrain.models.iqn.collect import collect
from quatrain.models.iqn.config import IqnConfig
from quatrain.models.iqn.evaluate import evaluate
from quatrain.models.iqn.train import train
from tests.config_keys import config_of, overlay_of, refusal, unread_keys
from tests.conftest import shapes_unchecked, small

FILE = "inputs/iqn/mine.txt"
NO_SIZE = "env: {height: null, width: null, vision_radius: 1}"


def test_a_map_of_a_file_is_named_by_its_file_and_read_whatever_its_line_ends():
    from_file = (NO_SIZE, f"env: {{layout_file: {FILE}, agents: 2}}")
    line = refusal("iqn", *from_file, files={FILE: "####\n#..#\n#.##\n###.\n"})
    assert f"iqn.env: {FILE} row 4, column 4: '.' on the border." in line
    text = "#####\r\n#1-A#\r\n#A..#\r\n#####\r\n\r\n"
    good = config_of("iqn", *from_file, files={FILE: text})
    assert good.env.map.rows == ("#####", "#1-A#", "#A..#", "#####")
    again = IqnConfig.model_validate_json(good.model_dump_json())
    assert again.env.map == good.env.map
    assert hash(again) == hash(good)


@pytest.mark.full
def test_every_key_is_read_by_what_runs():
    """`kind` chooses the class of a section, which is read in its place; of those that are not
    chosen, `test_playing` and `test_targets` read the keys.
    """
    brief = "train: {turns: 20, record_every: 40, evaluate_every: 40}"
    config = small("iqn", **overlay_of(brief, "train.acting.epsilon: {over_transitions: 100}"))
    with shapes_unchecked(), unread_keys(IqnConfig) as unread:
        dataset = collect(config, 0)
        *_, last = train(config, dataset, 0)
        evaluate(config, last.state, dataset, 0)
    others = {key for key in unread if not key.endswith(".kind")}
    assert all(key.startswith(("HardTarget.", "GeometricEpsilon.")) for key in others), others
