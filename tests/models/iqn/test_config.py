"""Values of the section iqn that cannot be used, one by one or together: each ends in one line that
says what to do.
"""

import re
from typing import Any

import pytest

from pipeline.runtime.errors import ConfigError
from pipeline.storage.params_file import overlaid, parse, validate
from quatrain.models.iqn.config import IqnConfig
from tests.conftest import ROOT, params_with

GEM = {"name": "gem", "value": 10.0, "weight": 1.0}
NO_SIZE = {"height": None, "width": None}


def env(**changes: Any) -> dict[str, Any]:
    return {"env": changes}


def drawn(*rows: str, **changes: Any) -> dict[str, Any]:
    """A map of one's own in the place of the open one."""
    return env(**NO_SIZE, layout="\n".join(rows), agents=1, vision_radius=1, **changes)


def train(**changes: Any) -> dict[str, Any]:
    return {"train": changes}


def acting(**changes: Any) -> dict[str, Any]:
    return train(acting=changes)


def refusal(overlay: dict[str, Any], files: dict[str, str] | None = None) -> str:
    """The line that a user reads."""
    with pytest.raises(ConfigError) as caught:
        config(overlay, files or {})
    assert "\n" not in str(caught.value)
    return str(caught.value)


def config(overlay: dict[str, Any], files: dict[str, str]) -> IqnConfig:
    raw = overlaid(parse(ROOT / "params.yaml"), {"iqn": overlay})
    return validate(raw, lambda name: files[str(name)]).iqn


MAPS = {
    "ragged rows": (
        drawn("####", "#..#", "#.#", "####"),
        r"iqn.env: layout row 3: 3 cells, row 1 has 4\. Write floor as '\.', an editor may "
        r"have cut trailing blanks\.",
    ),
    "an unknown symbol": (
        drawn("####", "#.G#", "####"),
        r"iqn.env: layout row 2, column 3: unknown symbol 'G'\. Allowed: # \. - A 1-9\.",
    ),
    "an item of no entity": (
        drawn("####", "#.3#", "####"),
        r"iqn.env: layout row 2, column 3: '3' names entity 3, but env\.entities has 1",
    ),
    "an open border": (
        drawn("###.", "#..#", "####"),
        r"iqn.env: layout row 1, column 4: '\.' on the border\. The outer ring must be '#'\.",
    ),
    "separate regions": (
        drawn("#####", "#.#.#", "#####"),
        r"iqn.env: layout: floor \(1,1\) cannot reach \(1,3\)\. Open a way or wall one region up\.",
    ),
    "no floor": (
        drawn("###", "###", "###"),
        r"iqn.env: layout: no floor cell\. Write floor as '\.'\.",
    ),
    "an empty map": (
        drawn("", ""),
        r"iqn.env: layout: the map is empty\. Write rows of # \. - A 1-9\.",
    ),
    "a map beyond every limit": (
        drawn("#" * 257, "#" * 257),
        r"iqn.env: layout: 2x257 cells\. At most 256 a side\.",
    ),
    "more agents than floor": (
        env(agents=64, height=7),
        r"iqn.env: agents is 64 but the map has 40 start cells\. Lower agents or enlarge the map\.",
    ),
    "more agents than marked starts": (
        env(**NO_SIZE, layout="#####\n#A.A#\n#####", agents=3, vision_radius=1),
        r"iqn.env: agents is 3 but the map has 2 start cells\.",
    ),
    "neither size nor map": (
        env(**NO_SIZE),
        r"iqn.env: give height and width, or layout, or layout_file, not two",
    ),
    "half a size": (
        env(width=None),
        r"iqn.env: give height and width, or layout, or layout_file, not two of them",
    ),
    "size and map": (
        env(layout="###\n#.#\n###"),
        r"iqn.env: give height and width, or layout, .* set the others to",
    ),
    "map and file": (
        env(**NO_SIZE, layout="###\n#.#\n###", layout_file="inputs/iqn/mine.txt"),
        r"iqn.env: give height and width, or layout, or layout_file, not two of them",
    ),
    "nothing to find": (
        env(spawn_probability=0.0),
        r"iqn.env: spawn_probability is 0 and the layout has no items: no reward can be earned\.",
    ),
    "eyes beyond the map": (
        env(vision_radius=15),
        r"iqn.env: vision_radius 15 sees 31x31 cells of a 10x10 map\. At most 9 \(= larger "
        r"side - 1\)\.",
    ),
    "low map": (env(height=3), r"iqn.env.height = 3: .*greater than or equal to 4"),
    "wide map": (env(width=257), r"iqn.env.width = 257: .*less than or equal to 256"),
}

