"""seed -> small faults, put into the code one at a time, and the tests that notice them

    python -m tests.mutants --count 60 --seed 0

Each mutant changes one expression or statement of src or pipeline in a copy of the checkout. The
test files near it run, until one fails: those of the mirrored folder, and those that import its
module. A test elsewhere may notice a mutant that survives them.
"""

import argparse
import ast
import copy
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


def imported(path: Path) -> set[str]:
    """Returns the modules and names that a file imports, with dots."""
    nodes = [*ast.walk(ast.parse(path.read_text()))]
    froms = [node for node in nodes if isinstance(node, ast.ImportFrom)]
    return {f"{node.module}.{alias.name}" for node in froms for alias in node.names} | {
        str(node.module) for node in froms
    }


def files_near(path: str) -> list[str]:
    """Returns the test files of the mirrored folder (or of one above it), the module's own first,
    then those that import the module, and the contract for a model.
    """
    source = Path(path.removeprefix("src/quatrain/"))
    module = path.removeprefix("src/").removesuffix(".py").replace("/", ".")
    above = (ROOT / "tests" / source).parents
    folder = next(parent for parent in above if any(parent.glob("test_*.py")))
    files = sorted(folder.glob("test_*.py"), key=lambda file: file.stem != f"test_{source.stem}")
    files += [file for file in sorted(ROOT.glob("tests/**/test_*.py")) if module in imported(file)]
    files += [ROOT / "tests" / "test_contract.py"] if source.parts[0] == "models" else []
    return list(dict.fromkeys(str(file.relative_to(ROOT)) for file in files))


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
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=900, help="for the tests of a mutant")
    options = parser.parse_args()
    killed = 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name, "copy")
        unneeded = shutil.ignore_patterns(".jax_cache", "__pycache__", ".bench", ".mlflow")
        shutil.copytree(ROOT, folder, symlinks=True, ignore=unneeded)
        for mutant in drawn(options.count, options.seed):
            files = files_near(mutant.path)
            failure = killer(mutant, files, folder, options.seconds) if files else None
            killed += failure is not None
            print(f"{'killed' if failure else 'SURVIVED'}  {mutant}  {failure or ''}", flush=True)
    print(f"{killed} of {options.count} mutants killed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
