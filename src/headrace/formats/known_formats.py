"""The formats that shards may have, by name and by suffix."""

from __future__ import annotations

from headrace.base.errors import InputError
from headrace.formats.codecs.known_codecs import CODECS
from headrace.formats.numpy_files.npy import NPY
from headrace.formats.numpy_files.npz import NPZ
from headrace.formats.shard_format import Format
from headrace.formats.streaming.litdata import LITDATA
from headrace.formats.streaming.mds import MDS
from headrace.formats.tables.known_tables import KINDS
from headrace.formats.tar.tar import Tar
from headrace.formats.text.csv_records import CSV
from headrace.formats.text.jsonl import JSONL
from headrace.formats.tfrecord.tfrecord import TFRECORD
from headrace.formats.tokens.megatron import MEGATRON
from headrace.formats.tokens.token_files import TOKENS

OBJECTS = "objects"
"""``format="objects"``: every object is part of a sample, whatever its name."""
FORMATS: tuple[Format, ...] = (Tar(), TFRECORD)
"""Those that a suffix announces."""
ASKED: tuple[Format, ...] = (JSONL, CSV, NPY, NPZ, MDS, LITDATA, TOKENS, MEGATRON)
"""Those that must be asked for: files of that suffix are as often labels, tables of paths, or samples themselves."""
PACKED = (".tar.bz2", ".tar.xz", ".tar.lz4")
"""Shards that are not read, in compressions that hardly anybody uses for them."""
_ENDINGS = {"gzip": ".gz", "zstd": ".zst", "zlib": ".zlib"}
_SHORT = {"tar": (".tgz", ".tzst")}


def compressed_suffixes(fmt: Format) -> tuple[str, ...]:
    """File name endings of that format's compressed shards."""
    codecs = CODECS.get(fmt.name.partition("-")[0], ())
    if any(codec not in _ENDINGS for codec in codecs):
        return ()  # its own suffixes are all there are
    long = (suffix + _ENDINGS[codec] for suffix in fmt.suffixes for codec in codecs)
    return (*long, *_SHORT.get(fmt.name, ()))


def all_suffixes(fmt: Format) -> tuple[str, ...]:
    """File name endings of that format's shards, compressed ones too."""
    return (*fmt.suffixes, *compressed_suffixes(fmt))


def format_named(name: str | Format) -> Format | None:
    """The format of that name, or itself; None for `OBJECTS`.

    Raises:
        InputError: there is none.
    """
    if not isinstance(name, str):
        return name
    for one in (*FORMATS, *ASKED):
        if one.name == name:
            return one
    if name != OBJECTS:
        known = ", ".join(f'"{one}"' for one in (*(f.name for f in (*FORMATS, *ASKED, *KINDS)), OBJECTS))
        raise InputError(f"format={name!r} is not known", hint=f"one of {known}")
    return None
