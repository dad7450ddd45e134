"""`Loader`: iterate it, save where it is, ask where the time went."""

from __future__ import annotations

import dataclasses
import os
import secrets
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import Any, Protocol, Self, cast

from headrace.base import memory
from headrace.base.errors import InputError
from headrace.base.reporting import fact, handed, offer
from headrace.fetch import Fetcher, default_fetcher
from headrace.loader.dataset import Dataset
from headrace.loader.epoch_pipeline import Finished, Pipeline
from headrace.loader.order.progress_state import Progress, Residual, State, dump
from headrace.loader.order.progress_state import load as load_state
from headrace.loader.pipeline.bad_samples import Changed, Changes, Skipped
from headrace.loader.pipeline.batch_builder import Delivery
from headrace.loader.pipeline.epoch_plan import Plan
from headrace.loader.pipeline.feeder import Course
from headrace.loader.pipeline.stats import Meter, Stats, told
from headrace.loader.pipeline.step_clock import CLOCK, Clock
from headrace.loader.pipeline.worker_processes import Workers, described
from headrace.loader.recipe import recipe_of

_CLOSED = "the loader was closed"


class Running(Protocol):
    """One epoch under way, in this process or in a child."""

    meter: Meter

    def take(self) -> Delivery | Finished: ...
    def stats(self) -> Stats: ...
    def close(self) -> None: ...


