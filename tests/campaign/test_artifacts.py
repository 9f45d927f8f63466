"""Data, learners and files of a user's own that are damaged, forged or of something else: refused
in one line, and nothing is changed.
"""

import io
import json
import os
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from pipeline.commands import identify
from pipeline.runtime.command import run_guarded
from pipeline.storage import artifacts
from pipeline.storage.params_file import read_content
from quatrain.registry import MODELS
from tests.campaign.obstacles import put
from tests.campaign.promises import content_of, refused, see, unchanged
from tests.campaign.stages import see_stage
from tests.conftest import ROOT
from tests.pipeline.fixture_types import Capture, Patch
from tests.pipeline.small_project import Project
from tests.pipeline.storage.test_damage import forged

Damage = Callable[[Path], object]


def edited(change: Callable[[bytearray], bytes | bytearray]) -> Damage:
    """Changes the bytes of a file."""
    return lambda path: path.write_bytes(change(bytearray(path.read_bytes())))


def cut(share: float) -> Damage:
    return edited(lambda data: data[: int(len(data) * share)])


def flipped(share: float) -> Damage:
    def flip(data: bytearray) -> bytearray:
        data[min(int(len(data) * share), len(data) - 1)] ^= 16
        return data

    return edited(flip)


def _twice(data: bytearray) -> bytes:
    """A header with one name twice, of the same length."""
    length = int.from_bytes(data[:8], "little")
    header = bytes(data[8 : 8 + length])
    names = [name for name in json.loads(header) if name != "__metadata__"]
    entry = json.dumps({names[0]: json.loads(header)[names[0]]})[1:-1]
    text = f"{{{entry},{entry},{header.decode().strip()[1:]}".encode()
    return len(text).to_bytes(8, "little") + text + bytes(data[8 + length :])


FILE_DAMAGES: dict[str, Damage] = {
    **{f"cut at {share}": cut(share) for share in (0.0, 0.01, 0.3, 0.5, 0.9, 0.999)},
    **{f"bit at {share}": flipped(share) for share in (0.0, 0.02, 0.2, 0.5, 0.8, 1.0)},
    "longer": edited(lambda data: data + b"\0"),
    "zeros": edited(lambda data: bytes(len(data))),
    "header of terabytes": edited(lambda data: b"\xff" * 6 + data[6:]),
    "a name twice": edited(lambda data: _twice(data) if data[8:9] == b"{" else data + data),
    "longer by far": lambda path: os.truncate(path, 2**25),
    "zip": edited(lambda data: b"PK\3\4" + data[4:]),
    **{
        thing: lambda path, thing=thing: put(thing, path)  # type: ignore[misc]
        for thing in ("pipe", "socket", "device", "loop", "folder", "link to nothing", "deep")
    },
}


class Row(NamedTuple):
    model: str
    verb: str
    file: str
    damage: str


FILES = {
    "train": ("data/M/dataset.safetensors", "data/M/manifest.json"),
    "evaluate": (
        "models/M/weights.safetensors",
        "models/M/state.safetensors",
        "models/M/config.json",
        "models/M/history.csv",
        "models/M/manifest.json",
    ),
}
FILE_ROWS = [
    Row(model, verb, files[(place + number) % len(files)], damage)
    for model in MODELS
    for verb, files in FILES.items()
    for number, damage in enumerate(FILE_DAMAGES)
    for place in (list(MODELS).index(model),)
]


def refuses(project: Project, verb: str, says: str, capsys: Capture) -> None:
    """The stage ends with exit 3, before it writes anything."""
    outs = ("data", "models", "reports")
    before = [content_of(project.root / out) for out in outs]
    refused(see_stage(verb, project.model, capsys), 3, says)
    for out, content in zip(outs, before, strict=True):
        unchanged(content, content_of(project.root / out))


@pytest.mark.parametrize("row", FILE_ROWS, ids="-".join)
def test_a_damaged_file_is_never_used(
    row: Row, finished: Callable[[str], Project], capsys: Capture
):
    project = finished(row.model)
    path = project.root / row.file.replace("M", row.model)
    FILE_DAMAGES[row.damage](path)
    refuses(project, row.verb, str(path.parent.relative_to(project.root)), capsys)


