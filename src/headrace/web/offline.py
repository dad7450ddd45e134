"""A page's part for a file of its own: what leads elsewhere, or needs a server or a script, is taken out.

What it gets was drawn by our own templates, so it is sound and escaped; it passes on everything else as it came.
"""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from html.parser import HTMLParser
from typing import Final

_DROPPED: Final = frozenset(("form", "nav", "dialog", "button", "script"))
"""With all that is in them."""
_INPUT: Final = frozenset(("input", "link"))
_DEEPER: Final = {"h1": "h2", "h2": "h3", "h3": "h4"}
"""Headings, which stand below that of their section."""

_Pairs = list[tuple[str, str | None]]


def offline(html: str, places: Mapping[str, str]) -> str:
    """`places`: which section of the file shows what a path of the pages shows. Other links become their text."""
    parser = _Offline(places)
    parser.feed(html)
    parser.close()
    return "".join(parser.parts)


class _Offline(HTMLParser):
    def __init__(self, places: Mapping[str, str]) -> None:
        super().__init__(convert_charrefs=False)
        self.parts: list[str] = []
        self._places = places
        self._dropping = ""
        self._depth = 0
        self._closings: list[str] = []
        """Of the links that are open."""

    def handle_starttag(self, tag: str, attrs: _Pairs) -> None:
        if self._dropping:
            self._depth += tag == self._dropping
        elif tag in _DROPPED or (tag == "a" and any(name == "rel" for name, _ in attrs)):
            self._dropping, self._depth = tag, 1
        elif tag == "a":
            opening, closing = self._link(attrs)
            self.parts.append(opening)
            self._closings.append(closing)
        elif tag not in _INPUT:
            self.parts.append(_tag(tag, attrs, ">"))

    def handle_startendtag(self, tag: str, attrs: _Pairs) -> None:
        if not self._dropping and tag not in _INPUT:
            self.parts.append(_tag(tag, attrs, "/>"))

    def handle_endtag(self, tag: str) -> None:
        if self._dropping:
            self._depth -= tag == self._dropping
            if not self._depth:
                self._dropping = ""
        elif tag == "a":
            self.parts.append(self._closings.pop() if self._closings else "")
        else:
            self.parts.append(f"</{_DEEPER.get(tag, tag)}>")

    def handle_data(self, data: str) -> None:
        self._pass(data)

    def handle_entityref(self, name: str) -> None:
        self._pass(f"&{name};")

    def handle_charref(self, name: str) -> None:
        self._pass(f"&#{name};")

    def _pass(self, text: str) -> None:
        if not self._dropping:
            self.parts.append(text)

    def _link(self, attrs: _Pairs) -> tuple[str, str]:
        """To the section that shows what it leads to; else what it looks like."""
        told = dict(attrs)
        place = self._places.get((told.get("href") or "").partition("#")[0].partition("?")[0])
        look = f' class="{escape(told["class"] or "")}"' if "class" in told else ""
        if place is not None:
            return f'<a{look} href="#{escape(place)}">', "</a>"
        return (f"<span{look}>", "</span>") if look else ("", "")


def _tag(tag: str, attrs: _Pairs, end: str) -> str:
    """Without what only scripts, and links from elsewhere, ask for."""
    kept = "".join(
        f" {name}" if value is None else f' {name}="{escape(value)}"'
        for name, value in attrs
        if name != "id" and not name.startswith(("data-", "on"))
    )
    return f"<{_DEEPER.get(tag, tag)}{kept}{end}"
