"""Every request is answered, once, on whichever thread that happens."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from headrace.base.metrics import Metrics
from headrace.mount.kernel import wire
from headrace.mount.kernel.kernel_requests import Answer, Request, Waiters
from headrace.mount.kernel.process_groups import ProcessGroups
from headrace.mount.kernel.session import FuseSession
from headrace.mount.kernel.wire import Op
from tests.sync_rig import wait_for


@contextmanager
def asked(handler: Callable[[Request], Answer]) -> Iterator[socket.socket]:
    """The kernel's end of a session that answers OPEN by `handler`."""
    metrics = Metrics()
    kernel, ours = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    session = FuseSession(ours.detach(), threads=1, depth=0, metrics=metrics, groups=ProcessGroups(metrics))
    session.serve({Op.OPEN: handler}, {})
    kernel.settimeout(10)
    try:
        yield kernel
    finally:
        session.close()
        kernel.send(asks(9))  # what wakes the thread that reads, and finds the descriptor closed
        assert session.ended.wait(10)
        kernel.close()


def asks(unique: int) -> bytes:
    return wire.IN.pack(wire.HEADER, Op.OPEN, unique, 5, 0, 0, 0, 0, 0)


def deferring(request: Request) -> None:
    """As an open whose object is fetched: the answer comes from another thread."""
    later = request.deferred(lambda: None)
    threading.Timer(0.05, lambda: later.finish(wire.reply(later.unique, b"come"))).start()


def at_once(request: Request) -> Answer:
    return wire.reply(request.unique, b"come")


@pytest.mark.parametrize("waits", [False, True], ids=["on the thread that reads", "on one that may wait"])
@pytest.mark.parametrize("answer", [at_once, deferring])
def test_a_request_is_answered_once(answer: Callable[[Request], Answer], waits: bool) -> None:
    def handler(request: Request) -> Answer:
        if waits:
            request.must_wait()
        return answer(request)

    with asked(handler) as kernel:
        for unique in (3, 4):
            kernel.send(asks(unique))
            assert kernel.recv(1000) == wire.reply(unique, b"come")
        kernel.settimeout(0.2)
        with pytest.raises(TimeoutError):
            kernel.recv(1000)


def test_threads_that_wait_for_work_end_when_they_are_told_to() -> None:
    waiters, done = Waiters(3), threading.Semaphore(0)
    gate = threading.Barrier(4)
    for _ in range(3):
        waiters.add(lambda: gate.wait(10))
    gate.wait(10)
    waiters.add(done.release)
    waiters.close()
    assert done.acquire(timeout=10), "what was added is done"
    assert wait_for(lambda: waiters.threads == 0, 10)
    waiters.add(done.release)
    assert done.acquire(timeout=10), "and so is what is added later"
    assert wait_for(lambda: waiters.threads == 0, 10)
