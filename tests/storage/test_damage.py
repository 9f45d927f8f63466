"""A folder that differs from what was saved is refused, in one line that says what to do."""

import json
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pipeline.runtime.errors import RESTORE, described
from quatrain.errors import DataError
from quatrain.storage import folders
from quatrain.storage.folders import load, read_json, write_json
from tests.storage.saved_folder import FILES


def refusal(folder: Path) -> str:
    """The message of `load`, which is one line and says what to do."""
    with pytest.raises(DataError) as error:
        load(folder)
    message = described(error.value)
    assert "\n" not in message
    assert message.endswith(RESTORE)
    return message


def forged(change: Callable[[dict[str, Any]], Any]) -> Callable[[Path], None]:
    """Changes the manifest and makes its digest agree."""

    def damage(folder: Path) -> None:
        manifest = read_json(folder / "manifest.json")
        change(manifest)
        manifest.pop("digest")
        write_json(folder / "manifest.json", manifest | {"digest": folders.digest_of(manifest)})

    return damage


def declared(array: str, **spec: Any) -> Callable[[Path], None]:
    return forged(lambda m: m["files"]["data.safetensors"]["arrays"][array].update(spec))


def renamed(name: str) -> Callable[[Path], None]:
    return forged(lambda m: m["files"].update({name: m["files"]["history.csv"]}))


@pytest.mark.parametrize("name", FILES)
def test_each_of_100_random_bit_flips_and_each_truncation_is_found(folder: Path, name: str):
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


def linked(folder: Path, text: str | None = None) -> None:
    """A link in place of a file, to another one outside."""
    (folder / "history.csv").rename(folder.parent / "history.csv")
    (folder / "history.csv").symlink_to(folder.parent / "history.csv")
    if text is not None:
        (folder.parent / "history.csv").write_text(text)


def _pretty_manifest(folder: Path) -> None:
    (folder / "manifest.json").write_text(json.dumps(read_json(folder / "manifest.json"), indent=3))


def _huge_sparse_file(folder: Path) -> None:
    os.truncate(folder / "history.csv", 2**40)
    forged(lambda m: m["files"]["history.csv"].update(size=2**40))(folder)


def _history(text: str) -> Callable[[Path], Any]:
    return lambda folder: (folder / "history.csv").write_text(text)


def _manifest(text: str) -> Callable[[Path], Any]:
    return lambda folder: (folder / "manifest.json").write_text(text)


DAMAGES: list[tuple[Callable[[Path], Any], str]] = [
    (lambda folder: (folder / "history.csv").unlink(), "missing: ['history.csv']"),
    (lambda folder: (folder / "x.csv").touch(), "do not belong to it: ['x.csv']"),
    (lambda folder: (folder / "manifest.json").unlink(), "manifest.json: cannot be opened (No su"),
    (lambda folder: linked(folder, "s" * 19), "history.csv: does not match its sha256"),
    (_history("s" * 20), "has 20 bytes, more than the 19"),
    (_history("s" * 18), "has 18 bytes instead of 19"),
    (_pretty_manifest, "manifest.json: does not match its own digest"),
    (_huge_sparse_file, "declares more than 17,179,869,184 bytes"),
    (_manifest("[]"), "has schema version None, but this code reads 1"),
    (lambda folder: os.truncate(folder / "manifest.json", 2**40), "more than the 16,777,216"),
    (forged(lambda m: m.update(schema_version=2)), "has schema version 2, but this code reads 1"),
    (forged(lambda m: m.update(notes=[])), "'notes': Extra inputs are not permitted"),
    (renamed("../x.csv"), "match pattern"),
    (declared("goal", shape=[-1]), "greater than or equal to 0"),
    (declared("goal", dtype="float64"), "array 'goal' is int64 [], but declared as float64 []"),
    (declared("goal", shape=[2**40]), "data.safetensors: is declared to hold more than its"),
]


@pytest.mark.parametrize(("damage", "message"), DAMAGES)
def test_a_damaged_folder_is_refused(folder: Path, damage: Callable[[Path], Any], message: str):
    damage(folder)
    assert message in refusal(folder)


def test_a_link_to_the_right_bytes_is_read_and_never_written_through(folder: Path):
    """As DVC makes every file with `cache.type` symlink."""
    before = load(folder)
    linked(folder)
    assert load(folder).digest == before.digest
    folders.save(folder, before.contents | {"history.csv": "step,loss\n"}, before.info)
    assert (folder.parent / "history.csv").read_text() == before.contents["history.csv"]
    assert load(folder).contents["history.csv"] == "step,loss\n"
