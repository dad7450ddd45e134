"""Shards or single objects? Decided by names; where those tell nothing, by the first bytes of one object.

``format=None``: if no object is named like a shard, all are single objects. If some are, they are opened as shards as
long as everything beside them is what people keep beside shards (`_BESIDE`: tables, indices, checksums, notes, names
without a suffix or beginning with ``.`` or ``_``). Anything else beside them (images, say) makes it ambiguous, which
is refused: then the caller has to say which is meant. Compressed shards are shards where nothing else is there; among
other objects they are objects, as long as no uncompressed one lies there. Tars in other compressions than those of
`headrace.formats.known_formats.CODECS` are refused. Parquet files are tables where nothing else is there but what
people keep beside shards; beside anything else they are objects.

A name may carry its shard's number behind the suffix, or instead of one, as Beam and TFDS write it
(``train.tfrecord-00000-of-00002``, ``train-00000-of-00002``). Without a suffix the first bytes say what it is. MDS and
litdata's chunks are known by the ``index.json`` beside them, Arrow files of Hugging Face's ``save_to_disk`` by
``state.json``. What begins with ``_`` or ``.`` is no data.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any, TypeAlias

from headrace.base.arrow import Column, pc
from headrace.base.errors import InputError, NotFoundError, UnsupportedError
from headrace.catalog import Objects, Shelf
from headrace.formats.index.index_job import Shard
from headrace.formats.known_formats import ASKED, FORMATS, OBJECTS, PACKED, all_suffixes, format_named
from headrace.formats.shard_format import Accompanied, Format, Paired
from headrace.formats.streaming.litdata import LITDATA
from headrace.formats.streaming.mds import MDS
from headrace.formats.tables.known_tables import ARROW, KINDS, PARQUET, kind_named
from headrace.formats.tables.table_kind import TableKind

Look: TypeAlias = "Callable[[str], memoryview]"
"""The first bytes of an object, by its key below the place that is opened. Raises as a store does."""

_CENSUS = 5  # version of what is kept of a census
_NUMBER = r"-\d+-of-\d+"
_BARE = rf"(^|/)[^/.]*{_NUMBER}$"
_CHUNK = r"(^|/)chunk-\d+-\d+\.bin$"
_INDEX = r"(^|/)index\.json$"
_TABS = (".tsv", ".tab")
_STATE = r"(^|/)state\.json$"
_BESIDE = "json|jsonl|txt|md|rst|yaml|yml|toml|csv|tsv|parquet|idx|index|sha1|sha256|md5|crc|sig|log|html|pdf|tmp|bak"
_BESIDE_TABLES = rf"(?i)(^|/)[._][^/]*$|\.({_BESIDE.replace('parquet|', '')})$"
"""What Spark and Hadoop leave beside tables (``_SUCCESS``, ``_metadata``, ``.part-0.parquet.crc``), and people."""
_HIDDEN = r"(^|/)[._][^/=]*(/|$)"
"""Files and folders that Spark itself does not look at."""
_BESIDE_NAMES = rf"(?i)(^|/)[._][^/]*$|(^|/)[^/.]*$|\.({_BESIDE})$"
INDEXED: tuple[Format, ...] = (MDS, LITDATA)
"""Formats that are known by what lies beside their shards."""
_MAGIC = {b"PAR1": PARQUET, b"ARROW1": ARROW}
_CHOOSE = 'format="tar" reads the shards and nothing else, format="objects" takes every object as it is'
_UNPACK = 'compress them with gzip or zstd, or not at all; format="objects" takes them as they are'


def choose(
    wanted: str | Format | None, by: str, shelf: Shelf, objects: Objects, path: str, look: Look | None = None
) -> Format | None:
    """The format of the shards among `objects`, or None where every object is to be taken as it is.

    `wanted`: as in ``Dataset.open(…, format=…)``. `by`: what makes a sample; anything but ``"stem"`` speaks of objects.
    `path`: what the user named, for errors. `look`: asked where names tell nothing.

    Raises:
        InputError: it is ambiguous, or `by` and `wanted` do not go together.
        UnsupportedError: shards in compressions that are not read. As `look`.
    """
    if wanted is not None:
        fmt = format_named(wanted)
        if fmt is not None and by != "stem":
            raise InputError(
                f"by={by!r} is about objects, not about samples in shards", path=path, hint="leave out one of them"
            )
        return fmt
    if by != "stem":
        return None
    seen = _seen(shelf, objects)
    counts, packed, others = seen["counts"], seen["packed"], seen["others"]
    found = [fmt for fmt in (*FORMATS, *(INDEXED if seen["indices"] else ())) if counts[fmt.name]]
    if head := _numbered_head(seen, look):
        return next((fmt for fmt in FORMATS if fmt.recognise(head)), None)
    if not (found or packed) or (others and not seen["plain"]):
        return None
    if len(found) > 1 or others:
        what = " and ".join(f"{counts[fmt.name]:,} {fmt.name} shards" for fmt in found)
        beside = f" beside {others:,} other objects such as {seen['example']}" if others else ""
        raise InputError(f"holds {what}{beside}", path=path, hint=_CHOOSE)
    if packed:
        raise UnsupportedError(
            f"holds {packed:,} tar shards in compressions that are not read", path=path, hint=_UNPACK
        )
    return found[0]


def format_of(
    target: str, wanted: str | Format | None, by: str, head: Callable[[], memoryview]
) -> tuple[Format | None, TableKind | None]:
    """What one object that `target` names is, a shard or a table: `wanted`, else by its name, else by its first bytes
    (`head`). Two times None for anything else.

    Raises:
        InputError: `wanted` is no format. As `head`.
    """
    if by != "stem":
        return None, None
    if wanted is not None:
        kind = kind_named(wanted)
        return (format_named(wanted), None) if kind is None else (None, kind)
    fmt = next((fmt for fmt in (*FORMATS, *ASKED) if re.search(_pattern(all_suffixes(fmt)), target)), None)
    kind = next((kind for kind in KINDS if re.search(_pattern(kind.suffixes), target)), None)
    if fmt is None and kind is None:
        first = head()
        return next((fmt for fmt in FORMATS if fmt.recognise(first)), None), _kind_of(first)
    return fmt, kind


def choose_kind(
    wanted: str | Format | None, by: str, shelf: Shelf, objects: Objects, path: str, look: Look | None = None
) -> TableKind | None:
    """The kind of tables that the objects are, None where they are none. Arguments as of `choose`, which comes after.

    ``format=None``: Parquet, where nothing else is there but what Spark leaves beside; Arrow, where ``state.json`` says
    that Hugging Face's ``save_to_disk`` wrote it.

    Raises:
        InputError: `by` and `wanted` do not go together.
    """
    if wanted is not None:
        kind = kind_named(wanted)
        if kind is not None and by != "stem":
            raise InputError(f"by={by!r} is about objects, not about rows of tables", path=path, hint="leave out one")
        return kind
    if by != "stem":
        return None
    seen = _seen(shelf, objects)
    if seen["tables"] and not seen["beside_tables"]:
        return PARQUET
    if seen["saved"]:
        return ARROW
    return _kind_of(_numbered_head(seen, look))


def _kind_of(first: memoryview) -> TableKind | None:
    """The kind of table that begins so."""
    head = bytes(first[: max(map(len, _MAGIC))])
    return next((kind for magic, kind in _MAGIC.items() if head.startswith(magic)), None)


def tables_of(kind: TableKind, objects: Objects, prefix: str, path: str) -> list[Shard]:
    """The objects named like tables of that kind, in key order; all objects but hidden ones if none is so named.

    Raises:
        NotFoundError: there are none.
    """
    named: list[Shard] = []
    numbered: list[Shard] = []
    others: list[Shard] = []
    for batch in objects.batches():
        batch = batch.filter(pc.invert(pc.match_substring_regex(batch["key"], _HIDDEN)))
        ends, bare = _ends(batch["key"], kind.suffixes), pc.match_substring_regex(batch["key"], _BARE)
        for kept, found in ((ends, named), (bare, numbered), (pc.invert(ends), others)):
            found += [Shard(prefix + row["key"], row["size"], row["version"]) for row in batch.filter(kept).to_pylist()]
    if not named and not others:
        raise NotFoundError(f"holds no {' or '.join(kind.suffixes)} objects", path=path, hint=f'format="{OBJECTS}"?')
    return named or numbered or others


def shards_of(fmt: Format, objects: Objects, prefix: str, path: str) -> list[Shard]:
    """The objects named like shards of that format, in key order; all that are numbered as shards are if none is so
    named; all objects if there is only one, whatever its name.

    Raises:
        NotFoundError: there are none.
    """
    named: list[Shard] = []
    numbered: list[Shard] = []
    for batch in objects.batches():
        every = len(objects) == 1
        kept = batch if every else batch.filter(_visible(batch["key"], _ends(batch["key"], all_suffixes(fmt))))
        named += [Shard(prefix + row["key"], row["size"], row["version"]) for row in kept.to_pylist()]
        bare = batch.filter(_visible(batch["key"], pc.match_substring_regex(batch["key"], _BARE)))
        numbered += [Shard(prefix + row["key"], row["size"], row["version"]) for row in bare.to_pylist()]
    found = named or numbered
    if not found:
        tabs = fmt.name == "csv" and any(_count(_ends(batch["key"], _TABS)) for batch in objects.batches(("key",)))
        hint = 'delimiter="\\t" reads its .tsv objects' if tabs else f'format="{OBJECTS}"?'
        raise NotFoundError(f"holds no {' or '.join(fmt.suffixes)} objects", path=path, hint=hint)
    return found


def beside(fmt: Format, objects: Objects, prefix: str) -> dict[str, Shard] | None:
    """For a format whose shards another object of their folder describes: those objects, by the folder's key; by the
    shard's, where each has one of its own.
    """
    found: dict[str, Shard] = {}
    if isinstance(fmt, Paired):
        for batch in objects.batches():
            for row in batch.filter(pc.ends_with(batch["key"], fmt.paired)).to_pylist():
                stem = (prefix + row["key"]).removesuffix(fmt.paired)
                found |= {stem + one: Shard(prefix + row["key"], row["size"], row["version"]) for one in fmt.suffixes}
        return found
    if not isinstance(fmt, Accompanied):
        return None
    for batch in objects.batches():
        for row in batch.filter(pc.ends_with(batch["key"], fmt.beside)).to_pylist():
            folder = (prefix + row["key"]).removesuffix(fmt.beside)
            if not folder or folder.endswith("/"):
                found[folder] = Shard(prefix + row["key"], row["size"], row["version"])
    return found


def _seen(shelf: Shelf, objects: Objects) -> dict[str, Any]:
    return shelf.get(f"census{_CENSUS}-{_rules()}-{objects.digest[:40]}", lambda _: _census(objects))[1]


def _numbered_head(seen: dict[str, Any], look: Look | None) -> memoryview:
    """The first bytes of one, where all objects that may be data are numbered as shards are, and have no suffix; empty:
    it is not so, or nobody may look.
    """
    named = seen["packed"] or seen["others"] or any(seen["counts"].values())
    return look(seen["bare"]) if seen["bare"] and look is not None and not named else memoryview(b"")


def _rules() -> str:
    return "-".join(fmt.name for fmt in FORMATS)


def _census(objects: Objects) -> dict[str, Any]:
    """How many objects are named like shards; and if any are, how many others are not what lies beside shards."""
    counts, plain, packed, others, example = {fmt.name: 0 for fmt in (*FORMATS, *INDEXED)}, 0, 0, 0, ""
    indices, bare = 0, ""
    for batch in objects.batches(("key",)):
        key = _shown(batch["key"])
        packed += _count(_ends(key, PACKED))
        indices += _count(pc.match_substring_regex(key, _INDEX))
        counts[MDS.name] += _count(_ends(key, MDS.suffixes))
        counts[LITDATA.name] += _count(pc.match_substring_regex(key, _CHUNK))
        for fmt in FORMATS:
            plain += _count(_ends(key, fmt.suffixes))
            counts[fmt.name] += _count(_ends(key, all_suffixes(fmt)))
        numbered = key.filter(pc.match_substring_regex(key, _BARE))
        bare = bare or (numbered[0].as_py() if len(numbered) else "")
    if not indices:
        counts |= {fmt.name: 0 for fmt in INDEXED}
    plain += sum(counts[fmt.name] for fmt in INDEXED)
    ours = tuple(suffix for fmt in FORMATS for suffix in all_suffixes(fmt)) + PACKED
    every = rf"{_pattern((*ours, *MDS.suffixes))}|{_CHUNK}" if indices else _pattern(ours)
    for batch in objects.batches(("key",)) if packed or bare or any(counts.values()) else ():
        key = _shown(batch["key"])
        known = pc.or_(pc.match_substring_regex(key, _BESIDE_NAMES), pc.match_substring_regex(key, every))
        strange = key.filter(pc.invert(known))
        others += len(strange)
        example = example or (strange[0].as_py() if len(strange) else "")
    tables = arrows = states = rest = 0
    for batch in () if packed or any(counts.values()) else objects.batches(("key",)):
        key = _shown(batch["key"])
        states += _count(pc.match_substring_regex(key, _STATE))
        key = key.filter(pc.invert(pc.match_substring_regex(key, _BESIDE_TABLES)))
        found, saved = _count(_ends(key, PARQUET.suffixes)), _count(_ends(key, ARROW.suffixes))
        tables, arrows, rest = tables + found, arrows + saved, rest + len(key) - found - saved
        if rest:
            break
    seen = {"counts": counts, "plain": plain, "packed": packed, "others": others, "example": example}
    saved = bool(arrows and states and not tables and not rest)
    return {**seen, "tables": tables, "beside_tables": arrows + rest, "saved": saved, "indices": indices, "bare": bare}


def _count(flags: Column) -> int:
    return pc.sum(flags).as_py() or 0


def _shown(key: Column) -> Column:
    """Without what is hidden: no data."""
    return key.filter(pc.invert(pc.match_substring_regex(key, _HIDDEN)))


def _visible(key: Column, wanted: Column) -> Column:
    return pc.and_(wanted, pc.invert(pc.match_substring_regex(key, _HIDDEN)))


def _ends(key: Column, suffixes: tuple[str, ...]) -> Column:
    """Whether each key ends in one of them, in capitals or not, perhaps with a shard's number."""
    return pc.match_substring_regex(key, _pattern(suffixes))


@lru_cache
def _pattern(suffixes: tuple[str, ...]) -> str:
    """Of names with one of these suffixes: ``x.tfrecord.gz``, ``x.tfrecord-00000-of-00002.gz``."""
    parts = (suffix[1:].partition(".") for suffix in suffixes)
    spelled = (rf"{first}({_NUMBER})?" + (rf"\.{rest}" if rest else "") for first, _, rest in parts)
    return rf"(?i)\.({'|'.join(spelled)})$"
