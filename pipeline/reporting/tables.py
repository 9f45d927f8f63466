"""rows of cells -> a table for a terminal or for Markdown."""

from collections.abc import Sequence

from tabulate import tabulate

Cells = Sequence[str]


def text_table(head: Cells, rows: Sequence[Cells]) -> str:
    """Returns left-aligned columns without trailing blanks."""
    text = tabulate(rows, head, tablefmt="simple", disable_numparse=True)
    return "\n".join(line.rstrip() for line in text.splitlines())


def markdown_table(head: Cells, rows: Sequence[Cells]) -> str:
    """Returns a table of GitHub's Markdown without padding, so that its rows diff one by one."""
    return tabulate(rows, head, tablefmt="github", disable_numparse=True, stralign=None)
