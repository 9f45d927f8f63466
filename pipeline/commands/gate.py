"""verdicts -> exit code: 0 if every model holds its baseline, 4 with a line per broken metric if
not; and the scores in reports/ -> the table of README.md.
"""

import sys
from pathlib import Path

from pipeline.runtime import options
from pipeline.runtime.command import Command, Options, Parser
from pipeline.storage.params_file import check_params
from quatrain.registry import MODELS


def add_options(parser: Parser) -> None:
    options.add_models(parser)
    options.add_preset(parser)
    parser.add_argument(
        "--page",
        action="store_true",
        help="only write the scores in reports/ and their baselines into README.md",
    )


def run(args: Options) -> int:
    from pipeline.dvc.workspace import workspace_of
    from pipeline.judging.gate import gate

    root = Path.cwd()
    if args.page:
        return write_page(root)
    models = options.selected_models(args.models)
    return gate(root, workspace_of(root, args.preset), models, args.preset)


def write_page(root: Path) -> int:
    from pipeline.reporting import scores_page
    from quatrain.storage.atomic_write import write_durably
    from quatrain.storage.folders import read_text

    page = root / scores_page.PAGE
    results = scores_page.judge_stored(root, list(MODELS))
    write_durably(page, scores_page.with_table(read_text(page), results).encode())
    print(f"gate: {scores_page.PAGE} has the scores of reports/")
    return 0


main = Command(
    name="gate",
    summary="Compares the stored verdicts with the baselines and fails if a score is worse.",
    work=run,
    add_options=add_options,
    check=check_params,
)

if __name__ == "__main__":
    sys.exit(main())