class Loader:
    """Batches of a dataset, epoch by epoch.

    Each ``iter(loader)`` is one epoch: the first time epoch 0 (or the rest of the one whose state was loaded), then
    the next. Leaving a loop early ends its epoch, once anything was taken. One iterator at a time, as there is one
    place that `state_dict` tells: where a new one is made, or the loader is moved or closed, before the last batch, the
    one before says so at its next step (InputError).

    Threads: iterate from one thread; `state_dict`, `stats` and `close` may be called from any.
    """

    def __init__(self, dataset: Dataset, plan: Plan, *, where: str = "thread", fetcher: Fetcher | None = None) -> None:
        self.dataset = dataset
        self.ledger: list[Skipped] = []
        """Every sample left out so far: key, stage, reason, epoch."""
        self._changes = Changes()
        self._plan, self._where, self._fetcher = _reporting(plan, self._changes), where, fetcher
        self._processes = described(plan.stages_by_leaf)
        self._fingerprint = dataset.fingerprint
        self._order = dataset.stream.describe()
        self._total = dataset.stream.size
        self._stripe = dataset.striping
        self._residual = self._whole(0)
        self._progress = Progress()
        self._begun = False
        self._current: weakref.ref[Epoch] | None = None
        self._closes = 0
        self._running: Running | None = None
        self._workers: Workers | None = None
        self._number, self._described = secrets.randbits(48), 0
        self._told_of: tuple[object, Residual] | None = None
        weakref.finalize(self, memory.trim).atexit = False

    # -- iterating -------------------------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[Any]:
        self._stop("another iteration of this loader began")
        closes = self._closes
        if self._begun:
            self._go_to(self.epoch + 1)
            self._begun = False
        epoch = Epoch(self, self._run())
        self._current = weakref.ref(epoch)
        if self._closes != closes:  # by another thread, which saw no epoch to end yet
            epoch.close(_CLOSED)
        return epoch

    def __len__(self) -> int:
        """Batches (or single samples) of a whole epoch on this rank, before any filter.

        Raises:
            TypeError: the dataset is endless, or what batches hold is known when they are made.
        """
        if not self._is_counted:
            raise TypeError("batches by length or cost, or behind flat_map, have no number that is known before")
        end = self._end(self._whole(0))
        if end is None:
            raise TypeError("an endless dataset has no length")
        return self._batches(end)

    def _batches(self, samples: int) -> int:
        if self._plan.batch is None:
            return samples
        packing = self._plan.packing
        if packing is not None and packing.is_taken_apart:
            return samples - samples % self._plan.batch if self._plan.drop_last else samples
        return samples // self._plan.batch if self._plan.drop_last else -(-samples // self._plan.batch)

    @property
    def _is_counted(self) -> bool:
        packing = self._plan.packing
        return (packing is None or packing.is_even) and not self._plan.is_flat

    @property
    def epoch(self) -> int:
        """The epoch under way; before the first one, and after a finished one, the one that comes next."""
        return self._residual.epoch

    @property
    def left(self) -> int | None:
        """As `len`, of the batches of this epoch that are still to come; None where `len` is not known."""
        end = self._end(self._residual)
        if end is None or not self._is_counted:
            return None
        return self._batches(max(0, end - self._progress.frontier - len(self._progress.ahead)))

    def set_epoch(self, epoch: int) -> None:
        """Go to the start of `epoch`; the epoch we are in (or have loaded the state of) is left as it is.

        An iterator from which nothing was taken goes along.
        """
        if epoch == self.epoch:
            return
        waiting = self._current() if self._current is not None and not self._begun else None
        if waiting is None or not waiting.is_live:
            self._stop(f"the loader was sent to epoch {epoch}")
            waiting = None
        self._go_to(epoch)
        self._begun = False
        if waiting is not None:
            waiting.start_over(self._run)

    # -- state -----------------------------------------------------------------------------------------------------

    def state_dict(self) -> State:
        """Where the consumer is: after the last batch it received, not what was prefetched. JSON-able; microseconds."""
        return dump(self._fingerprint, self._order, self._residual, self._stripe.rank, self._progress)

    def load_state_dict(self, state: State | Sequence[State]) -> None:
        """Continue from a state: exactly the samples not yet received, whatever the ranks, workers and batch size.

        Args:
            state: one rank's `state_dict` (enough where ranks advance alike, or for this very rank of as many), or
                those of all ranks, which is needed after filtered or skipped samples or ``order="window"`` when the
                number of ranks changes.

        Raises:
            ChangedError: other data, or another order. InputError: malformed, or all ranks' states are needed.
        """
        residual, progress = load_state(
            state,
            self._fingerprint,
            self._order,
            total=self._total,
            stripe=self._stripe.rank,
            stripes=self._stripe.world_size,
            grain=self.dataset.stream.grain,
        )
        self._stop("a state was loaded")
        self._residual, self._progress = residual, progress
        self._begun = False

    # -- the rest --------------------------------------------------------------------------------------------------

    def stats(self) -> Stats:
        """Figures of the epoch under way, or of the last one, also when its loop was left early."""
        stats = self._running.stats() if self._running is not None else Stats()
        rank = self._stripe.describe()
        return dataclasses.replace(stats, changed=len(self._changes), rank=rank, processes=self._processes)

    @property
    def changed(self) -> list[Changed]:
        """Objects of a snapshot opened with ``on_change="report"`` that were no longer as listed, in all epochs so far.

        Each comes once, with its URL and both versions; the first 100,000. Any thread.
        """
        return self._changes.since(0)

    def close(self) -> None:
        """Stop whatever runs, and end worker processes; who still waits for its next batch is told (InputError). May be
        iterated again.
        """
        self._closes += 1
        self._stop(_CLOSED)
        self.end_workers()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Loader({self.dataset!r}, epoch={self.epoch}, rank={self._stripe.rank}/{self._stripe.world_size})"

    # -- for the epoch -----------------------------------------------------------------------------------------------

    def received(self, progress: Progress) -> None:
        """The consumer has it. An iterator from which nothing is taken uses no epoch up."""
        self._progress = progress
        self._begun = True
        handed(self)

    def end_workers(self) -> None:
        """The next epoch starts others."""
        workers, self._workers = self._workers, None
        if workers is not None:
            workers.close()

    def standing(self) -> tuple[int, int, int]:
        """See `headrace.base.reporting.Standing`. Any thread."""
        return self._number, self._residual.epoch, self._progress.frontier

    def standing_at(self, state: State) -> tuple[int, int, int]:
        """The same of a state that it gave before."""
        return self._number, int(state["epoch"]), int(state["frontiers"][self._stripe.rank])

    def finished(self) -> None:
        """The consumer has everything: the next epoch is ahead."""
        self._go_to(self.epoch + 1)
        self._begun = False

    def _run(self) -> Running:
        self._describe()
        self._running = self._start()
        self._offer(self._running)
        return self._running

    def _start(self) -> Running:
        course = Course(
            self.dataset.stream, self._residual, self._stripe.rank, self._progress, self._end(self._residual)
        )
        if self._where == "process":
            from headrace.loader.child_process import ChildPipeline

            return ChildPipeline(self._plan, course, self.ledger, self._changes)
        fetcher = self._fetcher or default_fetcher()
        return Pipeline(
            self._plan, course, fetcher, self.ledger, arrow=self.dataset.arrow, workers=self._workers_here()
        )  # fmt: skip

    def _workers_here(self) -> Workers | None:
        """They last over the epochs, and end with this loader at the latest."""
        if self._workers is None or not self._workers.is_ours:
            self._workers = Workers.of(self._plan.stages_by_leaf)
            if self._workers is not None:
                weakref.finalize(self, self._workers.close)
        return self._workers

    def _describe(self) -> None:
        """Say what batches are made of from here on, so that who reads a run's record finds their samples again."""
        cut = _process[0], dataclasses.replace(self._residual, epoch=0)
        if cut == self._told_of:
            return
        if self._told_of is not None and self._told_of[0] is not cut[0]:
            self._number = secrets.randbits(48)  # a fork's copy is another loader
        self._told_of = cut
        self._described += 1
        told = {"number": self._number, "time_us": time.time_ns() // 1000, "batch": self._plan.batch}
        told |= {"left": self._end(self._residual), "share": self._end(self._whole(0)), "whole": self._plan.drop_last}
        told |= {"steady": self._plan.is_steady}
        told |= {**recipe_of(self.dataset), "state": self.state_dict()}
        fact(f"loader-{self._number}-{self._described}", told)

    def _offer(self, running: Running) -> None:
        """Figures for whoever writes them down: those of the loop, and of the fetcher below it."""
        apart = self._where == "process"

        def telling() -> dict[str, float]:
            stats = running.stats()
            return {**told(stats), **stats.counters} if apart else told(stats)

        CLOCK.begin(id(running), telling)
        if not apart:
            offer(self._fetcher or default_fetcher(), Fetcher.told)
        offer(CLOCK, Clock.told)

    def _end(self, residual: Residual) -> int | None:
        """Indices of this stripe; with `drop_last`, or where ranks are to be even, as many as the shortest or the
        longest has, so that ranks make equally many batches.
        """
        even = self._stripe.even
        stripes = range(self._stripe.world_size) if self._plan.drop_last or even else [self._stripe.rank]
        sizes = [size for one in stripes if (size := residual.stripe_size(one, self._total)) is not None]
        return (max if even == "repeat" else min)(sizes, default=None)

    def _whole(self, epoch: int) -> Residual:
        return Residual(epoch, self._stripe.world_size, self.dataset.stream.grain)

    def _go_to(self, epoch: int) -> None:
        self._residual, self._progress = self._whole(epoch), Progress()

    def _stop(self, why: str) -> None:
        epoch = self._current() if self._current is not None else None
        if epoch is not None:
            epoch.close(why)
        self._current = None


def _reporting(plan: Plan, changes: Changes) -> Plan:
    """The plan with leaves that name in `changes` what they find changed, where their source was opened to do so."""
    leaves = (
        dataclasses.replace(leaf, changes=changes) if leaf.index.abilities.reports else leaf for leaf in plan.leaves
    )
    return dataclasses.replace(plan, leaves=tuple(leaves))


def _end(running: Running) -> None:
    running.close()
    CLOCK.end(id(running))


_process = [object()]
"""What stands for this process: asking the kernel for its number, for every batch, costs more than a batch may."""


def _other_process() -> None:
    _process[0] = object()


os.register_at_fork(after_in_child=_other_process)


def cut_short(why: str) -> InputError:
    """What an iterator says that was ended before its epoch was: an end would pass for that of the data."""
    return InputError(
        f"{why} before this epoch ended",
        hint="a loader runs one epoch at a time: leave the loop first, or make a second loader with dataset.loader()",
    )


class Epoch:
    """One epoch's iterator. Closing it, dropping it or an error ends its threads or its child process.

    It looks exhausted only when everything was delivered; ended otherwise, it raises InputError at its next step.
    """

    def __init__(self, loader: Loader, running: Running) -> None:
        self._loader = loader
        self._process = _process[0]
        self._left = 0.0
        self._over: str | None = None  # why it was ended; empty: everything was delivered
        self._singles: Iterator[tuple[Any, Progress]] | None = None
        self._begin(running)

    def _begin(self, running: Running) -> None:
        self._running = running
        self._steps = running.meter.steps
        self._finalizer = weakref.finalize(self, _end, running)

    @property
    def is_live(self) -> bool:
        """Whether it may give something yet."""
        return self._over is None

    def start_over(self, run: Callable[[], Running]) -> None:
        """Give what `run` starts instead; before anything was taken."""
        self._finalizer()
        self._begin(run())
        if self._over is not None:  # by another thread, which ended what ran before
            self._finalizer()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        try:
            return self._next()
        except StopIteration:
            raise
        except BaseException as error:  # also Ctrl-C at any instruction, whose traceback would keep the threads alive
            if self._over is None:
                self.close(f"{type(error).__name__} was raised")
                self._loader.end_workers()
            raise

    def _next(self) -> Any:
        if self._over is not None:
            raise cut_short(self._over) if self._over else StopIteration
        if self._singles is not None:
            for sample, progress in self._singles:
                self._loader.received(progress)
                return sample
        if self._left:
            now = time.perf_counter()
            self._steps.took(now - self._left, now)
        got = self._take()
        self._left = time.perf_counter()
        if isinstance(got, Finished):
            self.close("")
            self._loader.finished()
            raise StopIteration
        if got.steps:
            self._singles = zip(got.data, cast("tuple[Progress, ...]", got.steps), strict=True)
            return self._next()
        self._loader.received(got.progress)
        return got.data

    def _take(self) -> Delivery | Finished:
        if self._process is not _process[0]:
            raise InputError("this iterator belongs to the parent process", hint="call iter(loader) after the fork")
        try:
            got = self._running.take()
        except Exception:
            if self._over is None:
                raise
        else:
            if self._over is None:
                return got
        raise cut_short(self._over)  # another thread did it, while this one waited

    def close(self, why: str = "its iterator was closed") -> None:
        """End the epoch here. `why`: what the next step says, if there is one. Any thread."""
        if self._over is None:
            self._over = why
        self._finalizer()
