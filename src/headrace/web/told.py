"""What a page tells, and how one asks it, the same for the page and for its JSON twin; and what can be done from it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Final, TypeAlias, cast

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
CONTENT: Final = "content"
"""The field of what an act is asked that takes the body as it came."""


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


@dataclass(frozen=True, slots=True)
class Done:
    """What came of an act. `said`: one sentence; `to`: the path of the page that shows it, below the base; None: the
    page from which it was asked. Acts that tell more inherit from it.
    """

    said: str
    to: str | None = None


Work: TypeAlias = Callable[[World, Any], Done]


@dataclass(frozen=True, slots=True)
class Act:
    """What changes something: a POST of JSON below ``/act``, done where `needs` (of `options.RIGHTS`) is allowed.

    `path`, `name`, `summary`: as a page's. `asked`: a dataclass of what is in path and body; or, where it has a field
    ``content: bytes``, of what is in path and query, and that is the body. `does`: the dataclass of the answer. `most`:
    bytes that the body may have.
    """

    path: str
    name: str
    needs: str
    asked: type
    does: type[Done]
    work: Work
    summary: str
    most: int = 1 << 20

    @property
    def takes_bytes(self) -> bool:
        """Whether its body is no JSON."""
        return any(one.name == CONTENT for one in fields(self.asked))

    def carry_out(self, world: World, path: Mapping[str, Any], query: Mapping[str, Any], body: bytes) -> Done:
        """Do it. Raises DeniedError: it was not allowed. InputError, and what the work raises."""
        world.options.check(self.needs)
        try:
            told = {**query, CONTENT: body} if self.takes_bytes else _table(body)
            if unknown := sorted(told.keys() - {one.name for one in fields(self.asked)}):
                hint = f"what can be given is {', '.join(one.name for one in fields(self.asked))}"
                raise InputError(f"{', '.join(unknown)}: nothing is called so", path=self.path, hint=hint)
            asked = msgspec.convert({**told, **path}, self.asked, strict=False)
        except msgspec.MsgspecError as error:
            raise InputError(f"cannot be asked so: {error}", path=self.path) from None
        return self.work(world, asked)


def _table(body: bytes) -> dict[str, Any]:
    """Raises MsgspecError, InputError: it is none."""
    told: Any = msgspec.json.decode(body) if body else {}
    if not isinstance(told, dict):
        raise InputError("is no JSON object", hint='like {"grace": 5}')
    return cast("dict[str, Any]", told)
