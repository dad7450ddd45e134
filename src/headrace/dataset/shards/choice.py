"""Shards or single objects? Decided by names alone; the content is looked at when shards are indexed.

``format=None``: if no object is named like a shard, all are single objects. If some are, they are opened as shards as
long as everything beside them is what people keep beside shards (`_BESIDE`: tables, indices, checksums, notes, names
without a suffix or beginning with ``.`` or ``_``). Anything else beside them (images, say) makes it ambiguous, which
is refused: then the caller has to say which is meant. Compressed shards are shards where nothing else is there; among
other objects they are objects, as long as no uncompressed one lies there. Tars in other compressions than those of
`headrace.dataset.shards.formats.CODECS` are refused. Parquet files are tables where nothing else is there; beside
anything else they are objects, or what people keep beside shards.
"""

from __future__ import annotations

from typing import Any

from headrace.base.errors import InputError, NotFoundError, UnsupportedError
from headrace.dataset.arrow import Column, pc
from headrace.dataset.objects import Objects
from headrace.dataset.shards.format import Accompanied, Format
from headrace.dataset.shards.formats import FORMATS, OBJECTS, PACKED, all_suffixes, format_named
from headrace.dataset.shards.index import Shard
from headrace.dataset.shelf import Shelf
from headrace.dataset.tables.kind import Kind
from headrace.dataset.tables.kinds import PARQUET, kind_named

_CENSUS = 3
_BESIDE = "json|jsonl|txt|md|rst|yaml|yml|toml|csv|tsv|parquet|idx|index|sha1|sha256|md5|crc|sig|log|html|pdf|tmp|bak"
_BESIDE_TABLES = r"(?i)(^|/)[._][^/]*$|\.crc$"
"""What Spark and Hadoop leave beside tables: ``_SUCCESS``, ``_metadata``, ``.part-0.parquet.crc``."""
_HIDDEN = r"(^|/)[._][^/=]*(/|$)"
"""Files and folders that Spark itself does not look at."""
_BESIDE_NAMES = rf"(?i)(^|/)[._][^/]*$|(^|/)[^/.]*$|\.({_BESIDE})$"
_CHOOSE = 'format="tar" reads the shards and nothing else, format="objects" takes every object as it is'
_UNPACK = 'compress them with gzip or zstd, or not at all; format="objects" takes them as they are'


def choose(wanted: str | None, by: str, shelf: Shelf, objects: Objects, path: str) -> Format | None:
    """The format of the shards among `objects`, or None where every object is to be taken as it is.

    `wanted`: as in ``Dataset.open(…, format=…)``. `by`: what makes a sample; anything but ``"stem"`` speaks of objects.
    `path`: what the user named, for errors.

    Raises:
        InputError: it is ambiguous, or `by` and `wanted` do not go together.
        UnsupportedError: shards in compressions that are not read.
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
    found = [fmt for fmt in FORMATS if counts[fmt.name]]
    if not (found or packed) or (others and not seen["plain"]):
        return None
    if len(found) > 1 or others:
        what = " and ".join(f"{count:,} {name} shards" for name, count in counts.items() if count)
        beside = f" beside {others:,} other objects such as {seen['example']}" if others else ""
        raise InputError(f"holds {what}{beside}", path=path, hint=_CHOOSE)
    if packed:
        raise UnsupportedError(
            f"holds {packed:,} tar shards in compressions that are not read", path=path, hint=_UNPACK
        )
    return found[0]


def format_of(target: str, wanted: str | None, by: str) -> Format | None:
    """The format of one shard that `target` names: `wanted`, else by its name; None for anything else. As `choose`.

    Raises:
        InputError: `wanted` is no format.
    """
    if by != "stem":
        return None
    if wanted is not None:
        return format_named(wanted) if kind_named(wanted) is None else None
    return next((fmt for fmt in FORMATS if target.lower().endswith(all_suffixes(fmt))), None)


def choose_kind(wanted: str | None, by: str, shelf: Shelf, objects: Objects, path: str) -> Kind | None:
    """The kind of tables that the objects are, None where they are none. Arguments as of `choose`, which comes after.

    ``format=None``: Parquet, where nothing else is there but what Spark leaves beside.

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
    return PARQUET if seen["tables"] and not seen["beside_tables"] else None


