"""rows of cells -> a table in Markdown."""

from collections.abc import Mapping, Sequence

from tabulate import tabulate


def markdown_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Returns a table of GitHub's Markdown without padding, so that its rows diff one by one."""
    return tabulate(rows, head, tablefmt="github", disable_numparse=True, stralign=None)


def format_score(scores: Mapping[str, float | None], name: str) -> str:
    """Formats a score with its interval if it has one; `none` if it is not a number."""
    value = scores[name]
    if value is None:
        return "none"
    low, high = (scores.get(f"{name}_{end}") for end in ("low", "high"))
    interval = "" if low is None or high is None else f" [{low:.3g} {high:.3g}]"
    return f"{value:.3g}{interval}"
