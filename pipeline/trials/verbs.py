"""argv -> the work of this folder: trials; each verb imports its work itself (`pipeline.cli`)."""

from argparse import ArgumentTypeError
from pathlib import Path

from pipeline.runtime.command import (
    PRESET_OPTION,
    Options,
    margin,
    option,
    quoted,
    verb,
    whole_number,
)


def counts(text: str) -> tuple[int, ...]:
    return tuple(map(whole_number, text.split(",")))


def verdicts(text: str) -> list[str]:
    """Returns the verdicts of a comparison that end with an exit code of their own."""
    words = [word.strip() for word in text.split(",") if word.strip()]
    if unknown := {*words} - {"better", "worse", "no difference", "undecided"}:
        raise ArgumentTypeError(f"{quoted(unknown.pop())} is no verdict; write worse,undecided")
    return words


ADDRESS_OPTION = option(
    "--address", metavar="HOST:PORT", help="of a Ray cluster; this machine alone if none"
)
STORAGE_OPTION = option(
    "--storage",
    metavar="URI",
    help="where trials keep their checkpoints, reached by all nodes: a shared folder or"
    " s3://BUCKET/FOLDER; with no --address a folder of .state",
)
CPUS_OPTION = option(
    "--cpus", type=whole_number, metavar="N", help="of this machine for trials, or all"
)


@verb(
    option("model", metavar="MODEL", help="as params.yaml has it"),
    option(
        "-S",
        dest="changes",
        action="append",
        metavar="KEY=VALUE",
        help="a change, such as train.learning_rate=3e-3; several are one change",
    ),
    option(
        "--against",
        metavar="WHAT",
        help="a commit or branch, whose code and params are the old side; preset:NAME; or champion",
    ),
    PRESET_OPTION,
    option("--seeds", type=whole_number, default=16, metavar="N", help="of each side, at most"),
    option(
        "--batches", type=counts, default="4,8,16", metavar="N,N", help="seeds after which to look"
    ),
    option("--metric", metavar="NAME", help="that decides; the first gated one if none"),
    option("--margin", type=margin, metavar="X", help="that does not matter; the gate's tolerance"),
    option("--fail-if", type=verdicts, metavar="WORDS", help="worse,undecided: exit 4"),
    option("--different-worlds", action="store_true", help="compare sides with other worlds"),
    option("--name", help="of the report below reports/compare"),
    ADDRESS_OPTION,
    STORAGE_OPTION,
    CPUS_OPTION,
    interrupted="interrupted; the same command continues",
)
def compare(options: Options) -> int:
    """Says whether a change helps: trains both sides with the same seeds until that is clear."""
    from pipeline.trials.place import RETRIES, make_place, needs_of
    from pipeline.trials.sides import read_request

    root = Path.cwd()
    request = read_request(root, options)
    if request is None:
        print(f"compare: {options.model}: code and params are those of {options.against}")
        return 0
    needs = needs_of(request.pair(root, 0))
    place = make_place(root, options, **needs, watch="", retries=RETRIES)
    from pipeline.trials import compare as comparisons  # loads MLflow's side

    return comparisons.run(root, request, place)


@verb(
    option("sweep", type=Path, metavar="SWEEP", help="a file, as sweeps/allo_lr.yaml"),
    ADDRESS_OPTION,
    STORAGE_OPTION,
    CPUS_OPTION,
    interrupted="interrupted; the same command continues",
)
def sweep(options: Options) -> int:
    """Searches parameters by trials, and writes the best as a preset if it is better."""
    from pipeline.trials.place import make_place
    from pipeline.trials.space import read_space

    space = read_space(Path.cwd(), options.sweep)
    needs = space.sweep.model_dump(include={"cpus", "gpus", "watch", "retries"})
    place = make_place(space.root, options, **needs)
    from pipeline.trials import sweep as sweeps  # loads Optuna, which a mistake does not wait for

    return sweeps.run(space, place)
