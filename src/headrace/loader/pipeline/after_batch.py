"""`map` and `filter` behind `batch`: functions that see whole batches, on threads of their own; the order stays. At
last `unbatch`, which takes batches apart again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as Late
from contextlib import suppress
from typing import Any, Final, cast

from headrace.base.errors import BadSampleError, HeadraceError
from headrace.base.threads import Crew
from headrace.catalog import Stage
from headrace.formats import own_arrays, size_of
from headrace.loader.pipeline.bad_samples import first_keys
from headrace.loader.pipeline.batch_builder import Delivery
from headrace.loader.pipeline.run_stages import StageError, run_stages, threads_of

UNBATCH: Final = Stage("unbatch", iter, 1)
"""Takes batches apart again. The last stage, or not there."""
_LOOK_S = 0.25
"""How soon Ctrl-C is seen by a consumer that waits."""


class AfterBatch:
    """Stages on batches. `begin` on one thread, in order; the rest on any.

    `hold`: told of bytes that batches have become larger by, of the byte window.
    """

    def __init__(self, stages: Sequence[Stage], hold: Callable[[int], None]) -> None:
        self._stages, self._hold = [stage for stage in stages if stage.kind != UNBATCH.kind], hold
        self._apart = len(self._stages) < len(stages)
        self._uneven = any(stage.kind == "filter" for stage in stages)
        self._crew = Crew("loader-batches", threads_of([self._stages]) or 1)

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
        made = delivery._replace(data=data, held=delivery.held + grown, done_at=done_at)
        return self._taken_apart(made) if self._apart else made

    def _taken_apart(self, delivery: Delivery) -> Delivery:
        """With its samples instead, but for those that were received before."""
        rows = rows_of(delivery.data, delivery.samples)
        left = [(row, step) for row, step in zip(rows, delivery.steps, strict=True) if step is not None]
        # Another rank may have filtered out other batches.
        steps = tuple(step._replace(even=False) if self._uneven else step for _, step in left)
        return delivery._replace(data=[row for row, _ in left], steps=steps, samples=len(left))


def rows_of(batch: Any, count: int) -> list[Any]:
    """The samples of a batch that was made of `count`: each has by name what stands at its place in arrays and lists;
    of a list its element.

    Raises BadSampleError: a batch of other kind, or of another number.
    """
    if isinstance(batch, Mapping):
        values = cast("Mapping[str, Any]", batch)
        wrong = next((name for name, value in values.items() if _length(value) != count), None)
        if wrong is None:
            return [dict(zip(values, row, strict=True)) for row in zip(*values.values(), strict=True)]
        held = _length(values[wrong])
        reason = f"{wrong!r} is {type(values[wrong]).__name__}" if held is None else f"{wrong!r} holds {held} values"
    elif isinstance(batch, (list, tuple)):
        listed = list(cast("Sequence[Any]", batch))
        if len(listed) == count:
            return listed
        reason = f"it holds {len(listed)}"
    else:
        reason = f"it is {type(batch).__name__}"
    raise BadSampleError(
        f"unbatch: a batch of {count} samples has no {count} to give: {reason}",
        path=_keys(batch),
        hint="what makes other samples of a batch, or fewer, goes before batch(): flat_map, filter",
    )


def _length(value: Any) -> int | None:
    try:
        return None if isinstance(value, (str, bytes)) else len(value)
    except TypeError:
        return None


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
