"""Which formats' shards may be made of stored ones, and how."""

from __future__ import annotations

from collections.abc import Mapping

CODECS: Mapping[str, tuple[str, ...]] = {
    "tar": ("gzip", "zstd"),
    "tfrecord": ("gzip", "zlib", "zstd"),
    "jsonl": ("gzip", "zstd"),
    "csv": ("gzip", "zstd"),
    "mds": ("gzip", "zstd", "bz2", "brotli", "snappy"),
    "npy": ("npy",),
    "npz": ("npz",),
}
"""Formats whose shards may be compressed, by name, and how; see `headrace.formats.codecs.compression`."""
TEXT = "text:"
"""Of CSV: a codec that begins so is a text's encoding, and makes UTF-8 of it."""
_TEXTS = "csv"


def is_codec(form: str, codec: str) -> bool:
    """Whether shards of a format, by its name, may be made of stored ones in that way."""
    family = form.partition("-")[0]
    return codec in CODECS.get(family, ()) or (family == _TEXTS and codec.startswith(TEXT))
