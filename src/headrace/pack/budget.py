"""How many samples may be left out of all shards together."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from headrace.base.errors import BadSampleError
from headrace.loader import Skip, Skipped

_NAMED = 5  # bad samples named in the error
HINT = "mend these samples, or allow for some: --max-errors 10, --max-errors 0.1%"


class Budget:
    """Counts what is left out. Any thread. `allowed`: the most."""

    def __init__(self, skip: Skip, total: int) -> None:
        self.allowed = skip.allowed(total, total)
        self._left_out: list[Skipped] = []
        self._lock = threading.Lock()

    def spend(self, skipped: Sequence[Skipped]) -> None:
        """These are left out too.

        Raises:
            BadSampleError: more than allowed; names the last few.
        """
        with self._lock:
            self._left_out += skipped
            count, last = len(self._left_out), self._left_out[-_NAMED:]
        if count > self.allowed:
            named = "; ".join(f"{one.key} ({one.stage}: {one.reason})" for one in last)
            more = "" if count <= _NAMED else f", and {count - _NAMED} before"
            raise BadSampleError(f"{count} bad samples, {self.allowed} allowed: {named}{more}", hint=HINT)

    def refund(self, skipped: Sequence[Skipped]) -> None:
        """These were left out of a shard that is made once more."""
        with self._lock:
            for one in skipped:
                self._left_out.remove(one)
