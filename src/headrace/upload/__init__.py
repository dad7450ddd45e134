"""Local files into stores: whole, by parts, by their new bytes only; many as one. See README.md in this folder."""

from headrace.upload.commit import (
    FINISHED,
    MARKER,
    Committed,
    Member,
    Publication,
    commit,
    committed,
    is_complete,
    missing,
    publish,
    published,
    retract,
    time_text,
)
from headrace.upload.leftovers import clear, leftovers
from headrace.upload.many import Item, Outcome, put_many
from headrace.upload.options import UploadOptions
from headrace.upload.outgoing import Outgoing
from headrace.upload.plan import COPY_BYTES, LARGEST_COPY, SMALLEST_PART
from headrace.upload.source import TICK_NS, TornError
from headrace.upload.uploader import File, Uploader

__all__ = [
    "COPY_BYTES",
    "FINISHED",
    "LARGEST_COPY",
    "MARKER",
    "SMALLEST_PART",
    "TICK_NS",
    "Committed",
    "File",
    "Item",
    "Member",
    "Outcome",
    "Outgoing",
    "Publication",
    "TornError",
    "UploadOptions",
    "Uploader",
    "clear",
    "commit",
    "committed",
    "is_complete",
    "leftovers",
    "missing",
    "publish",
    "published",
    "put_many",
    "retract",
    "time_text",
]
