"""Things as notebooks show them: text, tables and pictures that also an untrusted notebook keeps.

It keeps ``<img>`` with data in its URL, ``<details>`` and inline styles; ``<svg>``, ``<style>`` and ``<script>`` go.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Final

from headrace.base.words import plain

_FAINT: Final = "opacity:0.7;padding:0 1em 0 0;text-align:left;vertical-align:top;white-space:nowrap"
_CELL: Final = "text-align:left;padding:0"
_COLUMN: Final = "text-align:left;vertical-align:top;padding:0 1em 0 0"
_TILE: Final = (
    "display:inline-block;width:{side}px;margin:4px;vertical-align:top;text-align:center;font-size:85%;overflow:hidden"
)


def card(title: str, rows: Mapping[str, object], *, lines: Iterable[str] = (), pictures: Iterable[str] = ()) -> str:
    """HTML of one thing: `rows` by what they are called (None: left out), then `lines`, then `pictures` (`picture`)."""
    cells = "".join(
        f'<tr><th style="{_FAINT}">{text(name)}</th><td style="{_CELL}">{text(value)}</td></tr>'
        for name, value in rows.items()
        if value is not None
    )
    told = "".join(f"<div>{text(line)}</div>" for line in lines)
    return f"<div><strong>{text(title)}</strong><table>{cells}</table>{told}{''.join(pictures)}</div>"


def table(title: str, heads: Sequence[str], rows: Iterable[Sequence[object]], *, note: str = "") -> str:
    """HTML of many things of one kind, a row each, below what their columns are called. `note`: what follows."""
    head = "".join(f'<th style="{_FAINT}">{text(name)}</th>' for name in heads)
    cells = ("".join(f'<td style="{_COLUMN}">{text(one)}</td>' for one in row) for row in rows)
    body = "".join(f"<tr>{one}</tr>" for one in cells)
    told = f"<div>{text(note)}</div>" if note else ""
    return f"<div><strong>{text(title)}</strong><table><tr>{head}</tr>{body}</table>{told}</div>"


def tile(picture: str, lines: Iterable[str], *, side: int) -> str:
    """HTML of a picture with a few words below it, as one of many. `side`: pixels."""
    told = "".join(f"<div>{text(line)}</div>" for line in lines)
    return f'<div style="{_TILE.format(side=side)}">{picture}{told}</div>'


def picture(data: bytes, kind: str, said: str) -> str:
    """HTML of a picture. `kind`: its media type; `said`: for who does not see it."""
    return f'<img src="data:{kind};base64,{base64.b64encode(data).decode()}" alt="{text(said)}" style="max-width:100%">'


def text(value: object) -> str:
    """Escaped, and without what hides or turns what follows."""
    return escape(plain(value))