ENTITIES = {
    "no kind": ([], r"iqn.env.entities = \[\]: .*at least 1 item"),
    "ten kinds": (
        [GEM | {"name": f"gem_{i}"} for i in range(10)],
        r"iqn.env.entities.*at most 9 items .*not 10",
    ),
    "two of one name": (
        [GEM, GEM | {"value": 1.0}],
        r"iqn.env: entities: 'gem' is there twice; give each kind a name",
    ),
    "a name with another meaning": (
        [GEM | {"name": "left"}],
        r"iqn.env: entities: 'left' is the name of something else",
    ),
    "weights of nothing": (
        [GEM | {"weight": 0.0}, GEM | {"name": "bone", "weight": 0.0}],
        r"iqn.env: entities: the weights of gem, bone are all 0; at least one must grow",
    ),
    "a negative weight": (
        [GEM, GEM | {"name": "bone", "weight": -1.0}],
        r"iqn.env.entities.1.weight = -1\.0: .*greater than or equal to 0",
    ),
    "a value that is no number": (
        [GEM | {"value": float("nan")}],
        r"iqn.env.entities.0.value = nan: .*finite number",
    ),
    "an infinite value": ([GEM | {"value": float("inf")}], r"iqn.env.entities.0.value = inf: "),
    "a value beyond a sum": (
        [GEM | {"value": 2e6}],
        r"iqn.env.entities.0.value = 2000000.0: .*less than or",
    ),
    "a name that is no name": (
        [GEM | {"name": "big gem"}],
        r"iqn.env.entities.0.name = 'big gem': .*pattern",
    ),
    "a word among kinds": (["gem"], r"iqn.env.entities.0 = 'gem': .*EntityKind"),
    "a misspelt key": (
        [{"name": "gem", "value": 1.0, "wieght": 1.0}],
        r"iqn.env.entities.0.wieght: unknown key; did you mean 'weight'\?",
    ),
}

LIMITS = {
    ("seeds",): (0, 257),
    ("env", "worlds"): (0, 65537),
    ("env", "agents"): (0, 65),
    ("env", "max_turns"): (0, 10_001),
    ("env", "spawn_probability"): (-0.1, 1.1),
    ("env", "wall_value"): (-2e6, 2e6),
    ("env", "agent_value"): (-2e6, 2e6),
    ("env", "vision_radius"): (0, 16),
    ("collect", "turns"): (0, 10**8),
    ("collect", "held_out_worlds"): (1, 65537),
    ("network", "frames"): (0, 33),
    ("network", "hidden"): (7, 4097),
    ("network", "cosines"): (0, 513),
    ("train", "turns"): (0, 10**10),
    ("train", "turns_per_cycle"): (0, 10_001),
    ("train", "updates_per_cycle"): (0, 10_001),
    ("train", "batch_size"): (0, 65537),
    ("train", "capacity"): (0, 10**10),
    ("train", "learning_rate"): (0.0, 1.5),
    ("train", "adam_eps"): (0.0, 1.5),
    ("train", "max_grad_norm"): (0.0, 2e6),
    ("train", "record_every"): (0,),
    ("train", "evaluate_every"): (-1,),
    ("train", "evaluation_worlds"): (0, 65537),
    ("train", "loss", "quantiles"): (0, 257),
    ("train", "loss", "target_quantiles"): (0, 257),
    ("train", "loss", "kappa"): (0.0, 2e6),
    ("train", "loss", "n_step"): (0, 65),
    ("train", "loss", "discount"): (-0.1, 1.0),
    ("train", "acting", "quantiles"): (0, 1025),
    ("evaluate", "bootstrap_samples"): (99, 10**7),
}

