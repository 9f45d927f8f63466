"""argv -> `pipeline.studies.grids.compare`."""

import sys
from pathlib import Path
from typing import Any

from pipeline.runtime import options
from pipeline.runtime.command import Command, Options, Parser
from pipeline.storage.params_file import check_params

RESULTS = Path("benchmarks/results/allo_grids.json")
CATALOGUE_WORD = "catalogue"


def add_options(parser: Parser) -> None:
    parser.add_argument(
        "folder",
        type=Path,
        help=f"maps as *.txt, in either text format; or {CATALOGUE_WORD}, the project's own maps",
    )
    options.add_preset(parser, default="large")
    options.add_count(parser, "--steps", help="another number of gradient steps than the preset's")
    options.add_count(parser, "--seeds", help="another number of repetitions than allo.seeds")
    parser.add_argument(
        "--results", type=Path, default=RESULTS, metavar="FILE", help=f"(default: {RESULTS})"
    )


def run(args: Options) -> None:
    from pipeline.studies.grids import Request, compare

    folder = None if str(args.folder) == CATALOGUE_WORD else args.folder
    changes: dict[str, Any] = {}
    if args.seeds is not None:
        changes["seeds"] = args.seeds
    if args.steps is not None:
        changes["train"] = {"steps": args.steps}
    compare(Path.cwd(), Request(folder, args.preset, changes, args.results))


main = Command(
    name="grids",
    summary="Trains allo on every map of a folder and compares the scores with the paper's.",
    work=run,
    add_options=add_options,
    check=check_params,
)

if __name__ == "__main__":
    sys.exit(main())
