"""committed scores, baselines -> the table of README.md, and the machine that they come from."""

from collections.abc import Sequence
from pathlib import Path

from pipeline.judging import tables, verdicts
from pipeline.judging.machine import describe, machine_of
from pipeline.judging.verdicts import ModelVerdict
from pipeline.reporting.tables import between_marks, markdown_table
from quatrain.registry import MODELS
from quatrain.storage.atomic_write import write_durably
from quatrain.storage.folders import read_text

PAGE = Path("README.md")
BEGIN = "<!-- Made by `make gate ARGS=--page`. -->"
END = "<!-- End of what `make gate ARGS=--page` makes. -->"
PRESET = "default"


def render(results: Sequence[ModelVerdict]) -> str:
    """Renders the gate's table, and the machine of the baselines."""
    machines = [describe(machine_of(result.baseline.provenance)) for result in results]
    line = f"Machine: {'; '.join(dict.fromkeys(machines))}."
    return f"{markdown_table(tables.HEAD, tables.page_table(results))}\n\n{line}"


def judge_stored(root: Path, models: Sequence[str]) -> list[ModelVerdict]:
    """Judges the scores in reports/ by the baselines, whatever run they are of.

    Raises:
        DataError: a file cannot be read.
    """
    return [
        verdicts.judge_files(
            verdicts.files(root, model), model, PRESET, verdicts.rules_of(model, PRESET)
        )
        for model in models
    ]


def with_table(page: str, results: Sequence[ModelVerdict]) -> str:
    """Returns README.md with the table of these scores.

    Raises:
        DataError: it has no place for the table.
    """
    return between_marks(page, render(results), BEGIN, END, str(PAGE))


def write_page(root: Path) -> None:
    """Writes the scores in reports/ and their baselines into README.md.

    Raises:
        DataError: a file cannot be read, or the page has no place for the table.
    """
    page = root / PAGE
    text = with_table(read_text(page), judge_stored(root, list(MODELS)))
    write_durably(page, text.encode())
    print(f"gate: {PAGE} has the scores of reports/")
