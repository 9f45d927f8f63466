"""verdicts -> exit code: 0 if every model holds its baseline, 4 with a line per broken metric if
not.
"""

import sys
from pathlib import Path

from pipeline.judging.gate import gate
from pipeline.runtime import options
from pipeline.runtime.command import Command

main = Command(
    name="gate",
    summary="Compares the stored verdicts with the baselines and fails if a score is worse.",
    work=lambda args: gate(Path.cwd(), options.selected_models(args.models)),
    add_options=options.add_models,
)

if __name__ == "__main__":
    sys.exit(main())
