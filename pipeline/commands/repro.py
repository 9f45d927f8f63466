"""params.yaml, preset -> `dvc repro`, then the gate."""

import sys
from pathlib import Path

from pipeline.runtime import options
from pipeline.runtime.command import Command, Options, Parser
from pipeline.storage.params_file import check_params


def add_options(parser: Parser) -> None:
    options.add_models(parser)
    options.add_preset(parser)
    options.add_jobs(parser, default="auto")


def run(args: Options) -> int:
    from pipeline.dvc import repro

    models = options.selected_models(args.models)
    return repro.run(Path.cwd(), args.preset, models, args.jobs)


main = Command(
    name="repro",
    summary="Runs the stages that are out of date, then compares the scores with the baselines.",
    work=run,
    add_options=add_options,
    check=check_params,
    interrupted="interrupted; the next run continues",
)

if __name__ == "__main__":
    sys.exit(main())
