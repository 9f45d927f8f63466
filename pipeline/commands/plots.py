"""curves and pictures here and in a commit -> dvc_plots/differences.html: those that differ."""

from collections.abc import Mapping
from contextlib import suppress
from io import BytesIO
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple
from urllib.parse import quote

from PIL import Image, ImageSequence
from ruamel.yaml import YAML

from pipeline.judging.render import enlarged_by_click, plain, side_by_side
from pipeline.reporting.page import as_html
from pipeline.runtime import console, git
from pipeline.runtime.errors import CommandFailed
from pipeline.storage.figures import encode, write_figures
from pipeline.storage.stored_pictures import MEDIA
from quatrain.errors import ConfigError, DataError
from quatrain.plots import GREY, RED, Curve, Figure, Line, Panel, house_style, update_panels
from quatrain.registry import MODELS
from quatrain.storage import history
from quatrain.storage.atomic_write import write_together

FOLDER = Path("dvc_plots")
PAGE = "differences.html"
COLUMNS = 2
KINDS = ("reports/*/curves/*.csv", "reports/*/plots/*")


class Sides(NamedTuple):
    """Holds files by path: those of another commit, and those here."""

    old: Mapping[str, bytes]
    new: Mapping[str, bytes]

    def differing(self, suffixes: Mapping[str, object]) -> list[str]:
        """Returns the paths of files of such a kind that differ, or that one side alone has."""
        paths = sorted(self.old.keys() | self.new.keys())
        kind = [path for path in paths if PurePosixPath(path).suffix in suffixes]
        return [path for path in kind if self.old.get(path) != self.new.get(path)]

    def looks_differ(self, path: str) -> bool:
        """Returns whether a picture has other pixels, not only another caption."""
        both = path in self.old and path in self.new
        return not both or _frames(self.old[path]) != _frames(self.new[path])


def write_differences(root: Path, revision: str) -> str:
    """Writes the page; returns a line that says what differs.

    Raises:
        ConfigError: there is no such commit.
        DataError: the files of the commit are not in DVC's cache.
    """
    old = files_at(root, revision)
    new = {path: data for path, data in files_here(root).items() if model_of(path) in old}
    sides = Sides({path: data for files in old.values() for path, data in files.items()}, new)
    curves = draw_curves(root, sides, revision)
    pictures = [path for path in sides.differing(MEDIA) if sides.looks_differ(path)]
    said = f"changed since {revision}: curves {len(curves)}, pictures {len(pictures)}"
    files = encode(curves)
    parts = [f"# {plain(said)}"]
    parts += ["## Curves", *(f"![{plain(name)}]({quote(name)})" for name in files)] if files else []
    parts += ["## Pictures"] if pictures else []
    for path in pictures:
        cells = []
        for side, content in ((revision, sides.old), ("here", sides.new)):
            name = f"{len(files)}{PurePosixPath(path).suffix}"
            files |= {name: content[path]} if path in content else {}
            picture = enlarged_by_click(path, name) if path in content else "(none)"
            cells.append(f"{plain(side)} {picture}")
        parts.append(f"{plain(path)}\n\n{side_by_side(cells)}")
    with TemporaryDirectory() as folder:
        write_figures(Path(folder), files)
        page = as_html("\n\n".join(parts), said, Path(folder))
    write_together(root / FOLDER, {PAGE: page.encode()})
    return f"{said}: {FOLDER / PAGE}"


def files_here(root: Path) -> dict[str, bytes]:
    """Returns the curves and pictures of all models."""
    paths = [path for kind in KINDS for path in root.glob(kind)]
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in paths}


def model_of(path: str) -> str:
    return PurePosixPath(path).parts[1]


def files_at(root: Path, revision: str) -> dict[str, dict[str, bytes]]:
    """Returns those of a commit by model, from DVC's cache; a line names the models that it lacks.

    Raises:
        ConfigError: there is no such commit.
        DataError: the cache has none of them.
    """
    from dvc.api import DVCFileSystem
    from dvc.exceptions import DvcException
    from dvc_data.index.index import DataIndexDirError

    try:
        commit = git.output(root, "rev-parse", "--verify", f"{revision}^{{commit}}")
    except CommandFailed:
        raise ConfigError(f"{revision}: is no commit here; `git log` lists them") from None
    system = DVCFileSystem(str(root), rev=commit.decode().strip())
    files: dict[str, dict[str, bytes]] = {}
    for model in MODELS:
        with suppress(DvcException, DataIndexDirError, OSError):
            paths = [
                path
                for kind in ("curves", "plots")
                for path in system.glob(f"reports/{model}/{kind}/*")
            ]
            files |= {model: {path: system.read_bytes(path) for path in paths}} if paths else {}
    others = ", ".join(model for model in MODELS if model not in files)
    lacking = f"DVC's cache has no curves of {others} at {revision}"
    if not files:
        raise DataError(f"{lacking}; `dvc fetch --all-commits` brings them, or `make repro` there")
    if len(files) < len(MODELS):
        console.info(f"plots: {lacking}: left out")
    return files


@house_style
def draw_curves(root: Path, sides: Sides, revision: str) -> dict[str, Figure]:
    """Draws the plots of dvc.yaml whose curves differ: a panel for each curve, the old one grey."""
    figures = {}
    differing = {*sides.differing({".csv": ""})}
    for plot in YAML(typ="safe").load(root / "dvc.yaml")["plots"]:
        for name, about in plot.items():
            shown = {path: column for path, column in about["y"].items() if path in differing}
            if shown:
                panels = [
                    Panel(column, about["y_label"], _lines(sides, path, column, revision))
                    for path, column in shown.items()
                ]
                figure = update_panels(panels, about["x"], COLUMNS)
                figure.suptitle(name)
                figures[name] = figure
    return figures


def _frames(content: bytes) -> list[bytes]:
    with Image.open(BytesIO(content)) as image:
        return [frame.convert("RGB").tobytes() for frame in ImageSequence.Iterator(image)]


def _lines(sides: Sides, path: str, column: str, revision: str) -> list[Line]:
    styles: list[tuple[Mapping[str, bytes], Any, str]]
    styles = [(sides.old, GREY, revision), (sides.new, RED, "here")]
    return [
        Line(_curve(content[path], column), color, name)
        for content, color, name in styles
        if path in content
    ]


def _curve(content: bytes, column: str) -> Curve:
    steps, values = history.from_csv(content.decode())[column]
    return Curve(steps, values[None])
