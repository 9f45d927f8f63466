"""What is saved comes back, in bytes that only the content decides."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from quatrain.errors import DataError
from quatrain.storage import folders
from quatrain.storage.folders import load, save
from tests.storage.saved_folder import ARRAYS, CONTENTS, FILES, INFO


def test_what_is_loaded_is_what_was_saved(folder: Path):
    loaded = load(folder)
    assert loaded.info == INFO
    assert loaded.contents.keys() == CONTENTS.keys()
    result = loaded.contents["data.safetensors"]
    assert result.keys() == ARRAYS.keys()
    for key, array in ARRAYS.items():
        np.testing.assert_array_equal(result[key], array, strict=True)
        result[key][...] = 0  # writable: nothing else holds this memory
    for name in ("config.json", "history.csv", "loss.png"):
        assert loaded.contents[name] == CONTENTS[name]


def test_equal_contents_give_equal_bytes_whatever_their_order_and_their_layout_in_memory(
    folder: Path, tmp_path: Path
):
    reverse = {
        name: dict(reversed(content.items())) if isinstance(content, dict) else content
        for name, content in reversed(CONTENTS.items())
    }
    digest = save(tmp_path / "b", reverse, dict(reversed(INFO.items())))
    assert digest == load(folder).digest == folders.read_digest(folder)
    for name in FILES:
        assert (folder / name).read_bytes() == (tmp_path / "b" / name).read_bytes()

    plain = np.arange(15, dtype=np.float32).reshape(3, 5)
    sliced = np.repeat(plain, 2, axis=1)[:, ::2]
    layouts = [plain, np.asfortranarray(plain), plain.astype(">f4"), sliced]
    assert len({save(folder, {"a.safetensors": {"x": layout}}, {}) for layout in layouts}) == 1
    result = load(folder).contents["a.safetensors"]["x"]
    np.testing.assert_array_equal(result, plain, strict=True)


def test_saving_again_removes_what_an_earlier_version_left(folder: Path):
    (folder / "config.json.1234.partial").write_text("{")
    assert load(folder).info == INFO
    save(folder, {"history.csv": "step\n"}, INFO)
    assert sorted(path.name for path in folder.iterdir()) == ["history.csv", "manifest.json"]
    assert load(folder).contents == {"history.csv": "step\n"}


@pytest.mark.parametrize("foreign", ["notes.md", "plots/loss.png"])
def test_saving_refuses_a_folder_that_holds_what_only_a_person_can_have_put_there(
    folder: Path, foreign: str
):
    (folder / foreign).parent.mkdir(exist_ok=True)
    (folder / foreign).write_text("mine")
    with pytest.raises(DataError, match=r"is in the way of a folder .*; move it elsewhere"):
        save(folder, {"history.csv": ""}, {})
    assert (folder / foreign).read_text() == "mine"
    assert (folder / "history.csv").read_text() == CONTENTS["history.csv"]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.safetensors", {"x": np.float16(np.inf)}, "array 'x' holds NaN or infinity"),
        ("a.safetensors", {"x": np.asarray(None)}, "array 'x' has dtype object; known: bool, int8"),
        ("a.safetensors", {"x/../../y": np.ones(2)}, "should match pattern"),
        ("a.safetensors", "text", "cannot be written (TypeError"),
        ("a.csv", "\ud800", "cannot be written (UnicodeEncodeError"),
        ("a.png", b"GIF89a", "does not begin as a PNG file does"),
        ("a.json", {"x": float("nan")}, "cannot be written (ValueError: Out of range float"),
        ("a.pkl", b"", "has an unknown ending; known: .safetensors, .json, .csv, .txt, .png"),
        ("../a.csv", "", "should match pattern"),
        ("manifest.json", {}, "is the name of the manifest"),
    ],
)
def test_content_that_could_not_be_loaded_is_not_written(
    tmp_path: Path, name: str, content: Any, message: str
):
    with pytest.raises(DataError) as error:
        save(tmp_path / "allo", {name: content}, {})
    assert message in str(error.value)
    assert str(error.value).endswith("; nothing was written")
    assert not (tmp_path / "allo").exists()
