"""seed -> small faults, put into the code one at a time, and the test files that notice them

Which test files reach a line is read from the JSON of coverage.py, whose contexts are test files:

    python -m tests.mutants coverage.json --count 60 --seed 0

Each mutant changes one expression or statement of src or pipeline in a copy of the checkout. The
test files that reach its line run in turn, those of its own folder first, until one fails.
"""

import argparse
import ast
import copy
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
TREES = ("src/quatrain", "pipeline")
NO_TESTS = 5
"""Exit code of pytest where nothing was selected."""
AT_IMPORT = ("tests/test_contract.py", "tests/test_params.py")
"""Test files that are tried last for lines that run when a module is imported."""
PAIRS: list[tuple[type[ast.AST], type[ast.AST]]] = [
    (ast.Add, ast.Sub),
    (ast.Mult, ast.Div),
    (ast.Lt, ast.LtE),
    (ast.Gt, ast.GtE),
    (ast.Eq, ast.NotEq),
    (ast.Is, ast.IsNot),
    (ast.In, ast.NotIn),
    (ast.And, ast.Or),
]
SWAPS = {**dict(PAIRS), **{second: first for first, second in PAIRS}}
SWAPS |= dict.fromkeys((ast.FloorDiv, ast.Mod, ast.Pow), ast.Mult)


class Mutant(NamedTuple):
    """Holds a place in a file (offsets in bytes) and the text to put there."""

    path: str
    line: int
    begin: int
    end: int
    before: str
    after: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {' '.join(self.before.split())} -> {self.after}"


def mutated(node: ast.AST) -> ast.AST | None:
    """Returns the node with one fault; None if it has no operator, number or effect to change."""
    node = copy.deepcopy(node)
    match node:
        case ast.BinOp(op=op) | ast.BoolOp(op=op) if type(op) in SWAPS:
            node.op = SWAPS[type(op)]()
        case ast.Compare(ops=[op]) if type(op) in SWAPS:
            node.ops = [SWAPS[type(op)]()]
        case ast.UnaryOp(op=ast.Not() | ast.USub()):
            return node.operand
        case ast.IfExp():
            node.body, node.orelse = node.orelse, node.body
        case ast.Constant(value=bool()):
            node.value = not node.value
        case ast.Constant(value=int() | float()):
            node.value += 1
        case ast.Expr(value=ast.Call()):
            return ast.Pass()
        case ast.Return(value=ast.expr()):
            node.value = ast.Constant(None)
        case _:
            return None
    return node


def mutants(path: str) -> Iterator[Mutant]:
    """Yields all mutants of a file; annotations are left alone."""
    text = (ROOT / path).read_bytes()
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    tree = ast.parse(text)
    hints = [
        getattr(node, key, None) for node in ast.walk(tree) for key in ("annotation", "returns")
    ]
    skipped = {id(node) for hint in hints if hint is not None for node in ast.walk(hint)}
    for node in ast.walk(tree):
        if id(node) in skipped or (replacement := mutated(node)) is None:
            continue
        begin = starts[node.lineno - 1] + node.col_offset
        end = starts[node.end_lineno - 1] + node.end_col_offset
        after = ast.unparse(replacement)
        if isinstance(node, ast.expr):
            after = f"({after})"
        yield Mutant(path, node.lineno, begin, end, text[begin:end].decode(), after)


def drawn(count: int, seed: int) -> list[Mutant]:
    """Draws mutants uniformly over both trees."""
    paths = sorted(
        str(path.relative_to(ROOT)) for tree in TREES for path in ROOT.glob(f"{tree}/**/*.py")
    )
    return random.Random(seed).sample([item for path in paths for item in mutants(path)], count)


def files_reaching(mutant: Mutant, reached: dict[str, dict[str, list[str]]]) -> list[str]:
    """Returns the test files that reach a mutant, those of the mirrored folder first."""
    folder = Path("tests", *Path(mutant.path).parent.parts).as_posix().replace("/src/quatrain", "")
    contexts = reached.get(mutant.path, {}).get(str(mutant.line), [])
    files = {name for name in contexts if name.startswith("tests/") and (ROOT / name).exists()}
    if "" in contexts:
        files |= {str(path.relative_to(ROOT)) for path in ROOT.glob(f"{folder}/test_*.py")}
        files |= {*AT_IMPORT}
    return sorted(
        files, key=lambda name: (name in AT_IMPORT, not name.startswith(folder + "/"), name)
    )


def failing_test(files: list[str], folder: Path, seconds: float) -> str | None:
    """Returns the first test of the files that fails; None if none does in so many seconds."""
    options = ["-q", "-x", "-m", "not slow", "-p", "no:cacheprovider"]
    try:
        ended = subprocess.run(
            [sys.executable, "-m", "pytest", *options, *files],
            cwd=folder,
            env=os.environ | {"PYTHONPATH": f"{folder / 'src'}:{folder}"},
            capture_output=True,
            text=True,
            timeout=seconds,
        )
    except subprocess.TimeoutExpired:
        return None
    summary = re.search(
        r"^(?:FAILED|ERROR) ([^\s[]+(?:\[.*?\])?)(?: - |$)", ended.stdout, re.MULTILINE
    )
    if summary is None and ended.returncode not in (0, NO_TESTS):
        return files[0]
    return summary and summary[1]


def killer(mutant: Mutant, files: list[str], folder: Path, seconds: float) -> str | None:
    """Returns the test that fails with the mutant in place, and passes without it."""
    source = folder / mutant.path
    original = source.read_bytes()
    source.write_bytes(original[: mutant.begin] + mutant.after.encode() + original[mutant.end :])
    try:
        failure = failing_test(files, folder, seconds)
    finally:
        source.write_bytes(original)
    if failure is not None and failing_test([failure], folder, seconds):
        raise RuntimeError(f"{failure} fails without a mutant, too")
    return failure


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("coverage", type=Path, help="what `coverage json --show-contexts` wrote")
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=900, help="for the tests of a mutant")
    options = parser.parse_args()
    reached = {
        name[max(name.find(tree) for tree in TREES) :]: item["contexts"]
        for name, item in json.loads(options.coverage.read_text())["files"].items()
    }
    killed = 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name, "copy")
        unneeded = shutil.ignore_patterns(".jax_cache", "__pycache__", ".bench", ".mlflow")
        shutil.copytree(ROOT, folder, symlinks=True, ignore=unneeded)
        for mutant in drawn(options.count, options.seed):
            files = files_reaching(mutant, reached)
            failure = killer(mutant, files, folder, options.seconds) if files else None
            killed += failure is not None
            print(f"{'killed' if failure else 'SURVIVED'}  {mutant}  {failure or ''}", flush=True)
    print(f"{killed} of {options.count} mutants killed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
