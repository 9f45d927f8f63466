"""Values of iqn that do not fit together: each ends in one line that says what to do."""

from typing import Any

import pytest

from pipeline.runtime.errors import ConfigError
from pipeline.storage.params_file import overlaid, parse, validate
from quatrain.models.iqn.config import IqnConfig
from tests.conftest import ROOT, params_with

GEM = {"name": "gem", "value": 10.0, "weight": 1.0}
BONE = {"name": "bone", "value": -10.0, "weight": 0.0}
FILE = "inputs/iqn/mine.txt"
SMALL_MAP = {"height": None, "width": None, "agents": 1, "vision_radius": 1}


def at(section: str, **changes: Any) -> dict[str, Any]:
    """Changes of a section, by its dotted name."""
    for name in reversed(section.split(".")):
        changes = {name: changes}
    return changes


def drawn(*rows: str, **changes: Any) -> dict[str, Any]:
    """A map of one's own in the place of the open one."""
    return at("env", **SMALL_MAP | {"layout": "\n".join(rows)} | changes)


def config(overlay: dict[str, Any], text: str = "###\n#.#\n###") -> IqnConfig:
    raw = overlaid(parse(ROOT / "params.yaml"), {"iqn": overlay})
    return validate(raw, {FILE: text}.__getitem__).iqn


def refusal(overlay: dict[str, Any], text: str = "###\n#.#\n###") -> str:
    """The line that a user reads."""
    with pytest.raises(ConfigError) as caught:
        config(overlay, text)
    assert "\n" not in str(caught.value)
    return str(caught.value)


ONE_MAP = (
    "iqn.env: give height and width, or layout, or layout_file, not two of them; "
    "set the others to null"
)
RARELY = {"record_every": 32, "evaluate_every": 0}
MULTIPLE = "is not a multiple of"

