"""`map` and `filter` behind `batch`: functions that see whole batches, on threads of their own; the order stays."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as Late
from contextlib import suppress
from typing import Any, cast

from headrace.base.errors import BadSampleError, HeadraceError
from headrace.base.threads import Crew
from headrace.catalog import Stage
from headrace.formats import own_arrays, size_of
from headrace.loader.pipeline.bad_samples import first_keys
from headrace.loader.pipeline.batch_builder import Delivery
from headrace.loader.pipeline.run_stages import StageError, run_stages, threads_of

_LOOK_S = 0.25
"""How soon Ctrl-C is seen by a consumer that waits."""


class AfterBatch:
    """Stages on batches. `begin` on one thread, in order; the rest on any.

    `hold`: told of bytes that batches have become larger by, of the byte window.
    """

    def __init__(self, stages: Sequence[Stage], hold: Callable[[int], None]) -> None:
        self._stages, self._hold = stages, hold
        self._crew = Crew("loader-batches", threads_of([stages]))

    def begin(self, delivery: Delivery) -> Future[Delivery]:
        """What becomes of a batch; one that is filtered out has no samples, and gives its bytes back all the same."""
        made: Future[Delivery] = Future()

        def run() -> None:
            try:
                made.set_result(self._run(delivery))
            except BaseException as error:
                made.set_exception(error)

        self._crew.add(run)
        return made

    def close(self) -> None:
        """End the threads: what nobody waits for any more is not begun."""
        self._crew.close(drop=True)

    def _run(self, delivery: Delivery) -> Delivery:
        try:
            data, stays = run_stages(self._stages, delivery.data)
        except StageError as failed:
            error = _failure(delivery, failed)
            raise error from (None if error is failed.error else failed.error)
        done_at = time.perf_counter()
        if not stays:
            return delivery._replace(data=None, samples=0, done_at=done_at)
        data = own_arrays(data)
        grown = max(0, size_of(data) - delivery.held)
        self._hold(grown)
        return delivery._replace(data=data, held=delivery.held + grown, done_at=done_at)


def settled(made: Future[Delivery], is_closed: Callable[[], bool]) -> Delivery | None:
    """Wait for a batch; None: the run was closed meanwhile. Raises what its function did.

    Never without an end: a Ctrl-C between the interpreter's last look for signals and its wait does not end the wait.
    """
    while not is_closed():
        with suppress(Late):
            return made.result(timeout=_LOOK_S)
    return None


def _failure(delivery: Delivery, failed: StageError) -> BaseException:
    error = failed.error
    if not isinstance(error, Exception) or isinstance(error, HeadraceError):
        return error
    return BadSampleError(
        f"{failed.stage} of a batch failed: {type(error).__name__}: {error}",
        path=_keys(delivery.data),
        hint="it stands behind batch() and gets whole batches; what is about single samples goes before batch()",
    )


def _keys(batch: Any) -> str:
    """Of the batch's first samples."""
    keys = cast("Mapping[str, Any]", batch).get("__key__") if isinstance(batch, Mapping) else None
    return "" if keys is None else first_keys(keys)
