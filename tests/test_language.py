"""Standard names for definitions; docstrings of functions begin with a verb."""

import ast
from collections.abc import Iterator

import pytest

from tests.conftest import ROOT

TREES = ("src", "pipeline", "benchmarks", "examples", "tests")
DOCUMENTED = ("src", "pipeline", "benchmarks", "examples")
VAGUE = """
    told judged found one own held felt seen given made met chosen noted counted known wanted taken
"""
"""Participles that say nothing of the value; no definition has such a name."""
NO_VERBS = frozenset({"this", "its", "is", "as", "was", "has", "plus", "thus", "always", "besides"})
"""Words that end like a verb in the third person."""


def modules(tree: str) -> Iterator[tuple[str, ast.Module]]:
    """Yields the name of every Python file below a folder, with its syntax tree."""
    for path in sorted((ROOT / tree).rglob("*.py")):
        yield str(path.relative_to(ROOT)), ast.parse(path.read_text())


def definitions(node: ast.AST) -> Iterator[tuple[str, int]]:
    """Yields every name that the node binds, with its line."""
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            yield node.name, node.lineno
        case ast.arg():
            yield node.arg, node.lineno
        case ast.Name(ctx=ast.Store()):
            yield node.id, node.lineno
        case ast.Attribute(ctx=ast.Store()):
            yield node.attr, node.lineno


def begins_with_a_verb(docstring: str) -> bool:
    """Returns whether the first word is a verb in the third person, such as Computes or Returns."""
    word = docstring.split()[0].rstrip(",.:;").lower()
    return word.endswith("s") and word.isalpha() and word not in NO_VERBS


@pytest.mark.parametrize("tree", TREES)
def test_no_definition_has_a_vague_name(tree: str):
    vague = [
        f"{path}:{line}: {name}"
        for path, module in modules(tree)
        for node in ast.walk(module)
        for name, line in definitions(node)
        if name.strip("_").lower() in VAGUE.split()
    ]
    assert vague == []


@pytest.mark.parametrize("tree", DOCUMENTED)
def test_docstrings_of_public_functions_begin_with_a_verb(tree: str):
    others = [
        f"{path}:{node.lineno}: {node.name}: {docstring.splitlines()[0]}"
        for path, module in modules(tree)
        for node in ast.walk(module)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        if not node.name.startswith("_")
        if (docstring := ast.get_docstring(node)) and not begins_with_a_verb(docstring)
    ]
    assert others == []


def test_only_a_verb_in_the_third_person_is_one():
    words = ("Of", "What", "This", "As", "Nothing", "Returns")
    assert [begins_with_a_verb(f"{word} a model.") for word in words] == [False] * 5 + [True]
