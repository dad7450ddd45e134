"""One node of a gang: the job brought together here, its processes started, what they write handed on.

It runs as an actor of Ray's. When it ends, a guard beside each process ends that. Ray leaves it running where the head
is gone, so a node that nobody leads any more ends its processes itself. Any thread may call, as Ray does.
"""

from __future__ import annotations

import logging
import os
import socket
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from importlib.util import find_spec
from signal import SIGKILL, SIGTERM
from typing import TYPE_CHECKING, Any, Final

from headrace.base.errors import HeadraceError, InternalError, UnsupportedError
from headrace.base.ports import reserve_port
from headrace.base.settings import Settings, whole_environment
from headrace.cluster.figures import Figures
from headrace.cluster.submission import Submission
from headrace.cluster.telling import Telling
from headrace.cluster.told import Begin, Ended, Machine, News, Part, Sent
from headrace.jobs import AsItLies, Job, Recorded, RunFolder, Site, bring_checkpoint, open_sync, recover
from headrace.jobs.process import Exit, Process
from headrace.namespace import Namespace
from headrace.namespace.home import Home
from headrace.store.protocol import ObjectInfo
from headrace.tracking.runs import Run

if TYPE_CHECKING:
    from headrace.cluster.peers import PeerServer

_log = logging.getLogger("headrace.cluster")
_TICK_S: Final = 0.5  # seconds between looks at what is due
_RECOVER_S: Final = 60.0  # seconds for what runs that died have left here; the rest is for the next time
LED_S: Final = 3.0
"""How often who leads says so."""
_UNLED_S: Final = 15.0
"""Silence of who leads, after which there is nobody. With `_LAST_S` it is less than what makes a node count as gone:
what runs here is over when all is begun again elsewhere."""
_LAST_S: Final = 5.0
"""How long the processes of a node that nobody leads have between SIGTERM and SIGKILL."""