CHOICES = {
    "ground": (env(ground="grass"), r"iqn.env.ground = 'grass': .*'sand' or 'plain'"),
    "order": (
        env(agent_order="random"),
        r"iqn.env.agent_order = 'random': .*'fixed' or 'shuffled'",
    ),
    "noise": (
        {"network": {"noisy": True}},
        r"iqn.network.noisy = True: .*'none', 'factorised' or 'independent'",
    ),
    "dueling": ({"network": {"dueling": 1}}, r"iqn.network.dueling = 1: .*boolean"),
    "parallelism": (
        train(agent_parallelism="pmap"),
        r"iqn.train.agent_parallelism = 'pmap': .*'vmap' or 'scan'",
    ),
    "taus": (acting(taus="fixed"), r"iqn.train.acting.taus = 'fixed': .*'midpoints' or 'uniform'"),
    "two targets": (train(target={"copy_every": 100}), r"iqn.train.target.copy_every: unknown key"),
    "a target of no kind": (train(target={"kind": "soft"}), r"iqn.train.target.*'polyak', 'hard'"),
    "half a target": (train(target={"kind": "hard"}), r"iqn.train.target.copy_every: is missing"),
    "a rate above 1": (
        train(target={"rate": 1.5}),
        r"iqn.train.target.rate = 1.5: .*less than or equal to 1",
    ),
    "an epsilon of no kind": (
        acting(epsilon={"kind": "cosine"}),
        r"iqn.train.acting.epsilon.*'linear', 'geometric'",
    ),
    "epsilon above 1": (
        acting(epsilon={"start": 1.5}),
        r"iqn.train.acting.epsilon.start = 1.5: .*less than or equal",
    ),
    "a linear decay": (
        acting(epsilon={"decay": 0.1}),
        r"iqn.train.acting.epsilon.decay: unknown key",
    ),
}

TOGETHER = {
    "a prefill of half an episode": (
        {"collect": {"turns": 75}},
        r"iqn: collect.turns 75 is not a multiple of env.max_turns 50",
    ),
    "a prefill of no whole cycles": (
        {"collect": {"turns": 50}} | train(turns=1000, turns_per_cycle=20),
        r"iqn: collect.turns 50 is not a multiple of train.turns_per_cycle 20",
    ),
    "a prefill beyond the replay": (
        {"collect": {"turns": 1050}},
        r"iqn: collect.turns 1050 exceeds the turns of train.capacity / env.worlds = 1000",
    ),
    "a cycle beyond an episode": (
        {"collect": {"turns": 100}}
        | train(turns_per_cycle=100, capacity=160_000, record_every=32, evaluate_every=0),
        r"iqn: train.turns_per_cycle 100 exceeds env.max_turns 50",
    ),
    "a batch beyond the prefill": (
        train(batch_size=801),
        r"iqn: train.batch_size 801 exceeds the prefill of collect.turns \* env.worlds = 800",
    ),
    "a replay of no whole cycles": (
        train(capacity=16_100),
        r"iqn: train.capacity 16100 is not a multiple of env.worlds \* train.turns_per_cycle = 400",
    ),
    "a replay without a whole stack": (
        train(turns_per_cycle=50, capacity=800, record_every=32, evaluate_every=0),
        r"iqn: env.worlds \* \(train.turns_per_cycle \+ network.frames \+ n_step\) = 896 "
        r"exceeds train.capacity 800",
    ),
    "targets longer than the prefill": (
        train(loss={"n_step": 50}),
        r"iqn: train.loss.n_step 50 exceeds the last target of the prefill, collect.turns - 1 = 49",
    ),
    "turns of no whole cycles": (
        train(turns=1010),
        r"iqn.train: turns 1010 is not a multiple of turns_per_cycle 25",
    ),
    "records of no whole cycles": (
        train(record_every=65),
        r"iqn.train: record_every 65 is not a multiple of updates_per_cycle 32",
    ),
    "an end between records": (
        train(record_every=96, evaluate_every=0),
        r"iqn.train: turns / turns_per_cycle \* 32 = 1280 is not a multiple of record_every 96",
    ),
    "evaluations between records": (
        train(evaluate_every=96),
        r"iqn.train: evaluate_every 96 is not a multiple of record_every 64",
    ),
    "evaluations that never come": (
        train(evaluate_every=1344),
        r"iqn.train: evaluate_every 1344 exceeds the 1280 updates; 0 means never",
    ),
    "frames that tell the time": (
        env(max_turns=5)
        | {"network": {"frames": 5}}
        | train(turns_per_cycle=5, record_every=32, evaluate_every=0),
        r"iqn: network.frames 5 must be less than env.max_turns 5: the blank frames before "
        r"the start would tell",
    ),
    "an epsilon that never arrives": (
        acting(epsilon={"over_transitions": 42_000}),
        r"iqn: train.acting.epsilon.over_transitions 42000 exceeds the run's 16800 "
        r"transitions of an agent: "
        r"epsilon would still be 0\.61 at the end",
    ),
    "a dataset beyond memory": (
        {"collect": {"turns": 1_000_000}} | train(capacity=16_000_000),
        r"iqn: collect.turns takes 10 GiB over all seeds, worlds and agents; at most 8",
    ),
    "a replay beyond memory": (
        train(capacity=160_000_000),
        r"iqn: train.capacity takes 97 GiB over all seeds, worlds and agents; at most 64",
    ),
}


