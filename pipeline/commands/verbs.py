"""argv -> the work of this folder; each verb imports its work itself (`pipeline.cli`)."""

from argparse import ArgumentTypeError
from pathlib import Path

from pipeline.runtime.command import (
    PRESET_OPTION,
    Options,
    number,
    option,
    seconds,
    selected_models,
    verb,
    whole_number,
)


def columns(text: str) -> list[str]:
    """Returns the names of a list with commas."""
    return [name.strip() for name in text.split(",")]


def matrix(text: str) -> list[list[float]]:
    """Returns the rows of `0, 0; 0, 3`.

    Raises:
        argparse.ArgumentTypeError: a number is none.
    """
    try:
        return [[float(number) for number in row.split(",")] for row in text.split(";")]
    except ValueError as error:
        raise ArgumentTypeError(f"{error}; write rows with ;, such as '0; 3'") from None


time_step = number(float, 1e-9, 1e4, "time step; pass one above 0")
bound = number(float, 1e-9, 1e6, "bound; pass one above 0")


@verb(
    option("--recording", metavar="FILE", help="CSV with a header, or npz; `*` matches several"),
    option("--system", metavar="NAME", help="a Gymnasium id, or module:Name of a class"),
    option("--actions", type=columns, metavar="NAMES", help="columns of actions, such as u"),
    option("--states", type=columns, metavar="NAMES", help="columns of states (all others)"),
    option("--angles", type=columns, metavar="NAMES", help="states that are angles, in radians"),
    option("--time", metavar="NAME", help="column of time"),
    option("--run", metavar="NAME", help="column that numbers runs"),
    option("--dt", type=time_step, metavar="N", help="time of a transition (that of --time)"),
    option("--control", type=matrix, metavar="ROWS", help="B of dx/dt = f(x) + B a (learned)"),
    option("--action-bound", type=bound, metavar="N", help="of actions of a system"),
    option("--true-field", metavar="MODULE:NAME", help="a function of states, to compare with"),
    option(
        "--arm",
        dest="arms",
        action="append",
        choices=("active", "random", "prbs"),
        help="of a system (active and prbs)",
    ),
    option("--transitions", type=whole_number, metavar="N", help="of a system, with warm-up"),
    option("--out", default="identified", metavar="FOLDER", help="of the result"),
    needs="quatrain.models.active_dynamics",
)
def identify(options: Options) -> None:
    """Learns the vector field of recorded trajectories, or of a Gymnasium environment."""
    from pipeline.commands.identify import identify

    identify(options)


@verb(
    option("model", metavar="MODEL", help="as params.yaml has it"),
    option(
        "--input",
        required=True,
        type=Path,
        metavar="FILE",
        help="npz, csv or parquet: a row for each question",
    ),
    option("--output", required=True, type=Path, metavar="FILE", help="of the answers, likewise"),
    PRESET_OPTION,
    option("--version", type=whole_number, metavar="N", help="of the registered model (champion)"),
)
def predict(options: Options) -> None:
    """Answers a file of questions of any length by a registered model."""
    (model,) = selected_models([options.model])
    from pipeline.commands.predict import predict

    files = options.input, options.output
    predict(Path.cwd(), model, options.preset, options.version, *files)


@verb(
    option("model", metavar="MODEL", help="as params.yaml has it"),
    option("--seconds", type=seconds, default=3.0, metavar="N", help="of the trace"),
)
def profile(options: Options) -> None:
    """Traces some yields of a model's training and lists the operations that take longest."""
    (model,) = selected_models([options.model])
    from pipeline.commands.profile import profile

    profile(Path.cwd(), model, options.seconds)


@verb(
    option("revision", nargs="?", default="HEAD", metavar="COMMIT", help="or branch, or tag"),
    reads_params=False,
)
def plots(options: Options) -> None:
    """Draws the curves and pictures that differ from those of a commit, into dvc_plots."""
    from pipeline.commands.plots import write_differences

    print(f"plots: {write_differences(Path.cwd(), options.revision)}")
