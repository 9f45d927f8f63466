"""A YAML file is read as DVC reads it, or refused in a line that says where."""

import re
import signal
from pathlib import Path
from unittest.mock import Mock

import pytest
from dvc.utils.serialize import modify_yaml, parse_yaml
from ruamel.yaml import YAML

from pipeline.runtime.errors import Interrupted
from quatrain.errors import ConfigError
from quatrain.storage.yaml_text import parse_mapping
from tests.pipeline.fixture_types import Patch

REFUSED = [
    (
        "%YAML 1.1\n---\na: yes\n",
        "line 2: directives are not allowed: the file is YAML 1.2; remove",
    ),
    ("%YAML 1.3\n---\na: 1\n", "not YAML: version minor part can only be 2 or 1"),
    ("%TAG ! !x\n---\na: 1\n", "line 2: directives"),
    ("a: 1\nb:\n  <<: {c: 1}\n", "line 3: << is a YAML merge; quote it as text: '<<'"),
    ("a: 010\n", "line 1: readers of YAML take 010 for different numbers; write decimal digits"),
    ("a: 1_000\n", "take 1_000 for different numbers"),
    ("a: 0x1F\n", "take 0x1F for different numbers"),
    ("a: 2020-01-01\n", "line 1: 2020-01-01 is a YAML timestamp; quote it as text: '2020-01-01'"),
    ("a:\n- 1: 2\n", "my.yaml: key 1 is of type int; write a name"),
    ("~: 2\n", "my.yaml: key None is of type NoneType; write a name"),
    ("? [a]\n: 1\n", "write a name"),
    ("a: !!int '3'\n", "line 1: tag .*int is not allowed; write a plain value"),
    ("!!python/object/apply:os.system [ls]\n", "line 1: tag .* is not allowed"),
    ("a: &a 0\nb: 1\n", "line 1: anchors and aliases are not allowed; write the value out"),
    ("a: 1\nb: *a\n", "line 2: anchors and aliases are not allowed"),
    ("a: 1\n---\nb: 1\n", "line 2, column 1: expected a single document in the stream but found"),
    ("a:\n" + f"b: {'[' * 20_000}", "line 2: nested deeper than 20 levels"),
    ("a: 1\n'a': 2\n", "line 2, column 1: .*duplicate key"),
    ("a: [1\nb: 2\n", "line 2, column .*: "),
    ("- 1\n- 2\n", "holds a list; expected `key: value` lines; `git checkout my.yaml` restores it"),
    (" # nothing\n", "is empty; expected `key: value` lines"),
]
READ = [
    ("%YAML 1.2 # c\r\n---\r\na: 1\r\n", {"a": 1}),
    ("a: [off, yes, none, 12:30]\n", {"a": ["off", "yes", "none", "12:30"]}),
    ("a: [1e3, 1.e-3, .5, -0, +1, 0.]\n", {"a": [1000.0, 1e-3, 0.5, 0, 1, 0.0]}),
    ("a: [true, TRUE, ~, null, -.INF]\n", {"a": [True, True, None, None, float("-inf")]}),
    ("? a\n: |\n  ##\n  #.\n...\n", {"a": "##\n#.\n"}),
    ("a: '010'\n", {"a": "010"}),
]


@pytest.mark.parametrize(("text", "line"), REFUSED)
def test_what_readers_take_for_different_things_is_refused(text: str, line: str):
    with pytest.raises(ConfigError, match=line) as caught:
        parse_mapping("my.yaml", text)
    assert re.fullmatch(r"my\.yaml( line \d+(, column \d+)?)?: .+", str(caught.value))


@pytest.mark.parametrize(("text", "values"), READ)
def test_the_rest_is_read_as_dvc_reads_it(text: str, values: dict[str, object]):
    assert repr(parse_mapping("my.yaml", text)) == repr(values)
    assert repr(parse_yaml(text, "my.yaml")) == repr(values)


def test_an_interruption_while_a_text_is_read_stays_one(monkeypatch: Patch):
    monkeypatch.setattr(YAML, "load", Mock(side_effect=Interrupted(signal.SIGTERM)))
    with pytest.raises(Interrupted):
        parse_mapping("my.yaml", "a: 1\n")


def test_an_experiment_changes_one_line_of_params_yaml(tmp_path: Path):
    text = Path("params.yaml").read_text()
    copy = tmp_path / "params.yaml"
    copy.write_text(text)
    with modify_yaml(copy) as params:
        params["allo"]["train"]["batch_size"] = 512
    assert copy.read_text() == text.replace("    batch_size: 256", "    batch_size: 512", 1)
