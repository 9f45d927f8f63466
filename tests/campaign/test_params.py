"""params.yaml, presets, sweeps and options: refused in one line, or taken as DVC reads them."""

import io
import json
from pathlib import Path
from typing import Any

import pytest
from dvc.utils.serialize import parse_yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from ruamel.yaml import YAML

from pipeline.commands import params
from pipeline.storage.params_file import overlaid, read_raw
from quatrain.errors import ConfigError
from quatrain.storage.yaml_text import parse_mapping
from tests.campaign import yaml_texts
from tests.campaign.promises import broken, refused, see
from tests.campaign.written_params import (
    HOSTILE,
    KINDS,
    VARIANTS,
    changed,
    checked,
    keys_of,
    refused_or_taken_as_written,
    same,
    values_of,
    written_nothing,
)
from tests.config_keys import overlay_of
from tests.config_schema import Key
from tests.conftest import ROOT, committed
from tests.test_params import REFUSALS

Capture = pytest.CaptureFixture[str]
Patch = pytest.MonkeyPatch
GOOD = (ROOT / "params.yaml").read_text()
KEYS = {f"{variant}-{key}": key for variant in VARIANTS for key in keys_of(variant)}
ROWS = [(name, kind) for name in KEYS for kind in KINDS]


@pytest.mark.parametrize(("name", "kind"), ROWS, ids=[f"{name}-{kind}" for name, kind in ROWS])
def test_a_value_is_refused_or_taken_as_it_is_written(
    name: str, kind: str, capsys: Capture, record_property: Any
):
    key = KEYS[name]
    written = values_of(kind, key)
    record_property("generated", len(written) - 1)
    for value in written:
        was_refused = refused_or_taken_as_written(changed(key, value), key.path, capsys)
        if kind == "outside" and not was_refused:
            broken("silent", f"{name}: {value!r} is outside, and taken")


@pytest.mark.parametrize(("changes", "says"), REFUSALS, ids=[says[:60] for _, says in REFUSALS])
def test_keys_that_do_not_go_together_are_refused(changes: str, says: str, capsys: Capture):
    answer, _ = checked(overlaid(committed(), overlay_of(changes)), capsys)
    refused(answer, 2)
    if says not in answer.said:
        broken("unclear", answer.said)


# The text of files.


def text_of_params(row: yaml_texts.Row) -> bytes:
    """The row in place of the whole file, or in place of a line."""
    return row.data if row.is_whole else GOOD.encode().replace(b"seed: 0\n", row.data, 1)


@pytest.mark.parametrize("row", yaml_texts.ROWS, ids=lambda row: row.name)
@pytest.mark.parametrize("place", ["params.yaml", "preset"])
def test_a_text_is_refused_or_read_as_dvc_reads_it(
    place: str, row: yaml_texts.Row, params_folder: Path, capsys: Capture
):
    options = ["check"]
    path = params_folder / "params.yaml"
    if place == "preset":
        (params_folder / "presets").unlink()
        path = params_folder / "presets" / "mine.yaml"
        path.parent.mkdir()
        options.append("mine")
    data = text_of_params(row)
    path.write_bytes(
        data if place == "params.yaml" or row.is_whole else b"preset: mine\n" + row.data
    )
    answer = written_nothing(params_folder, lambda: params.main(options), capsys)
    if answer.code:
        refused(answer, 2, rf"{path.name}\b")
        return
    if row.refused and not (place == "preset" and (row.is_whole or not row.data)):
        broken("silent", f"{row.name} is read")
    text = path.read_bytes().decode()
    if not same(parse_yaml(text, path), parse_mapping(path.name, text.removeprefix("\ufeff"))):
        broken("silent", f"{row.name} is read otherwise than DVC reads it")


