"""argv -> a study: a function (root, options) -> `Study`, imported when its verb runs."""

from functools import partial
from importlib import import_module
from pathlib import Path

from pipeline.runtime.command import (
    MODELS_OPTION,
    Options,
    number,
    option,
    selected_models,
    verb,
    whole_number,
)

REPLICATES = "of each arm; intervals from 6 on"
STEPS = option("--steps", type=whole_number, metavar="N", help="gradient steps, if not the usual")
several_seeds = number(int, 5, 10**4, "number of seeds for intervals; pass 5 or more")
study_verb = partial(verb, interrupted="interrupted; the same command continues")


def perform(module: str, name: str, options: Options) -> None:
    from pipeline.trials import study

    declare = getattr(import_module(f"pipeline.trials.studies.{module}"), name)
    study.perform(Path.cwd(), declare(Path.cwd(), options))


@study_verb(
    MODELS_OPTION,
    option("--seeds", type=several_seeds, default=5, metavar="N", help="or more, if it has them"),
    option("--page", action="store_true", help="only write the table of the stored results"),
)
def results(options: Options) -> None:
    """Trains each model with several seeds and writes the table of scores."""
    options.models = [] if options.page else selected_models(options.models)
    perform("results", "results", options)


@study_verb(
    option("folder", type=Path, help="maps as *.txt; or `catalogue`, the project's own maps"),
    option("--preset", default="large", metavar="PRESET", help="a file of presets/"),
    option("--seeds", type=whole_number, metavar="N", help="repetitions, if not allo.seeds"),
    STEPS,
)
def grids(options: Options) -> None:
    """Trains allo on every map of a folder and compares the scores with the paper's."""
    perform("allo", "grids", options)


@study_verb(
    option("maps", nargs="*", metavar="MAP", help="such as 'hall, 1,000'; all if none is named"),
    STEPS,
)
def states(options: Options) -> None:
    """Trains allo on maps of 1,000 to 60,000 states and says what each stage costs."""
    perform("allo", "states", options)


@study_verb(
    option("--fields", nargs="+", metavar="FIELD", help="to learn, in place of all built-in ones"),
    option("--replicates", type=whole_number, default=10, metavar="N", help=REPLICATES),
    option("--transitions", type=whole_number, default=2000, metavar="N", help="of each learner"),
)
def fields(options: Options) -> None:
    """Trains active_dynamics on several fields and compares its exploration policies."""
    perform("active_dynamics", "fields", options)


@study_verb(
    option("--decoders", nargs="+", metavar="DECODER", help="to train with, in place of all"),
    option("--replicates", type=whole_number, default=6, metavar="N", help=REPLICATES),
)
def decoders(options: Options) -> None:
    """Trains seq_vae with each decoder and compares planned with random actions."""
    perform("active_dynamics", "decoders", options)
