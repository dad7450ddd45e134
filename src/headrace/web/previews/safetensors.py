"""Safetensors: the tensors of a model, of the header alone.

Source: the format's description, github.com/huggingface/safetensors: 8 bytes with the length of the header, little
endian, then the header, JSON: {name: {"dtype", "shape", "data_offsets": [begin, end]}, "__metadata__": {…}}.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from typing import Any, Final, cast

from headrace.base.errors import CorruptError, NoRoomError
from headrace.base.units import format_bytes
from headrace.web.previews.preview import NAMES, Kind, Made, Preview, cut, facts, some_of, table
from headrace.web.previews.source import Source

_MOST: Final = 16 << 20
"""Bytes of a header; that of a model of 100,000 tensors has about 10 MB. The format allows 100 MB."""
_METADATA: Final = "__metadata__"
_VALUE: Final = 300  # characters of a value of its metadata


def _make(source: Source) -> Made:
    length = int.from_bytes(source.read(0, 8), "little")
    if length > min(_MOST, source.size - 8):
        if length > source.size - 8:
            raise CorruptError(f"should have a header of {length:,} bytes, which it is too short for", path=source.path)
        raise NoRoomError(f"its header alone has {format_bytes(length)}; read are {format_bytes(_MOST)} at most")
    try:
        header: Any = json.loads(bytes(source.read(8, 8 + length)))
        return _told(cast("dict[str, Any]", header), source.size - 8 - length)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, OverflowError) as error:
        raise CorruptError(f"its header cannot be read: {type(error).__name__}", path=source.path) from error


def _told(header: dict[str, Any], data: int) -> Made:
    metadata = dict(header.pop(_METADATA, None) or {})
    values: Counter[str] = Counter()
    rows: list[tuple[str, str, str, str]] = []
    end = 0
    for name, one in header.items():
        shape, (start, stop) = [int(size) for size in one["shape"]], map(int, one["data_offsets"])
        values[str(one["dtype"])] += math.prod(shape)
        end = max(end, stop)
        if len(rows) < NAMES:
            size = format_bytes(stop - start)
            rows.append((name, str(one["dtype"]), " × ".join(map(str, shape)) or "one value", size))
    types = ", ".join(f"{kind} {count:,}" for kind, count in values.most_common(20))
    told = facts(tensors=len(header), values=sum(values.values()), values_by_type=types or None)
    told += facts(**{f"metadata {cut(str(name), 60)}": cut(str(one), _VALUE) for name, one in [*metadata.items()][:20]})
    notes = some_of(len(rows), len(header), "tensors") + some_of(min(20, len(metadata)), len(metadata), "metadata")
    if end != data:
        notes += (f"Its tensors end at {format_bytes(end)}, its data at {format_bytes(data)}: it is damaged.",)
    return Made(Preview("safetensors", told, notes, **table(("Tensor", "Type", "Shape", "Size"), rows)))


KIND = Kind("safetensors", (".safetensors",), (), _make)
