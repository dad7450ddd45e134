"""A shell's end at the caller: where the rank ran is found, keys go there, and what is drawn there comes here."""

from __future__ import annotations

import os
import select
import signal
import sys
import termios
import threading
import tty
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from types import FrameType
from typing import Any, Final

import headrace
from headrace.base.errors import InputError, NotFoundError
from headrace.base.settings import Settings, environment
from headrace.cluster.connection import connected, translated
from headrace.cluster.shells.there import Drawn, Opened, ShellThere, Size
from headrace.cluster.submission import Reach
from headrace.cluster.whereabouts import Whereabouts, whereabouts
from headrace.jobs import Exit, JobSpec
from headrace.tracking.runs import Run

_POLL_S: Final = 1.0  # seconds that the other end waits for something drawn before it answers
_END_S: Final = 15.0  # seconds for the other end to end


@dataclass(frozen=True, slots=True)
class RankShell:
    """What is wanted. `words`: options and command of ``headrace shell``, but for the run; `on`: the cluster, None: the
    run's; `anywhere`: on any node of it, if that where the rank ran is gone.
    """

    run: Run
    rank: int
    words: tuple[str, ...] = ()
    on: str | None = None
    anywhere: bool = False


def rank_shell(wanted: RankShell, settings: Settings, tell: Callable[[str], None]) -> Exit:
    """A shell where a rank runs, or ran, on this process's own input and output. Main thread.

    At a terminal every key goes there, Ctrl-C too. `tell` gets where it is.

    Raises NotFoundError: the run has no such rank, or its node is gone. InputError: the run was on no cluster.
    TryAgainError: the cluster does not answer. Any HeadraceError.
    """
    spec = JobSpec.from_json(wanted.run.record().spec, path=wanted.run.id)
    address = wanted.on or spec.cluster.on
    where = whereabouts(wanted.run, wanted.rank)
    if address is None:
        raise InputError("names no cluster", path=wanted.run.id, hint="--on ray://HOST:10001")
    with connected(address) as ray:
        try:
            node = _node(ray.nodes(), where, wanted)
            tell(f"rank {wanted.rank} of {wanted.run.id}, on {node['NodeManagerHostname']} ({_address(node)})")
            actor = _started(ray, node["NodeID"], _opened(wanted, where, Reach.from_here(settings, spec.cluster.send)))
            return _joined(ray, actor)
        except Exception as error:
            raise translated(error, address) from error


def _opened(wanted: RankShell, where: Whereabouts, reach: Reach) -> Opened:
    shown = {name: value for name in ("TERM", "COLORTERM", "LANG") if (value := environment(name))}
    if where.gpus:
        shown["CUDA_VISIBLE_DEVICES"] = ",".join(where.gpus)
    variables = [f"--env={name}={value}" for name, value in where.variables.items()]
    words = (wanted.run.id, *variables, *wanted.words)
    return Opened(headrace.__version__, reach, words, _size() if _at_a_terminal() else None, shown)


def _node(nodes: Sequence[dict[str, Any]], where: Whereabouts, wanted: RankShell) -> dict[str, Any]:
    """The one where the rank ran: by Ray's id, or, where Ray was started again on it, by what the machine is called."""
    alive = [one for one in nodes if one["Alive"]]
    same = [one for one in alive if one["NodeID"] == where.id]
    same += [one for one in alive if (one["NodeManagerHostname"], _address(one)) == (where.host, where.address)]
    if wanted.anywhere:
        same += sorted(alive, key=lambda one: "node:__internal_head__" in one["Resources"])
    if not same:
        hint = "--anywhere: on another node of the cluster"
        place = f"{where.host} ({where.address})"
        raise NotFoundError(f"the node where rank {wanted.rank} ran is gone", path=place, hint=hint)
    return same[0]


def _address(node: dict[str, Any]) -> str:
    return str(node["NodeManagerAddress"])


def _started(ray: Any, node: str, opened: Opened) -> Any:
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy  # pyright: ignore

    kind: Any = ray.remote(ShellThere)
    return kind.options(
        num_cpus=0, max_concurrency=8, max_restarts=0,
        scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False),
    ).remote(opened)  # fmt: skip


def _joined(ray: Any, actor: Any) -> Exit:
    """Keys there and drawings here, until the shell ends, or this does."""
    try:
        with _ended_by_signals(), _Keys(ray, actor, raw=_at_a_terminal()):
            while True:
                drawn: Drawn = ray.get(actor.draw.remote(_POLL_S))
                for fd, data in drawn.pieces:
                    _write(fd, data)
                if drawn.exit is not None:
                    return drawn.exit
    finally:
        with suppress(Exception):
            ray.get(actor.end.remote(), timeout=_END_S)
        with suppress(Exception):
            ray.kill(actor)


class _Keys:
    """What is typed here goes there, by a thread of its own; a terminal passes every key on as it is meanwhile."""

    def __init__(self, ray: Any, actor: Any, *, raw: bool) -> None:
        self._ray, self._actor, self._raw = ray, actor, raw
        self._over, self._resized = os.eventfd(0), os.eventfd(0)
        self._before: Any = None
        self._handler: Any = None
        self._thread = threading.Thread(target=self._type, name="headrace-shell-typed", daemon=True)

    def __enter__(self) -> None:
        if self._raw:
            self._before = termios.tcgetattr(0)
            tty.setraw(0, termios.TCSANOW)
            self._handler = signal.signal(signal.SIGWINCH, self._on_resize)
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        os.eventfd_write(self._over, 1)
        if self._raw:
            signal.signal(signal.SIGWINCH, self._handler)
            with suppress(termios.error):  # it was closed
                termios.tcsetattr(0, termios.TCSADRAIN, self._before)
        self._thread.join(_POLL_S)

    def _type(self) -> None:
        sources = [0, self._over, self._resized]
        with suppress(Exception):  # who asks what is drawn says why
            while True:
                ready, _, _ = select.select(sources, [], [])
                if self._over in ready:
                    return
                if self._resized in ready:
                    os.eventfd_read(self._resized)
                    self._ray.get(self._actor.resize.remote(_size()))
                if 0 in ready:
                    data = os.read(0, 4096)
                    self._ray.get(self._actor.type.remote(data))
                    if not data:
                        sources.remove(0)

    def _on_resize(self, _number: int, _frame: FrameType | None) -> None:
        os.eventfd_write(self._resized, 1)


@contextmanager
def _ended_by_signals() -> Generator[None]:
    """Those that end a shell end the one there first."""

    def end(number: int, _frame: FrameType | None) -> None:
        sys.exit(128 + number)

    wakes = signal.set_wakeup_fd(-1)  # nobody ends us two seconds after a Ctrl-C
    before = {one: signal.signal(one, end) for one in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        signal.set_wakeup_fd(wakes)
        for number, handler in before.items():
            signal.signal(number, handler)


def _at_a_terminal() -> bool:
    return os.isatty(0) and os.isatty(1)


def _size() -> Size:
    size = os.get_terminal_size(0)
    return Size(size.lines, size.columns)


def _write(fd: int, data: bytes) -> None:
    while data:
        data = data[os.write(fd, data) :]
