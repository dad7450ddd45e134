r"""Conditions that people write: ``--where``, which samples are kept; ``--if``, whether a model is published.

A small language with Python's grammar, and nothing of Python behind it. ``ast`` parses the text, every node is looked
up in a short list here, and what is not on it is refused with its position; the expression becomes closures over what
is listed. Nothing is evaluated as Python: no attribute is looked up, no name but a sample's own fields, no call but the
functions below.

    key.startswith("train/") and size < 1_000_000
    "label" in parts and int(label) in (1, 2, 3)
    not match(key, r"bad-\d+")
    accuracy >= 0.97 and max(val/loss) < 1

Names of samples: ``key``, ``size`` (bytes), ``parts`` (names of the parts), ``shard`` (of records); these decide when a
packing is planned. Any other name is a field of the sample, so the sample must be read for it; ``field("name")`` is one
whose name is no identifier. Names of metrics (`METRICS`) may hold ``/``; each stands for its last value, and
``min(loss)``, ``max(loss)`` for the others.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from headrace.base.errors import BadSampleError, InputError

PLANNED = ("key", "size", "parts", "shard")
SUMMARIES = ("last", "min", "max")
Scope = Mapping[str, Any]
_Eval = Callable[[Scope], Any]
_MOST = 10_000
"""Characters of a condition: what people write is shorter, and a parser's stack is not endless."""
_COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: lambda a, b: a == b,
    ast.NotEq: lambda a, b: a != b,
    ast.Lt: lambda a, b: a < b,
    ast.LtE: lambda a, b: a <= b,
    ast.Gt: lambda a, b: a > b,
    ast.GtE: lambda a, b: a >= b,
    ast.In: lambda a, b: a in b,
    ast.NotIn: lambda a, b: a not in b,
}
_METHODS: dict[str, Callable[[str], Callable[[str], bool]]] = {
    "startswith": lambda text: lambda value: value.startswith(text),
    "endswith": lambda text: lambda value: value.endswith(text),
}
_FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "int": int,
    "float": float,
    "len": len,
    "lower": lambda value: _text(value).lower(),
}
_KNOWN = "comparisons, and, or, not, in, numbers, text, key.startswith(…), match(key, …), int, float, len, lower, field"


@dataclass(frozen=True, slots=True)
class Dialect:
    """What the language is used for. `option`: named in errors; `subject`: what has the names; `summaries`: functions
    of a name, each another name, ``max(loss)``; `known`: what may be written.
    """

    option: str
    subject: str
    summaries: tuple[str, ...] = ()
    known: str = _KNOWN


SAMPLES = Dialect("--where", "the sample")
METRICS = Dialect(
    "--if", "the run", SUMMARIES, "comparisons, and, or, not, numbers, a metric's name, last(…), min(…), max(…)"
)


@dataclass(frozen=True, slots=True, eq=False)
class Where:
    """An expression. Immutable; any thread."""

    text: str
    names: frozenset[str]
    """What it speaks of."""
    _evaluate: _Eval
    read_keys: bool = False
    """Whether keys are known only once samples have been read."""
    dialect: Dialect = SAMPLES

    @property
    def planned(self) -> bool:
        """Whether names and sizes decide, without reading a sample."""
        return self.names <= frozenset(PLANNED) and not (self.read_keys and "key" in self.names)

    def keeps(self, scope: Scope) -> bool:
        """Whether it holds; `scope`: values by name.

        Raises:
            BadSampleError: the sample has no such field, or values cannot be compared.
        """
        try:
            return bool(self._evaluate(scope))
        except BadSampleError:
            raise
        except (TypeError, ValueError, OverflowError, IndexError, KeyError) as error:
            raise BadSampleError(
                f"{self.dialect.option}: {error}", hint="int(…) and float(…) make numbers of text"
            ) from None

    @staticmethod
    def parse(text: str, dialect: Dialect = SAMPLES) -> Where:
        """Raises InputError, with the position of what is not understood."""
        option, known = dialect.option, dialect.known
        if len(text) > _MOST:
            raise InputError(f"{option} of {len(text):,} characters", hint=f"{_MOST:,} at most")
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # what Python thinks of its style is nobody's concern here
                tree = ast.parse(text.strip(), mode="eval")
            parser = _Parser(dialect)
            evaluate = parser.build(tree.body)
        except SyntaxError as error:
            place = f" at position {error.offset}" if error.offset else ""
            raise InputError(f"{option} is not understood{place}: {error.msg}", hint=known) from None
        except (RecursionError, MemoryError):
            raise InputError(f"{option} nests too deeply", hint=known) from None
        except ValueError as error:  # a null character, a lone surrogate, a number of thousands of digits
            raise InputError(f"{option} is not understood: {error}", hint=known) from None
        return Where(text.strip(), frozenset(parser.names), evaluate, dialect=dialect)


def refers(text: str) -> frozenset[str]:
    """The names in an expression. Raises InputError."""
    return Where.parse(text).names


