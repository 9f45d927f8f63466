"""argv -> `pipeline.studies.profile.profile`."""

import sys
from pathlib import Path

from pipeline.runtime import options
from pipeline.runtime.command import Command, Options, Parser
from pipeline.storage.params_file import check_params
from quatrain.errors import ConfigError
from quatrain.registry import MODELS


def add_options(parser: Parser) -> None:
    models = ", ".join(MODELS)
    parser.add_argument("model", metavar="MODEL", help=f"one of {models}, as params.yaml has it")
    options.add_seconds(parser, "--seconds", help="of the trace; at least one yield", default=3.0)


def run(args: Options) -> None:
    if args.model not in MODELS:
        models = ", ".join(MODELS)
        raise ConfigError(f"{args.model}: there is no such model; there are {models}")
    from pipeline.studies.profile import profile

    profile(Path.cwd(), args.model, args.seconds)


main = Command(
    name="profile",
    summary="Traces some yields of a model's training and lists the operations that take longest.",
    work=run,
    add_options=add_options,
    check=check_params,
)

if __name__ == "__main__":
    sys.exit(main())
