"""argv -> a study; each verb imports its work itself (`pipeline.cli`)."""

from pathlib import Path
from typing import Any

from pipeline.runtime.command import (
    MODELS_OPTION,
    Options,
    option,
    selected_models,
    verb,
    whole_number,
)

FIELDS = (
    "limit_cycle",
    "double_limit_cycle",
    "van_der_pol",
    "duffing",
    "snowman",
    "saddle_spiral",
    "multi_attractor",
)
# Transitions of the pilot run that settings are chosen by, beside those of the training.
PILOT = 1500
# Decoder -> the kind of observation that it is made for.
DECODERS = {"known": "linear", "linear": "linear", "loglinear": "loglinear", "mlp": "linear"}

REPLICATES = "of each arm; intervals from 6 on"


@verb(
    option("folder", type=Path, help="maps as *.txt; or `catalogue`, the project's own maps"),
    option("--preset", default="large", metavar="PRESET", help="a file of presets/"),
    option("--steps", type=whole_number, metavar="N", help="gradient steps, if not the preset's"),
    option("--seeds", type=whole_number, metavar="N", help="repetitions, if not allo.seeds"),
    option(
        "--results",
        type=Path,
        default=Path("benchmarks/results/allo_grids.json"),
        metavar="FILE",
        help="scores by map",
    ),
)
def grids(options: Options) -> None:
    """Trains allo on every map of a folder and compares the scores with the paper's."""
    from pipeline.studies.grids import Request, compare

    folder = None if str(options.folder) == "catalogue" else options.folder
    changes: dict[str, Any] = {}
    if options.seeds is not None:
        changes["seeds"] = options.seeds
    if options.steps is not None:
        changes["train"] = {"steps": options.steps}
    compare(Path.cwd(), Request(folder, options.preset, changes, options.results))


@verb(
    MODELS_OPTION,
    option("--seeds", type=int, default=5, metavar="N", help="of each model, or more if it has"),
    option("--page", action="store_true", help="only write the table of the stored results"),
)
def results(options: Options) -> None:
    """Trains each model with several seeds and writes the table of scores."""
    models = selected_models(options.models)
    from pipeline.studies.results import measure

    measure(Path.cwd(), models, options.seeds, is_page_only=options.page)


@verb(
    option("--fields", nargs="+", default=FIELDS, choices=FIELDS, metavar="FIELD", help="to learn"),
    option(
        "--choose",
        action="store_true",
        help=f"first choose features and noise on {PILOT} additional transitions per replicate",
    ),
    option("--replicates", type=int, default=10, metavar="N", help=REPLICATES),
    option("--transitions", type=whole_number, default=2000, metavar="N", help="of each learner"),
)
def fields(options: Options) -> None:
    """Trains active_dynamics on several fields and compares its exploration policies."""
    from pipeline.studies.fields import Request, compare

    pilot = PILOT if options.choose else 0
    compare(Path.cwd(), Request(options.fields, options.replicates, options.transitions, pilot))


@verb(
    option(
        "--decoders",
        nargs="+",
        default=tuple(DECODERS),
        choices=tuple(DECODERS),
        metavar="DECODER",
        help="to train with",
    ),
    option("--replicates", type=int, default=6, metavar="N", help=REPLICATES),
)
def decoders(options: Options) -> None:
    """Trains seq_vae with each decoder and compares planned with random actions."""
    from pipeline.studies.decoders import compare

    observations = {decoder: DECODERS[decoder] for decoder in options.decoders}
    compare(Path.cwd(), observations, options.replicates)
