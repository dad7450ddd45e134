"""From a sample to the members of a tar, in WebDataset's convention: ``<__key__>.<part>``.

A reader of WebDataset cuts a member's name at the first dot of its base name, so a key must have no dot there.
Source: github.com/webdataset/webdataset, ``tariterators.py``, ``base_plus_ext``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, cast

import numpy as np

from headrace.base.errors import BadSampleError, InputError
from headrace.catalog import SampleSpec
from headrace.pack.tar import member_size
from headrace.pack.values import npy
from headrace.store.protocol import Buffer

_KEY = re.compile(r"(?:(?!\.{1,2}/)[^/\0]+/)*[^/.\0]+")
_PART = re.compile(r"[^/\0]+")
PRIVATE = "__"
"""Names that begin so are about the sample, not part of it: ``__key__``, ``__shard__``."""


def members(sample: Any) -> list[tuple[str, Buffer]]:
    """(member's name, bytes) of each part, in the sample's order.

    Bytes stay as they are; text becomes UTF-8, whole numbers decimal text, other numbers their shortest decimal text,
    arrays the bytes of a ``.npy`` file under a name that ends so; a part that is None is left out.

    Raises:
        BadSampleError: no sample, a key or a name that no WebDataset can hold, a value of another type, no parts.
    """
    if not isinstance(sample, Mapping) or "__key__" not in sample:
        raise BadSampleError(
            f"not a sample but {type(sample).__name__}", hint='the function returns a dict with "__key__" and parts'
        )
    fields = cast("Mapping[Any, Any]", sample)
    key = check_key(fields["__key__"])
    parts = [
        encode(key, name, value)
        for name, value in fields.items()
        if value is not None and not (isinstance(name, str) and name.startswith(PRIVATE))
    ]
    check_names(key, [name for name, _ in parts])
    return [(f"{key}.{name}", data) for name, data in parts]


def encode(key: str, name: Any, value: Any) -> tuple[str, Buffer]:
    """A part's name and bytes. Raises BadSampleError."""
    if not isinstance(name, str):
        raise BadSampleError(f"part {name!r} is not named by text", path=key)
    if isinstance(value, memoryview):
        return name, value if value.c_contiguous else value.tobytes()
    if isinstance(value, (bytes, bytearray)):
        return name, value
    if isinstance(value, str):
        return name, value.encode("utf-8", "surrogatepass")
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, int):
        return name, b"%d" % value
    if isinstance(value, float):
        return name, repr(value).encode()
    if isinstance(value, np.ndarray) and not value.dtype.hasobject:
        return (name if _ends_in_npy(name) else f"{name}.npy"), npy(value)
    raise BadSampleError(
        f"part {name!r} is {type(value).__name__}, which has no bytes of its own",
        path=key,
        hint="bytes, text, numbers and arrays can be packed; --map can turn anything into these",
    )


def check_key(key: Any) -> str:
    """The key, where a WebDataset can hold it. Raises BadSampleError."""
    if not isinstance(key, str):
        raise BadSampleError(f"__key__ is {type(key).__name__}, not text")
    if _KEY.fullmatch(key) is None:
        base = key.rpartition("/")[2]
        reason = "has a dot in its last part" if "." in base else "is no relative path"
        raise BadSampleError(
            f"the key {reason}, so WebDataset cannot hold it",
            path=key,
            hint='WebDataset ends a key at the first dot; pack by="stem", rename the object, or give another '
            "__key__ by --map",
        )
    return key


def check_names(key: str, names: list[str]) -> None:
    """Raises BadSampleError for names that no reader could tell apart, or read."""
    if not names:
        raise BadSampleError("has no parts", path=key, hint="a sample without parts leaves nothing in a tar")
    if len(names) > 1 and len({name.lower() for name in names}) != len(names):
        raise BadSampleError(
            f"has two parts of one name: {', '.join(sorted(names))}",
            path=key,
            hint="readers of WebDataset take upper and lower case for the same",
        )
    for name in names:
        if _PART.fullmatch(name) is None:
            raise BadSampleError(f"{name!r} cannot be the name of a part", path=key)


def weigh(spec: SampleSpec, payload: int, *, checked: bool) -> int:
    """Bytes of a tar that a sample takes as it comes from its source; `payload`: bytes of its parts together.

    Where parts are pieces of larger objects only `payload` is known: then at most 511 bytes too much for each part.
    `checked`: whether it must be fit to be packed as it is.

    Raises:
        InputError: (BadSampleError) it is not fit. A part of unknown size.
    """
    sizes_known(spec)
    key, parts, extra = spec
    if checked:
        check_key(key)
        check_names(key, [*(part.name for part in parts), *_public(extra)])
    sizes = [part.size for part in parts]
    if sum(sizes) == payload:
        total = sum(member_size(f"{key}.{part.name}", part.size) for part in parts)
    else:
        total = payload + sum(member_size(f"{key}.{part.name}", 0) + 511 for part in parts)
    for name in _public(extra):
        if (value := extra[name]) is not None:
            named, data = encode(key, name, value)
            total += member_size(f"{key}.{named}", memoryview(data).nbytes)
    return total


def sizes_known(spec: SampleSpec) -> None:
    """Raises InputError where the size of a part is not known."""
    if any(part.size < 0 for part in spec[1]):
        raise InputError(
            "the sizes of its objects are not known, so shards cannot be planned",
            path=spec[0],
            hint="pack a folder or a snapshot: a table of paths does not tell sizes",
        )


def public(fields: Iterable[Any], key: str) -> list[str]:
    """The names that are parts. Raises BadSampleError for one that is no text."""
    for name in fields:
        if not isinstance(name, str):
            raise BadSampleError(f"part {name!r} is not named by text", path=key)
    return _public(fields)


def _public(extra: Iterable[str]) -> list[str]:
    return [name for name in extra if not name.startswith(PRIVATE)]


def _ends_in_npy(name: str) -> bool:
    return name == "npy" or name.endswith(".npy")