REFUSED = [
    (drawn("####", "#..#", "#.#", "####"), "iqn.env: layout row 3: 3 cells, row 1 has 4. Write"),
    (
        at("env", agents=64, height=7),
        "iqn.env: agents is 64 but the map has 40 start cells. Lower agents or enlarge the map.",
    ),
    (drawn("#####", "#A.A#", "#####", agents=3), "iqn.env: agents is 3 but the map has 2 start"),
    (at("env", height=None, width=None), ONE_MAP),
    (drawn("###", "#.#", "###", layout_file=FILE), ONE_MAP),
    (
        at("env", spawn_probability=0.0),
        "iqn.env: spawn_probability is 0 and the layout has no items: no reward can be earned.",
    ),
    (
        drawn("###", "#-#", "###"),
        "iqn.env: the layout has no cell where items grow and the layout has no items: no reward",
    ),
    (
        at("env", vision_radius=15),
        "iqn.env: vision_radius 15 sees 31x31 cells of a 10x10 map. At most 9 (= larger side - 1).",
    ),
    (
        at("env", entities=[GEM, GEM | {"value": 1.0}]),
        "iqn.env: entities: 'gem' is there twice; give each kind a name of its own",
    ),
    (
        at("env", entities=[GEM | {"name": "left"}]),
        "iqn.env: entities: 'left' is the name of something else; none of empty, wall, ground, ",
    ),
    (
        at("env", entities=[GEM | {"weight": 0.0}, BONE]),
        "iqn.env: entities: the weights of gem, bone are all 0; at least one must grow",
    ),
    (at("env", entities=[GEM | {"name": "big gem"}]), "iqn.env.entities.0.name = 'big gem': "),
    (at("collect", turns=75), f"iqn: collect.turns 75 {MULTIPLE} env.max_turns 50"),
    (
        at("collect", turns=50) | at("train", turns=1000, turns_per_cycle=20),
        f"iqn: collect.turns 50 {MULTIPLE} train.turns_per_cycle 20",
    ),
    (
        at("collect", turns=1050),
        "iqn: collect.turns 1050 exceeds the turns of train.capacity / env.worlds = 1000",
    ),
    (
        at("collect", turns=100) | at("train", turns_per_cycle=100, capacity=160_000, **RARELY),
        "iqn: train.turns_per_cycle 100 exceeds env.max_turns 50",
    ),
    (
        at("train", batch_size=801),
        "iqn: train.batch_size 801 exceeds the prefill of collect.turns * env.worlds = 800",
    ),
    (
        at("train", capacity=16_100),
        f"iqn: train.capacity 16100 {MULTIPLE} env.worlds * train.turns_per_cycle = 400",
    ),
    (
        at("train", turns_per_cycle=50, capacity=800, **RARELY),
        "iqn: env.worlds * (train.turns_per_cycle + network.frames + n_step) = 896 "
        "exceeds train.capacity 800",
    ),
    (
        at("train", loss={"n_step": 50}),
        "iqn: train.loss.n_step 50 exceeds the last target of the prefill, collect.turns - 1 = 49",
    ),
    (at("train", turns=1010), f"iqn.train: turns 1010 {MULTIPLE} turns_per_cycle 25"),
    (at("train", record_every=65), f"iqn.train: record_every 65 {MULTIPLE} updates_per_cycle 32"),
    (
        at("train", record_every=96, evaluate_every=0),
        f"iqn.train: turns / turns_per_cycle * 32 = 1280 {MULTIPLE} record_every 96",
    ),
    (at("train", evaluate_every=96), f"iqn.train: evaluate_every 96 {MULTIPLE} record_every 64"),
    (
        at("train", evaluate_every=1344),
        "iqn.train: evaluate_every 1344 exceeds the 1280 updates; 0 means never",
    ),
    (
        at("env", max_turns=5)
        | {"network": {"frames": 5}}
        | at("train", turns_per_cycle=5, **RARELY),
        "iqn: network.frames 5 must be less than env.max_turns 5: the blank frames before "
        "the start would tell the last turn, whose value is never learned",
    ),
    (
        at("train.acting.epsilon", start=0.1, end=0.2),
        "iqn: train.acting.epsilon.start 0.1 is less than its end 0.2",
    ),
    (
        at("train.acting.epsilon", over_transitions=42_000),
        "iqn: train.acting.epsilon.over_transitions 42000 exceeds the run's 16800 "
        "transitions of an agent: epsilon would still be 0.61 at the end",
    ),
    (at("train.acting.epsilon", decay=0.1), "iqn.train.acting.epsilon.decay: unknown key"),
    (at("train", target={"kind": "hard"}), "iqn.train.target.copy_every: is missing"),
    (
        at("train", turns=27 * 10**6),
        "iqn: env.agents * env.worlds * all turns = 2,160,004,000 agent-steps; at most",
    ),
    (
        at("collect", turns=1_000_000) | at("train", capacity=16_000_000),
        "iqn: collect.turns takes 10 GiB over all seeds, worlds and agents; at most 8",
    ),
    (
        at("train", capacity=160_000_000),
        "iqn: train.capacity takes 97 GiB over all seeds, worlds and agents; at most 64",
    ),
]


@pytest.mark.parametrize(("overlay", "line"), REFUSED)
def test_values_that_do_not_fit_together_are_refused(overlay: dict[str, Any], line: str):
    assert line in refusal(overlay)


def test_a_map_of_a_file_is_named_by_its_file_and_read_whatever_its_line_ends():
    overlay = at("env", **SMALL_MAP | {"layout_file": FILE, "agents": 2})
    said = refusal(overlay, "####\n#..#\n#.##\n###.\n")
    assert f"iqn.env: {FILE} row 4, column 4: '.' on the border." in said
    good = config(overlay, "#####\r\n#1-A#\r\n#A..#\r\n#####\r\n\r\n")
    assert good.env.rules.map.rows == ("#####", "#1-A#", "#A..#", "#####")
    again = IqnConfig.model_validate_json(good.model_dump_json())
    assert again.env.rules == good.env.rules
    assert hash(again) == hash(good)


def test_a_map_file_that_is_not_there_is_refused():
    expected = r"iqn.env.layout_file = 'inputs/iqn/no.txt': inputs/iqn/no.txt is not there"
    with pytest.raises(ConfigError, match=expected):
        params_with({"iqn": at("env", **SMALL_MAP | {"layout_file": "inputs/iqn/no.txt"})})


def test_items_of_the_map_alone_are_something_to_find():
    good = config(drawn("#####", "#A.1#", "#####", spawn_probability=0.0))
    assert good.env.rules.spawn_probability == 0
