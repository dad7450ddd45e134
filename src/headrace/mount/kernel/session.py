"""The conversation with the kernel: INIT, threads that read requests and write answers, notices, and the end.

A few threads take turns at the descriptor. What can be answered at once is answered right there, since a second thread
would mostly wait for the interpreter's lock; an operation that must wait for the store raises `WouldBlock` and is
called again on a thread that may (`Waiters`).
"""

from __future__ import annotations

import errno
import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass

from headrace.base.errors import DeadlineError, HeadraceError, UnsupportedError
from headrace.base.metrics import Metrics
from headrace.mount.kernel import wire
from headrace.mount.kernel.error_numbers import errno_of
from headrace.mount.kernel.kernel_requests import Answer, Request, Waiters, WouldBlock
from headrace.mount.kernel.process_groups import ProcessGroups
from headrace.mount.kernel.wire import Init, Op

_log = logging.getLogger("headrace.mount")
Handler = Callable[[Request], Answer]
Quick = Callable[[int, int, memoryview], bytes | None]
"""The answer to a request given by its number, node and whole message, or None: its handler is asked. Never waits,
raises nothing: for what is asked so often that making a `Request` of it would be half of the work.
"""

LARGEST = 1 << 20
"""Bytes of the largest READ and WRITE."""
_BUFFER = LARGEST + 4096 * 2
_MOST_WAITING = 96
"""Threads for requests that wait for a store, at most; with all of them waiting, further requests queue."""
_BACKGROUND = 128  # requests of readahead that the kernel has under way, at most (max_background)
_WANTED = (
    Init.ASYNC_READ
    | Init.ATOMIC_O_TRUNC
    | Init.BIG_WRITES
    | Init.AUTO_INVAL_DATA
    | Init.DO_READDIRPLUS
    | Init.READDIRPLUS_AUTO
    | Init.ASYNC_DIO
    | Init.PARALLEL_DIROPS
    | Init.MAX_PAGES
    | Init.CACHE_SYMLINKS
    | Init.INIT_EXT
)
_GOES_ON = frozenset(
    (Op.FLUSH, Op.FSYNC, Op.SETATTR, Op.WRITE, Op.UNLINK, Op.RMDIR, Op.RENAME, Op.RENAME2, Op.FALLOCATE)
)
"""Operations that may go on after their caller was answered: their answers give the kernel nothing that it counts."""
_GONE = (errno.ENODEV, errno.EBADF, errno.ECONNABORTED)
_AGAIN = (errno.EINTR, errno.EAGAIN, errno.ENOENT)


@dataclass(frozen=True, slots=True)
class Agreed:
    """What INIT came to. `passthrough`: the kernel reads backing files by itself; `minor`: of the protocol; `expires`:
    names can expire without being dropped (Linux 6.2); `no_open`: it need not send opens;
    `resends`: it sends again what was not answered (Linux 6.9).
    """

    minor: int
    passthrough: bool
    expires: bool
    no_open: bool
    resends: bool = False


