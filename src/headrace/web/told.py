"""What a page tells, and how one asks it: the same for the page and for its JSON twin."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import msgspec

from headrace.base.errors import InputError
from headrace.web.world import World


@dataclass(frozen=True, slots=True)
class Told:
    """`data`: a frozen dataclass, from which the page is drawn and which the JSON twin is. `command`, `python`: how to
    have the same without a page.
    """

    data: Any
    command: str = ""
    python: str = ""


View: TypeAlias = Callable[[World, Any], Told]


@dataclass(frozen=True, slots=True)
class Page:
    """`path`: below the base, with places like ``{run}``; `name`: of its template, and of the operation in the API.

    `asked`: a dataclass of what is in path and query, all of the query with defaults; `shows`: that of `Told.data`.
    """

    path: str
    name: str
    asked: type
    shows: type
    view: View
    summary: str

    def tell(self, world: World, path: Mapping[str, Any], query: Mapping[str, Any]) -> Told:
        """What it shows for these. Raises InputError, and what the view raises."""
        try:
            asked = msgspec.convert({**query, **path}, self.asked, strict=False)
        except msgspec.ValidationError as error:
            raise InputError(f"cannot be asked so: {error}", path=self.path) from None
        return self.view(world, asked)
