"""Many options of a command, gathered in one value."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar, cast

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

_Function = TypeVar("_Function", bound=Callable[..., Any])


def gathered(
    kind: type[DataclassInstance], options: Sequence[Callable[[Any], Any]], name: str = "words"
) -> Callable[[_Function], _Function]:
    """A decorator that gives a command these options; it receives them as `name`, one value of `kind`, whose fields go
    by their names.
    """
    given = [field.name for field in fields(kind)]

    def decorated(function: _Function) -> _Function:
        @wraps(function)
        def called(*first: Any, **rest: Any) -> Any:
            return function(*first, **{name: kind(**{one: rest.pop(one) for one in given})}, **rest)

        made: Any = called
        for option in reversed(options):
            made = option(made)
        return cast("_Function", made)

    return decorated
