"""A record's own key: one rule for a field ``__key__``, whatever the format.

A field ``__key__`` that holds text is its sample's key: str, or bytes that are UTF-8, alone or as the only one of a
list (an Example has no other text). Anything else names nothing, and the record is called by its number, as if it had
no such field: null, empty text, numbers, text that is no Unicode. Keys may come twice, as in tars; see
`headrace.loader.key_lookup`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any, cast

import numpy as np

KEY = "__key__"
RESERVED_FIELDS = (KEY, "__shard__")
"""Names in a sample that say which it is: no field of a record comes under them but its own key."""
OWN_KEY = "__own_key__"
"""How the index calls the part that holds a record's own key, where parts are what it knows of a record."""


def key_of(value: Any, number: str) -> str:
    """The key of a record whose field ``__key__`` is `value` (None: it has none), and which is called `number` else."""
    if isinstance(value, np.ndarray):
        value = cast("Any", value)[()] if cast("Any", value).ndim == 0 else None
    elif isinstance(value, list) and len(cast("list[Any]", value)) == 1:
        value = cast("list[Any]", value)[0]
    try:
        if isinstance(value, (bytes, bytearray, memoryview)):
            value = str(cast("Any", value), "utf-8")
        elif isinstance(value, str) and not value.isascii():
            value.encode()
    except UnicodeError:
        return number
    return str(value) if isinstance(value, str) and value else number


def keys_of(values: Iterable[Any], numbers: Sequence[str]) -> list[str]:
    """As `key_of`, of several."""
    return [key_of(value, number) for value, number in zip(values, numbers, strict=True)]


class GivesKeys(ABC):
    """A function of a ``map`` stage that calls samples by their records' own keys. Said by being one of these, as with
    `headrace.catalog.stages.TakesColumns`.
    """

    __slots__ = ()

    @abstractmethod
    def may_name(self) -> bool:
        """Whether a record may have a key of its own, as far as is known without reading any."""
