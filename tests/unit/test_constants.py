"""Numbers in the code: each says its unit and why it has its value, right where it stands."""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Iterator
from pathlib import Path

import headrace

VERSIONS = {"FORMAT", "_FORMAT", "FORMAT_VERSION", "VERSION"}
"""Numbers of formats, which count up from 1 and have no unit."""
_TO_TOOLS = ("# fmt:", "# noqa", "# pyright:", "# type:")


def _is_number(value: ast.expr | None) -> bool:
    """A number, arithmetic of numbers, or several of these."""
    match value:
        case ast.Constant():
            return type(value.value) in (int, float)
        case ast.UnaryOp():
            return _is_number(value.operand)
        case ast.BinOp():
            return _is_number(value.left) and _is_number(value.right)
        case ast.Tuple():
            return bool(value.elts) and all(map(_is_number, value.elts))
        case _:
            return False


def _has_comment(lines: list[str]) -> bool:
    """Whether a statement of these lines has a comment for people."""
    tokens = tokenize.generate_tokens(io.StringIO("\n".join(lines)).readline)
    return any(one.type == tokenize.COMMENT and not one.string.startswith(_TO_TOOLS) for one in tokens)


def _names(target: ast.expr) -> set[str]:
    return {one.id for one in ast.walk(target) if isinstance(one, ast.Name)}


def bare(source: str) -> Iterator[tuple[int, str]]:
    """(line, name) of the module's numeric constants with neither a docstring below nor a comment beside."""
    body, lines = ast.parse(source).body, source.split("\n")
    for here, below in zip(body, [*body[1:], None], strict=True):
        if not isinstance(here, ast.Assign | ast.AnnAssign) or not _is_number(here.value):
            continue
        target = here.targets[0] if isinstance(here, ast.Assign) else here.target
        told = (
            isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant) and isinstance(below.value.value, str)
        )
        told = told or _names(target) <= VERSIONS or _has_comment(lines[here.lineno - 1 : here.end_lineno])
        if not told:
            yield here.lineno, ast.unparse(target)


def test_every_numeric_constant_says_its_unit_and_why() -> None:
    root = Path(headrace.__file__).parent
    found = [
        f"{path.relative_to(root)}:{line}: {name}"
        for path in sorted(root.rglob("*.py"))
        for line, name in bare(path.read_text(encoding="utf-8"))
    ]
    assert not found, "say its unit, and why it has this value, in a docstring below or a comment beside"


def test_a_bare_number_is_found_and_one_that_is_told_of_is_not() -> None:
    source = '''
"""A module."""
FORMAT = 1
_BARE = 1 << 20
_SEVERAL: Final = 0.5, -3  # fmt: skip
_BESIDE_S: Final = 2.0  # seconds
_BELOW = 64 * 1024
"""Bytes of a piece."""
_TEXT, _MADE = "7", 4 * _BARE
'''
    assert list(bare(source)) == [(4, "_BARE"), (5, "_SEVERAL")]
