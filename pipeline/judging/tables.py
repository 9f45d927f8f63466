"""verdicts -> tables of scores beside their baselines."""

from collections.abc import Callable, Sequence

from tabulate import tabulate

from pipeline.judging.verdicts import ModelVerdict
from quatrain.judgement import Comparison, Line

HEAD = ("model", "preset", "metric", "score", "baseline", "allowed", "status")


def table(verdicts: Sequence[ModelVerdict]) -> str:
    """Returns a row per judged metric; `allowed` says by how much noise widens a tolerance."""
    return _text_table(HEAD, table_rows(verdicts, _tolerance_and_noise))


def page_table(verdicts: Sequence[ModelVerdict]) -> list[tuple[str, ...]]:
    """Returns the cells of HEAD for each judged metric: `allowed` is tolerance and noise in sum."""
    return table_rows(verdicts, lambda _, comparison: f"{comparison.allowed:.3g}")


def _tolerance_and_noise(line: Line, comparison: Comparison) -> str:
    noise = comparison.allowed - line.tolerance
    sides = f" (tolerance {line.tolerance:.3g} + noise {noise:.3g})" if noise > 0 else ""
    return f"{comparison.allowed:.3g}{sides}"


def table_rows(
    verdicts: Sequence[ModelVerdict], allowed: Callable[[Line, Comparison], str]
) -> list[tuple[str, ...]]:
    """Returns the cells of a row for each judged metric."""
    return [
        (
            result.model,
            result.preset,
            line.metric,
            format_score(line.value),
            format_score(line.baseline),
            allowed(line, comparison),
            line.status,
        )
        for result in verdicts
        for line, comparison in zip(result.verdict.lines, result.comparisons, strict=True)
    ]


def comparison_table(verdicts: Sequence[ModelVerdict]) -> str:
    return _text_table(
        ("model", "preset", "metric", "old", "new", "difference", "status"),
        [
            (
                result.model,
                result.preset,
                comparison.metric,
                format_score(comparison.old),
                format_score(comparison.new),
                format_difference(comparison),
                comparison.status,
            )
            for result in verdicts
            for comparison in result.comparisons
        ],
    )


def _text_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    text = tabulate(rows, head, tablefmt="simple", disable_numparse=True)
    return "\n".join(map(str.rstrip, text.splitlines()))


def format_score(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"


def format_difference(comparison: Comparison) -> str:
    """Formats a difference and, if known, half its 95 % interval: `+0.0120 ± 0.0340`."""
    if comparison.difference is None:
        return "-"
    rounded = round(comparison.difference, 4)
    text = f"{rounded:+.4f}" if rounded else "0.0000"
    return text if comparison.half is None else f"{text} ± {comparison.half:.4f}"
