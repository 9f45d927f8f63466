"""Stores and a server (their making takes seconds), a checkout, a folder, projects: what several
files test with.
"""

import shutil
import signal
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

from pipeline.tracking import store
from pipeline.tracking.outbox import Outbox
from tests.conftest import shapes_unchecked
from tests.pipeline import loopback
from tests.pipeline.fixture_types import Capture, Patch
from tests.pipeline.recorded_runs import client_of, recorded
from tests.pipeline.scored_workspace import Workspace, make_workspace
from tests.pipeline.small_checkout import git
from tests.pipeline.small_project import BODIES, Project, surround

CODE = ("src/a.py", "src/deep/b.py", "pipeline/c.py", "docs/d.md", ".dvc/config", "dvc.lock")


@pytest.fixture(autouse=True, scope="module")
def stages_without_shape_checks() -> Iterator[None]:
    """As outside the tests; the checks are for the tests of what the stages call."""
    with shapes_unchecked():
        yield


@pytest.fixture(autouse=True)
def handlers_of_python() -> Iterator[None]:
    """A stage in this process sets its own for signals, and its process would end with it."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty store: made once, copied by the tests."""
    path = tmp_path_factory.mktemp("template") / "mlflow.db"
    store.open_client(f"sqlite:///{path}").client._tracking_client.store.engine.dispose()
    return path


@pytest.fixture
def uri(template: Path, tmp_path: Path) -> Iterator[str]:
    shutil.copy(template, tmp_path / "mlflow.db")
    uri = f"sqlite:///{tmp_path / 'mlflow.db'}"
    yield uri
    client_of(uri)._tracking_client.store.engine.dispose()


@pytest.fixture
def outbox(tmp_path: Path) -> Outbox:
    return recorded(tmp_path / ".state" / "outbox" / "train@allo-1.sqlite", "k1")


@pytest.fixture(scope="session")
def upstream(template: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The port of a real tracking server."""
    folder = tmp_path_factory.mktemp("server")
    shutil.copy(template, folder / "mlflow.db")
    runs, files = f"sqlite:///{folder}/mlflow.db", f"{folder}/files"
    with loopback.mlflow_server(folder, runs, files) as url:
        yield int(url.rpartition(":")[2])


@pytest.fixture
def failure(capsys: Capture) -> Callable[..., str]:
    """Calls a command that must fail in one line, and returns it without the exit code.

    Warnings may stand before it.
    """

    def call(main: Callable[[list[str]], int], *arguments: str, code: int) -> str:
        capsys.readouterr()
        assert main([*arguments]) == code
        *warnings, said = capsys.readouterr().err.splitlines()
        assert all(line.startswith("warning: ") for line in warnings), warnings
        assert said.endswith(f" [exit {code}]")
        return said.removesuffix(f" [exit {code}]")

    return call


@pytest.fixture(scope="session")
def scored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A working folder in which all models hold their baselines: made once, copied by the tests."""
    root = tmp_path_factory.mktemp("scored") / "work"
    root.mkdir()
    make_workspace(root)
    return root


@pytest.fixture
def space(scored: Path, tmp_path: Path, monkeypatch: Patch) -> Workspace:
    """allo's part of such a folder, which is the current one."""
    shutil.copytree(scored, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return Workspace(tmp_path)


@pytest.fixture(scope="session")
def committed(scored: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("committed") / "checkout"
    shutil.copytree(scored, root)
    for name in CODE:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(f"# {name} as committed\n")
    (root / ".gitignore").write_text(".presets/\n/models/\n__pycache__/\n")
    git(root, "init", "-q")
    git(root, "add", ".")
    git(root, "commit", "-q", "-m", "start")
    return root


@pytest.fixture
def checkout(committed: Path, tmp_path: Path, monkeypatch: Patch) -> Path:
    """A small repository whose default run has been made."""
    root = tmp_path / "checkout"
    shutil.copytree(committed, root)
    monkeypatch.chdir(root)
    return root


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Project]:
    """Returns a model's project after its stages, made once."""
    root = tmp_path_factory.mktemp("uninterrupted")

    @cache
    def make(model: str) -> Project:
        project = Project.create(root / model, model)
        with pytest.MonkeyPatch.context() as patch:
            surround(patch, project)
            assert [project.call(verb) for verb in BODIES] == [0, 0, 0]
        return project

    return make


@pytest.fixture
def uninterrupted(finished: Callable[[str], Project], request: pytest.FixtureRequest) -> Project:
    return finished(getattr(request, "param", "allo"))


@pytest.fixture
def collected(uninterrupted: Project, tmp_path: Path, monkeypatch: Patch) -> Project:
    """With data, and nothing trained yet."""
    project = Project.create(tmp_path / "project", uninterrupted.model)
    shutil.copytree(uninterrupted.data, project.data)
    surround(monkeypatch, project)
    return project


@pytest.fixture
def evaluated(uninterrupted: Project, tmp_path: Path, monkeypatch: Patch) -> Project:
    """With all that the three stages made."""
    project = uninterrupted.copied(tmp_path / "copy")
    surround(monkeypatch, project)
    return project
