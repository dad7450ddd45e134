"""How much to read ahead of a reader, and in which parts. Files, mount, gateway and indexes use it. No I/O here."""

from headrace.fetch.readahead.block_cursor import BlockCursor
from headrace.fetch.readahead.cursor import Cursor
from headrace.fetch.readahead.limits import Limits
from headrace.fetch.readahead.parts import Span, cut

__all__ = ["BlockCursor", "Cursor", "Limits", "Span", "cut"]
