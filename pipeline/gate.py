"""verdicts -> exit code: 0 where every model holds its baseline, 4 with a line per broken metric where one does not."""

import argparse
import sys
from pathlib import Path

from pipeline import verdicts
from pipeline.artifacts import ArtifactError
from quatrain.baselines import PASSED
from quatrain.registry import MODELS


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m pipeline.gate", description=__doc__)
    parser.add_argument("models", nargs="*", metavar="MODEL", help=f"all of {', '.join(MODELS)} if none is named")
    models = parser.parse_args(argv).models or list(MODELS)
    unknown = sorted(set(models) - set(MODELS))
    if unknown:
        print(f"gate: unknown model {unknown[0]!r}; known: {', '.join(MODELS)} [exit 2]", file=sys.stderr)
        return 2
    try:
        judged = [verdicts.check(Path.cwd(), model) for model in models]
    except ArtifactError as error:
        print(f"gate: {error} [exit 3]", file=sys.stderr)
        return 3
    print(verdicts.table(judged))
    broken = [(one, line) for one in judged for line in one.verdict.lines if line.status not in PASSED]
    for one, line in broken:
        origin = f" (baseline of {one.provenance['date']}, {one.provenance['commit']})" if one.provenance else ""
        print(f"gate: {one.model}: {line.status}: {line.why}{origin} [exit 4]", file=sys.stderr)
    return 4 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
