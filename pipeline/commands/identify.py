"""argv -> `pipeline.studies.identify.identify`."""

import sys
from pathlib import Path

from pipeline.runtime import options
from pipeline.runtime.command import Command, Options, Parser
from pipeline.storage.params_file import check_params

ARMS = ("active", "random", "prbs")
OUT = "identified.npz"


def add_options(parser: Parser) -> None:
    parser.add_argument(
        "--recording",
        metavar="FILE",
        help="npz of observations [run, time + 1, channel] and actions [run, time, action]",
    )
    parser.add_argument(
        "--system", metavar="NAME", help="a Gymnasium id, or module:Name of an environment's class"
    )
    parser.add_argument("--arm", choices=ARMS, help="of a system (default: active)")
    options.add_count(parser, "--transitions", help="of a system, warm-up included", default=2000)
    parser.add_argument("--out", default=OUT, metavar="FILE", help="npz of field and channels")


def run(args: Options) -> None:
    from pipeline.studies.identify import identify

    identify(Path.cwd(), args)


main = Command(
    name="identify",
    summary="Learns the vector field of recorded trajectories, or of a Gymnasium environment.",
    work=run,
    add_options=add_options,
    check=check_params,
)

if __name__ == "__main__":
    sys.exit(main())
