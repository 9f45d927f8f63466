"""a model -> its card in MLflow's registry: what it is, inputs, outputs, scores, data, limits."""

import inspect
from collections.abc import Mapping
from importlib import resources

import numpy as np

from pipeline.judging.verdicts import ModelVerdict
from pipeline.runtime.stage import Stage
from pipeline.tracking.description import score_table, verdict_of
from pipeline.tracking.model_registry import SCORES
from quatrain.request_body import MOST_BYTES
from quatrain.requests import MOST_QUESTIONS

# Beside the code of a model: two sections, `## What it is` and `## Limits`.
FILE = "card.md"
LIMITS = "## Limits"
LARGEST_REQUEST = (
    f"A request has 1..{MOST_QUESTIONS:,} questions, and its body at most {MOST_BYTES:,} bytes."
)

Arrays = Mapping[str, np.ndarray]


def model_card(stage: Stage, request: Arrays, answer: Arrays, digest: str) -> str:
    """Returns the card in Markdown; its evaluation adds the scores.

    request, answer: an example, whose first axis counts questions. digest: of the dataset.
    """
    what, _, limits = text_of(stage).partition(LIMITS)
    parts = [
        what.strip(),
        f"## How to ask\n\n{how_to_ask(stage)}\n\n{LARGEST_REQUEST}",
        f"## Inputs\n\n{arrays_table(request)}",
        f"## Outputs\n\n{arrays_table(answer)}",
        f"{SCORES}\n\nNot evaluated yet.",
        f"## Data\n\n{data_of(stage, digest)}",
        f"{LIMITS}\n\n{limits.strip() or 'Not written down yet.'}",
    ]
    return "\n\n".join(parts)


def scores_section(result: ModelVerdict) -> str:
    """Returns the section of the card that an evaluation writes."""
    title = f"{SCORES} (preset {result.preset})"
    return "\n\n".join([title, verdict_of([result]), score_table([result])])


def text_of(stage: Stage) -> str:
    """Returns the text beside the model's code, or else what its module `serve` says of itself."""
    path = resources.files(stage.modules.package) / FILE
    if path.is_file():
        return path.read_text()
    purpose = inspect.getdoc(stage.modules.serve) or "no description yet"
    return f"## What it is\n\n{stage.model}: {purpose}"


def how_to_ask(stage: Stage) -> str:
    """Returns what the model's `answer` says of inputs and outputs, without its errors."""
    text = inspect.getdoc(stage.modules.serve.answer) or ""
    return text.partition("\nRaises:")[0].strip()


def arrays_table(arrays: Arrays) -> str:
    rows = [f"| {name} | {array.dtype} | {shape_of(array)} |" for name, array in arrays.items()]
    return "\n".join(["| array | type | shape |", "|---|---|---|", *rows])


def shape_of(array: np.ndarray) -> str:
    return f"({', '.join(['questions', *map(str, array.shape[1:])])})"


def data_of(stage: Stage, digest: str) -> str:
    """Returns where the training data come from."""
    return (
        f"`data/{stage.model}`, sha256 {digest[:16]}: collected in the environment that the params "
        f"`env` and `collect` of the run describe, with seed {stage.params.seed}; "
        f"held-out data are collected apart."
    )
