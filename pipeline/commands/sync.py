"""argv -> `pipeline.dvc.sync.sync`."""

import sys
from pathlib import Path

from pipeline.runtime import options
from pipeline.runtime.command import Command, Options, Parser


def add_options(parser: Parser) -> None:
    options.add_seconds(
        parser, "--wait", help="how long to keep trying", default=20.0, metavar="SECONDS"
    )
    parser.add_argument(
        "--from-start",
        action="store_true",
        help="send whole journals anew; what the store has already is not doubled",
    )


def run(args: Options) -> int:
    from pipeline.dvc.sync import sync

    return sync(Path.cwd(), args.wait, args.from_start)


main = Command(
    name="sync",
    summary="Records what a cache restored, delivers pending metrics and sets the aliases.",
    work=run,
    add_options=add_options,
    interrupted="interrupted; what arrived is noted, run `make sync` again",
)

if __name__ == "__main__":
    sys.exit(main())
