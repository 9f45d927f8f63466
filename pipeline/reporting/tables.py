"""a score -> a cell; a table -> its place in a page."""

from collections.abc import Mapping

from quatrain.errors import DataError


def format_score(scores: Mapping[str, float | None], name: str) -> str:
    """Formats a score with its interval if it has one; `none` if it is not a number."""
    value = scores[name]
    if value is None:
        return "none"
    low, high = (scores.get(f"{name}_{end}") for end in ("low", "high"))
    interval = "" if low is None or high is None else f" [{low:.3g} {high:.3g}]"
    return f"{value:.3g}{interval}"


def between_marks(page: str, text: str, begin: str, end: str, name: str) -> str:
    """Returns a page with the text between two marks.

    Raises:
        DataError: the page has not one of each mark, in this order.
    """
    if page.count(begin) != 1 or page.count(end) != 1 or page.index(begin) > page.index(end):
        raise DataError(
            f"{name}: needs the lines {begin} and {end} once each, in this order, "
            "around the table; put them where it belongs"
        )
    before, _, rest = page.partition(begin)
    return f"{before}{begin}\n\n{text}\n\n{end}{rest.partition(end)[2]}"
