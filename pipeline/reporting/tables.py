"""rows of cells -> a table in Markdown."""

from collections.abc import Sequence

from tabulate import tabulate


def markdown_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Returns a table of GitHub's Markdown without padding, so that its rows diff one by one."""
    return tabulate(rows, head, tablefmt="github", disable_numparse=True, stralign=None)
