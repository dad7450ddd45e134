"""The bucket follows a folder: one thread knows every file, and a few send what is due."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable

from headrace.base.errors import (
    AlreadyExistsError,
    ChangedError,
    DeniedError,
    HeadraceError,
    InputError,
    InternalError,
    NotFoundError,
    ReadOnlyError,
    SlowDownError,
    TryAgainError,
)
from headrace.base.progress import SILENT, Progress
from headrace.base.settings import Settings
from headrace.namespace import Namespace, tell_hidden
from headrace.store.protocol import ObjectInfo, Store
from headrace.sync.checkpoints import Checkpoints
from headrace.sync.deleting import Deleting
from headrace.sync.due import LOOK_S, NEVER_S, SETTLE_S, Allowance, Tracked, cost, pause
from headrace.sync.files import Files
from headrace.sync.finishing import Finishing
from headrace.sync.lanes import Lanes
from headrace.sync.ledger import Ledger, Sent
from headrace.sync.options import SyncOptions
from headrace.sync.report import Backlog, Left, Meter, Report
from headrace.sync.scan import Folder
from headrace.sync.sending import UNKNOWN, Order, Sender
from headrace.sync.settling import Settling
from headrace.sync.state import State
from headrace.sync.watch import Watcher
from headrace.upload import Uploader, UploadOptions

_log = logging.getLogger("headrace.sync")
_UNTOLD_S = 3.0
"""How long a file must be at rest to count as closed, where the kernel does not say."""
_RETRY_FIRST_S, _RETRY_S, _RETRY_SOON_S = 0.5, 60.0, 5.0
"""After a failure, twice as long each time, up to the second; the third once the job has ended and somebody waits."""
_GONE_S = 60.0
"""A file that is gone so long was not being replaced."""
_TELL_S = 1.0
"""How often progress is told where many files change."""
_STEP_S = 0.05
"""Least pause between two looks: changes come in bursts."""
_FEW = 100
"""Changed files that are gone through in no time."""


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
        self._files = Files(self._folder, self.options)
        self._meter = Meter(progress)
        self._cancel = threading.Event()
        self._uploader = Uploader(UploadOptions(memory=self.options.memory, bandwidth=self.options.bandwidth))
        self._sender = Sender(
            self._folder, store, prefix, self._uploader, self._cancel, self._meter, shared=self.options.shared
        )
        self._ledger = Ledger(state.ledger, prefix)
        self._checkpoints = Checkpoints(store, prefix, self._ledger, self.options.mark)
        self._poke = threading.Event()
        self._watcher = Watcher(self._folder.path, self._poke.set)
        self._lanes = Lanes(self._poke.set)
        self._deleting = Deleting(self._folder, store, prefix, self.options, self._checkpoints, self._ledger)
        self._finishing = Finishing(self._files, self._checkpoints, self._lanes, self.options)
        self._away = False
        self._unwritten: dict[str, Sent] = {}
        self._there: dict[str, ObjectInfo] = {}
        self._backlog = Backlog()
        self._started = time.monotonic()
        self._allowance = Allowance(self.options.requests, self._started)
        self._scan_at = self._tell_at = 0.0
        self._requests = 0
        self._settling = Settling()
        self._told = False
        """Whether the kernel tells of changes by now, so that none since then is missed."""
        self._ending: _Ending | None = None
        self._defect: InternalError | None = None
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
        namespace = namespace or Namespace.load(settings)
        destination = namespace.named(destination)  # the same in every folder: `--recover` may come from another
        tell_hidden(destination)
        location = namespace.resolve(destination)
        if location.read_only:
            hint = "attach it again without read_only to write there"
            raise ReadOnlyError("is read-only", path=destination, hint=hint)
        key = location.key.strip("/")
        options = options or SyncOptions()
        url = f"{location.store.url}/{key}"
        state = State(settings.sync.state, os.fspath(folder), url, destination, options.selection())
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
        late = self.options.shared and not self.options.judge  # what others have sent since is newer
        if not sent and not late:  # nothing is remembered: what is there already need not be sent again
            for page in self._store.list(self._prefix):
                self._there.update((info.key[len(self._prefix) :], info) for info in page)
        self._files.remember(sent, time.monotonic())
        if self.options.watch:
            self._watcher.start()
        self._thread.start()

    def settle(self, timeout: float) -> bool:
        """Whoever wrote here has died, or rests: look at everything, and wait until it is sent as it is.

        A checkpoint folder that is not finished by now does not count as finished by staying quiet; only a change, or
        its writer's word, makes it one. False: `timeout` seconds were too few.
        """
        request = self._settling.ask()
        self._poke.set()
        return self._settling.wait(request, timeout)

    def finish(self, timeout: float, *, complete: bool = False) -> Report:
        """Send all that is left, for `timeout` seconds at most; then stop. Later calls return the same.

        `complete`: nothing will be written any more, so checkpoint folders need not be quiet first.

        Raises:
            InternalError: the sync has stopped before, by a defect of ours.
        """
        if self._ending is None:
            self._ending = _Ending(time.monotonic() + timeout, complete=complete)
        self._poke.set()
        self._over.wait(timeout + 10.0)
        if self._defect is not None:
            raise self._defect
        return self.report()

    def report(self) -> Report:
        """What was done so far, and what is left."""
        now, written = time.monotonic(), self._finishing.written
        left = [Left(f.name, f.stamp.size, round(now - f.since, 1), f.error) for f in list(self._files.dirty.values())]
        return Report(
            self._meter.files, self._meter.bytes, self._requests + written, written,
            round(now - self._started, 3), tuple(left), tuple(sorted(self._folder.odd.items())),
            self._deleting.deleted, self._deleting.refused,
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
        self._lanes.close()
        self._uploader.close()
        left = self.report().left
        looked = self._ending.looked  # else there may be files that nobody has seen yet
        done = self._over.is_set() and self._defect is None and looked and not left
        self._say("finished" if done else "stopped", [one.path for one in left])
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
                complete = None if self._ending is None else self._ending.complete
                next_at = min(self._send_due(now), self._finishing.commit_due(now, complete=complete))
                if not (self._files.dirty or self._lanes.under_way or self._finishing.under_way):
                    self._settling.done()
                forgotten = self._forget(now)
                self._tell(now)
                if self._ended(now, forgotten=forgotten):
                    break
                self._poke.wait(max(0.0, min(next_at, self._scan_at, now + _TELL_S) - time.monotonic()))
                if (spare := now + self._step() - time.monotonic()) > 0:  # what comes in the meantime is heard together
                    self._over.wait(spare)
        except Exception as error:
            _log.exception("the sync has stopped; this is a defect in headrace")
            self._defect = InternalError(f"{type(error).__name__}: {error}", path=self._folder.path)
        finally:
            self._ledger.put(self._unwritten)
            self._over.set()
            self._settling.release()

    def _step(self) -> float:
        """Seconds between two turns, at least: none where somebody waits for the end, and a turn costs little."""
        return 0.0 if self._ending is not None and len(self._files.dirty) <= _FEW else _STEP_S

    def _hear(self, now: float) -> None:
        self._lanes.hear()
        if self._unwritten:
            self._ledger.put(self._unwritten)
            self._unwritten = {}
        names = self._watcher.take()
        if self._watcher.began.is_set() and not self._told:
            self._told = True
            self._scan_at = now
        if self._settling.wanted:
            self._settling.see()
            self._scan(now)
            self._finishing.cut_short()
        elif now >= self._scan_at:
            self._scan(now)
        else:
            for name in names:
                self._files.look(name, now)

    def _scan(self, now: float) -> None:
        self._files.scan(now)
        took = time.monotonic() - now
        shortest = min(kind.period for kind in self.options.classes)
        every = self.options.rescan if self._watcher.works else min(shortest, self.options.rescan)
        self._scan_at = now + max(every, 20 * took)

    def _forget(self, now: float) -> bool:
        """What is deleted here: known for a while, in case it was renamed; then deleted there, if that is wanted, and
        it is sure. Returns whether nothing of it is to be done any more.
        """
        last = self._ending is not None and self._ending.looked
        gone = self._files.gone(now if last else now - _GONE_S)
        if not gone:
            if not self._files.missed:
                self._deleting.accept()
            return True
        if self._lanes.under_way:
            return False
        if self._deleting.rests(now) and not last:
            return True
        before = self._deleting.refused
        try:
            over = self._deleting.delete(self._files.missed, gone, self._files.kept)
        except HeadraceError as error:
            _log.warning("could not delete what is deleted here: %s", error)
            return False
        if self._deleting.refused and self._deleting.refused != before:
            _log.warning("nothing is deleted in the store: %s", self._deleting.refused)
        self._files.forget(over)
        self._ledger.drop(over)
        return True

    # sending

    def _send_due(self, now: float) -> float:
        next_at = now + NEVER_S
        for file in list(self._files.dirty.values()):
            if file.busy or not self._lanes.room(file.stamp.size):  # the end of one that is under way asks again
                continue
            at = self._due(file, now)
            folder = self.options.checkpoint_of(file.name)
            if at > now:
                next_at = min(next_at, at)
            elif folder not in self._finishing.under_way:
                appends = self._sender.appends(file.sent, file.stamp.size)
                count = cost(file, appends=appends, part=self._uploader.options.part)
                wait = 0.0 if self._ending is not None else self._allowance.take(count, now)
                if wait:
                    return min(next_at, now + wait)
                self._requests += count
                self._send(file, folder, now)
        return next_at

    def _due(self, file: Tracked, now: float) -> float:
        if file.stubborn and self._ending is not None:
            return now + NEVER_S
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
        if now - file.moved >= LOOK_S:
            closed = self._folder.closed(file.name)
            if closed or (closed is None and now - file.moved >= _UNTOLD_S):
                return now
        return min(last, now + LOOK_S) if last > now else now

    def _send(self, file: Tracked, folder: str | None, now: float) -> None:
        file.busy, file.begun = True, now
        twin = self._files.twin(file.stamp) if file.sent is None else None
        if file.sent is None:
            there = self._there.get(file.name)
        else:
            there = file.sent.info if file.sent.stamp.written == file.stamp.written else None
        order = Order(file.name, file.kind, file.sent, twin, there, file.tries)

        def work() -> Callable[[], None]:
            try:
                if folder is not None:
                    self._checkpoints.begin(folder)
                result: Sent | HeadraceError = self._sender.send(order)
            except HeadraceError as error:
                result = error
            except Exception as error:
                result = InternalError(f"{type(error).__name__}: {error}", path=file.name)
            return lambda: self._sent(file, result)

        self._lanes.add(file.stamp.size, work)

    def _sent(self, file: Tracked, result: Sent | HeadraceError) -> None:
        now = time.monotonic()
        file.busy = False
        if isinstance(result, Sent):
            self._unwritten[file.name] = result
            self._there.pop(file.name, None)
            self._files.sent(file, result, now)
            self._store_answers()
        elif not self._files.holds(file) or (
            isinstance(result, NotFoundError) and self._folder.look(file.name) is None
        ):
            self._files.perhaps_sent(file, Sent(UNKNOWN, ObjectInfo(self._prefix + file.name, 0)), now)
        else:
            self._failed(file, result, now)
            self._files.look(file.name, now)

    def _failed(self, file: Tracked, error: HeadraceError, now: float) -> None:
        file.tries += 1
        file.error = str(error)
        file.stubborn = isinstance(error, (AlreadyExistsError, DeniedError, InputError)) or (
            isinstance(error, ChangedError) and self._ending is not None and file.tries > 3
        )
        file.away = isinstance(error, TryAgainError) and not isinstance(error, SlowDownError)
        self._away |= file.away
        restless = isinstance(error, ChangedError)
        longest = _RETRY_S if self._ending is None and not restless else _RETRY_SOON_S
        file.retry_at = now + min(longest, _RETRY_FIRST_S * 2.0 ** min(file.tries, 10))
        if file.tries in (1, 8):
            _log.warning("not sent, will be tried again: %s", error)

    def _store_answers(self) -> None:
        """What waits because it did not, need not wait longer."""
        if not self._away:
            return
        self._away = False
        for file in self._files.dirty.values():
            if file.away:
                file.retry_at, file.away = 0.0, False
        self._poke.set()

    # the end, and what is told

    def _begin_ending(self, ending: _Ending) -> None:
        """What waited for another try gets one now. All is looked at once more, so nobody need tell of changes: telling
        takes a quarter of a second to end, which nobody waits for if it begins here.
        """
        ending.begun = True
        self._watcher.stop()
        for file in self._files.dirty.values():
            file.retry_at, file.stubborn = 0.0, False

    def _ended(self, now: float, *, forgotten: bool) -> bool:
        ending = self._ending
        if ending is None:
            return False
        if now >= ending.until:
            self._cancel.set()
            return True
        if self._files.dirty and not all(file.stubborn for file in self._files.dirty.values()):
            ending.looked = False
            return False
        if self._lanes.under_way or self._finishing.under_way:
            return False
        if not ending.looked:  # once more over everything, and the logs compared from their beginning
            ending.looked = True
            self._scan(now)
            if not ending.verified:
                ending.verified = True
                self._verify()
            self._poke.set()  # what was found may be due: a file, or a marker
            return False
        return forgotten or self.options.delete is None

    def _verify(self) -> None:
        """Logs were appended to on the word of samples: look at all of what was sent, once."""
        for file in self._files:
            held = file.sent.digests if file.sent is not None and file.kind.growing else None
            if held is not None and not held.hold(self._folder.local(file.name), every=True):
                self._files.distrust(file, time.monotonic())

    def _tell(self, now: float) -> None:
        if now < self._tell_at and len(self._files.dirty) > _FEW:
            return
        waiting = list(self._files.dirty.values())
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
