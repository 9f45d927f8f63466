"""A folder that differs from what was saved is refused, in one line that says what to do."""

import json
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pipeline.runtime.errors import ArtifactError
from pipeline.storage import artifacts
from pipeline.storage.artifacts import load, read_json, write_json
from tests.pipeline.saved_folder import FILES, INFO


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
def test_each_of_100_random_bit_flips_and_each_truncation_is_found(folder: Path, name: str) -> None:
    data = (folder / name).read_bytes()
    flips = random.Random(name)
    for _ in range(100):
        flipped = bytearray(data)
        flipped[flips.randrange(len(data))] ^= 1 << flips.randrange(8)
        (folder / name).write_bytes(flipped)
        refusal(folder)
    for size in (0, 1, len(data) // 2, len(data) - 1):
        (folder / name).write_bytes(data[:size])
        assert name in refusal(folder)
    (folder / name).write_bytes(data)
    load(folder)


def _link_outside(folder: Path) -> None:
    (folder / "history.csv").rename(folder.parent / "history.csv")
    (folder / "history.csv").symlink_to(folder.parent / "history.csv")


def _pipe(folder: Path) -> None:
    (folder / "history.csv").unlink()
    os.mkfifo(folder / "history.csv")


def _pretty_manifest(folder: Path) -> None:
    (folder / "manifest.json").write_text(json.dumps(read_json(folder / "manifest.json"), indent=3))


def _huge_sparse_file(folder: Path) -> None:
    os.truncate(folder / "history.csv", 2**40)
    forge(folder, lambda manifest: manifest["files"]["history.csv"].update(size=2**40))


def _history(text: str) -> Callable[[Path], Any]:
    return lambda folder: (folder / "history.csv").write_text(text)


def _manifest(text: str) -> Callable[[Path], Any]:
    return lambda folder: (folder / "manifest.json").write_text(text)


DAMAGES: list[tuple[Callable[[Path], Any], str]] = [
    (lambda folder: (folder / "history.csv").unlink(), "missing: ['history.csv']"),
    (lambda folder: (folder / "x.csv").touch(), "do not belong to it: ['x.csv']"),
    (lambda folder: (folder / "plots").mkdir(), "do not belong to it: ['plots']"),
    (lambda folder: (folder / "manifest.json").unlink(), "manifest.json: cannot be opened (No su"),
    (lambda folder: folder.rename(folder.with_name("b")), "manifest.json: cannot be opened (No su"),
    (_link_outside, "history.csv: cannot be opened (Too many levels of symbolic links)"),
    (_pipe, "history.csv: is not a regular file"),
    (_history("s" * 20), "has 20 bytes, more than the 19"),
    (_history("s" * 18), "has 18 bytes instead of 19"),
    (_history("s" * 19), "does not match its sha256"),
    (_pretty_manifest, "manifest.json: does not match its own digest"),
    (_huge_sparse_file, "declares more than 17,179,869,184 bytes"),
    (_manifest(""), "manifest.json: cannot be read (JSONDecodeError"),
    (_manifest("[]"), "has schema version None, but this code reads 1"),
    (_manifest("[" * 10**5), "manifest.json: cannot be read (RecursionError"),
    (lambda folder: os.truncate(folder / "manifest.json", 2**40), "more than the 16,777,216"),
]


def _declare(file: str, array: str, **spec: Any) -> Callable[[dict[str, Any]], Any]:
    """Declares an array of a file otherwise, or one more."""

    def change(manifest: dict[str, Any]) -> None:
        arrays = manifest["files"][file]["arrays"]
        arrays[array] = arrays.get(array, {"dtype": "int8", "shape": [0]}) | spec

    return change


def _rename(name: str) -> Callable[[dict[str, Any]], Any]:
    return lambda m: m["files"].update({name: m["files"]["history.csv"]})


FORGERIES: list[tuple[Callable[[dict[str, Any]], Any], str]] = [
    (lambda m: m.update(schema_version=2), "has schema version 2, but this code reads 1"),
    (lambda m: m.update(notes=[]), "'notes': Extra inputs are not permitted"),
    (lambda m: m.pop("files"), "'files': Field required"),
    (_rename("../x.csv"), "match pattern"),
    (_rename("/etc/passwd"), "match pattern"),
    (_rename(".x.csv"), "match pattern"),
    (lambda m: m["files"]["history.csv"].update(size=-1), "greater than or equal to 0"),
    (_declare("data.safetensors", "goal", shape=[-1]), "greater than or equal to 0"),
    (_declare("data.safetensors", "goal", dtype="object"), "Input should be 'bool', 'int8'"),
    (
        _declare("data.safetensors", "train/state", dtype="float32"),
        "data.safetensors: array 'train/state' is int32 [11], but declared as float32 [11]",
    ),
    (
        _declare("weights.safetensors", "train/weight", shape=[5, 3]),
        "array 'train/weight' is float32 [3, 5], but declared as float32 [5, 3]",
    ),
    (
        _declare("data.safetensors", "x"),
        "data.safetensors: does not hold exactly the declared arrays: ['x']",
    ),
    (
        lambda m: m["files"]["weights.safetensors"]["arrays"].pop("goal"),
        "weights.safetensors: does not hold exactly the declared arrays: ['goal']",
    ),
    (_declare("history.csv", "x"), "history.csv: cannot be read (TypeError"),
    (
        _declare("data.safetensors", "goal", shape=[2**40]),
        "data.safetensors: is declared to hold more than its",
    ),
]


@pytest.mark.parametrize(("damage", "message"), DAMAGES)
def test_a_damaged_folder_is_refused(
    folder: Path, damage: Callable[[Path], Any], message: str
) -> None:
    damage(folder)
    assert message in refusal(folder)


@pytest.mark.parametrize(("change", "message"), FORGERIES)
def test_a_manifest_that_declares_what_is_not_there_is_refused(
    folder: Path, change: Callable[[dict[str, Any]], Any], message: str
) -> None:
    forge(folder, change)
    assert message in refusal(folder)


def test_what_an_interrupted_write_left_beside_a_valid_folder_does_not_matter(folder: Path) -> None:
    (folder / "data.safetensors.1234.partial").write_text("PK")
    assert load(folder).info == INFO
