"""Interrupted work continues from the newest valid checkpoint."""

import os
from pathlib import Path

import numpy as np
import pytest

from pipeline.storage.checkpoints import Checkpoints
from quatrain.errors import DataError


def arrays(step: int) -> dict[str, np.ndarray]:
    return {"params/kernel": np.full((3, 5), step, np.float32), "step": np.asarray(step)}


def saved(folder: Path, *steps: int) -> Checkpoints:
    checkpoints = Checkpoints(folder)
    for step in steps:
        checkpoints.save(step, arrays(step))
    return checkpoints


def damage_slot_of(folder: Path, step: int) -> None:
    for slot in folder.iterdir():
        if f'"step": {step}' in (slot / "manifest.json").read_text():
            os.truncate(slot / "learner.safetensors", 50)


def latest_step(checkpoints: Checkpoints) -> int | None:
    result = checkpoints.latest()
    return None if result is None else result.step


def test_the_newest_checkpoint_is_loaded_by_another_process(tmp_path: Path):
    assert Checkpoints(tmp_path / "key").latest() is None
    saved(tmp_path, 100, 200, 300)
    result = Checkpoints(tmp_path).latest()
    assert result is not None
    assert result.step == 300
    for name, array in arrays(300).items():
        np.testing.assert_array_equal(result.arrays[name], array, strict=True)
    assert sorted(slot.name for slot in tmp_path.iterdir()) == ["slot-0", "slot-1"]


def test_a_damaged_checkpoint_is_passed_over_with_a_note_and_written_over_first(tmp_path: Path):
    checkpoints = saved(tmp_path, 100, 200)
    damage_slot_of(tmp_path, 200)
    assert latest_step(checkpoints) == 100
    (note,) = checkpoints.skipped
    assert "learner.safetensors: has 50 bytes instead of" in note
    Checkpoints(tmp_path).save(150, arrays(150))
    damage_slot_of(tmp_path, 150)
    assert latest_step(checkpoints) == 100
    damage_slot_of(tmp_path, 100)
    assert latest_step(checkpoints) is None
    assert len(checkpoints.skipped) == 2


def test_a_learner_that_is_not_finite_leaves_the_last_good_one_and_clearing_leaves_none(
    tmp_path: Path,
):
    checkpoints = saved(tmp_path / "key", 100, 200)
    message = "array 'step' holds NaN or infinity; nothing was written"
    with pytest.raises(DataError, match=message):
        checkpoints.save(300, {"step": np.asarray(np.nan)})
    assert latest_step(checkpoints) == 200
    for _ in range(2):
        checkpoints.clear()
        assert list(tmp_path.iterdir()) == []
    assert checkpoints.latest() is None


def test_checkpoints_of_the_latest_other_computations_stay(tmp_path: Path):
    for age, name in enumerate("abcd"):
        saved(tmp_path / name, 100)
        os.utime(tmp_path / name, (age, age))
    (tmp_path / "notes.md").touch()
    Checkpoints(tmp_path / "a").remove_others(2)
    assert {path.name for path in tmp_path.iterdir()} == {"a", "c", "d", "notes.md"}
