"""params, judgements -> the description that MLflow's UI shows above a run."""

from collections.abc import Sequence
from pathlib import Path

from pipeline.judging.render import markdown, summary
from pipeline.tracking.origin import changes
from quatrain.judgement import Judgement
from quatrain.params import Params


def description(
    root: Path, params: Params, model: str | None, judgements: Sequence[Judgement]
) -> str:
    """Returns Markdown: the verdict, the judged scores, and what params.yaml changes.

    model: whose params and those that all share; None for all of them.
    """
    parts = summary(judgements), markdown(judgements), changes(root, params.preset, model)
    return "\n\n".join(parts)
