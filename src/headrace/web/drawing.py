"""Templates into answers."""

from __future__ import annotations

import dataclasses
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import jinja2
import msgspec
import msgspec.structs
from markupsafe import Markup, escape
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

import headrace
from headrace.base.words import FILTERS
from headrace.tracking.curves import Axis, Curve
from headrace.tracking.svg import chart
from headrace.web.api import ACT, API
from headrace.web.failures import failure_of
from headrace.web.static_files import FOLDER, mark
from headrace.web.world import World

_TEMPLATES: Final = Path(__file__).parent / "templates"
_FRESH: Final = {"cache-control": "no-store"}


_PARTS: Final = {
    "own": "its own work", "wait_store": "waited for the store", "wait_decode": "waited for decoding",
    "wait_batch": "waited for batches",
}  # fmt: skip
_PLACES: Final = (("runs", "Runs"), ("data", "Data"), ("models", "Models"), ("files", "Files"), ("node", "Node"))
"""What the head of every page leads to."""


def _chart(
    curves: list[Curve], title: str, axis: Axis = "step", *, at: str = "", log: bool = False, width: int = 420,
    drag: str = "zoom",
) -> Markup:  # fmt: skip
    """A picture, which `static/charts.js` makes a chart of once somebody looks closer. `at`: where its curves are in
    the page's JSON twin (``metrics/0/curve``). `drag`: what a span that is dragged over is for, ``zoom`` or ``ask``.
    """
    height = 180 if width < 600 else 240
    drawn = chart(curves, title=title, axis=axis, log=log, width=width, height=height)
    told = {"at": at, "axis": axis, "log": "1" if log else "", "height": str(height), "drag": drag}
    data = " ".join(f'data-{name}="{escape(value)}"' for name, value in told.items())
    return Markup(f'<div class="plot" {data}>{drawn}</div>')  # noqa: S704 (made of numbers, escaped)


def _fields(asked: Any) -> list[tuple[str, str]]:
    """What a page is asked: its name in the query, and as the attribute's."""
    found = msgspec.structs.fields(asked) if isinstance(asked, msgspec.Struct) else dataclasses.fields(asked)
    return [(getattr(one, "encode_name", one.name), one.name) for one in found]


class Drawing:
    """Any thread. Everything that goes into a template is escaped there; what names and logs hold that a browser would
    not show, by `headrace.base.words.plain`. `frame`: the template around pages of a run; `filters`: in the place of
    those of the same name.
    """

    def __init__(
        self, world: World, *, frame: str = "base.html", filters: Mapping[str, Any] | None = None
    ) -> None:
        self._world = world
        self._templates = jinja2.Environment(
            loader=jinja2.FileSystemLoader(_TEMPLATES), autoescape=True, trim_blocks=True, lstrip_blocks=True,
            undefined=jinja2.StrictUndefined,
        )  # fmt: skip
        self._templates.filters.update(FILTERS)
        self._templates.filters.update(filters or {})
        base = world.options.base
        known: dict[str, Any] = {
            "base": base, "static": f"{base}/static/{mark()}", "api": f"{base}{API}",
            "version": headrace.__version__, "home": world.settings.home, "chart": _chart, "places": _PLACES,
            "parts_of_time": _PARTS, "allowed": world.options.allow, "fields": _fields,
            "machine": socket.gethostname(), "frame": frame, "has_uplot": (FOLDER / "uplot" / "uPlot.js").is_file(),
        }  # fmt: skip
        self._templates.globals.update(known)

    def draw(self, template: str, status: int = 200, **values: Any) -> Response:
        """A page."""
        return HTMLResponse(self.text(template, **values), status, _FRESH)

    def text(self, template: str, **values: Any) -> str:
        """The same as HTML."""
        return self._templates.get_template(template).render(values)

    def failed(self, request: Request, error: Exception) -> Response:
        """What went wrong, in the form that was asked for."""
        failure = failure_of(error)
        if request.url.path.startswith((API, f"{ACT}/")):
            return Response(msgspec.json.encode(failure), failure.status, _FRESH, "application/json")
        return self.draw("failed.html", failure.status, failure=failure)
