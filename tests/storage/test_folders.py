"""What is saved comes back, in bytes that only the content decides."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from jaxtyping import Float32, Int32

from quatrain.errors import DataError
from quatrain.storage import folders
from quatrain.storage.folders import load, save
from quatrain.storage.trees import from_arrays, to_arrays
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


class Episodes(NamedTuple):
    state: Int32[np.ndarray, " slots"]
    weight: Float32[np.ndarray, "slots width"]


class Dataset(NamedTuple):
    train: Episodes
    held_out: Episodes
    goal: Int32[np.ndarray, ""]


DATASET = Dataset(
    Episodes(np.arange(5, dtype=np.int32), np.ones((5, 3), np.float32)),
    Episodes(np.arange(2, dtype=np.int32), np.ones((2, 3), np.float32)),
    np.asarray(7, np.int32),
)


def test_a_tree_of_arrays_survives_the_disk_and_names_what_is_missing(tmp_path: Path):
    flat = to_arrays(DATASET)
    parts = ["train/state", "train/weight", "held_out/state", "held_out/weight", "goal"]
    assert list(flat) == parts
    save(tmp_path / "data", {"dataset.safetensors": flat}, {})
    result = from_arrays(Dataset, load(tmp_path / "data").contents["dataset.safetensors"])
    assert type(result.train) is Episodes
    for name, values in to_arrays(result).items():
        np.testing.assert_array_equal(values, flat[name], strict=True)

    flat["train/steps"] = flat.pop("train/state")
    reason = r"not a Dataset: arrays missing \['train/state'\], unknown \['train/steps'\]"
    with pytest.raises(DataError, match=reason):
        from_arrays(Dataset, flat)


class Walk(NamedTuple):
    state: Int32[np.ndarray, " step"]
    weight: Float32[np.ndarray, " step"] | None
    goal: Int32[np.ndarray, ""]


@pytest.mark.parametrize(
    ("name", "array", "message"),
    [
        ("state", np.zeros((3, 1), np.int32), r"state is int32 of shape \(3, 1\), where Int32"),
        (
            "state",
            np.zeros(3, np.int64),
            r"state is int64 of shape \(3,\), where Int32 \[step\] be",
        ),
        ("weight", np.zeros(4, np.float32), r"weight is float32 of shape \(4,\), where Float32"),
        ("goal", np.zeros(1, np.int32), r"goal is int32 of shape \(1,\), where Int32 \[\] belongs"),
    ],
)
def test_arrays_have_the_dtypes_and_axes_of_their_annotations(
    name: str, array: np.ndarray, message: str
):
    flat = to_arrays(Walk(np.zeros(3, np.int32), np.zeros(3, np.float32), np.array(1, np.int32)))
    assert from_arrays(Walk, flat).goal == 1
    with pytest.raises(DataError, match=message):
        from_arrays(Walk, flat | {name: array})
