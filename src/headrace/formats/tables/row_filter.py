"""Which rows: pyarrow's filters, ``[("day", ">=", 3), ("site", "in", ["a", "b"])]``, or a list of such lists (any)."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

import numpy as np

from headrace.base.arrow import Expression, Schema, Table, first_line, from_numbers, pa, pq, to_numbers
from headrace.base.errors import InputError
from headrace.catalog import Rows

Term: TypeAlias = "tuple[str, str, Any]"
_OPERATORS = ("=", "==", "!=", "<", ">", "<=", ">=", "in", "not in")
_HINT = 'where=[("day", ">=", 3), ("site", "in", ["a", "b"])]: all of them; a list of such lists: any of these'
_PLACE = "__headrace_row__"


@dataclass(frozen=True)
class Where:
    """Any of several lists of terms, each with all of its terms. Immutable; pickles."""

    any_of: tuple[tuple[Term, ...], ...]

    @property
    def columns(self) -> list[str]:
        """Names of the columns that it asks about."""
        return list(dict.fromkeys(name for terms in self.any_of for name, _, _ in terms))

    def expression(self) -> Expression:
        """As Arrow takes it."""
        return pq.filters_to_expression([list(terms) for terms in self.any_of])

    def check(self, schema: Schema, path: str) -> None:
        """Raises InputError where values and columns do not go together."""
        try:
            schema.empty_table().filter(self.expression())
        except (pa.ArrowException, TypeError, ValueError) as error:
            raise InputError(f"where={list(self.any_of)!r}: {first_line(error)}", path=path, hint=_HINT) from error

    def on(self, names: Collection[str]) -> Where | None:
        """What it demands of these columns alone; None: nothing that always holds."""
        kept = [tuple(term for term in terms if term[0] in names) for terms in self.any_of]
        return Where(tuple(kept)) if all(kept) else None

    def rows(self, table: Table) -> Rows | None:
        """The rows of a table that match, rising; None: all."""
        return matching(table, self.expression())

    def __str__(self) -> str:
        return " or ".join("(" + " and ".join(map(str, terms)) + ")" for terms in self.any_of)


def matching(table: Table, expression: Expression) -> Rows | None:
    """The rows for which `expression` is true, rising; None: all. Raises what pyarrow raises."""
    count = table.num_rows
    placed = table.append_column(_PLACE, from_numbers(np.arange(count, dtype=np.int64)))
    kept = placed.filter(expression)[_PLACE]
    if len(kept) == count:
        return None
    parts = [to_numbers(chunk) for chunk in kept.chunks]
    return np.concatenate(parts) if parts else np.zeros(0, np.int64)


def where_of(given: Sequence[Any] | None) -> Where | None:
    """What the user wrote, checked as far as it goes without data.

    Raises:
        InputError: not in that form.
    """
    if given is None:
        return None
    if not isinstance(given, (list, tuple)) or not given:
        raise InputError(f"where={given!r}", hint=_HINT)
    flat = isinstance(given[0], tuple) and len(given[0]) == 3 and isinstance(given[0][0], str)
    lists = cast("list[Any]", [given] if flat else list(given))
    return Where(tuple(tuple(_term(term) for term in _listed(terms)) for terms in lists))


def _listed(terms: Any) -> list[Any]:
    if not isinstance(terms, (list, tuple)) or not terms:
        raise InputError(f"where holds {terms!r}", hint=_HINT)
    return list(cast("Sequence[Any]", terms))


def _term(term: Any) -> Term:
    if not isinstance(term, (tuple, list)) or len(cast("Sequence[Any]", term)) != 3:
        raise InputError(f"where holds {term!r}", hint=_HINT)
    name, operator, value = cast("Sequence[Any]", term)
    if not isinstance(name, str) or operator not in _OPERATORS:
        raise InputError(f"where holds {term!r}", hint=f"a column's name, one of {' '.join(_OPERATORS)}, a value")
    if operator in ("in", "not in"):
        if isinstance(value, str) or not isinstance(value, Collection):
            raise InputError(f"where holds {term!r}", hint=f'"{operator}" takes a list of values')
        value = tuple(sorted(cast("Collection[Any]", value), key=repr))
    return name, operator, value
