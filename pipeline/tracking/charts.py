"""metrics of a training -> the few that become charts in MLflow, which draws one for each name."""

from collections.abc import Iterable, Sequence

from quatrain.progress import Row

# Part of a name that comes before the index of a learner.
SEED = "/seed/"
# Charts of the members of a vector, such as one cosine for each component, at most.
MOST_MEMBERS = 12
# Digits of an index: the UI sorts names as text.
INDEX_DIGITS = 2


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