@pytest.mark.parametrize("case", MAPS)
def test_a_world_that_cannot_be_is_refused(case: str):
    overlay, line = MAPS[case]
    files = {"inputs/iqn/mine.txt": "###\n#.#\n###"}
    assert re.search(line, said := refusal(overlay, files)), said


@pytest.mark.parametrize("case", ENTITIES)
def test_items_that_cannot_be_are_refused(case: str):
    kinds, line = ENTITIES[case]
    assert re.search(line, said := refusal(env(entities=kinds))), said


@pytest.mark.parametrize("keys", LIMITS, ids=".".join)
def test_each_number_has_limits_that_its_refusal_names(keys: tuple[str, ...]):
    for value in LIMITS[keys]:
        overlay: Any = value
        for key in reversed(keys):
            overlay = {key: overlay}
        said = refusal(overlay)
        assert f"iqn.{'.'.join(keys)} = {value}: Input should be " in said
        assert re.search(r"(greater|less) than (or equal to )?-?\d", said), said


@pytest.mark.parametrize("case", CHOICES)
def test_an_unknown_choice_is_refused_with_the_known_ones(case: str):
    overlay, line = CHOICES[case]
    assert re.search(line, said := refusal(overlay)), said


@pytest.mark.parametrize("case", TOGETHER)
def test_numbers_that_do_not_fit_together_are_refused_with_both_keys(case: str):
    overlay, line = TOGETHER[case]
    assert re.search(line, said := refusal(overlay)), said


def test_a_map_of_a_file_is_named_by_its_file_and_read_whatever_its_line_ends():
    overlay = env(**NO_SIZE, layout_file="inputs/iqn/mine.txt", agents=2, vision_radius=1)
    said = refusal(overlay, {"inputs/iqn/mine.txt": "####\n#..#\n#.##\n###.\n"})
    assert "iqn.env: inputs/iqn/mine.txt row 4, column 4: '.' on the border." in said
    good = config(overlay, {"inputs/iqn/mine.txt": "#####\r\n#1-A#\r\n#A..#\r\n#####\r\n\r\n"})
    assert good.env.rules.map.rows == ("#####", "#1-A#", "#A..#", "#####")


def test_a_map_file_that_is_not_there_is_refused():
    with pytest.raises(
        ConfigError,
        match=r"iqn.env.layout_file = 'inputs/iqn/no.txt': inputs/iqn/no.txt is not there",
    ):
        params_with({"iqn": env(**NO_SIZE, layout_file="inputs/iqn/no.txt")})


def test_items_of_the_map_alone_are_something_to_find():
    assert (
        config(
            drawn("#####", "#A.1#", "#####", spawn_probability=0.0), {}
        ).env.rules.spawn_probability
        == 0
    )


def test_the_config_can_be_written_down_hashed_and_read_again():
    files = {"inputs/iqn/mine.txt": "####\n#AA#\n#11#\n####\n"}
    selected = config(
        env(**NO_SIZE, layout_file="inputs/iqn/mine.txt", agents=2, vision_radius=1), files
    )
    again = IqnConfig.model_validate_json(selected.model_dump_json())
    assert again == selected
    assert hash(again) == hash(selected)
    assert again.env.rules == selected.env.rules
