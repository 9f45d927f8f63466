"""argv -> `pipeline.dvc.promotion.promote`."""

import sys
from pathlib import Path

from pipeline.runtime import options
from pipeline.runtime.command import Command, Options, Parser, UsageError
from pipeline.storage.params_file import check_params


def add_options(parser: Parser) -> None:
    options.add_models(parser)
    options.add_preset(parser)
    parser.add_argument(
        "--force", action="store_true", help="store scores that are worse, too; needs --why"
    )
    parser.add_argument("--why", metavar="REASON", help="the reason, kept in the provenance")
    parser.add_argument(
        "--keep-champion",
        action="store_true",
        help="leave that alias to `make sync`, after a merge",
    )


def run(args: Options) -> int:
    if args.force != bool((args.why or "").strip()):
        raise UsageError("--force and --why '...' go together")
    from pipeline.dvc import repro
    from pipeline.dvc.promotion import promote
    from pipeline.dvc.workspace import alone

    root = Path.cwd()
    models = options.selected_models(args.models)
    with alone(root, args.preset):
        promote(root, models, args.preset, args.why)
        return repro.judge_again(root, args.preset, models, update_aliases=not args.keep_champion)


main = Command(
    name="promote",
    summary="Stores the current scores as the baselines.",
    work=run,
    add_options=add_options,
    check=check_params,
)

if __name__ == "__main__":
    sys.exit(main())
