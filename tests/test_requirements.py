"""Lock files: every version that is asked for, with hashes, for each Python and platform."""

import importlib.metadata
import itertools
import re
import tomllib
from functools import cache

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.conftest import ROOT

FOLDER = ROOT / "requirements"
LOCKS = sorted(path.stem for path in FOLDER.glob("*.txt") if path.stem not in ("gpu", "torch"))
TOGETHER = [name for name in LOCKS if name not in ("moto", "peers")]
PYTHONS = ("3.11", "3.12", "3.13")
PLATFORMS = (
    {"sys_platform": "linux", "platform_machine": "x86_64"},
    {"sys_platform": "darwin", "platform_machine": "arm64"},
)
MACHINES = [
    {"python_version": python, "python_full_version": f"{python}.1", **platform}
    for python, platform in itertools.product(PYTHONS, PLATFORMS)
]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PINNED = re.findall(r"^torch==([\d.]+)$", (FOLDER / "torch.txt").read_text(), re.MULTILINE)


@cache
def entries(name: str) -> list[tuple[Requirement, int]]:
    """Requirement and number of hashes of each entry of a lock file."""
    text = re.sub(r"^#.*\n|\\\n", "", (FOLDER / f"{name}.txt").read_text(), flags=re.MULTILINE)
    lines = [line.partition(" --hash") for line in text.splitlines()]
    return [(Requirement(entry), (mark + rest).count("--hash")) for entry, mark, rest in lines]


def locked(name: str, machine: dict[str, str]) -> dict[str, str]:
    """Package -> version that a lock file has on this machine; one of each package."""
    versions = [
        (canonicalize_name(entry.name), str(entry.specifier).removeprefix("=="))
        for entry, _ in entries(name)
        if entry.marker is None or entry.marker.evaluate(machine)
    ]
    assert len(dict(versions)) == len(versions)
    return dict(versions)


def asked(name: str) -> list[Requirement]:
    """What a lock file is made from, without torch and this project's own extras."""
    extras = PROJECT["project"]["optional-dependencies"]
    parts = (extras[part] for part in ("jax", "gym", "pipeline"))
    sources = {
        "lock": [*PROJECT["project"]["dependencies"], *itertools.chain(*parts)],
        "cluster": extras["scale"],
    }
    path = FOLDER / f"{name}.in"
    lines = sources.get(name) or re.findall(r"^[a-z].*", path.read_text(), re.MULTILINE)
    return [each for each in map(Requirement, lines) if each.name != "quatrain"]


@pytest.mark.parametrize("name", LOCKS)
def test_every_version_that_is_asked_for_is_locked_everywhere(name: str):
    for machine in MACHINES:
        versions = locked(name, machine)
        if name == "kuberay":  # Ray's extra, beside Ray
            versions |= locked("cluster", machine)
        for each in asked(name):
            assert each.specifier.contains(versions[canonicalize_name(each.name)]), each


@pytest.mark.parametrize("name", LOCKS)
def test_every_entry_has_hashes_and_torch_has_none(name: str):
    assert [str(entry) for entry, hashes in entries(name) if hashes == 0] == []
    assert not [entry for entry, _ in entries(name) if entry.name == "torch"]
    assert len(PINNED) == 1


@pytest.mark.parametrize("machine", MACHINES)
def test_files_that_are_installed_into_one_environment_agree(machine: dict[str, str]):
    agreed: dict[str, str] = {}
    for name in TOGETHER:
        for package, number in locked(name, machine).items():
            assert agreed.setdefault(package, number) == number, (name, package)


def test_torch_and_the_gpu_plugin_are_those_that_the_locks_are_made_for():
    metadata, _ = PROJECT["tool"]["uv"]["dependency-metadata"]
    assert metadata["name"] == "torch"
    assert [metadata["version"]] == PINNED
    assert set(metadata["requires-dist"]) <= set(importlib.metadata.requires("torch") or [])
    jax = locked("lock", MACHINES[0])["jax"]
    assert f"jax[cuda12]=={jax}" in (FOLDER / "gpu.txt").read_text().splitlines()
