"""Trees of which manifests and charts are made: dicts, lists and scalars, with places that a value fills later.

`filled` puts values into them. `headrace.cluster.kubernetes.chart` writes the same places as templates of Helm's, so
that neither knows anything of manifests that the other does not.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias, cast

from headrace.base.errors import InternalError

Tree: TypeAlias = Any
"""A dict, a list, a scalar, or one of the nodes below."""
Values: TypeAlias = Mapping[str, Any]
"""Values by name; those of a part are below the part's name."""

_PLACE: Final = re.compile(r"\{([a-z_.]+)\}")


@dataclass(frozen=True, slots=True)
class Value:
    """The value of a name, like ``image`` or ``job.nodes``, as it is."""

    name: str


@dataclass(frozen=True, slots=True)
class Text:
    """A text with values in it: ``{name}-cache``."""

    form: str

    @property
    def names(self) -> tuple[str, ...]:
        """Of the values, in order."""
        return tuple(_PLACE.findall(self.form))

    @property
    def printf(self) -> str:
        """The form as Go's ``printf`` takes it."""
        return _PLACE.sub("%v", self.form.replace("%", "%%"))


@dataclass(frozen=True, slots=True)
class When:
    """A tree that is there only where a value is: true, not 0, not empty. `absent`: only where it is not. Several names
    stand for any of them.

    It stands for a whole document, for an item of a list, or for the value of a key; there the key is gone, too.
    """

    name: str
    tree: Tree = field(repr=False)
    absent: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """Of the values."""
        return tuple(self.name.split())


@dataclass(frozen=True, slots=True)
class Each:
    """In a list: the items of a value that is a list."""

    name: str


@dataclass(frozen=True, slots=True)
class Pairs:
    """In a list: the entries of a value that is a map, as ``{"name": …, "value": …}``, in the order of names."""

    name: str


def value_of(values: Values, name: str) -> Any:
    """The value of a name. Raises InternalError: there is none."""
    found: Any = values
    for part in name.split("."):
        if not isinstance(found, Mapping) or part not in found:
            raise InternalError(f"no value is called {name}")
        found = cast("Mapping[str, Any]", found)[part]
    return found


def filled(tree: Tree, values: Values) -> Any:
    """The tree with its values: dicts, lists and scalars. None: it is a `When` that is not there."""
    if isinstance(tree, Value):
        return _plain(value_of(values, tree.name))
    if isinstance(tree, Text):
        return _PLACE.sub(lambda place: str(value_of(values, place[1])), tree.form)
    if isinstance(tree, When):
        return filled(tree.tree, values) if _there(tree, values) else None
    if isinstance(tree, Mapping):
        entries = cast("Mapping[str, Tree]", tree).items()
        return {key: filled(one, values) for key, one in entries if _there(one, values)}
    if isinstance(tree, Sequence) and not isinstance(tree, str):
        return [item for one in cast("Sequence[Tree]", tree) for item in _items(one, values)]
    return tree


def _items(tree: Tree, values: Values) -> list[Any]:
    if isinstance(tree, Each):
        return list(value_of(values, tree.name))
    if isinstance(tree, Pairs):
        return [{"name": name, "value": value} for name, value in sorted(value_of(values, tree.name).items())]
    return [filled(tree, values)] if _there(tree, values) else []


def _there(tree: Tree, values: Values) -> bool:
    return not isinstance(tree, When) or any(value_of(values, name) for name in tree.names) is not tree.absent


def _plain(value: Any) -> Any:
    return list(cast("tuple[Any, ...]", value)) if isinstance(value, tuple) else value
