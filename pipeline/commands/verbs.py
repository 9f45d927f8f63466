"""argv -> the work of this folder; each verb imports its work itself (`pipeline.cli`)."""

from pathlib import Path

from pipeline.runtime.command import Options, option, seconds, selected_models, verb, whole_number


@verb(
    option(
        "--recording",
        metavar="FILE",
        help="npz of observations [run, time + 1, channel] and actions [run, time, action]",
    ),
    option("--system", metavar="NAME", help="a Gymnasium id, or module:Name of a class"),
    option("--arm", choices=("active", "random", "prbs"), help="of a system (default: active)"),
    option(
        "--transitions",
        type=whole_number,
        default=2000,
        metavar="N",
        help="of a system, warm-up included",
    ),
    option("--out", default="identified.npz", metavar="FILE", help="npz of field and channels"),
)
def identify(options: Options) -> None:
    """Learns the vector field of recorded trajectories, or of a Gymnasium environment."""
    from pipeline.commands.identify import Request, identify

    request = Request(
        options.recording, options.system, options.arm, options.transitions, options.out
    )
    identify(Path.cwd(), request)


@verb(
    option("model", metavar="MODEL", help="as params.yaml has it"),
    option("--seconds", type=seconds, default=3.0, metavar="N", help="of the trace"),
)
def profile(options: Options) -> None:
    """Traces some yields of a model's training and lists the operations that take longest."""
    (model,) = selected_models([options.model])
    from pipeline.commands.profile import profile

    profile(Path.cwd(), model, options.seconds)
