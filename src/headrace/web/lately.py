"""What was asked for lately, so that many viewers cost what one does."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Final, Generic, TypeVar

from headrace.base.errors import HeadraceError

_Key = TypeVar("_Key", bound=Hashable)
_Value = TypeVar("_Value")
_FAILED_S: Final = 2.0
"""How long a failure is told again before it is tried again."""


class _Slot(Generic[_Value]):
    __slots__ = ("at", "error", "lock", "value")

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.at = float("-inf")
        self.value: _Value | None = None
        self.error: HeadraceError | None = None


class Lately(Generic[_Key, _Value]):
    """Answers by what was asked, trusted for `lasts_s` seconds. The `most` that were asked for last are kept.

    Any thread: who comes while an answer is asked for waits for that one.
    """

    def __init__(self, lasts_s: float, *, most: int) -> None:
        self._lasts_s, self._most = lasts_s, most
        self._lock = threading.Lock()
        self._slots: OrderedDict[_Key, _Slot[_Value]] = OrderedDict()

    def get(self, key: _Key, ask: Callable[[], _Value]) -> _Value:
        """What is known, or what `ask` gives now. Raises what `ask` raised, HeadraceErrors for two seconds again."""
        with self._lock:
            slot = self._slots.setdefault(key, _Slot())
            self._slots.move_to_end(key)
            while len(self._slots) > self._most:
                self._slots.popitem(last=False)
        with slot.lock:
            age = time.monotonic() - slot.at
            if slot.error is not None and age < _FAILED_S:
                raise slot.error.with_traceback(None)
            if slot.error is None and age < self._lasts_s:
                return slot.value  # pyright: ignore[reportReturnType]
            try:
                value = ask()
            except HeadraceError as error:
                slot.error, slot.at = error, time.monotonic()
                raise
            slot.value, slot.error, slot.at = value, None, time.monotonic()
            return value

    def clear(self) -> None:
        """Something was changed: all is asked for anew."""
        with self._lock:
            self._slots.clear()
