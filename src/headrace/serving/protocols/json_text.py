"""JSON as the protocols have it: numbers that are none are refused in requests, and written by name in answers.

TensorFlow Serving ("JSON conformance" in its REST documentation) and Triton write ``NaN``, ``Infinity`` and
``-Infinity``, which JSON itself has no form for; so do answers here, since clients of theirs expect it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Final, cast

import msgspec
import numpy as np

from headrace.base.errors import InputError
from headrace.serving.tensors import BYTES, Array, Tensor, numpy_type

_decoder: Final = msgspec.json.Decoder()
_encoder: Final = msgspec.json.Encoder()


def decoded(body: bytes | memoryview) -> Any:
    """Raises InputError: this is no JSON, or holds NaN or an infinite number; then the field is named."""
    try:
        return _decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _refusal(bytes(body), error) from None


def encoded(answer: object) -> bytes:
    """Of what consists of dicts, lists, strings, numbers and booleans."""
    text = _encoder.encode(answer)
    if b"null" not in text:  # what is no finite number, or the word in a string
        return text
    return json.dumps(answer, ensure_ascii=False, separators=(",", ":")).encode()


def array_of(value: Any, wanted: Tensor, field: str) -> Array:
    """A JSON value as a tensor of the kind that is wanted; its shape is not looked at.

    Raises InputError: another kind of value, a ragged list, a number that the kind cannot hold.
    """
    if wanted.kind == BYTES:
        return strings(value, field)
    try:
        if _has_text(value):  # NumPy would give every element the room of the longest string
            raise InputError(f"{field}: a string cannot be {wanted.kind}")
        found = np.asarray(value)
    except (ValueError, OverflowError, RecursionError):
        raise InputError(f"{field}: lists of unequal length are no tensor") from None
    target = numpy_type(wanted.kind)
    if found.dtype.kind not in _MAY_BE[target.kind] and found.size:
        raise InputError(f"{field}: {_told(found)} cannot be {wanted.kind}")
    return _cast(found, target, field)


def _has_text(value: Any) -> bool:
    if not isinstance(value, list):
        return isinstance(value, str)
    listed = cast("list[Any]", value)
    kinds = set(map(type, listed))
    return str in kinds or (list in kinds and any(map(_has_text, listed)))


_MAY_BE: Final = {"b": "b", "i": "iu", "u": "iu", "f": "fiu"}
"""Which kinds of NumPy's a JSON value may have become, by the kind that is wanted."""


def _cast(found: Array, target: np.dtype[Any], field: str) -> Array:
    try:
        with np.errstate(over="raise"):
            made = found.astype(target)
    except FloatingPointError:
        raise InputError(f"{field}: a number is too large for {target.name}") from None
    if target.kind in "iu" and found.size and not np.array_equal(made, found):
        raise InputError(f"{field}: a number does not fit into {target.name}")
    return made


def _told(found: Array) -> str:
    kinds = {"O": "an object, null or lists of unequal depth", "b": "a boolean", "f": "a fraction"}
    return kinds.get(found.dtype.kind, f"a number of {found.dtype.name}")


def strings(value: Any, field: str) -> Array:
    """A tensor of byte strings: strings, and ``{"b64": …}``. Raises InputError."""
    flat: list[bytes] = []
    shape = _flatten(value, field, flat, 0)
    made = np.empty(len(flat), object)
    made[:] = flat
    return made.reshape(shape)


def _flatten(value: Any, field: str, into: list[bytes], depth: int) -> tuple[int, ...]:
    if isinstance(value, list):
        if depth > 32:
            raise InputError(f"{field}: more than 32 dimensions")
        listed = cast("list[Any]", value)
        if set(map(type, listed)) == {str}:  # most often, and then no field is to be named
            into.extend(one.encode("utf-8", "surrogatepass") for one in listed)
            return (len(listed),)
        shapes = {_flatten(one, f"{field}[{index}]", into, depth + 1) for index, one in enumerate(listed)}
        if len(shapes) > 1:
            raise InputError(f"{field}: lists of unequal length are no tensor")
        return (len(listed), *(shapes.pop() if shapes else ()))
    if isinstance(value, str):
        into.append(value.encode("utf-8", "surrogatepass"))
        return ()
    if is_b64(value):
        into.append(from_b64(value["b64"], field))
        return ()
    raise InputError(f"{field}: a string is wanted, not {type(value).__name__}")


def is_b64(value: Any) -> bool:
    """Whether it is the form that bytes have in TensorFlow Serving's JSON."""
    return isinstance(value, dict) and len(cast("dict[str, Any]", value)) == 1 and "b64" in value


def from_b64(text: Any, field: str) -> bytes:
    """Raises InputError."""
    import base64
    import binascii

    if not isinstance(text, str):
        raise InputError(f"{field}.b64: a string is wanted")
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), altchars=None, validate=True)
    except (binascii.Error, ValueError):
        raise InputError(f"{field}.b64: this is not Base64") from None


def _refusal(body: bytes, error: Exception) -> InputError:
    """Why a body is refused; where it is for a number that is none, with its field."""
    try:
        found = _where(json.loads(body, parse_constant=_NotFinite))
    except (ValueError, RecursionError):
        return InputError(f"the body is no JSON: {error}")
    if found is not None:
        field = found[0].removeprefix(".") or "the body"
        return InputError(f"{field}: {found[1].text} is not taken", hint="JSON has no such number")
    return InputError(f"the body is no JSON: {error}")


class _NotFinite:
    def __init__(self, text: str) -> None:
        self.text = text


def _where(value: Any) -> tuple[str, _NotFinite] | None:
    """The first number that is none, and how it is reached; text is made of the way to it alone, since there may be
    millions of others.
    """
    if isinstance(value, _NotFinite):
        return "", value
    parts: Iterable[tuple[Any, Any]] = ()
    form = "[{}]"
    if isinstance(value, dict):
        parts, form = cast("dict[str, Any]", value).items(), ".{}"
    elif isinstance(value, list):
        parts = enumerate(cast("list[Any]", value))
    for name, one in parts:
        if isinstance(one, dict | list | _NotFinite) and (found := _where(one)):
            return form.format(name) + found[0], found[1]
    return None
