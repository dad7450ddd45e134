"""NumPy's ``.npy``: type and shape, of its header."""

from __future__ import annotations

import math

from headrace.base.units import format_bytes
from headrace.formats import LONGEST, fields_of
from headrace.web.previews.preview import Kind, Made, Preview, facts
from headrace.web.previews.source import Source


def _make(source: Source) -> Made:
    dtype, fortran, shape = fields_of(bytes(source.read(0, LONGEST)), source.path)
    values = math.prod(shape)
    told = facts(
        type=dtype, shape=" × ".join(f"{one:,}" for one in shape) or "one value", values=values,
        order="columns first (Fortran)" if fortran else "rows first (C)",
        bytes=None if dtype.hasobject else format_bytes(values * dtype.itemsize),
    )  # fmt: skip
    notes = ("It holds pickled Python objects, which could run any code: nobody should load it.",)
    return Made(Preview("array", told, notes if dtype.hasobject else ()))


KIND = Kind("NumPy array", (".npy",), ((0, b"\x93NUMPY"),), _make)