def tables_of(kind: Kind, objects: Objects, prefix: str, path: str) -> list[Shard]:
    """The objects named like tables of that kind, in key order; all objects but hidden ones if none is so named.

    Raises:
        NotFoundError: there are none.
    """
    named: list[Shard] = []
    others: list[Shard] = []
    for batch in objects.batches():
        batch = batch.filter(pc.invert(pc.match_substring_regex(batch["key"], _HIDDEN)))
        ends = _ends(batch["key"], kind.suffixes)
        for kept, found in ((ends, named), (pc.invert(ends), others)):
            found += [Shard(prefix + row["key"], row["size"], row["version"]) for row in batch.filter(kept).to_pylist()]
    if not named and not others:
        raise NotFoundError(f"holds no {' or '.join(kind.suffixes)} objects", path=path, hint=f'format="{OBJECTS}"?')
    return named or others


def shards_of(fmt: Format, objects: Objects, prefix: str, path: str) -> list[Shard]:
    """The objects named like shards of that format, in key order; all objects if there is only one, whatever its name.

    Raises:
        NotFoundError: there are none.
    """
    found: list[Shard] = []
    for batch in objects.batches():
        kept = batch if len(objects) == 1 else batch.filter(_ends(batch["key"], all_suffixes(fmt)))
        found += [Shard(prefix + row["key"], row["size"], row["version"]) for row in kept.to_pylist()]
    if not found:
        raise NotFoundError(f"holds no {' or '.join(fmt.suffixes)} objects", path=path, hint=f'format="{OBJECTS}"?')
    return found


def beside(fmt: Format, objects: Objects, prefix: str) -> dict[str, Shard] | None:
    """For a format whose shards another object of their folder describes: those objects, by the folder's key."""
    if not isinstance(fmt, Accompanied):
        return None
    found: dict[str, Shard] = {}
    for batch in objects.batches():
        for row in batch.filter(pc.ends_with(batch["key"], fmt.beside)).to_pylist():
            folder = (prefix + row["key"]).removesuffix(fmt.beside)
            if not folder or folder.endswith("/"):
                found[folder] = Shard(prefix + row["key"], row["size"], row["version"])
    return found


def _seen(shelf: Shelf, objects: Objects) -> dict[str, Any]:
    return shelf.get(f"census{_CENSUS}-{_rules()}-{objects.digest[:40]}", lambda _: _census(objects))[1]


def _rules() -> str:
    return "-".join(fmt.name for fmt in FORMATS)


def _census(objects: Objects) -> dict[str, Any]:
    """How many objects are named like shards; and if any are, how many others are not what lies beside shards."""
    counts, plain, packed, others, example = {fmt.name: 0 for fmt in FORMATS}, 0, 0, 0, ""
    for batch in objects.batches(("key",)):
        packed += _count(_ends(batch["key"], PACKED))
        for fmt in FORMATS:
            plain += _count(_ends(batch["key"], fmt.suffixes))
            counts[fmt.name] += _count(_ends(batch["key"], all_suffixes(fmt)))
    every = tuple(suffix for fmt in FORMATS for suffix in all_suffixes(fmt)) + PACKED
    for batch in objects.batches(("key",)) if packed or any(counts.values()) else ():
        key = batch["key"]
        strange = key.filter(pc.invert(pc.or_(pc.match_substring_regex(key, _BESIDE_NAMES), _ends(key, every))))
        others += len(strange)
        example = example or (strange[0].as_py() if len(strange) else "")
    tables = beside_tables = 0
    for batch in () if packed or any(counts.values()) else objects.batches(("key",)):
        key = batch["key"].filter(pc.invert(pc.match_substring_regex(batch["key"], _BESIDE_TABLES)))
        found = _count(_ends(key, PARQUET.suffixes))
        tables, beside_tables = tables + found, beside_tables + len(key) - found
        if beside_tables:
            break
    seen = {"counts": counts, "plain": plain, "packed": packed, "others": others, "example": example}
    return {**seen, "tables": tables, "beside_tables": beside_tables}


def _count(flags: Column) -> int:
    return pc.sum(flags).as_py() or 0


def _ends(key: Column, suffixes: tuple[str, ...]) -> Column:
    """Whether each key ends in one of them, in capitals or not."""
    ends = pc.ends_with(key, suffixes[0], ignore_case=True)
    for suffix in suffixes[1:]:
        ends = pc.or_(ends, pc.ends_with(key, suffix, ignore_case=True))
    return ends
