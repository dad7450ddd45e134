"""The bucket follows a folder: one thread knows every file, and a few send what is due."""

from __future__ import annotations

import logging
import os
import queue
import threading
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass

from headrace.base.errors import (
    ChangedError,
    DeniedError,
    HeadraceError,
    InputError,
    InternalError,
    NotFoundError,
    ReadOnlyError,
)
from headrace.base.progress import SILENT, Progress
from headrace.base.settings import Settings
from headrace.namespace import Namespace
from headrace.store.protocol import ObjectInfo, Store
from headrace.sync.checkpoints import Checkpoints, is_marker
from headrace.sync.due import SETTLE_S, Allowance, Tracked, cost, pause
from headrace.sync.ledger import Ledger, Sent
from headrace.sync.options import SyncOptions
from headrace.sync.scan import Folder, Stamp
from headrace.sync.sending import UNKNOWN, Order, Sender
from headrace.sync.state import State
from headrace.sync.watch import Watcher
from headrace.upload import MARKER, Uploader, UploadOptions
from headrace.upload.crew import Crew

_log = logging.getLogger("headrace.sync")
_SMALL_LANE, _SMALL_AHEAD = 4, 64
_BIG = 16 << 20
"""From here on a file goes in the other lane, one at a time: what is small does not wait behind it."""
_LOOK_S = 0.5
_NEVER_S = 3600.0
_UNTOLD_S = 3.0
"""How long a file must be at rest to count as closed, where the kernel does not say."""
_RETRY_S, _RETRY_SOON_S = 60.0, 5.0
_GONE_S = 60.0
_TELL_S = 1.0
_STEP_S = 0.05
_FEW = 100


@dataclass(frozen=True, slots=True)
class Left:
    """A file that is not sent as it is here. `age`: seconds since the change; `error`: of the last try, if any."""

    path: str
    bytes: int
    age: float
    error: str


@dataclass(frozen=True, slots=True)
class Report:
    """What a sync has done. `requests`: roughly; `skipped`: names that no object can stand for, with the reason."""

    files: int
    bytes: int
    requests: int
    checkpoints: int
    seconds: float
    left: tuple[Left, ...]
    skipped: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Backlog:
    """What is not sent yet. `oldest`: seconds since the first of these changes."""

    files: int = 0
    bytes: int = 0
    oldest: float = 0.0


