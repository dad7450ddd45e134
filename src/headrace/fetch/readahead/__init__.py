"""How much to read ahead of a reader, and in which parts. Files and the gateway use it. No I/O here."""

from headrace.fetch.readahead.cursor import Cursor
from headrace.fetch.readahead.limits import Limits
from headrace.fetch.readahead.parts import Span, cut

__all__ = ["Cursor", "Limits", "Span", "cut"]
