"""Holds each folder to a budget of code lines: `python tests/test_weight.py` prints the table.

Blank lines, comments and docstrings are no code lines. A budget is lowered whenever a folder gets
lighter, and raised only in a commit that says what a user gets for it.
"""

import ast
import io
import math
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# Folder -> most code lines of the Python files in it; a file counts for the longest name that it is
# below. Models that `make new` writes have none.
BUDGETS: dict[str, float] = {
    "src/quatrain": 2_155,
    "src/quatrain/api": 1_088,
    "src/quatrain/storage": 790,
    "src/quatrain/frameworks": 449,
    "src/quatrain/envs": 2_965,
    "src/quatrain/envs/host": 1_637,
    "src/quatrain/envs/adapters": 684,
    "src/quatrain/replay": 724,
    "src/quatrain/models": math.inf,
    "src/quatrain/models/allo": 1_882,
    "src/quatrain/models/iqn": 2_376,
    "src/quatrain/models/actor_critic": 2_846,
    "src/quatrain/models/active_dynamics": 4_975,
    "pipeline": 337,
    "pipeline/dvc": 429,
    "pipeline/judging": 561,
    "pipeline/reporting": 415,
    "pipeline/retraining": 361,
    "pipeline/runtime": 760,
    "pipeline/new_model": 319,
    "pipeline/scaffolding": 270,
    "pipeline/stages": 238,
    "pipeline/storage": 418,
    "pipeline/tracking": 1_923,
    "pipeline/commands": 634,
    "pipeline/trials": 2_497,
    "tests": 9_904,
    "tests/pipeline": 6_320,
    "tests/pipeline/trials": 2_368,
    "tests/campaign": 427,
    "tests/models": math.inf,
    "tests/models/allo": 1_087,
    "tests/models/iqn": 1_658,
    "tests/models/actor_critic": 2_021,
    "tests/models/active_dynamics": 2_872,
    "tests/benchmarks": 392,
    "benchmarks": 3_113,
}
TOKENS_WITHOUT_CODE = (
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
)


def code_lines(source: str) -> int:
    """Returns how many lines of a Python source hold code."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in TOKENS_WITHOUT_CODE:
            lines.update(range(token.start[0], token.end[0] + 1))
    return len(lines.difference(*docstrings(ast.parse(source))))


def docstrings(tree: ast.Module) -> Iterator[range]:
    """Yields the lines of each docstring."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0] if node.body else None
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                yield range(first.lineno, (first.end_lineno or first.lineno) + 1)


def folder_of(file: str) -> str | None:
    """Returns the entry of BUDGETS that a file counts for; None if there is none."""
    return next((str(parent) for parent in Path(file).parents if str(parent) in BUDGETS), None)


def weights() -> dict[str, int]:
    """Returns the code lines of each entry of BUDGETS."""
    lines_of = dict.fromkeys(BUDGETS, 0)
    for file in python_files():
        folder = folder_of(file)
        assert folder is not None, f"{file} has no budget: add its folder to tests/test_weight.py"
        lines_of[folder] += code_lines((ROOT / file).read_text())
    return lines_of


def python_files() -> list[str]:
    tops = ("src", "pipeline", "tests", "benchmarks")
    return [
        str(path.relative_to(ROOT)) for top in tops for path in sorted((ROOT / top).rglob("*.py"))
    ]


def table() -> str:
    """Returns code lines and budget of each folder, and the sums of the top folders."""
    lines_of = weights()
    rows = [f"{'code lines':>10}  {'budget':>6}  folder"]
    rows += [f"{lines_of[name]:10,}  {BUDGETS[name]:6,.0f}  {name}" for name in BUDGETS]
    for top in ("src", "pipeline", "tests", "benchmarks", ""):
        names = [name for name in BUDGETS if name.startswith(top)]
        sums = (
            sum(lines_of[name] for name in names),
            sum(BUDGETS[name] for name in names if BUDGETS[name] < math.inf),
        )
        rows.append(f"{sums[0]:10,}  {sums[1]:6,.0f}  {top or 'all'}")
    return "\n".join(rows)


def test_every_folder_keeps_its_budget() -> None:
    heavy = {
        name: f"{lines:,} code lines, {BUDGETS[name]:,.0f} allowed"
        for name, lines in weights().items()
        if lines > BUDGETS[name]
    }
    assert not heavy, f"delete before you add: {heavy}"


def test_only_code_counts() -> None:
    lines = ('"""Says."""', "x = 1  # one", "", "def f():", '    """Says."""', "    # why")
    source = "\n".join((*lines, '    return """', "", '    """', ""))
    assert code_lines(source) == 5


if __name__ == "__main__":
    sys.stdout.write(f"{table()}\n")