class FuseSession:
    """One mount's conversation. `serve` starts it; `ended` is set when the kernel has unmounted it.

    Args:
        fd: the descriptor of ``/dev/fuse``; closed by `close`.
        threads: those that read requests.
        depth: stacking depth of backing files; 0: no passthrough.
        metrics: counts ``mount.errors``.
        groups: counts the requests that wait.
    """

    def __init__(self, fd: int, *, threads: int, depth: int, metrics: Metrics, groups: ProcessGroups) -> None:
        self.fd = fd
        self.ended = threading.Event()
        self.agreed = Agreed(0, passthrough=False, expires=False, no_open=False)
        self.waiters = Waiters(_MOST_WAITING)
        self._threads = threads
        self._groups = groups
        self._depth = depth
        self._metrics = metrics
        self._handlers: dict[int, Handler] = {}
        self._quick: dict[int, Quick] = {}
        self._pending: dict[int, Request] = {}

    def greet(self) -> Agreed:
        """Answer INIT, the first request. Blocks until the kernel sends it.

        Raises:
            UnsupportedError: the kernel's protocol is too old.
        """
        buffer = memoryview(bytearray(_BUFFER))
        while True:
            with suppress(InterruptedError):
                os.readv(self.fd, [buffer])
                _, op, unique, *_ = wire.IN.unpack_from(buffer)
                told = wire.hello(buffer[wire.HEADER :])
                if op != Op.INIT:
                    raise UnsupportedError(f"the kernel began with request {op} instead of INIT")
                break
        if told.major != wire.MAJOR or told.minor < wire.OLDEST_MINOR:
            os.write(self.fd, wire.failure(unique, errno.EPROTO))
            reason = f"the kernel speaks FUSE {told.major}.{told.minor}"
            raise UnsupportedError(reason, hint=f"{wire.MAJOR}.{wire.OLDEST_MINOR} or newer is needed (Linux 5.4)")
        depth = self._depth if told.flags & Init.PASSTHROUGH else 0
        flags = told.flags & _WANTED | (Init.PASSTHROUGH if depth else 0)
        minor = min(told.minor, wire.MINOR)
        os.write(
            self.fd,
            wire.init(
                unique, minor, readahead=max(told.readahead, 4 * LARGEST), flags=flags, write=LARGEST,
                background=_BACKGROUND, depth=depth,
            ),
        )  # fmt: skip
        self.agreed = Agreed(
            minor, passthrough=depth > 0, expires=told.minor >= 38, no_open=bool(told.flags & Init.NO_OPEN_SUPPORT),
            resends=bool(told.flags & Init.HAS_RESEND),
        )  # fmt: skip
        return self.agreed

    def take_over(self, agreed: Agreed) -> Agreed:
        """Go on with what an earlier server agreed on, since the kernel sends INIT once. The kernel sends again the
        requests that server has read and not answered.
        """
        self.agreed = agreed
        self.notify(wire.resend())
        return agreed

    def serve(self, handlers: Mapping[int, Handler], quick: Mapping[int, Quick]) -> None:
        """Start answering, on threads of its own. An opcode without handler is answered ENOSYS. `quick`: asked before
        the handler of the same opcode.
        """
        # Plain numbers: to find one of an enumeration takes a comparison in Python's own terms.
        self._handlers = {int(op): handler for op, handler in handlers.items()}
        self._quick = {int(op): handler for op, handler in quick.items()}
        self._handlers.setdefault(int(Op.INTERRUPT), self._interrupt)
        for number in range(self._threads):
            threading.Thread(target=self._run, name=f"headrace-mount-{number}", daemon=True).start()

    @property
    def waiting(self) -> int:
        """Requests that wait for a store now."""
        return len(self._pending)

    def notify(self, message: bytes) -> bool:
        """Send a notice to the kernel; never on a thread that answers. False: the kernel does not know what it is
        about.
        """
        try:
            os.write(self.fd, message)
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.EINVAL, *_GONE):
                _log.warning("a notice to the kernel failed: %s", error.strerror)
            return False
        return True

    def hold(self, request: Request) -> None:
        """See `Request.deferred`."""
        before = self._pending.get(request.unique)
        request.group = before.group if before is not None else self._groups.waits(request.pid)
        self._pending[request.unique] = request

    def answer(self, request: Request, result: Answer | Exception) -> bool:
        """See `Request.finish`."""
        if self._let_go(request) is not request:
            return False
        answer = self._failed(request, result) if isinstance(result, Exception) else result
        if answer is not None:
            self._send(answer)
        return True

    def expire(self, after_s: float) -> None:
        """Fail what was deferred that long ago: nothing waits for ever."""
        before = time.monotonic() - after_s
        for request in list(self._pending.values()):
            if request.began < before:
                request.expire(DeadlineError(f"no answer within {after_s:g} s"))

    def tend(self) -> None:
        """Answer callers whose operation may go on without them: those being killed, and those at their limit. A file
        is published all the same, or tried again.
        """
        now = time.monotonic()
        for request in list(self._pending.values()):
            if request.is_deferred or request.op not in _GOES_ON:
                continue
            if request.interrupted and _is_dying(request.pid):
                self.answer(request, InterruptedError())
            elif now > request.limit:
                told = f"not done within {now - request.began:.0f} s; it goes on, and headrace mounts --live shows it"
                self.answer(request, DeadlineError(told))

    def close(self) -> None:
        """Hang up: whatever is still open on the mount fails from now on."""
        fd, self.fd = self.fd, -1
        if fd >= 0:
            with suppress(OSError):
                os.close(fd)
        self.waiters.close()

    def _run(self) -> None:
        fd, readv, write, handlers, quick = self.fd, os.readv, os.write, self._handlers, self._quick
        brief, unpack = wire.BRIEF.unpack_from, wire.IN.unpack_from
        view = memoryview(bytearray(_BUFFER))
        vector = [view]
        request = Request(self)
        while True:
            try:
                got = readv(fd, vector)
            except OSError as error:
                if error.errno in _AGAIN:
                    continue
                if error.errno not in _GONE:
                    _log.error("reading from the kernel failed: %s", error.strerror)
                self.ended.set()
                return
            op, unique, node = brief(view)
            at_once = quick.get(op)
            if at_once is not None and (ready := at_once(unique, node, view)) is not None:
                try:
                    write(self.fd, ready)  # not `fd`: once closed, its number may be another file's
                except OSError as error:
                    _unsent(error)
                continue
            _, request.op, request.unique, request.node, request.uid, request.gid, request.pid, _, _ = unpack(view)
            request.body = view[40:got]
            handler = handlers.get(op)
            if handler is None:
                if request.op != Op.DESTROY:
                    self._send(wire.failure(request.unique, errno.ENOSYS))
                continue
            try:
                answer = handler(request)
            except WouldBlock:
                self._later(handler, request.waiting())
                continue
            except Exception as error:
                answer = self._failed(request, error)
            if answer is not None:
                self._send(answer)

    def _later(self, handler: Handler, request: Request) -> None:
        self.hold(request)

        def run() -> None:
            try:
                answer = handler(request)
            except Exception as error:
                answer = self._failed(request, error)
            finally:
                waits_still = self._let_go(request) is request
            if answer is not None and waits_still:
                self._send(answer)
            if not waits_still:  # the kernel does not know how it ended
                for folder, name in wire.changed_names(request.op, request.node, request.body):
                    self.notify(wire.inval_entry(folder, name))

        self.waiters.add(run)

    def _let_go(self, request: Request) -> Request | None:
        """The request, for the first thread that asks; None: it was answered, or its handler has deferred it."""
        if self._pending.get(request.unique) is not request:
            return None
        found = self._pending.pop(request.unique, None)
        if found is not None:
            self._groups.over(found.group)
        return found

    def _send(self, answer: bytes | tuple[bytes | memoryview, ...]) -> None:
        try:
            if isinstance(answer, bytes):
                os.write(self.fd, answer)
            else:
                os.writev(self.fd, answer)
        except OSError as error:
            _unsent(error)

    def _failed(self, request: Request, error: Exception) -> bytes:
        number = errno_of(error)
        if isinstance(error, HeadraceError):
            if number == errno.EIO:
                _log.error("%s: %s", _name_of(request.op), error)
                self._metrics.add("mount.errors")
        elif not isinstance(error, OSError):
            _log.exception("%s failed; this is a defect in headrace", _name_of(request.op), exc_info=error)
            self._metrics.add("mount.errors")
        return wire.failure(request.unique, number)

    def _interrupt(self, request: Request) -> None:
        (unique,) = wire.INTERRUPT_IN.unpack_from(request.body)
        waiting = self._pending.get(unique)
        if waiting is not None:
            waiting.interrupt()
            self.tend()


def _is_dying(thread: int) -> bool:
    """Whether a signal is about to end a thread: then SIGKILL is pending, whatever signal it was (signal(7),
    proc_pid_status(5)). A request waits through all other signals, as on a disk.
    """
    if thread == 0:  # of another PID namespace
        return False
    try:
        with open(f"/proc/{thread}/status", "rb") as file:
            lines = file.read().splitlines()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    pending = [int(line.split()[1], 16) for line in lines if line.startswith((b"SigPnd:", b"ShdPnd:"))]
    return any(bits >> (signal.SIGKILL - 1) & 1 for bits in pending)


def _unsent(error: OSError) -> None:
    if error.errno not in (errno.ENOENT, *_GONE):  # the caller is gone: nothing to report
        _log.error("an answer to the kernel failed: %s", error.strerror)


def _name_of(op: int) -> str:
    try:
        return Op(op).name
    except ValueError:
        return f"request {op}"
