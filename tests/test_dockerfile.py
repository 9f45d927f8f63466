"""The image and the servers beside it: pinned, without secrets, not as root, of the last commit."""

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from tests.conftest import ROOT
from tests.pipeline.small_checkout import git

PINNED = re.compile(r"[\w./-]+:[\w.-]+@sha256:[0-9a-f]{64}")


@pytest.fixture(scope="module")
def steps() -> list[tuple[str, str]]:
    """Instruction and argument, lines joined."""
    text = re.sub(r"^#.*\n|\\\n", "", (ROOT / "Dockerfile").read_text(), flags=re.MULTILINE)
    lines = [line.split(maxsplit=1) for line in text.splitlines() if line.strip()]
    return [(name, argument) for name, argument in lines]


@pytest.fixture(scope="module")
def services() -> dict[str, Any]:
    return YAML(typ="safe").load(ROOT / "compose.yaml")["services"]


def test_every_image_is_pinned_by_its_digest(
    steps: list[tuple[str, str]], services: dict[str, Any]
):
    arguments = dict(argument.split("=", 1) for name, argument in steps if name == "ARG")
    stages = [argument.split(" AS ") for name, argument in steps if name == "FROM"]
    bases = {base.strip("${}") for base, _ in stages} - {name for _, name in stages}
    named = {arguments.get(base, base) for base in bases}
    used = {service["image"] for service in services.values()} - {"quatrain"}
    assert [image for image in named | used if not PINNED.fullmatch(image)] == []
    assert (len(named), len(used)) == (1, 2)


def test_the_image_runs_the_pipeline_below_tini_and_not_as_root(steps: list[tuple[str, str]]):
    last = steps[[name for name, _ in steps].index("USER") :]
    assert last[0] == ("USER", "${USER_ID}")
    assert ("ARG", "USER_ID=1000") in steps
    assert json.loads(dict(last)["ENTRYPOINT"]) == ["/usr/bin/tini", "--"]
    assert json.loads(dict(last)["CMD"]) == ["python", "-m", "pipeline", "repro"]
    assert dict(last)["HEALTHCHECK"].endswith('CMD ["python", "-m", "pipeline", "params", "check"]')
    assert not [argument for name, argument in last if name in ("COPY", "RUN")]


def test_packages_come_from_the_lock_files_with_their_hashes(steps: list[tuple[str, str]]):
    commands = " && ".join(argument for name, argument in steps if name == "RUN")
    installs = map(str.strip, re.findall(r"pip install ([^&;]+)", commands))
    free = [each for each in installs if "--require-hashes --no-deps -r" not in each]
    editable = "--no-deps --no-build-isolation --editable /quatrain"
    assert free == ['-r "${further}"', editable]
    assert 'python /requirements/install_torch.py "${index}"' in commands
    assert not re.search(r"https?://", commands)
    for name in re.findall(r"/(requirements/[\w.]+)", " ".join(argument for _, argument in steps)):
        assert (ROOT / name).is_file()


def test_the_image_holds_the_last_commit_and_no_remote(
    steps: list[tuple[str, str]], tmp_path: Path
):
    project, source, image = tmp_path / "project", tmp_path / "source", tmp_path / "quatrain"
    project.mkdir()
    git(project, "init", "-q")
    (project / "params.yaml").write_text("seed: 0\n")
    git(project, "add", ".")
    git(project, "commit", "-q", "-m", "first")
    git(project, "remote", "add", "origin", "https://somebody:swordfish@example.org/quatrain.git")
    (project / "secret.txt").write_text("swordfish\n")
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    ignored = [Path(line).name for line in lines if line.startswith(".git/")]
    shutil.copytree(project / ".git", source / ".git", ignore=shutil.ignore_patterns(*ignored))
    (command,) = [argument for name, argument in steps if name == "RUN" and "git clone" in argument]
    command = command.replace("///source", f"//{source}").replace(" /quatrain", f" {image}")
    subprocess.run(command, shell=True, check=True)

    assert (image / "params.yaml").read_text() == "seed: 0\n"
    assert git(image, "rev-parse", "HEAD") == git(project, "rev-parse", "HEAD")
    files = [path for folder in (image, source) for path in folder.rglob("*") if path.is_file()]
    assert [path for path in files if b"swordfish" in path.read_bytes()] == []


def test_no_password_is_written_down_and_none_has_a_default(services: dict[str, Any]):
    secret = re.compile(r"PASSWORD|SECRET|ACCESS_KEY")
    values = [
        str(value)
        for service in services.values()
        for name, value in service.get("environment", {}).items()
        if secret.search(name)
    ]
    required = re.compile(r"\$\{(\w+):\?set \1 in \.env\}")
    assert [bool(required.fullmatch(value)) for value in values] == [True] * 8
    assert git(ROOT, "check-ignore", "--no-index", ".env") == ".env\n"


def test_only_mlflow_can_be_reached_and_only_from_this_machine(services: dict[str, Any]):
    ports = {name: service["ports"] for name, service in services.items() if "ports" in service}
    assert ports == {"tracking": ["127.0.0.1:5000:5000"]}
    hosts = services["tracking"]["environment"]["MLFLOW_SERVER_ALLOWED_HOSTS"].split(",")
    assert hosts == ["tracking:5000", "127.0.0.1:5000", "localhost:5000"]
    assert services["pipeline"]["networks"] == ["clients"]
    assert services["pipeline"]["environment"]["MLFLOW_TRACKING_URI"] == f"http://{hosts[0]}"


def test_a_client_waits_until_its_server_is_healthy(services: dict[str, Any]):
    for client, server in (("pipeline", "tracking"), ("tracking", "database")):
        assert services[client]["depends_on"][server] == {"condition": "service_healthy"}
        assert services[server]["healthcheck"]["test"]
