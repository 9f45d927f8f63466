"""argv -> `pipeline.retraining.retrain.retrain`."""

import argparse
import datetime
import sys
from pathlib import Path

from pipeline.runtime import options
from pipeline.runtime.command import Command, Options, Parser, UsageError
from pipeline.storage.params_file import check_params


def parse_seed(text: str) -> int:
    """Returns the seed of an option; `new` is today's date, so that an interrupted retraining
    continues today.
    """
    if text == "new":
        return int(f"{datetime.datetime.now(datetime.UTC):%Y%m%d}")
    if not text.isdecimal() or len(text) > 10 or int(text) >= 2**32:
        raise argparse.ArgumentTypeError(
            f"{options.shown(text)} is no seed; pass `new` or a whole number below 2**32"
        )
    return int(text)


def add_options(parser: Parser) -> None:
    options.add_preset(parser)
    parser.add_argument(
        "--seed",
        type=parse_seed,
        metavar="N",
        help="in place of the seed in params.yaml; `new`: today's date",
    )
    options.add_jobs(parser, default=None)
    parser.add_argument(
        "--push", action="store_true", help="send branch and outs to the git and DVC remotes"
    )


def run(args: Options) -> int:
    if args.preset != "default" and args.seed is not None:
        raise UsageError(
            "--seed goes with the default preset: "
            "it is written into params.yaml; others set it in presets/"
        )
    from pipeline.retraining.retrain import Request, retrain

    return retrain(Path.cwd(), Request(args.preset, args.seed, args.jobs, args.push))


main = Command(
    name="retrain",
    summary="Runs the pipeline again in a copy of the checkout and proposes what is better.",
    work=run,
    add_options=add_options,
    check=check_params,
)

if __name__ == "__main__":
    sys.exit(main())
