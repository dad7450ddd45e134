"""A run as one HTML file: what its pages show, without a server, a script, or anything from elsewhere.

Each section is what a page shows, drawn by that page's template, within so many bytes that all together stay below
`LIMIT` whatever the run's size. What does not fit is left out, and that is said.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from base64 import b64encode
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from markupsafe import Markup

from headrace.base.units import format_bytes
from headrace.base.words import moment
from headrace.tracking.curves import coarser
from headrace.web.drawing import Drawing
from headrace.web.index import RunRow
from headrace.web.offline import offline
from headrace.web.options import Options
from headrace.web.pages import log, metrics, record, run, why
from headrace.web.pages.log import LineShown
from headrace.web.told import Page
from headrace.web.world import World

LIMIT: Final = 2_000_000
"""Bytes of a file."""
_FINE: Final = 24
"""So many curves are drawn as on the page; of more, each in `_STRETCHES`."""
_STRETCHES: Final = 120  # of a curve, each with its extremes
_LINE: Final = 2000
"""Characters of a line of a log."""
_STYLE: Final = Path(__file__).parent / "static" / "style.css"


@dataclass(frozen=True, slots=True)
class _Wanted:
    """A section. `room`: bytes at most. `items`: the field of what the page shows that is shortened to fit; of lines
    the last ones stay.
    """

    name: str
    title: str
    page: Page
    room: int
    items: str = ""
    query: Mapping[str, Any] = field(default_factory=dict[str, Any])


_WANTED: Final = (
    _Wanted("overview", "Overview", run.PAGE, 200_000, "tail"),
    _Wanted("why", "Why", why.PAGE, 200_000),
    _Wanted("metrics", "Metrics", metrics.METRICS, 650_000, "metrics", {"count": 100}),
    _Wanted("machine", "Machine", metrics.MACHINE, 250_000, "metrics", {"count": 100}),
    _Wanted("stdout", "Standard output", log.PAGE, 150_000, "lines", {"stream": "stdout", "count": 500}),
    _Wanted("stderr", "Standard error", log.PAGE, 150_000, "lines", {"stream": "stderr", "count": 500}),
    _Wanted("code", "Code", record.CODE, 150_000, "packages"),
    _Wanted("inputs", "Inputs", record.INPUTS, 100_000, "inputs"),
)
_FROM_THE_END: Final = ("lines", "tail")
_PLACES: Final = {"": "overview", "/why": "why", "/metrics": "metrics", "/machine": "machine", "/log": "stdout",
                  "/code": "code", "/inputs": "inputs"}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Section:
    """`html`: drawn; `left_out`: what did not fit, one sentence each."""

    name: str
    title: str
    html: Markup
    left_out: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Exported:
    """A whole file. `left_out`: what of the run is not in it, one sentence each."""

    run: str
    html: bytes
    left_out: tuple[str, ...]


def export_run(name: str, path: str | os.PathLike[str], world: World | None = None) -> Exported:
    """Write a run's file: whole, or not at all. `name`: as `hr.run` takes it. `world`: None: of the settings here.

    Raises:
        NotFoundError: there is no such run. OSError: it cannot be written. SettingError, any store error.
    """
    opened = world or World.load(Options())
    try:
        made = exported(opened, opened.runs.find(name).id)
    finally:
        if world is None:
            opened.close()
    target = os.path.abspath(path)
    descriptor, temporary = tempfile.mkstemp(dir=os.path.dirname(target), prefix=".headrace-", suffix=".html")
    try:
        with open(descriptor, "wb") as file:
            file.write(made.html)
            os.fchmod(descriptor, 0o644)
        os.replace(temporary, target)
    except BaseException:
        os.unlink(temporary)
        raise
    return made


def exported(world: World, name: str) -> Exported:
    """The file of the run with this id. Raises NotFoundError, any store error."""
    drawing = Drawing(replace(world, options=Options()), frame="alone.html", filters={"ago": moment})
    row = RunRow.of(world.followers.of(name).view())
    sections = [_section(world, drawing, name, one) for one in _WANTED]
    left_out = tuple(text for one in sections for text in one.left_out)
    style = _STYLE.read_text()
    digest = b64encode(hashlib.sha256(style.encode()).digest()).decode()
    text = drawing.text(
        "export.html", run=row, sections=sections, left_out=left_out, digest=digest, url=world.runs.run(name).url,
        python=f"hr.run({name!r})",
        style=Markup("<style>") + Markup(style) + Markup("</style>"),  # noqa: S704 (a file of ours)
        time=datetime.now(UTC).isoformat(timespec="seconds"),
    )  # fmt: skip
    return Exported(name, _encoded(text), left_out)


def _section(world: World, drawing: Drawing, name: str, wanted: _Wanted) -> Section:
    """As much of it as there is room for."""
    shown = _shortened(wanted.page.tell(world, {"run": name}, wanted.query).data)
    places = {f"/runs/{quote(name)}{path}": place for path, place in _PLACES.items()}

    def drawn(data: Any) -> str:
        return offline(drawing.text(f"{wanted.page.name}.html", shown=data, page=wanted.page), places)

    html, data = drawn(shown), shown
    while (size := len(_encoded(html))) > wanted.room and wanted.items and getattr(data, wanted.items):
        some = getattr(data, wanted.items)
        keep = int(len(some) * 0.9 * wanted.room / size)
        some = some[len(some) - keep :] if wanted.items in _FROM_THE_END else some[:keep]
        data = replace(data, **{wanted.items: some})
        html = drawn(data)
    if size > wanted.room:
        told = f"{wanted.title}: it takes {format_bytes(size)}"
        return Section(wanted.name, wanted.title, Markup("<p>Left out.</p>"), (told,))
    return Section(wanted.name, wanted.title, Markup(html), tuple(_left_out(wanted, shown, data)))  # noqa: S704 (drawn by templates)


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "replace")


def _left_out(wanted: _Wanted, shown: Any, data: Any) -> Iterator[str]:
    if not wanted.items or wanted.items == "tail":
        return
    here = len(getattr(data, wanted.items))
    total = max(getattr(shown, "total", 0), len(getattr(shown, wanted.items)))
    if here < total:
        which = "the last" if wanted.items in _FROM_THE_END else "the first"
        yield f"{wanted.title}: {which} {here:,} of {total:,} {wanted.items} are here"


def _shortened(shown: Any) -> Any:
    """No line of a log is longer than anybody reads; many curves are drawn coarser, and keep their extremes."""
    changed: dict[str, Any] = {}
    for name in ("tail", "lines"):
        if lines := getattr(shown, name, ()):
            changed[name] = tuple(map(_short, lines))
    if (error := getattr(shown, "first_error", None)) is not None:
        changed["first_error"] = _short(error)
    if isinstance(shown, metrics.Shown) and len(shown.metrics) > _FINE:
        changed["metrics"] = tuple(replace(one, curve=coarser(one.curve, _STRETCHES)) for one in shown.metrics)
    return replace(shown, **changed)


def _short(line: LineShown) -> LineShown:
    more = len(line.text) - _LINE
    return replace(line, text=f"{line.text[:_LINE]} … {more:,} characters more") if more > 0 else line


__all__ = ["LIMIT", "Exported", "export_run", "exported"]
