"""params.yaml, preset -> `dvc repro`, then the gate."""

import sys
from pathlib import Path

from pipeline.dvc import repro
from pipeline.runtime import options
from pipeline.runtime.command import Command, Parser


def add_options(parser: Parser) -> None:
    options.add_models(parser)
    options.add_preset(parser)
    options.add_jobs(parser, default="auto")


main = Command(
    name="repro",
    summary="Runs the stages that are out of date, then compares the scores with the baselines.",
    work=lambda args: repro.run(
        Path.cwd(), args.preset, options.selected_models(args.models), args.jobs
    ),
    add_options=add_options,
    interrupted="interrupted; the next run continues",
)

if __name__ == "__main__":
    sys.exit(main())
