"""argv -> `pipeline.studies.decoders.compare`."""

import sys
from pathlib import Path

from pipeline.runtime.command import Command, Options, Parser
from pipeline.storage.params_file import check_params

# Decoder -> the kind of observation that it is made for.
DECODERS = {"known": "linear", "linear": "linear", "loglinear": "loglinear", "mlp": "linear"}


def add_options(parser: Parser) -> None:
    parser.add_argument(
        "--decoders",
        nargs="+",
        default=tuple(DECODERS),
        choices=tuple(DECODERS),
        metavar="DECODER",
        help=f"some of {', '.join(DECODERS)} (default: all)",
    )
    parser.add_argument(
        "--replicates",
        type=int,
        default=6,
        metavar="N",
        help="of each arm; intervals from 6 on",
    )


def run(args: Options) -> None:
    from pipeline.studies.decoders import compare

    observations = {decoder: DECODERS[decoder] for decoder in args.decoders}
    compare(Path.cwd(), observations, args.replicates)


main = Command(
    name="decoders",
    summary="Trains seq_vae with each decoder and compares planned with random actions.",
    work=run,
    add_options=add_options,
    check=check_params,
)

if __name__ == "__main__":
    sys.exit(main())
