"""What a sample holds as tokens: an array of one axis, of one type of integers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from headrace.base.errors import InputError
from headrace.formats import dtype_of

_USUAL = ("tokens", "input_ids")
_LISTS = "a list or an array of token ids of one axis; or bytes, with dtype=…"


def column_of(sample: Any, asked: str | None) -> str:
    """The part that holds the tokens: what is asked for, else ``tokens`` or ``input_ids``, else the only one.

    Raises:
        InputError: there is none, or several.
    """
    if not isinstance(sample, Mapping):
        raise InputError(f"samples are {type(sample).__name__}, not dicts", hint="map() that gives a dict by name")
    names = [name for name in cast("Mapping[str, Any]", sample) if not name.startswith("__")]
    if asked is not None:
        if asked not in names:
            raise InputError(f"has no part {asked!r}, but {', '.join(names) or 'none'}", hint="column= names one")
        return asked
    found = next((name for name in _USUAL if name in names), names[0] if len(names) == 1 else None)
    if found is None:
        raise InputError(f"has the parts {', '.join(names) or '(none)'}", hint='column="…" says which holds the tokens')
    return found


def place_of(sample: Mapping[str, Any]) -> str:
    """Which sample it is, for errors."""
    key = str(sample.get("__key__", ""))
    return f"{sample['__shard__']}: {key}" if "__shard__" in sample else key


def tokens_in(value: Any, dtype: np.dtype[Any] | None, name: str) -> npt.NDArray[Any]:
    """The tokens of a part's value, of `dtype`, or of the type that they have; none of None.

    Raises:
        InputError: it holds none, or some that are not of that type.
    """
    if isinstance(value, (bytes, bytearray, memoryview)):
        return _of_bytes(value, dtype, name)
    if isinstance(value, (str, Mapping)):
        raise InputError(f"{name!r} holds no tokens but {type(value).__name__}", hint=_LISTS)
    try:
        array = np.asarray([] if value is None else value)
    except (TypeError, ValueError):
        array = np.empty(0, object)
    if array.ndim == 1 and not len(array):
        return np.empty(0, dtype or (array.dtype if array.dtype.kind in "iu" else np.int64))
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise InputError(f"{name!r} holds no tokens but {array.dtype} of {array.ndim} axes", hint=_LISTS)
    return array if dtype is None else as_type(array, dtype, name)


def as_type(tokens: npt.NDArray[Any], dtype: np.dtype[Any], name: str) -> npt.NDArray[Any]:
    """The same tokens. Raises InputError: one is no number of that type."""
    if tokens.dtype == dtype:
        return tokens
    if len(tokens) and not np.can_cast(tokens.dtype, dtype, "safe"):
        range_ = np.iinfo(dtype)
        wrong = tokens[(tokens < range_.min) | (tokens > range_.max)]
        if len(wrong):
            reason = f"{name!r} holds the token {wrong[0]}, and {dtype.name} reaches from {range_.min} to {range_.max}"
            raise InputError(reason, hint="a wider dtype, or were the tokens made with another tokenizer?")
    return tokens.astype(dtype)


def _of_bytes(value: Any, dtype: np.dtype[Any] | None, name: str) -> npt.NDArray[Any]:
    if dtype is None:
        raise InputError(f"{name!r} holds bytes", hint='dtype="…" says what they were written with')
    size = memoryview(value).nbytes
    if size % dtype.itemsize:
        raise InputError(
            f"{name!r} holds {size:,} bytes, no whole number of {dtype.name} tokens of {dtype.itemsize} bytes",
            hint="is dtype what they were written with?",
        )
    return np.frombuffer(value, dtype)


def native(dtype: Any) -> np.dtype[Any]:
    """The type of tokens, in this machine's byte order. Raises InputError: it is none."""
    return dtype_of(dtype).newbyteorder("=")
