"""committed scores, baselines -> the table of README.md: a row for each model, and the machine."""

from collections.abc import Sequence
from pathlib import Path

from pipeline.judging import gate, render
from pipeline.judging.machine import describe, machine_of
from pipeline.judging.scores import scores_of
from pipeline.reporting.sections import count
from pipeline.storage.params_file import read_params
from quatrain.errors import DataError
from quatrain.judgement import Judgement
from quatrain.registry import MODELS
from quatrain.storage.atomic_write import write_durably
from quatrain.storage.folders import read_text

PAGE = Path("README.md")
BEGIN = "<!-- Made by `make gate ARGS=--page`. -->"
END = "<!-- End of what `make gate ARGS=--page` makes. -->"
HEAD = ("model", "first score", "score", "baseline", "allowed", "all scores")


def write_page(root: Path) -> None:
    """Writes the scores in reports/ and their baselines into README.md.

    Raises:
        DataError: a file cannot be read, or README.md has no place for the table.
    """
    page = root / PAGE
    write_durably(page, with_table(read_text(page), judge_stored(root)).encode())
    print(f"gate: {PAGE} has the scores of reports/")


def judge_stored(root: Path) -> list[Judgement]:
    """Judges the scores in reports/ by the baselines of preset default; a clone has no learners.

    Raises:
        NotFresh: scores are not those of these params and this code.
        DataError: a file cannot be read.
    """
    params = read_params(root)
    scores = {model: scores_of(root, model, params).scores for model in MODELS}
    return [gate.judge_scores(root, model, params, scores[model]) for model in MODELS]


def with_table(page: str, judgements: Sequence[Judgement]) -> str:
    """Returns README.md with the first score of each model, how many hold, and the machine of the
    baselines.

    Raises:
        DataError: it has no place for the table.
    """
    machines = [describe(machine_of(judgement.provenance)) for judgement in judgements]
    line = f"Machine of the baselines: {'; '.join(dict.fromkeys(machines))}."
    table = render.markdown_table(HEAD, [row(judgement) for judgement in judgements])
    return between_marks(page, f"{table}\n\n{line}", BEGIN, END, str(PAGE))


def row(judgement: Judgement) -> tuple[str, ...]:
    """Returns the cells of HEAD."""
    first = judgement.lines[0]
    score, baseline, _ = render.cells(first)
    return judgement.model, first.metric, score, baseline, f"{first.allowed:.3g}", count(judgement)


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
