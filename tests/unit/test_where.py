"""``--where``: what holds, what is refused and where, and that nothing is ever executed."""

from __future__ import annotations

import ast
import builtins
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from headrace.base.errors import BadSampleError, InputError
from headrace.base.where import Where

SCOPE: dict[str, Any] = {
    "key": "train/cat-17",
    "size": 900,
    "parts": ("jpg", "cls"),
    "shard": "",
    "cls": memoryview(b"7"),
    "x": np.float32(0.5),
    "name": "Ünï",
    "v": np.array([3, 4]),
    "no-name": 2,
}


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("size < 1_000", True),
        ("size < 1_000 and not key.startswith('train/')", False),
        ("key.endswith('17') or nothing > 3", True),
        ('"cls" in parts and int(cls) in (1, 7)', True),
        ("'png' in parts", False),
        ("'png' not in parts", True),
        ('match(key, r"train/(cat|dog)-\\d+$")', True),
        ('match(key, "cat")', False),
        ("100 <= size < 900", False),
        ("x == 0.5 and x > -1", True),
        ("cls == '7'", True),
        ("lower(name) == 'ünï'", True),
        ("len(v) == 2 and v[1] == 4", True),
        ('field("no-name") == 2', True),
        ("cls in ['6', '7']", True),
        ("True", True),
        ("name != None", True),
    ],
)
def test_what_holds(text: str, holds: bool) -> None:
    assert Where.parse(text).keeps(SCOPE) is holds


def test_names_say_whether_a_sample_must_be_read() -> None:
    assert Where.parse("size > 3 and 'jpg' in parts and match(key, 'a')").planned
    assert not Where.parse("size > 3 and label == 2").planned
    assert Where.parse("size > 3 and field('class') == 2").names == {"size", "class"}


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("__import__('os')", 1),
        ("key.__class__", 1),
        ("size > 1 and key.upper() == 'A'", 14),
        ("(lambda: 1)()", 1),
        ("[x for x in key]", 1),
        ("key + 'a' == 'b'", 1),
        ("key.startswith(key)", 1),
        ("open('x')", 1),
        ("f'{key}' == 'a'", 1),
        ("key is None", 1),
        ("(size := 3)", 2),
        ("_x == 1", 1),
        ("int == 3", 1),
        ("v[-1] == 3", 1),
        ("size in (key, 3)", 10),
        ("match(key, '(')", 12),
        ("size >", None),
        ("", None),
        ("size\0", None),
        ("9 ** 9 ** 9", 1),
        ("(" * 500 + "1" + ")" * 500, None),
        ("not " * 5000 + "1", None),
        ("size == " + "9" * 9000, None),
        ("1 if size else 2", 1),
        ("int(size, base=3)", 1),
    ],
)
def test_what_is_refused_and_where(text: str, position: int | None) -> None:
    with pytest.raises(InputError) as caught:
        Where.parse(text)
    assert caught.value.hint
    if position is not None:
        assert f"at position {position}:" in caught.value.reason


@pytest.mark.parametrize("text", ["nothing == 1", "int(name) > 3", "v > 3", "key < 3", "v[9] == 1", "len(size) == 1"])
def test_a_sample_that_cannot_be_judged_is_a_bad_one(text: str) -> None:
    with pytest.raises(BadSampleError, match="--where"):
        Where.parse(text).keeps(SCOPE)


class Ear:
    """What Python does that expressions must not, while it listens: its hook stays for the life of the process."""

    WATCHED = ("os.", "subprocess.", "open", "exec", "import", "socket.", "shutil.", "pty.", "ctypes.")

    def __init__(self) -> None:
        self._heard: list[str] | None = None
        sys.addaudithook(self._hear)

    def _hear(self, name: str, _: object) -> None:
        if self._heard is not None and name.startswith(self.WATCHED):
            self._heard.append(name)

    @contextmanager
    def listening(self) -> Iterator[list[str]]:
        self._heard = heard = []
        try:
            yield heard
        finally:
            self._heard = None


EAR = Ear()
pieces = st.sampled_from(
    ["key", "size", "__import__('os').system('x')", "open('/tmp/never','w')", ".__class__", "(", ")", "[", "]", " and ",
     " == ", "'a'", "1", "exec('1')", "lambda: ", ".startswith('a')", "match(key, '", "')", "eval", " in ", ",", "not ",
     "{", "}", "*", "getattr(key, 'x')", "f'{key}'", " if ", " else ", "yield", "await ", "\n", "\\", "#", ":="]
)  # fmt: skip


@settings(max_examples=600, deadline=None)
@given(st.one_of(st.text(max_size=60), st.lists(pieces, max_size=8).map("".join)))
@example("[].append(1)")
@example("key.format('{0.__class__}')")
@example("().__class__.__bases__[0].__subclasses__()")
def test_any_text_is_an_expression_of_ours_or_refused_and_nothing_runs(text: str) -> None:
    before = dict(vars(builtins))
    environment = dict(os.environ)
    with EAR.listening() as heard, suppress(InputError):
        Where.parse(text).keeps(SCOPE)
    assert heard == []
    assert dict(vars(builtins)) == before
    assert dict(os.environ) == environment
    assert not os.path.exists("/tmp/never")


def test_the_audit_hears_what_it_should() -> None:
    with EAR.listening() as heard:
        subprocess.run(["true"], check=True)
    assert "subprocess.Popen" in heard


def test_every_node_of_pythons_grammar_that_is_not_listed_is_refused() -> None:
    """A new Python may bring new expressions: they are refused until somebody lists them."""
    listed = {"BoolOp", "UnaryOp", "Compare", "Constant", "Tuple", "List", "Set", "Name", "Subscript", "Call"}
    texts = {
        "BinOp": "1 + 1", "Lambda": "lambda: 1", "IfExp": "1 if 1 else 2", "Dict": "{1: 2}",
        "ListComp": "[1 for a in b]", "SetComp": "{1 for a in b}", "DictComp": "{1: 1 for a in b}",
        "GeneratorExp": "(1 for a in b)", "NamedExpr": "(a := 1)", "JoinedStr": "f''", "Attribute": "a.b",
        "Starred": "[*a]", "Slice": "a[1:2]", "Await": "await a", "Yield": "(yield)", "YieldFrom": "(yield from a)",
    }  # fmt: skip
    kinds = {kind.__name__ for kind in ast.expr.__subclasses__()}
    inner = {"FormattedValue", "TemplateStr", "Interpolation"}  # within others, or of newer Pythons
    assert kinds - listed - inner <= texts.keys() | {kind.__name__ for kind in ast.Constant.__subclasses__()}
    for text in texts.values():
        with pytest.raises(InputError):
            Where.parse(text)
