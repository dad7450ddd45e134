"""The same work on many items, by a bounded number of threads."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from itertools import islice
from typing import TypeVar

_Item = TypeVar("_Item")


def for_each(work: Callable[[_Item], None], items: Iterable[_Item], *, jobs: int) -> None:
    """Call `work` on every item from `jobs` threads; at most twice as many items are waiting at any time.

    Raises:
        Exception: the first that `work` raised; nothing new is started after it.
    """
    stopped = threading.Event()

    def guarded(item: _Item) -> None:
        if not stopped.is_set():
            work(item)

    rest = iter(items)
    waiting: set[Future[None]] = set()
    with ThreadPoolExecutor(jobs, thread_name_prefix="headrace-each") as pool:
        try:
            while True:
                waiting |= {pool.submit(guarded, item) for item in islice(rest, 2 * jobs - len(waiting))}
                if not waiting:
                    return
                done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
                for future in done:
                    future.result()
        except BaseException:
            stopped.set()
            pool.shutdown(wait=False, cancel_futures=True)
            raise
