"""Trainings at the same time leave the dvc.lock that one after the other leaves, byte for byte."""

import shutil
from pathlib import Path

import pytest

from pipeline.dvc import lock_order, repro
from tests.pipeline.fixture_types import Capture

MODELS = ("allo", "iqn", "actor_critic")
TOY = """
stages:
  collect:
    foreach: [allo, iqn, actor_critic]
    do: {cmd: 'echo of ${item} > ${item}.data', deps: [code], outs: ['${item}.data']}
  train:
    foreach: [allo, iqn, actor_critic]
    do: {cmd: './train ${item}', deps: [code, '${item}.data'], outs: ['${item}.net']}
  evaluate:
    foreach: [allo, iqn, actor_critic]
    do: {cmd: 'cp ${item}.net ${item}.score', deps: ['${item}.net'], outs: ['${item}.score']}
"""
TRAIN = """#!/bin/sh
test ! -e broken-$1 || exit 7
test $1 = actor_critic || sleep 2
cp $1.data $1.net
"""


@pytest.fixture
def toy(tmp_path: Path) -> Path:
    """A project in which the last of the trainings is the first to end."""
    root = tmp_path / "toy"
    (root / ".dvc").mkdir(parents=True)
    (root / ".dvc" / "config").write_text("[core]\n    analytics = false\n    no_scm = true\n")
    for name, text in (("dvc.yaml", TOY), ("code", "1\n"), ("train", TRAIN)):
        (root / name).write_text(text)
    (root / "train").chmod(0o755)
    return root


def at_once(root: Path) -> int:
    with lock_order.in_order(root):
        code = repro.run_in_parallel(root, root, MODELS, len(MODELS))
        return code or repro.dvc(root, root, "repro", "--quiet")


@pytest.mark.full
def test_the_lock_is_that_of_one_after_the_other(toy: Path, tmp_path: Path, capfd: Capture):
    serial = tmp_path / "serial"
    shutil.copytree(toy, serial)
    assert repro.dvc(serial, serial, "repro", "--quiet") == 0
    assert at_once(toy) == 0
    assert (toy / "dvc.lock").read_bytes() == (serial / "dvc.lock").read_bytes()
    assert "train@actor_critic: > ./train actor_critic\n" in capfd.readouterr().err


@pytest.mark.full
def test_where_one_training_fails_the_others_are_known(toy: Path, capfd: Capture):
    (toy / "broken-iqn").touch()
    assert at_once(toy) == 255
    said = capfd.readouterr().err
    assert "train@iqn: ERROR: failed to reproduce 'train@iqn'" in said
    assert said.endswith("repro: train@iqn did not end well; the others did what they could\n")
    collected = [f"collect@{model}" for model in MODELS]
    assert lock_order.stages(toy) == [*collected, "train@allo", "train@actor_critic"]


def written(root: Path, *names: str) -> Path:
    path = root / "dvc.lock"
    stages = "".join(f"  {name}:\n    cmd: echo {name}\n" for name in names)
    path.write_text(f"schema: '2.0'\nstages:\n{stages}")
    return path


def test_new_stages_are_put_in_the_order_of_a_run_and_known_ones_stay(toy: Path):
    old = ("train@iqn", "collect@allo")
    lock = written(toy, *old)
    new = ("evaluate@allo", "train@allo", "of an older dvc.yaml", "collect@iqn")
    with lock_order.in_order(toy):
        written(toy, *old, *new)
    in_order = ["of an older dvc.yaml", "collect@iqn", "train@allo", "evaluate@allo"]
    assert lock_order.stages(toy) == [*old, *in_order]
    assert lock.read_text().startswith(
        "schema: '2.0'\nstages:\n  train@iqn:\n    cmd: echo train@iqn\n  collect@allo:\n"
    )

    lock.unlink()
    with lock_order.in_order(toy):
        written(toy, "collect@allo", "train@allo", "train@iqn")
        before = lock.stat()
    assert lock.stat() == before


def test_a_lock_that_cannot_be_read_is_left_to_dvc(toy: Path):
    with lock_order.in_order(toy):
        assert lock_order.stages(toy) == []
    assert not (toy / "dvc.lock").exists()
    for text in ("", "{", "- 1", "stages: 5"):
        (toy / "dvc.lock").write_text(text)
        with lock_order.in_order(toy):
            assert lock_order.stages(toy) == []
        assert (toy / "dvc.lock").read_text() == text
