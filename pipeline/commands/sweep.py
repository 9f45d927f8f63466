"""sweeps/NAME.yaml -> trials on this machine or on a Ray cluster, a page, and a preset."""

import sys
from pathlib import Path

from pipeline.runtime import options
from pipeline.runtime.command import Command, Options, Parser
from pipeline.storage.params_file import check_params


def add_options(parser: Parser) -> None:
    parser.add_argument("sweep", type=Path, metavar="SWEEP", help="a file, as sweeps/allo_lr.yaml")
    parser.add_argument(
        "--address", metavar="HOST:PORT", help="of a Ray cluster; this machine alone if not given"
    )
    parser.add_argument(
        "--storage",
        metavar="URI",
        help="where trials keep their checkpoints, reached by all nodes: a shared folder or "
        "s3://BUCKET/FOLDER; with no --address a folder of .state",
    )
    parser.add_argument(
        "--cpus",
        type=options.job_count,
        metavar="N",
        help="CPUs of this machine that trials may use together; all if not given",
    )


def run(args: Options) -> int:
    from pipeline.scaling import driver

    place = driver.Options(args.address, args.storage, args.cpus)
    return driver.run(Path.cwd(), args.sweep, place)


main = Command(
    name="sweep",
    summary="Searches parameters by trials on a Ray cluster, and writes the best as a preset.",
    work=run,
    add_options=add_options,
    check=check_params,
    interrupted="interrupted; the same command continues",
)

if __name__ == "__main__":
    sys.exit(main())