# A manifest that agrees with itself, and yet is of something else.


def of_another(folder: Path) -> None:
    """The folder of the next model."""
    names = list(MODELS)
    other = names[(names.index(folder.name) + 1) % len(names)]
    shutil.rmtree(folder)
    contents = {"dataset.safetensors": {"other": np.zeros(3, np.float32)}}
    artifacts.save(folder, contents, {"stage": f"collect@{other}"})


def saved_with(change: Callable[[dict[str, Any], dict[str, Any]], object]) -> Damage:
    """Saves the folder again with other contents or info, under a manifest that is right."""

    def damage(folder: Path) -> None:
        contents, info, _ = artifacts.load(folder)
        contents = {
            name: dict(value) if isinstance(value, dict) else value
            for name, value in contents.items()
        }
        change(contents, info)
        shutil.rmtree(folder)
        artifacts.save(folder, contents, info)

    return damage


def arrays_of(contents: dict[str, Any]) -> dict[str, np.ndarray]:
    name = "dataset.safetensors" if "dataset.safetensors" in contents else "weights.safetensors"
    return contents[name]


def _first_array(contents: dict[str, Any], change: Callable[[np.ndarray], np.ndarray]) -> None:
    arrays = arrays_of(contents)
    name = next(iter(arrays))
    arrays[name] = change(arrays[name])


FOLDER_DAMAGES: dict[str, Damage] = {
    "extra file": lambda folder: (folder / "extra.csv").touch(),
    "extra folder": lambda folder: (folder / "plots").mkdir(),
    "name not UTF-8": lambda folder: (folder / "\udcff.csv").touch(),
    "no manifest": lambda folder: (folder / "manifest.json").unlink(),
    "schema 2": forged(lambda manifest: manifest.update(schema_version=2)),
    "schema none": forged(lambda manifest: manifest.pop("schema_version")),
    "files a list": forged(lambda manifest: manifest.update(files=[])),
    "info a list": forged(lambda manifest: manifest.update(info=[])),
    "path in a name": forged(
        lambda manifest: manifest["files"].update({"../x.csv": {"sha256": "", "size": 0}})
    ),
    "no arrays": saved_with(lambda contents, _: arrays_of(contents).clear()),
    "array missing": saved_with(
        lambda contents, _: arrays_of(contents).pop(next(iter(arrays_of(contents))))
    ),
    "array too many": saved_with(
        lambda contents, _: arrays_of(contents).update(more=np.zeros(2, np.float32))
    ),
    "other shape": saved_with(
        lambda contents, _: _first_array(contents, lambda array: np.zeros((2, 3, 5), array.dtype))
    ),
    "other dtype": saved_with(
        lambda contents, _: _first_array(contents, lambda array: array.astype(np.int8)[None])
    ),
    "of another model": of_another,
}
FOLDER_ROWS = [
    Row(model, verb, folder, damage)
    for model in MODELS
    for verb, folder in (("train", "data/M"), ("evaluate", "models/M"))
    for damage in FOLDER_DAMAGES
]


@pytest.mark.parametrize("row", FOLDER_ROWS, ids="-".join)
def test_a_folder_of_something_else_is_never_used(
    row: Row, finished: Callable[[str], Project], capsys: Capture
):
    project = finished(row.model)
    FOLDER_DAMAGES[row.damage](project.root / row.file.replace("M", row.model))
    refuses(project, row.verb, row.model, capsys)


# Files of a user's own.


def zipped(*members: tuple[str, bytes], compression: int = zipfile.ZIP_DEFLATED) -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", compression) as archive:
        for name, content in members:
            archive.writestr(name, content)
    return data.getvalue()


def npy(value: Any, **named: Any) -> bytes:
    data = io.BytesIO()
    np.save(data, value, **named)
    return data.getvalue()


def npz(**arrays: Any) -> bytes:
    data = io.BytesIO()
    np.savez(data, **arrays)
    return data.getvalue()


def claims(shape: str) -> bytes:
    """An .npy file that says to hold an array of this shape, and holds eight bytes."""
    header = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    return b"\x93NUMPY\1\0" + len(header).to_bytes(2, "little") + header.encode() + bytes(8)


