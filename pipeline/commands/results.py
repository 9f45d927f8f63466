"""argv -> `pipeline.studies.results.measure`."""

import sys
from pathlib import Path

from pipeline.runtime import options
from pipeline.runtime.command import Command, Options, Parser
from pipeline.storage.params_file import check_params


def add_options(parser: Parser) -> None:
    options.add_models(parser)
    parser.add_argument(
        "--seeds",
        type=int,
        default=5,
        metavar="N",
        help="of each model; a model with more in params.yaml keeps those",
    )
    parser.add_argument(
        "--page",
        action="store_true",
        help="measure nothing, write the table of the results that are there",
    )


def run(args: Options) -> None:
    from pipeline.studies.results import measure

    measure(Path.cwd(), args)


main = Command(
    name="results",
    summary="Trains each model with several seeds and writes the table of scores.",
    work=run,
    add_options=add_options,
    check=check_params,
)

if __name__ == "__main__":
    sys.exit(main())
