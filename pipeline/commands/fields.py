"""argv -> `pipeline.studies.fields.compare`."""

import sys
from pathlib import Path

from pipeline.runtime import options
from pipeline.runtime.command import Command, Options, Parser
from pipeline.storage.params_file import check_params

FIELDS = (
    "limit_cycle",
    "double_limit_cycle",
    "van_der_pol",
    "duffing",
    "snowman",
    "saddle_spiral",
    "multi_attractor",
)
# Transitions of the pilot run that settings are chosen by, beside those of the training.
PILOT = 1500


def add_options(parser: Parser) -> None:
    parser.add_argument(
        "--fields",
        nargs="+",
        default=FIELDS,
        choices=FIELDS,
        metavar="FIELD",
        help=f"some of {', '.join(FIELDS)} (default: all)",
    )
    parser.add_argument(
        "--choose",
        dest="pilot_transitions",
        action="store_const",
        const=PILOT,
        default=0,
        help=f"first choose features and noise on {PILOT} additional planned transitions per"
        " replicate",
    )
    parser.add_argument(
        "--replicates", type=int, default=10, metavar="N", help="of each arm; intervals from 6 on"
    )
    options.add_count(
        parser, "--transitions", help="of each learner, warm-up included", default=2000
    )


def run(args: Options) -> None:
    from pipeline.studies.fields import compare

    compare(Path.cwd(), args)


main = Command(
    name="fields",
    summary="Trains active_dynamics on several fields and compares its exploration policies.",
    work=run,
    add_options=add_options,
    check=check_params,
)

if __name__ == "__main__":
    sys.exit(main())
