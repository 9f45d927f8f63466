"""A folder that differs in any way from what was saved is refused, in one line that says what to
do.
"""

import json
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.runtime.errors import ArtifactError
from pipeline.storage import artifacts
from pipeline.storage.artifacts import load, read_json, save, write_json
from tests.pipeline.saved_folder import ARRAYS, CONTENTS, FILES, INFO


def refusal(folder: Path) -> str:
    """The message of `load`, which is one line and says what to do."""
    with pytest.raises(ArtifactError) as error:
        load(folder)
    message = str(error.value)
    assert "\n" not in message
    assert message.endswith(
        "; restore it with `dvc checkout --force`, or remove its folder and run `dvc repro`"
    )
    return message


def forge(folder: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    """Change the manifest and make its digest agree."""
    manifest = read_json(folder / "manifest.json")
    change(manifest)
    manifest.pop("digest", None)
    write_json(folder / "manifest.json", manifest | {"digest": artifacts.digest_of(manifest)})


@pytest.mark.parametrize("name", FILES)
def test_each_of_200_random_bit_flips_is_found(folder: Path, name: str) -> None:
    data = (folder / name).read_bytes()
    flips = random.Random(name)
    for _ in range(200):
        flipped = bytearray(data)
        flipped[flips.randrange(len(data))] ^= 1 << flips.randrange(8)
        (folder / name).write_bytes(flipped)
        refusal(folder)
    (folder / name).write_bytes(data)
    load(folder)


@pytest.mark.parametrize("tenths", range(10))
@pytest.mark.parametrize("name", FILES)
def test_a_truncated_file_is_refused(folder: Path, name: str, tenths: int) -> None:
    data = (folder / name).read_bytes()
    (folder / name).write_bytes(data[: len(data) * tenths // 10])
    assert name in refusal(folder)


def _link_outside(folder: Path) -> None:
    (folder / "history.csv").rename(folder.parent / "history.csv")
    (folder / "history.csv").symlink_to(folder.parent / "history.csv")


def _pipe(folder: Path) -> None:
    (folder / "history.csv").unlink()
    os.mkfifo(folder / "history.csv")


def _sub_folder(folder: Path) -> None:
    (folder / "history.csv").unlink()
    (folder / "history.csv").mkdir()


def _files_of_another_dataset(folder: Path) -> None:
    save(
        folder.parent / "other",
        CONTENTS | {"data.safetensors": ARRAYS | {"goal": np.asarray(-2)}},
        INFO,
    )
    (folder / "data.safetensors").write_bytes(
        (folder.parent / "other" / "data.safetensors").read_bytes()
    )


def _manifest_of_another_dataset(folder: Path) -> None:
    save(folder.parent / "other", CONTENTS | {"history.csv": "step,loss\n100,0.26\n"}, INFO)
    (folder / "manifest.json").write_bytes((folder.parent / "other" / "manifest.json").read_bytes())


def _pretty_manifest(folder: Path) -> None:
    (folder / "manifest.json").write_text(json.dumps(read_json(folder / "manifest.json"), indent=3))


def _huge_sparse_file(folder: Path) -> None:
    os.truncate(folder / "history.csv", 2**40)
    forge(folder, lambda manifest: manifest["files"]["history.csv"].update(size=2**40))


def _text(folder: Path, text: str) -> None:
    (folder / "manifest.json").write_text(text)


DAMAGES: dict[str, tuple[Callable[[Path], Any], str]] = {
    "file missing": (lambda f: (f / "history.csv").unlink(), "missing: ['history.csv']"),
    "file too many": (
        lambda f: (f / "x.safetensors").touch(),
        "do not belong to it: ['x.safetensors']",
    ),
    "folder too many": (lambda f: (f / "plots").mkdir(), "do not belong to it: ['plots']"),
    "manifest missing": (
        lambda f: (f / "manifest.json").unlink(),
        "manifest.json: cannot be opened (No such",
    ),
    "folder missing": (
        lambda f: f.rename(f.with_name("b")),
        "manifest.json: cannot be opened (No such",
    ),
    "link": (_link_outside, "history.csv: cannot be opened (Too many levels of symbolic links)"),
    "pipe": (_pipe, "history.csv: is not a regular file"),
    "sub-folder": (_sub_folder, "history.csv: is not a regular file"),
    "longer": (
        lambda f: (f / "history.csv").write_text("s" * 20),
        "has 20 bytes, more than the 19",
    ),
    "shorter": (lambda f: (f / "history.csv").write_text("s" * 18), "has 18 bytes instead of 19"),
    "other": (lambda f: (f / "history.csv").write_text("s" * 19), "does not match its sha256"),
    "files of another dataset": (
        _files_of_another_dataset,
        "data.safetensors: does not match its sha256",
    ),
    "manifest of another dataset": (
        _manifest_of_another_dataset,
        "history.csv: does not match its sha256",
    ),
    "manifest rewritten": (_pretty_manifest, "manifest.json: does not match its own digest"),
    "terabyte of zeros": (_huge_sparse_file, "declares more than 17,179,869,184 bytes"),
    "manifest empty": (lambda f: _text(f, ""), "manifest.json: cannot be read (JSONDecodeError"),
    "manifest a list": (lambda f: _text(f, "[]"), "has schema version None, but this code reads 1"),
    "manifest with equal keys": (lambda f: _text(f, '{"a": 1, "a": 2}'), "holds the key 'a' twice"),
    "manifest with NaN": (
        lambda f: _text(f, '{"a": NaN}'),
        "holds the number NaN, which is not finite",
    ),
    "manifest nested deep": (
        lambda f: _text(f, "[" * 10**5),
        "manifest.json: cannot be read (RecursionError",
    ),
    "manifest huge": (
        lambda f: os.truncate(f / "manifest.json", 2**40),
        "more than the 16,777,216",
    ),
}
FORGERIES: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "schema of the past": (
        lambda m: m.update(schema_version=0),
        "has schema version 0, but this code reads 1",
    ),
    "schema of the future": (
        lambda m: m.update(schema_version=2),
        "has schema version 2, but this code",
    ),
    "schema a word": (
        lambda m: m.update(schema_version="1"),
        "has schema version '1', but this code reads 1",
    ),
    "unknown key": (lambda m: m.update(notes=[]), "'notes': Extra inputs are not permitted"),
    "no files": (lambda m: m.pop("files"), "'files': Field required"),
    "path upwards": (
        lambda m: m["files"].update({"../x.csv": m["files"]["history.csv"]}),
        "match pattern",
    ),
    "absolute path": (
        lambda m: m["files"].update({"/etc/passwd": m["files"]["history.csv"]}),
        "match pattern",
    ),
    "hidden file": (
        lambda m: m["files"].update({".x.csv": m["files"]["history.csv"]}),
        "match pattern",
    ),
    "negative size": (
        lambda m: m["files"]["history.csv"].update(size=-1),
        "greater than or equal to 0",
    ),
    "quoted size": (
        lambda m: m["files"]["history.csv"].update(size="20"),
        "should be a valid integer",
    ),
    "other dtype": (
        lambda m: m["files"]["data.safetensors"]["arrays"]["train/state"].update(dtype="float32"),
        "data.safetensors: array 'train/state' is int32 [11], but declared as float32 [11]",
    ),
    "other shape": (
        lambda m: m["files"]["weights.safetensors"]["arrays"]["train/weight"].update(shape=[5, 3]),
        "weights.safetensors: array 'train/weight' is float32 [3, "
        "5], but declared as float32 [5, 3]",
    ),
    "negative shape": (
        lambda m: m["files"]["data.safetensors"]["arrays"]["goal"].update(shape=[-1]),
        "greater than or equal to 0",
    ),
    "object dtype": (
        lambda m: m["files"]["data.safetensors"]["arrays"]["goal"].update(dtype="object"),
        "Input should be 'bool', 'int8'",
    ),
    "array missing": (
        lambda m: m["files"]["data.safetensors"]["arrays"].update(
            x={"dtype": "int8", "shape": [0]}
        ),
        "data.safetensors: does not hold exactly the declared arrays: ['x']",
    ),
    "array too many": (
        lambda m: m["files"]["weights.safetensors"]["arrays"].pop("goal"),
        "weights.safetensors: does not hold exactly the declared arrays: ['goal']",
    ),
    "arrays in a table": (
        lambda m: m["files"]["history.csv"]["arrays"].update(x={"dtype": "int8", "shape": [2]}),
        "history.csv: cannot be read (TypeError",
    ),
    "terabytes declared": (
        lambda m: m["files"]["data.safetensors"]["arrays"]["goal"].update(shape=[2**40]),
        "data.safetensors: is declared to hold more than its",
    ),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_a_damaged_folder_is_refused(folder: Path, name: str) -> None:
    damage, message = DAMAGES[name]
    damage(folder)
    assert message in refusal(folder)


@pytest.mark.parametrize("name", FORGERIES)
def test_a_manifest_that_declares_what_is_not_there_is_refused(folder: Path, name: str) -> None:
    change, message = FORGERIES[name]
    forge(folder, change)
    assert message in refusal(folder)


def test_what_an_interrupted_write_left_beside_a_valid_folder_does_not_matter(folder: Path) -> None:
    (folder / "data.safetensors.1234.partial").write_text("PK")
    assert load(folder).info == INFO