class _Parser:
    """Turns nodes into closures, and collects names."""

    def __init__(self, dialect: Dialect) -> None:
        self.names: set[str] = set()
        self._dialect = dialect

    def build(self, node: ast.expr) -> _Eval:
        match node:
            case ast.BoolOp(op=ast.And(), values=values):
                every = [self.build(one) for one in values]
                return lambda scope: all(one(scope) for one in every)
            case ast.BoolOp(op=ast.Or(), values=values):
                some = [self.build(one) for one in values]
                return lambda scope: any(one(scope) for one in some)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                inner = self.build(operand)
                return lambda scope: not inner(scope)
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as number)) if not isinstance(
                number, bool
            ):
                return _constant(-number)
            case ast.Compare():
                return self._comparison(node)
            case ast.Constant(value=bool() | int() | float() | str() | None as value):
                return _constant(value)
            case ast.Tuple(elts=items) | ast.List(elts=items) | ast.Set(elts=items):
                return self._literals(items)
            case ast.Name(id=name):
                return self._name(node, name)
            case ast.Subscript(value=ast.Name() as name, slice=ast.Constant(value=int() as place)) if place >= 0:
                whole = self.build(name)
                return lambda scope: _plain(whole(scope)[place])
            case ast.Call(keywords=[]):
                return self._call(node)
            case ast.BinOp(op=ast.Div()) if self._dialect.summaries:
                return self._value(self._path(node))
            case _:
                raise self._unknown(node)

    def _name(self, node: ast.expr, name: str) -> _Eval:
        if name.startswith("_") or name in _FUNCTIONS or name in ("match", "field"):
            raise self._unknown(node)
        return self._value(name)

    def _value(self, name: str) -> _Eval:
        self.names.add(name)

        def look(scope: Scope) -> Any:
            if name not in scope:
                said = f"{self._dialect.option}: {self._dialect.subject} has no {name!r}"
                raise BadSampleError(said, hint=f'"{name}" in parts and …')
            return _plain(scope[name])

        return look

    def _path(self, node: ast.expr) -> str:
        """A name with slashes in it, which Python takes for divisions."""
        match node:
            case ast.Name(id=name):
                return name
            case ast.BinOp(op=ast.Div(), left=left, right=right):
                return f"{self._path(left)}/{self._path(right)}"
            case ast.Call(func=ast.Name(id="field"), args=[ast.Constant(value=str() as name)], keywords=[]):
                return name
            case _:
                raise self._unknown(node)

    def _unknown(self, node: ast.expr) -> InputError:
        what, option = ast.unparse(node)[:60], self._dialect.option
        reason = f"{option} at position {node.col_offset + 1}: {what!r} is not understood"
        return InputError(reason, hint=self._dialect.known)

    def _comparison(self, node: ast.Compare) -> _Eval:
        first = self.build(node.left)
        if any(type(op) not in _COMPARE for op in node.ops):
            raise self._unknown(node)
        rest = [(_COMPARE[type(op)], self.build(one)) for op, one in zip(node.ops, node.comparators, strict=True)]

        def compare(scope: Scope) -> bool:
            left = first(scope)
            for operation, one in rest:
                right = one(scope)
                if not operation(left, right):
                    return False
                left = right
            return True

        return compare

    def _literals(self, items: list[ast.expr]) -> _Eval:
        values: list[Any] = []
        for item in items:
            if not isinstance(item, (ast.Constant, ast.UnaryOp)):
                raise self._unknown(item)
            values.append(self.build(item)({}))
        return _constant(tuple(values))

    def _call(self, node: ast.Call) -> _Eval:
        match node.func, node.args:
            case ast.Name(id="field"), [ast.Constant(value=str() as name)]:
                return self._value(name)
            case ast.Name(id=name), [value] if name in self._dialect.summaries:
                return self._value(f"{name}({self._path(value)})")
            case ast.Name(id="match"), [value, ast.Constant(value=str() as pattern)]:
                return self._match(node, value, pattern)
            case ast.Name(id=name), [value] if name in _FUNCTIONS:
                function, inner = _FUNCTIONS[name], self.build(value)
                return lambda scope: function(inner(scope))
            case ast.Attribute(attr=name, value=value), [ast.Constant(value=str() as text)] if name in _METHODS:
                method, subject = _METHODS[name](text), self.build(value)
                return lambda scope: method(_text(subject(scope)))
            case _:
                raise self._unknown(node)

    def _match(self, node: ast.Call, value: ast.expr, pattern: str) -> _Eval:
        try:
            compiled = re.compile(pattern)
        except (re.error, OverflowError, RecursionError) as error:
            place = node.args[1].col_offset + 1
            raise InputError(
                f"{self._dialect.option} at position {place}: {pattern[:60]!r} is no regular expression: {error}",
                hint="Python's re",
            ) from None
        subject = self.build(value)
        return lambda scope: compiled.match(_text(subject(scope))) is not None


def _constant(value: Any) -> _Eval:
    return lambda _: value


def _plain(value: Any) -> Any:
    """As it is compared: bytes as text, numbers of NumPy as Python's."""
    if isinstance(value, (bytes, bytearray, memoryview)):
        return str(value, "utf-8", "replace")
    if isinstance(value, np.generic) or (isinstance(value, np.ndarray) and value.ndim == 0):
        return value.item()
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{type(value).__name__} is no text")
    return value