class Node:
    """One of them. `prepare`, once the run is recorded; then `start`, then `news` until all have ended, then `finish`,
    then `close`.

    Args:
        submission: what is run.
        number: this node's, from 0.
        attempt: which of the run; what an earlier one has left here is none of it.
        processes: how many it starts; None: as the job says.
        address: by which other nodes reach this one.
    """

    def __init__(self, submission: Submission, number: int, attempt: int, processes: int | None, address: str) -> None:
        logging.basicConfig(format="headrace: %(message)s", level=logging.WARNING)
        self._submission, self._number, self._attempt = submission, number, attempt
        self._processes, self._address = processes, address
        self._spec = submission.spec
        self._news = Telling()
        self._ranks: list[_Rank] = []
        self._figures: Figures | None = None
        self._peer: PeerServer | None = None
        self._over = threading.Event()
        self._led_at = time.monotonic()

    def prepare(self) -> Machine:
        """Have code, environment and inputs here, as they were recorded. Raises any HeadraceError."""
        if self._spec.environment.image is not None:
            hint = "run Ray's nodes in that image"
            raise UnsupportedError("an image on a cluster is not started by headrace", hint=hint)
        with tempfile.TemporaryDirectory(prefix="headrace-node-") as first:
            self._settings, self._namespace = self._submission.reach.apply(first)
            self._home = Home.of(self._namespace, self._settings)
            self._run = Run(self._home, self._submission.run)
            part = f"{self._attempt}-node{self._number}"
            self._folder = RunFolder(self._settings.run.state, self._run.id, self._run.url, part)
            self._submission.reach.apply(self._folder.path)
        self._sync = open_sync(self._folder, self._run, self._spec.outputs, self._mark)
        self._job = self._as_job()
        threading.Thread(target=self._recover, name="headrace-recover", daemon=True).start()
        self._job.prepare(self._folder, self._settings.run.cache, self._news.note)
        for text in self._job.notes:
            self._news.note(text)
        if self._spec.cluster.peers:
            self._peer = _peer_server(self._settings, self._namespace, self._address)
        everywhere = "::" if ":" in self._address else "0.0.0.0"  # noqa: S104  where PyTorch's rendezvous listens
        port = reserve_port(everywhere)
        return Machine(
            socket.gethostname(), self._address, port, self._job.gpus, self._job.processes,
            peer="" if self._peer is None else self._peer.url,
        )  # fmt: skip

    def _as_job(self) -> Job:
        recorded = self._run.record()
        source = Recorded(self._run) if recorded.code is not None else AsItLies(self._submission.folder)
        # Ray has chosen the CPUs and GPUs, and shows this process no others.
        spec = replace(self._spec, resources=replace(self._spec.resources, cpus=0, gpus="all"))
        if self._processes is not None:
            spec = replace(spec, processes=self._processes)
        return Job(
            spec, source=source, environ=whole_environment(), run_id=self._run.id,
            site=Site(self._namespace, self._settings), before=self._run,
        )  # fmt: skip

    def start(self, begin: Begin) -> None:
        """Start its processes. Raises any HeadraceError; then none is left running."""
        resume: str | None = None
        if begin.checkpoint is not None:
            run, name = begin.checkpoint
            resume = bring_checkpoint(Run(self._home, run), name, self._folder.at("resume", str(begin.attempt)))
        invocation = self._job.invocation(self._folder, begin.attempt, resume, launched=False)
        if self._peer is not None:
            shared = self._peer.join(self._folder.at("peers.toml"), self._number, begin.peers, begin.token)
            invocation = replace(invocation, environment={**invocation.environment, **shared})
        given = tuple(invocation.environment)
        first = begin.meeting.first(self._number)
        try:
            for local in range(begin.meeting.sizes[self._number]):
                variables = begin.meeting.variables(self._number, local, given)
                one = replace(invocation, environment={**invocation.environment, **variables})
                self._ranks.append(_Rank(first + local, Process(one, self._news.sink(first + local)), self._news))
        except HeadraceError:
            self.signal(9)
            raise
        self._sync.start()
        self.led()
        self._figures = Figures(self._folder, first, os.getpid())
        threading.Thread(target=self._tick, name="headrace-node", daemon=True).start()

    def news(self, acknowledged: int, timeout: float) -> News:
        """What there is to tell, once there is any, or nothing after `timeout` seconds. `acknowledged`: the number of
        the last that has arrived; what it told is forgotten here.
        """
        self.led()
        return self._news.take(acknowledged, timeout, self._folder)

    def led(self) -> None:
        """Who leads the gang is there."""
        self._led_at = time.monotonic()

    def signal(self, number: int) -> None:
        """To all its processes, and what they started."""
        for rank in self._ranks:
            rank.process.signal(number)

    def finish(self, timeout: float, *, complete: bool) -> Sent:
        """All processes have ended: send what they have left, for so long. `complete`: they ended well."""
        self._over.set()
        for rank in self._ranks:
            rank.close()
        if self._figures is not None:
            self._figures.close()
        report = self._sync.finish(timeout, complete=complete)
        left = tuple((one.path, one.error) for one in report.left)
        return Sent(report.files, report.bytes, left, f"{socket.gethostname()}:{self._folder.path}")

    def close(self, *, remove: bool) -> None:
        """Let go of all. `remove`: nothing in the folder is needed any more."""
        self._over.set()
        if self._peer is not None:
            self._peer.close()
        self._job.close()
        self._sync.close()
        os.chdir("/")
        if remove:
            self._folder.remove()
        self._folder.close()

    def _tick(self) -> None:
        while not self._over.wait(_TICK_S):
            if self._figures is None:
                raise InternalError("there is nothing to measure")
            try:
                self._figures.tick()
            except OSError as error:
                _log.warning("figures of this node wait: %s", error)
            if time.monotonic() - self._led_at > _UNLED_S:
                self._unled()

    def _unled(self) -> None:
        """Nobody asks any more: end all that runs here, and this actor. What is not sent then is left to `recover`."""
        _log.warning("who leads the run is silent: its processes on this node are ended")
        self._news.forget()
        self.signal(int(SIGTERM))
        until = time.monotonic() + _LAST_S
        for rank in self._ranks:
            rank.wait(until - time.monotonic())
        self.signal(int(SIGKILL))
        with suppress(HeadraceError):
            self._sync.finish(self._spec.outputs.drain, complete=False)
        os._exit(1)

    def _mark(self, folder: str, members: Sequence[ObjectInfo], note: Any) -> None:
        self._news.part(Part(folder, tuple(members), dict(note)))

    def _recover(self) -> None:
        """What runs that died have left on this node."""
        with suppress(HeadraceError):
            for one in recover(_RECOVER_S, namespace=self._namespace, settings=self._settings):
                self._news.note(f"{one.id}: {one.files} files of it that lay here were sent" if one.files else "")


class _Rank:
    """One process, waited for by a thread of its own."""

    def __init__(self, number: int, process: Process, news: Telling) -> None:
        self.process, self._number, self._news = process, number, news
        self._reading, self._writing = os.pipe()
        self._thread = threading.Thread(target=self._wait, name=f"headrace-rank-{number}", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """It has ended, or is ended."""
        self.process.signal(9)
        self._thread.join()
        os.close(self._reading)
        os.close(self._writing)

    def wait(self, timeout: float) -> None:
        """For its end, so long."""
        self._thread.join(max(0.0, timeout))

    def _wait(self) -> None:
        ended: Exit | None = None
        while ended is None:
            ended = self.process.wait(3600.0, self._reading)
        self.process.close()
        self._news.end(Ended(self._number, ended.code, ended.signal))


def _peer_server(settings: Settings, namespace: Namespace, host: str) -> PeerServer:
    if find_spec("httptools") is None:
        raise UnsupportedError("nodes that share their caches need httptools", hint="pip install 'headrace[ray]'")
    from headrace.cluster.peers import PeerServer
    from headrace.http_server import Address

    return PeerServer(settings, namespace, Address(host))
