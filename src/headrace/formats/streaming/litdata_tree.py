"""The tree that an item's leaves hang in, as litdata writes it: PyTorch's TreeSpec as JSON, protocol 1."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple, cast

from headrace.base.errors import CorruptError, UnsupportedError

_DICTS = ("builtins.dict", "collections.OrderedDict")
_KINDS = {**dict.fromkeys(_DICTS, "dict"), "builtins.list": "list", "builtins.tuple": "tuple"}


class Node(NamedTuple):
    """A container: ``dict``, ``list`` or ``tuple``. `keys`: of a dict."""

    kind: str
    keys: tuple[str, ...]
    children: tuple[Tree, ...]


Tree = Node | None
"""None: a leaf."""


def parse(text: Any) -> Tree:
    """The tree of a ``data_spec``.

    Raises:
        CorruptError: it is none. UnsupportedError: it holds containers other than dicts of strings, lists and tuples.
    """
    try:
        protocol, root = json.loads(text)
        if protocol != 1:
            raise UnsupportedError(f"the items' tree is of protocol {str(protocol)[:40]}, only 1 is known")
        return _node(root)
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise CorruptError(f"the items' tree cannot be read: {type(error).__name__}: {error}") from None
    except RecursionError:
        raise CorruptError("the items' tree nests too deeply") from None


def _node(found: Any) -> Tree:
    name, context, below = found["type"], found["context"], cast("list[Any]", found["children_spec"])
    if name is None:
        if context is not None or below:
            raise ValueError("a leaf that holds something")
        return None
    kind = _KINDS.get(name)
    if kind is None:
        raise UnsupportedError(f"the items hold a {str(name)[:80]}", hint="dicts, lists and tuples are read")
    children = tuple(_node(one) for one in below)
    if kind != "dict":
        return Node(kind, (), children)
    keys = cast("list[Any]", json.loads(context))
    if not all(isinstance(key, str) for key in keys):
        raise UnsupportedError("the items hold a dict whose keys are not strings")
    if len(keys) != len(children) or len(set(keys)) < len(keys):
        raise ValueError("a dict with other keys than values")
    return Node(kind, tuple(keys), children)


def leaves_of(tree: Tree) -> int:
    """How many leaves it has."""
    return 1 if tree is None else sum(leaves_of(child) for child in tree.children)


def build(tree: Tree, leaves: Iterator[Any]) -> Any:
    """The tree with its leaves, taken in order."""
    if tree is None:
        return next(leaves)
    found = [build(child, leaves) for child in tree.children]
    if tree.kind == "dict":
        return dict(zip(tree.keys, found, strict=True))
    return tuple(found) if tree.kind == "tuple" else found