SCALARS = st.one_of(
    st.sampled_from(yaml_texts.SCALARS),
    st.integers().map(str),
    st.floats().map(repr),
    st.text("0123456789+-._eExXobB:", min_size=1, max_size=8),
    st.text(max_size=6).map(json.dumps),
    st.from_regex(r"[a-z<=~!%&*?|>-]{0,4}", fullmatch=True),
)
NAMES = st.one_of(st.sampled_from(["a", "b", "c", "'d'", "<<", "? e", "1", "~"]), SCALARS)
FLOWS = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(lambda parts: f"[{', '.join(parts)}]"),
        st.lists(st.tuples(NAMES, inner), max_size=3).map(
            lambda pairs: f"{{{', '.join(f'{key}: {value}' for key, value in pairs)}}}"
        ),
    ),
    max_leaves=5,
)
TEXTS = st.tuples(
    st.sampled_from(
        ["", "", "", "---\n", "%YAML 1.1\n---\n", "%YAML 1.2\n---\n", "# c\n", "\ufeff"]
    ),
    st.lists(st.tuples(NAMES, FLOWS), min_size=1, max_size=4),
    st.sampled_from(["\n", "\n", "\r\n", "\r", "\n\n"]),
    st.sampled_from(["", "", "...\n", "---\n", "# end", "\t"]),
).map(lambda parts: parts[0] + "".join(f"{k}: {v}{parts[2]}" for k, v in parts[1]) + parts[3])
LONG = settings(deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)


@pytest.mark.parametrize("part", range(12))
def test_generated_texts_are_refused_or_read_as_dvc_reads_them(part: int, record_property: Any):
    """Text of scalars, names, flows, directives and line ends; a twelfth of the examples."""
    counts = [0, 0]

    @settings(LONG, max_examples=250)
    @given(st.just(part), TEXTS)
    def reads(_: int, text: str) -> None:
        counts[0] += 1
        try:
            ours = parse_mapping("my.yaml", text)
        except ConfigError as error:
            if "\n" in str(error) or not str(error).startswith("my.yaml"):
                broken("unclear", str(error))
            return
        counts[1] += 1
        if not same(parse_yaml(text, "my.yaml"), ours):
            broken("silent", f"{text!r}: {ours!r}")

    reads()
    record_property("generated", counts[0])
    assert counts[1]


HOSTILE_VALUES = st.one_of(
    st.sampled_from(list(HOSTILE.values())),
    st.integers(),
    st.floats(),
    st.text(max_size=8),
    st.booleans(),
    st.none(),
    st.lists(st.one_of(st.integers(-2, 2), st.floats(0, 1)), max_size=3),
)


@st.composite
def written(draw: st.DrawFn, variant: str) -> tuple[dict[str, Any], list[Key]]:
    """params.yaml with one to three of its values replaced by others, right or wrong."""
    keys = draw(st.lists(st.sampled_from(list(keys_of(variant))), min_size=1, max_size=3))
    raw: Any = keys[0].raw
    for key in keys:
        value = draw(
            st.one_of(HOSTILE_VALUES, st.sampled_from([*values_of("at a bound", key), None]))
        )
        try:
            raw = changed(key._replace(raw=raw), value)
        except (KeyError, TypeError, IndexError):  # within a section that another value replaced
            continue
    return raw, keys


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("part", range(4))
def test_generated_params_are_refused_or_taken_as_dvc_reads_them(
    variant: str, part: int, capsys: Capture, record_property: Any
):
    count = 0

    @settings(LONG, max_examples=200)
    @given(st.just(part), written(variant))
    def is_as_written(_: int, drawn: tuple[dict[str, Any], list[Key]]) -> None:
        nonlocal count
        count += 1
        answer, values = checked(drawn[0], capsys)
        if values is None:
            refused(answer, 2, r"params\.yaml: ")
            return
        text = io.StringIO()
        YAML(typ="safe", pure=True).dump(drawn[0], text)
        by_dvc = parse_yaml(text.getvalue(), "params.yaml")
        if not same(by_dvc, values.model_dump(by_alias=True)):
            broken("silent", f"{[str(key) for key in drawn[1]]}: {by_dvc}")

    is_as_written()
    record_property("generated", count)


def test_what_an_experiment_writes_is_read(params_folder: Path, capsys: Capture):
    """`dvc exp run -S` writes by ruamel, and keeps comments."""
    from dvc.utils.serialize import modify_yaml

    with modify_yaml(str(params_folder / "params.yaml")) as content:
        content["allo"]["train"]["steps"] = 2000
        content["allo"]["train"]["learning_rate"] = 5e-4
    answer = see(lambda: params.main(["check"]), capsys)
    assert (answer.code, read_raw(params_folder)["allo"]["train"]["steps"]) == (0, 2000)
    with modify_yaml(str(params_folder / "params.yaml")) as content:
        content["allo"]["<<"] = {"seeds": 2}
    refused(see(lambda: params.main(["check"]), capsys), 2, "merge key <<")
