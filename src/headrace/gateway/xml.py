"""S3's XML: what is sent, and the few bodies that are read, without entities and within bounds."""

from __future__ import annotations

import re
from collections.abc import Iterable
from xml.etree.ElementTree import Element, ParseError, XMLParser

NAMESPACE = "http://s3.amazonaws.com/doc/2006-03-01/"
_UNSAYABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")
_MOST_ELEMENTS = 64_000
"""10,000 parts with their checksums have fewer, 1,000 keys to delete far fewer."""
_DEEPEST = 8
"""S3's own documents are four deep."""


def escaped(text: str) -> str:
    """Text inside an element. What XML 1.0 cannot say becomes U+FFFD: a client that wants such names asks for
    ``encoding-type=url``.
    """
    if "&" in text or "<" in text or ">" in text:
        text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    if "\r" in text:
        text = text.replace("\r", "&#13;")
    return _UNSAYABLE.sub("\ufffd", text) if not text.isprintable() else text


class Raw(str):
    """XML already."""

    __slots__ = ()


def element(name: str, *content: str) -> Raw:
    """An element, of text or of elements."""
    inner = "".join([part if isinstance(part, Raw) else escaped(part) for part in content])
    return Raw(f"<{name}>{inner}</{name}>")


def document(name: str, content: Iterable[str]) -> bytes:
    """A whole body, in S3's namespace."""
    inner = "".join([part if isinstance(part, Raw) else escaped(part) for part in content])
    return f'<?xml version="1.0" encoding="UTF-8"?>\n<{name} xmlns="{NAMESPACE}">{inner}</{name}>'.encode()


class MalformedXml(Exception):  # noqa: N818
    """A body that is not what it should be."""


class _Bounded:
    """A tree builder that takes no DTD, and so many elements."""

    def __init__(self) -> None:
        self._stack: list[tuple[Element, list[str]]] = []  # with its text as it comes: in many pieces, it may be
        self._count = 0
        self._root: Element | None = None

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        self._count += 1
        if self._count > _MOST_ELEMENTS or len(self._stack) >= _DEEPEST:
            raise MalformedXml("too many elements")
        made = Element(tag.rpartition("}")[2], attributes)
        if self._stack:
            self._stack[-1][0].append(made)
        else:
            self._root = made
        self._stack.append((made, []))

    def data(self, text: str) -> None:
        if self._stack:
            self._stack[-1][1].append(text)

    def end(self, tag: str) -> None:  # noqa: ARG002
        ended, pieces = self._stack.pop()
        ended.text = "".join(pieces) or None

    def doctype(self, *_: object) -> None:
        raise MalformedXml("a document type is not taken")

    def close(self) -> Element:
        if self._root is None:
            raise MalformedXml("empty")
        return self._root


def parsed(body: bytes, name: str) -> Element:
    """A body whose root is `name`; names come without their namespace.

    Raises:
        MalformedXml: it is something else, has a document type (and so entities), or is too large.
    """
    try:
        parser = XMLParser(target=_Bounded())  # noqa: S314 (no document type, so no entities; bounded)
        parser.feed(body)
        root: Element = parser.close()
    except (ParseError, ValueError) as error:
        raise MalformedXml(str(error)) from error
    if root.tag != name:
        raise MalformedXml(f"the root is not {name}")
    return root