GOOD = npz(observations=np.zeros((2, 400, 8)), actions=np.zeros((2, 399, 2)))
BYTES: dict[str, bytes] = {
    "empty": b"",
    "text": b"hello\n",
    "not UTF-8": b"\xff\xfe" * 9,
    "deep": b"[" * 100_000,
    "cut": GOOD[: len(GOOD) // 2],
    "cut end": GOOD[:-3],
    "flipped": GOOD[:200] + bytes([GOOD[200] ^ 255]) + GOOD[201:],
    "no members": zipped(),
    "member is text": zipped(("actions.npy", b"hello")),
    "path in a name": zipped(("../../actions.npy", npy(np.zeros((2, 3, 2))))),
    "absolute name": zipped(("/etc/passwd", npy(np.zeros((2, 3, 2))))),
    "name not ASCII": zipped(("\udcff".encode("utf-8", "ignore").decode() + "é.npy", b"")),
    "bomb": zipped(("actions.npy", bytes(2**23))),
    "bzip2": zipped(("actions.npy", npy(np.zeros((2, 3, 2)))), compression=zipfile.ZIP_BZIP2),
    "claims terabytes": zipped(("actions.npy", claims("(1099511627776,)"))),
    "claims exabytes": zipped(("actions.npy", claims("(1099511627776, 1099511627776)"))),
    "claims less than nothing": zipped(("actions.npy", claims("(-1,)"))),
    "claims True": zipped(("actions.npy", claims("(True,)"))),
    "header is code": zipped(("actions.npy", claims("(__import__('os').abort(),)"))),
    "pickled": npz(actions=np.zeros(3)).replace(b"<f8", b"|O8"),
    "objects": zipped(("actions.npy", npy(np.array([{}], object), allow_pickle=True))),
    "text array": npz(actions=np.array(["a"]), observations=np.array(["b"])),
    "complex": npz(actions=np.zeros(3, complex)),
    "an array alone": npy(np.zeros(3)),
    "other names": npz(a=np.zeros((2, 3, 2)), b=np.zeros((2, 4, 2))),
    "NaN": npz(observations=np.full((2, 40, 8), np.nan), actions=np.zeros((2, 39, 2))),
    "no axes": npz(observations=np.zeros(()), actions=np.zeros(())),
    "nothing in it": npz(observations=np.zeros((0, 1, 8)), actions=np.zeros((0, 0, 2))),
}
THINGS = ("folder", "link to nothing", "loop", "pipe", "socket", "device")


@pytest.fixture
def project(tmp_path: Path, monkeypatch: Patch) -> Path:
    for name in ("params.yaml", "presets"):
        (tmp_path / name).symlink_to(ROOT / name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def lay(path: Path, kind: str) -> None:
    if kind in BYTES:
        path.write_bytes(BYTES[kind])
    else:
        put(kind, path)


@pytest.mark.parametrize("kind", [*BYTES, *THINGS])
def test_a_recording_that_cannot_be_used_is_refused(kind: str, project: Path, capsys: Capture):
    lay(project / "mine.npz", kind)
    before = content_of(project)
    outcome = see(lambda: identify.main(["--recording", "mine.npz"]), capsys)
    refused(outcome, 3 if outcome.code == 3 else 2, r"mine\.npz")
    unchanged(before, content_of(project))


# Their members are arrays like others, whatever the names, or there are none.
ARRAYS = ("path in a name", "absolute name", "other names", "no members", "NaN", "no axes")
INPUTS = [
    (ending, kind)
    for ending, kinds in (
        (
            ".npz",
            [kind for kind in BYTES if kind not in ARRAYS],
        ),
        (".npy", [kind for kind in BYTES if kind != "an array alone"]),
        (".txt", ["not UTF-8", "cut", "bomb"]),
    )
    for kind in (*kinds, *THINGS)
]


@pytest.mark.parametrize(("ending", "kind"), INPUTS)
def test_a_file_that_a_config_names_is_refused_before_it_is_unfolded(
    ending: str, kind: str, project: Path, capsys: Capture
):
    path = project / f"mine{ending}"
    lay(path, kind)

    def work() -> None:
        read_content(path)

    refused(see(lambda: run_guarded("x", work), capsys), 2, r"mine\.")
