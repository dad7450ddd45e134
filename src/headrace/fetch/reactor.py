"""All the wire reads of the process: a pool for each store, on one loop."""

from __future__ import annotations

import time
from collections.abc import Sequence

from headrace.base.budget import ByteBudget
from headrace.base.metrics import Metrics
from headrace.base.settings import FetchSettings
from headrace.fetch.loop import Loop
from headrace.fetch.operation import Operation
from headrace.fetch.pool import Pool
from headrace.store.protocol import Store, Wire


class Reactor(Loop):
    """Reads of stores over the wire. `submit`, `levels` and `close` from any thread."""

    def __init__(self, settings: FetchSettings, budget: ByteBudget, metrics: Metrics, *, bulk: bool = False) -> None:
        self._settings = settings
        self._budget = budget
        self._metrics = metrics
        self._pools: dict[str, Pool] = {}
        super().__init__(bulk=bulk)

    def submit(self, store: Store, wire: Wire, operations: Sequence[Operation]) -> None:
        """Queue reads of one store."""
        deadline = time.monotonic() + self._settings.deadline
        for operation in operations:
            operation.deadline = deadline
        self.call(lambda: self._add(store, wire, operations))

    def levels(self) -> dict[str, dict[str, float]]:
        """Concurrency and latency by store URL, seconds; any thread."""
        return {
            url: {"concurrency": p.level.limit, "p50": p.latency.p50, "p95": p.latency.p95, "p99": p.latency.p99}
            for url, p in list(self._pools.items())
        }

    def _add(self, store: Store, wire: Wire, operations: Sequence[Operation]) -> None:
        pool = self._pools.get(store.identity)
        if pool is None or pool.wire is not wire:
            key = store.identity if pool is None else f"{store.identity}#{id(wire)}"
            pool = self._pools.get(key)
            if pool is None or pool.wire is not wire:
                pool = self._pools[key] = Pool(wire, self._settings, self._budget, self._metrics, self)
                self._watchers.append(pool)
        for operation in operations:
            pool.add(operation)
        if self._ended:
            pool.close()
        else:
            pool.pump()
