"""What a run consists of, in the form in which an outbox keeps it, and what of it is drawn."""

import posixpath
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from typing import NamedTuple

from pydantic import TypeAdapter

# The experiment of the pipeline's runs, and the first word of names of registered models.
EXPERIMENT = "quatrain"
VERDICT_TAG = "quatrain.verdict"
SCORE_TAG = "quatrain.score"
# Columns of the list of runs, and their widths, as MLflow's UI stores a view that is shared.
VIEW_KEY = "quatrain"
VIEW_TAG = f"mlflow.sharedViewState.{VIEW_KEY}"
COLUMNS = {f"tags.`{VERDICT_TAG}`": 130, f"tags.`{SCORE_TAG}`": 330, "attributes.`Models`": 180}
VIEW = {"selectedColumns": [*COLUMNS], "columnOrder": [*COLUMNS], "columnWidths": COLUMNS}
# Metrics of a training, all of which history.csv has; MLflow draws some of them.
HISTORY = "train/"
# What MLflow draws beside them: the lowest and the highest learner.
RANGE = "range/"
# Characters; MLflow cuts the rest off.
LONGEST_PARAM = 6000
# Names of params, tags and metrics that MLflow takes.
NAME = re.compile(r"[\w.\- /:]{1,250}")

# Part of a metric's name that comes before the index of a learner.
SEED = "/seed/"
# Charts of the members of a vector, such as one cosine for each component, at most.
MOST_MEMBERS = 12
# Name, step, value.
Row = tuple[str, int, float]


class DatasetInput(NamedTuple):
    name: str
    digest: str
    # `training` or `evaluation`.
    context: str
    source: str


class Parent(NamedTuple):
    """Holds the run of a whole pipeline, or of a group of trials; its children find it by its key.

    tag: marks that run. ends_with_child: its status is that of its last child.
    """

    run_key: str
    run_name: str
    tag: str = "quatrain.pipeline"
    ends_with_child: bool = True


class Header(NamedTuple):
    """Holds what is fixed before a run starts; outboxes with one `run_key` describe one run."""

    run_key: str
    experiment: str
    run_name: str
    params: Mapping[str, str]
    tags: Mapping[str, str]
    inputs: tuple[DatasetInput, ...] = ()
    parent: Parent | None = None


HEADER = TypeAdapter(Header)


class Record(NamedTuple):
    """Holds a `begin`, `tag`, `artifact`, `model`, `card`, `version`, `end` or `destination`.

    time: in milliseconds since 1970.
    """

    id: int
    kind: str
    name: str
    time: int
    body: str
    data: bytes | None
    sent: bool


class Point(NamedTuple):
    """Holds the value of a metric at a step; time in milliseconds since 1970."""

    id: int
    name: str
    step: int
    value: float
    time: int


def check_names(kind: str, names: Iterable[str]) -> None:
    """Applies MLflow's own rule when a name is recorded, not hours later on delivery.

    Raises:
        ValueError: MLflow refuses a name.
    """
    for name in names:
        is_path = posixpath.normpath(name) == name != "." and not name.startswith(("/", ".."))
        if not NAME.fullmatch(name) or not is_path:
            raise ValueError(
                f"{kind} name {name!r}: use up to 250 letters, digits, spaces, . _ - : and inner /"
            )


def short(param: str) -> str:
    """Returns a param as MLflow takes it: the model's config.json has the whole of a long one."""
    if len(param) <= LONGEST_PARAM:
        return param
    return f"{len(param)} characters, sha256 {sha256(param.encode()).hexdigest()}"


def now() -> int:
    """Returns milliseconds since 1970, as MLflow counts."""
    return time.time_ns() // 1_000_000


# Charts, of which MLflow draws one for each metric.


def curve_rows(table: Iterable[Row], headline: Sequence[str]) -> tuple[list[Row], set[str]]:
    """Returns the rows of a training with their ranges, and the names of those that no chart has.

    Scalars are drawn, and of the first headline metric its members. Means over learners are drawn,
    single learners are not; nor are means over arms beside the arms.
    """
    rows = list(table)
    names = {name for name, _, _ in rows}
    over_arms = {name.rpartition(".")[0] for name in names if "." in name}
    hidden = {name for name in names if name in over_arms or not _is_chart(name, headline)}
    learners = [row for row in rows if row[0].partition(SEED)[0] not in over_arms]
    new = [(f"{HISTORY}{name}", step, value) for name, step, value in rows]
    return [*new, *_ranges(learners, headline)], {f"{HISTORY}{name}" for name in hidden}


def _is_chart(name: str, headline: Sequence[str]) -> bool:
    if SEED in name:
        return False
    base, _, last = name.rpartition("/")
    if not base or _without_arm(name) in headline:
        return True
    vector = base.removesuffix("/agent")
    is_main = vector in (headline[0], headline[0].removesuffix("_mean"))
    return is_main and last.isdecimal() and int(last) < MOST_MEMBERS


def _ranges(learners: Iterable[Row], headline: Sequence[str]) -> list[Row]:
    """Returns `NAME_low` and `NAME_high` over the learners of the first headline metric."""
    values: dict[tuple[str, int], list[float]] = {}
    for name, step, value in learners:
        metric, _, seed = name.partition(SEED)
        if seed.isdecimal() and _without_arm(metric) == headline[0]:
            values.setdefault((f"{RANGE}{metric}", step), []).append(value)
    return [
        (f"{metric}_{end}", step, choose(several))
        for (metric, step), several in values.items()
        for end, choose in (("low", min), ("high", max))
    ]


def _without_arm(name: str) -> str:
    return name.partition(".")[0]


def drawn_as(name: str) -> str:
    """Returns the name of a metric in MLflow: `train/cosine/03` for `train/cosine/3`."""
    kind, _, rest = name.partition("/")
    return f"{HISTORY}{padded(rest)}" if f"{kind}/" in (HISTORY, RANGE) else name


def padded(name: str) -> str:
    """Returns the name with indices of two digits, because the UI sorts names as text."""
    return re.sub(r"(?<=/)\d(?=/|$)", r"0\g<0>", name)
