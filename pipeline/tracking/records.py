"""What a run consists of, in the form in which an outbox keeps it, and what of it is drawn."""

import json
import posixpath
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from typing import NamedTuple

# The experiment of the pipeline's runs.
EXPERIMENT = "quatrain"
# Metrics below it are kept for history.csv and never sent: see `chart_rows`.
HISTORY = "history/"
# Characters; MLflow cuts the rest off.
LONGEST_PARAM = 6000
# Names of params, tags and metrics that MLflow takes.
NAME = re.compile(r"[\w.\- /:]{1,250}")

# Part of a metric's name that comes before the index of a learner.
SEED = "/seed/"
# Charts of the members of a vector, such as one cosine for each component, at most.
MOST_MEMBERS = 12
# Digits of an index: the UI sorts names as text.
INDEX_DIGITS = 2

# Name, step, value.
Row = tuple[str, int, float]


class DatasetInput(NamedTuple):
    name: str
    digest: str
    # `training` or `evaluation`.
    context: str
    source: str


class Parent(NamedTuple):
    """Holds the run of a whole pipeline or sweep; all stages find it by its key.

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

    def to_json(self) -> str:
        """Returns JSON in which a param that is too long for MLflow is its digest."""
        fields = {
            "params": {name: _short(name, value) for name, value in self.params.items()},
            "inputs": [entry._asdict() for entry in self.inputs],
            "parent": self.parent and self.parent._asdict(),
        }
        return json.dumps(self._asdict() | fields)

    @classmethod
    def from_json(cls, text: str) -> "Header":
        fields = json.loads(text)
        inputs = tuple(DatasetInput(**entry) for entry in fields["inputs"])
        parent = Parent(**fields["parent"]) if fields["parent"] else None
        return cls(**fields | {"inputs": inputs, "parent": parent})

    def long_params(self) -> dict[str, str]:
        """Returns the params that are too long, by the artifacts that hold them whole."""
        params = self.params.items()
        return {_file_of(name): value for name, value in params if len(value) > LONGEST_PARAM}


class Record(NamedTuple):
    """Holds a `begin`, `tag`, `artifact`, `model`, `card`, `end` or `destination`.

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


def check_name(kind: str, name: str) -> None:
    """Applies MLflow's own rule when a name is recorded, not hours later on delivery.

    Raises:
        ValueError: MLflow refuses the name.
    """
    is_path = posixpath.normpath(name) == name != "." and not name.startswith(("/", ".."))
    if not NAME.fullmatch(name) or not is_path:
        raise ValueError(
            f"{kind} name {name!r}: use up to 250 letters, digits, spaces, . _ - : and inner /"
        )


def check_header(header: Header) -> None:
    """Raises ValueError if MLflow refuses a name."""
    for kind, names in (("param", header.params), ("tag", header.tags)):
        for name in names:
            check_name(kind, name)


def now() -> int:
    """Returns milliseconds since 1970, as MLflow counts."""
    return time.time_ns() // 1_000_000


def _short(name: str, value: str) -> str:
    if len(value) <= LONGEST_PARAM:
        return value
    digest = sha256(value.encode()).hexdigest()
    return f"{len(value)} characters, sha256 {digest}: whole in artifact {_file_of(name)}"


def _file_of(param: str) -> str:
    return f"params/{param.replace('/', '_')}.txt"


# Charts, of which MLflow draws one for each metric.


def chart_rows(table: Iterable[Row], headline: Sequence[str]) -> list[Row]:
    """Returns the rows that are drawn: scalars, and of the first headline metric its members, and
    its lowest and highest learner.

    Means over learners are drawn, single learners are not; nor are means over arms beside the
    arms. What is left out stands in history.csv.
    """
    rows = list(table)
    names = {name for name, _, _ in rows}
    over_arms = {name.rpartition(".")[0] for name in names if "." in name}
    charts = {name for name in names - over_arms if is_chart(name, headline)}
    drawn = [(padded(name), step, value) for name, step, value in rows if name in charts]
    learners = [row for row in rows if row[0].partition(SEED)[0] not in over_arms]
    return [*drawn, *ranges(learners, headline)]


def is_chart(name: str, headline: Sequence[str]) -> bool:
    """Returns whether a metric is a scalar, or a member of the first headline metric."""
    if SEED in name:
        return False
    base, _, last = name.rpartition("/")
    if not base or without_arm(name) in headline:
        return True
    vector = base.removesuffix("/agent")
    is_main = vector in (headline[0], headline[0].removesuffix("_mean"))
    return is_main and last.isdecimal() and int(last) < MOST_MEMBERS


def ranges(rows: Iterable[Row], headline: Sequence[str]) -> list[Row]:
    """Returns `NAME_low` and `NAME_high` over the learners of the first headline metric."""
    learners: dict[tuple[str, int], list[float]] = {}
    for name, step, value in rows:
        metric, _, seed = name.partition(SEED)
        if seed.isdecimal() and without_arm(metric) == headline[0]:
            learners.setdefault((metric, step), []).append(value)
    return [
        (f"{metric}_{end}", step, choose(values))
        for (metric, step), values in learners.items()
        for end, choose in (("low", min), ("high", max))
    ]


def without_arm(name: str) -> str:
    return name.partition(".")[0]


def padded(name: str) -> str:
    """Returns the name with indices of two digits: `cosine/03`."""
    return "/".join(
        part.zfill(INDEX_DIGITS) if part.isdecimal() else part for part in name.split("/")
    )