class Sync:
    """Sends what changes in a folder until `finish` or `close`. All methods may be called from any thread.

    An object is what its file was at one moment, never a mixture; it stays when the file is deleted, unless
    `SyncOptions.delete`. What was sent is remembered in `state`, so that the next sync goes on.

    Args:
        folder: what is sent, all of it but what the options leave out.
        store: where to.
        prefix: what the keys begin with, with its last ``/``, or empty.
        state: this pair's own, which `close` closes.
        options: which files, how often.
        progress: told every file and byte that is sent.
    """

    def __init__(
        self,
        folder: str,
        store: Store,
        prefix: str,
        state: State,
        options: SyncOptions | None = None,
        progress: Progress = SILENT,
    ) -> None:
        self.options = options or SyncOptions()
        self._store, self._prefix, self._state = store, prefix, state
        self._folder = Folder(folder, self.options)
        self._meter = _Meter(progress)
        self._cancel = threading.Event()
        self._uploader = Uploader(UploadOptions(memory=self.options.memory, bandwidth=self.options.bandwidth))
        self._sender = Sender(self._folder, store, prefix, self._uploader, self._cancel, self._meter)
        self._ledger = Ledger(state.ledger, prefix)
        self._checkpoints = Checkpoints(store, prefix, self._ledger)
        self._poke = threading.Event()
        self._watcher = Watcher(self._folder.path, self._poke.set)
        self._done: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._small = Crew("sync", _SMALL_LANE)
        self._big = Crew("sync-big", 1)
        self._under_way = {True: 0, False: 0}
        self._files: dict[str, Tracked] = {}
        self._dirty: dict[str, Tracked] = {}
        self._gone: dict[str, tuple[Sent, float]] = {}
        self._unwritten: dict[str, Sent] = {}
        self._known: dict[Stamp, Sent] = {}
        self._there: dict[str, ObjectInfo] = {}
        self._folders: dict[str, dict[str, Tracked]] = {}  # checkpoint folders and their files
        self._finished: set[str] = set()  # of these: the writer says so
        self._settled: set[str] = set()  # of these: the marker is there, over what is here
        self._committing: set[str] = set()
        self._backlog = Backlog()
        self._started = time.monotonic()
        self._allowance = Allowance(self.options.requests, self._started)
        self._scan_at = self._tell_at = 0.0
        self._requests = self._committed = 0
        self._ending: _Ending | None = None
        self._over = threading.Event()
        self._closed = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="headrace-sync-plan", daemon=True)

    @staticmethod
    def open(
        folder: str | os.PathLike[str],
        destination: str,
        options: SyncOptions | None = None,
        *,
        namespace: Namespace | None = None,
        settings: Settings | None = None,
        progress: Progress = SILENT,
    ) -> Sync:
        """A sync of a folder to a path of the namespace, or a URL; it begins with `start`, or a ``with`` block.

        Raises:
            ReadOnlyError: attached read-only. TryAgainError: another process syncs the two. NotFoundError: nothing is
            attached there. OSError: there is no room for the state.
        """
        settings = settings or Settings.load()
        location = (namespace or Namespace.load(settings)).resolve(destination)
        if location.read_only:
            hint = "attach it again without read_only to write there"
            raise ReadOnlyError("is read-only", path=destination, hint=hint)
        key = location.key.strip("/")
        state = State(settings.sync.state, os.fspath(folder), f"{location.store.url}/{key}", destination)
        try:
            return Sync(os.fspath(folder), location.store, f"{key}/" if key else "", state, options, progress)
        except BaseException:
            state.close()
            raise

    @property
    def backlog(self) -> Backlog:
        """What is not sent yet, as last looked at."""
        return self._backlog

    def start(self) -> None:
        """Begin. Raises InputError: not a folder; any store error: it cannot be listed."""
        if not self._folder.is_folder("."):
            raise InputError("is not a folder", path=self._folder.path)
        sent = self._ledger.sent()
        if not sent:  # nothing is remembered: what is there already need not be sent again
            for page in self._store.list(self._prefix):
                self._there.update((info.key[len(self._prefix) :], info) for info in page)
        now = time.monotonic()
        self._gone = {name: (one, now) for name, one in sent.items()}
        self._known = {one.stamp: one for one in sent.values()}
        if self.options.watch:
            self._watcher.start()
        self._thread.start()

    def finish(self, timeout: float, *, complete: bool = False) -> Report:
        """Send all that is left, for `timeout` seconds at most; then stop. Later calls return the same.

        `complete`: nothing will be written any more, so checkpoint folders need not be quiet first.
        """
        if self._ending is None:
            self._ending = _Ending(time.monotonic() + timeout, complete=complete)
        self._poke.set()
        self._over.wait(timeout + 10.0)
        return self.report()

    def report(self) -> Report:
        """What was done so far, and what is left."""
        now = time.monotonic()
        left = [Left(f.name, f.stamp.size, round(now - f.since, 1), f.error) for f in list(self._dirty.values())]
        return Report(
            self._meter.files, self._meter.bytes, self._requests, self._committed,
            round(now - self._started, 3), tuple(left), tuple(sorted(self._folder.odd.items())),
        )  # fmt: skip

    def close(self) -> None:
        """Stop now: what is under way is given up, what is left stays for the next sync. Idempotent."""
        if not self._closed.acquire(blocking=False):
            return
        if self._ending is None or not self._over.is_set():
            self._ending = _Ending(0.0, complete=False)
        self._cancel.set()
        self._poke.set()
        if self._thread.ident is not None:
            self._thread.join(5.0)
        self._watcher.close()
        for lane in (self._small, self._big):
            lane.close()
        self._uploader.close()
        left = self.report().left
        self._say("stopped" if left or not self._over.is_set() else "finished", [one.path for one in left])
        self._ledger.close()
        self._state.close()

    def __enter__(self) -> Sync:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # the one thread that knows

    def _run(self) -> None:
        try:
            self._scan(time.monotonic())
            while True:
                now = time.monotonic()
                self._poke.clear()
                self._hear(now)
                if self._ending is not None and not self._ending.begun:
                    self._begin_ending(self._ending)
                next_at = min(self._send_due(now), self._commit_due(now))
                self._forget(now)
                self._tell(now)
                if self._ended(now):
                    break
                self._poke.wait(max(0.0, min(next_at, self._scan_at, now + _TELL_S) - time.monotonic()))
                if (spare := now + _STEP_S - time.monotonic()) > 0:  # what comes in the meantime is heard together
                    self._over.wait(spare)
        except Exception:
            _log.exception("the sync has stopped; this is a defect in headrace")
        finally:
            self._ledger.put(self._unwritten)
            self._over.set()

    def _hear(self, now: float) -> None:
        while True:
            try:
                self._done.get_nowait()()
            except queue.Empty:
                break
        if self._unwritten:
            self._ledger.put(self._unwritten)
            self._unwritten = {}
        names = self._watcher.take()
        if now >= self._scan_at:
            self._scan(now)
        else:
            for name in names:
                self._look(name, now)

    def _scan(self, now: float) -> None:
        found = self._folder.scan()
        for name, stamp in found.items():
            self._see(name, stamp, now)
        for name in [name for name in self._files if name not in found]:
            self._lose(name, now)
        for name in [name for name in self._finished if f"{name}/{MARKER}" not in found]:
            self._finished.discard(name)
        shortest = min(kind.period for kind in self.options.classes)
        took = time.monotonic() - now
        every = self.options.rescan if self._watcher.works else min(shortest, self.options.rescan)
        self._scan_at = now + max(every, 20 * took)

    def _look(self, name: str, now: float) -> None:
        if name == ".":
            return
        stamp = self._folder.look(name)
        if stamp is not None:
            self._see(name, stamp, now)
        elif self._folder.is_folder(name):
            if not self.options.ignores(name):  # new or renamed: its files may have come before it was watched
                for below, found in self._folder.scan(name).items():
                    self._see(below, found, now)
        else:
            if is_marker(name):
                self._finished.discard(name.rpartition("/")[0])
            gone = [known for known in self._files if known == name or known.startswith(f"{name}/")]
            for known in gone:
                self._lose(known, now)

    def _see(self, name: str, stamp: Stamp, now: float) -> None:
        folder = self.options.checkpoint_of(name)
        if folder is not None and is_marker(name):
            self._finished.add(folder)
            return
        file = self._files.get(name)
        if file is None:
            kind = self.options.class_of(name, stamp.size)
            sent = self._gone.pop(name)[0] if name in self._gone else None
            file = self._files[name] = Tracked(name, kind, stamp, now, now, sent)
            if folder is not None:
                self._folders.setdefault(folder, {})[name] = file
                self._settled.discard(folder)
        elif file.stamp != stamp:
            if not file.dirty:
                file.since = now
            file.stamp, file.moved, file.stubborn = stamp, now, False
            file.kind = self.options.class_of(name, stamp.size)
            if folder is not None:
                self._settled.discard(folder)
        if file.dirty:
            self._dirty.setdefault(name, file)
        elif not file.busy:
            self._dirty.pop(name, None)

    def _lose(self, name: str, now: float) -> None:
        file = self._files.pop(name)
        self._dirty.pop(name, None)
        folder = self.options.checkpoint_of(name)
        if folder is not None and folder in self._folders:
            self._folders[folder].pop(name, None)
            self._settled.discard(folder)
            if not self._folders[folder]:
                del self._folders[folder]
        if file.sent is not None:
            self._gone[name] = (file.sent, now)

    def _forget(self, now: float) -> None:
        """What is deleted here: known for a while, in case it was renamed; then deleted there, if that is wanted."""
        patience = 0.0 if self._ending is not None and self._ending.looked else _GONE_S
        gone = [name for name, (_, since) in self._gone.items() if now - since >= patience]
        if not gone or self._under_way[True] + self._under_way[False]:
            return
        if self.options.delete:
            try:
                for folder in {f for f in map(self.options.checkpoint_of, gone) if f is not None}:
                    self._checkpoints.begin(folder)
                self._store.delete([self._prefix + name for name in gone])
            except HeadraceError as error:
                _log.warning("could not delete what is deleted here: %s", error)
                return
        for name in gone:
            sent, _ = self._gone.pop(name)
            if self._known.get(sent.stamp) is sent:
                del self._known[sent.stamp]
        self._ledger.drop(gone)

    # sending

    def _send_due(self, now: float) -> float:
        next_at = now + _NEVER_S
        room = {True: 1 - self._under_way[True], False: _SMALL_AHEAD - self._under_way[False]}
        for file in list(self._dirty.values()):
            big = file.stamp.size >= _BIG
            if file.busy or room[big] <= 0:  # the end of one that is under way asks again
                continue
            at = self._due(file, now)
            folder = self.options.checkpoint_of(file.name)
            if at > now:
                next_at = min(next_at, at)
            elif folder not in self._committing:
                appends = self._sender.appends(file.sent, file.stamp.size)
                count = cost(file, appends=appends, part=self._uploader.options.part)
                wait = 0.0 if self._ending is not None else self._allowance.take(count, now)
                if wait:
                    return min(next_at, now + wait)
                self._requests += count
                room[big] -= 1
                self._send(file, folder, now, big=big)
        return next_at

    def _due(self, file: Tracked, now: float) -> float:
        if file.stubborn and self._ending is not None:
            return now + _NEVER_S
        if file.retry_at > now or self._ending is not None:
            return max(now, file.retry_at)
        if file.kind.when_closed:
            return self._closed_at(file, now)
        if file.begun is None:
            return file.since + SETTLE_S
        appends = self._sender.appends(file.sent, file.stamp.size)
        return max(file.since + SETTLE_S, file.begun + pause(file, appends=appends))

    def _closed_at(self, file: Tracked, now: float) -> float:
        last = (file.since if file.begun is None else file.begun) + file.kind.period
        stamp = self._folder.look(file.name)
        if stamp is not None and stamp != file.stamp:
            file.stamp, file.moved = stamp, now
        if now - file.moved >= _LOOK_S:
            closed = self._folder.closed(file.name)
            if closed or (closed is None and now - file.moved >= _UNTOLD_S):
                return now
        return min(last, now + _LOOK_S) if last > now else now

    def _send(self, file: Tracked, folder: str | None, now: float, *, big: bool) -> None:
        file.busy, file.begun = True, now
        self._under_way[big] += 1
        twin = self._known.get(file.stamp) if file.sent is None else None
        there = self._there.get(file.name) if file.sent is None else None
        order = Order(file.name, file.kind, file.sent, twin, there, file.tries)

        def work() -> None:
            try:
                if folder is not None:
                    self._checkpoints.begin(folder)
                result: Sent | HeadraceError = self._sender.send(order)
            except HeadraceError as error:
                result = error
            except Exception as error:
                result = InternalError(f"{type(error).__name__}: {error}", path=file.name)
            self._answer(lambda: self._sent(file, result, big=big))

        (self._big if big else self._small).add(work)

    def _answer(self, heard: Callable[[], None]) -> None:
        self._done.put(heard)
        self._poke.set()

    def _sent(self, file: Tracked, result: Sent | HeadraceError, *, big: bool) -> None:
        now = time.monotonic()
        self._under_way[big] -= 1
        file.busy = False
        if isinstance(result, Sent):
            if file.sent is not None and self._known.get(file.sent.stamp) is file.sent:
                del self._known[file.sent.stamp]
            file.sent, file.error, file.tries, file.stubborn = result, "", 0, False
            self._unwritten[file.name] = result
            file.since = now
            self._known[result.stamp] = result
            self._there.pop(file.name, None)
            if self._files.get(file.name) is not file:  # deleted meanwhile
                self._gone[file.name] = (result, now)
                return
        elif self._files.get(file.name) is not file or (
            isinstance(result, NotFoundError) and self._folder.look(file.name) is None
        ):
            if self._files.get(file.name) is file:
                self._lose(file.name, now)
            # The store may have it all the same.
            self._gone.setdefault(file.name, (Sent(UNKNOWN, ObjectInfo(self._prefix + file.name, 0)), now))
            return
        else:
            self._failed(file, result, now)
        self._look(file.name, now)

    def _failed(self, file: Tracked, error: HeadraceError, now: float) -> None:
        file.tries += 1
        file.error = str(error)
        file.stubborn = isinstance(error, (DeniedError, InputError)) or (
            isinstance(error, ChangedError) and self._ending is not None and file.tries > 3
        )
        restless = isinstance(error, ChangedError)
        longest = _RETRY_S if self._ending is None and not restless else _RETRY_SOON_S
        file.retry_at = now + min(longest, 0.5 * 2.0 ** min(file.tries, 10))
        if file.tries in (1, 8):
            _log.warning("not sent, will be tried again: %s", error)

    # checkpoints

    def _commit_due(self, now: float) -> float:
        next_at = now + _NEVER_S
        for folder, files in self._folders.items():
            if folder in self._settled:
                continue
            at = self._finished_at(folder, files.values(), now)
            if at > now:
                next_at = min(next_at, at)
                continue
            sent = {name: file.sent for name, file in files.items() if file.sent is not None and not file.dirty}
            if folder in self._committing or len(sent) < len(files) or any(file.busy for file in files.values()):
                continue
            if self._checkpoints.is_written(folder, sent):
                self._settled.add(folder)
            else:
                self._commit(folder, sent)
        return next_at

    def _finished_at(self, folder: str, files: Collection[Tracked], now: float) -> float:
        """When a checkpoint folder counts as finished, if nothing changes in it.

        What was cut short by the end of a job is as quiet as what is finished, so quiet counts only before that.
        """
        stamps = {file.name: file.stamp for file in files}
        if folder in self._finished or self._checkpoints.is_ready(folder, stamps):
            return now
        if self._ending is not None:
            return now if self._ending.complete else now + _NEVER_S
        if not self.options.judge:
            return now + _NEVER_S
        moved = max(file.moved for file in files)
        newest = max(stamp.mtime_ns for stamp in stamps.values()) / 1e9
        # What has long been at rest when it is first seen need not be waited for: by the files' own times.
        at = moved + (_LOOK_S if time.time() - newest > self.options.quiet else self.options.quiet)
        if at <= now:
            self._checkpoints.ready(folder, stamps)
        return at

    def _commit(self, folder: str, files: dict[str, Sent]) -> None:
        self._committing.add(folder)
        self._under_way[False] += 1
        self._requests += 1

        def work() -> None:
            failure = ""
            try:
                self._checkpoints.write(folder, files)
            except Exception as error:
                failure = str(error)
                _log.warning("%s: the marker could not be written: %s", folder, error)
            self._answer(lambda: self._committed_now(folder, failure))

        self._small.add(work)

    def _committed_now(self, folder: str, failure: str) -> None:
        self._under_way[False] -= 1
        self._committed += not failure
        if not failure:
            self._committing.discard(folder)
            return
        timer = threading.Timer(2.0, lambda: self._answer(lambda: self._committing.discard(folder)))
        timer.daemon = True
        timer.start()

    # the end, and what is told

    def _begin_ending(self, ending: _Ending) -> None:
        """What waited for another try gets one now."""
        ending.begun = True
        for file in self._dirty.values():
            file.retry_at, file.stubborn = 0.0, False

    def _ended(self, now: float) -> bool:
        ending = self._ending
        if ending is None:
            return False
        if now >= ending.until:
            self._cancel.set()
            return True
        if self._dirty and not all(file.stubborn for file in self._dirty.values()):
            ending.looked = False
            return False
        if self._under_way[True] + self._under_way[False] or self._committing:
            return False
        if not ending.looked:  # once more over everything, and the logs compared from their beginning
            ending.looked = True
            self._scan(now)
            if not ending.verified:
                ending.verified = True
                self._verify()
        return not self._dirty and not (self.options.delete and self._gone)

    def _verify(self) -> None:
        """Logs were appended to on the word of samples: look at all of what was sent, once."""
        for file in list(self._files.values()):
            held = file.sent.digests if file.sent is not None and file.kind.growing else None
            if held is not None and not held.hold(self._folder.local(file.name), every=True):
                file.sent, file.since = None, time.monotonic()
                self._dirty[file.name] = file

    def _tell(self, now: float) -> None:
        if now < self._tell_at and len(self._dirty) > _FEW:
            return
        waiting = list(self._dirty.values())
        oldest = max((now - file.since for file in waiting), default=0.0)
        self._backlog = Backlog(len(waiting), sum(file.stamp.size for file in waiting), oldest)
        if now >= self._tell_at:
            self._tell_at = now + _TELL_S
            self._say("running", [file.name for file in waiting])

    def _say(self, state: str, left: list[str]) -> None:
        backlog = self._backlog
        self._state.tell(state, len(left), backlog.bytes if left else 0, backlog.oldest if left else 0.0, left)


class _Ending:
    """That it is to end, and what was done for that. `until`: monotonic seconds."""

    def __init__(self, until: float, *, complete: bool) -> None:
        self.until = until
        self.complete = complete
        self.begun = self.looked = self.verified = False


class _Meter:
    """Counts what is sent, and passes it on. Any thread."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._lock = threading.Lock()
        self.files = self.bytes = 0

    def total(self, items: int | None, size: int | None = None) -> None:
        self._progress.total(items, size)

    def advance(self, items: int = 1, size: int = 0) -> None:
        with self._lock:
            self.files += items
            self.bytes += size
        self._progress.advance(items, size)
