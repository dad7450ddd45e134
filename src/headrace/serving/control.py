"""What the processes of one server say to each other, through the one that started them: JSON, a line a message.

To a child: {"heard": [model, labels, problem]}, and {"known": true} after what it has missed; {"leave": true};
{"ask": number, "what", "model"}; {"answers": number, "all": […]}. From a child: the question, which all are asked, and
{"answer": number, "value"}.
"""

from __future__ import annotations

import json
import logging
import os
import secrets
import socket
import struct
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import suppress
from typing import Any, Final

from headrace.base.errors import TryAgainError
from headrace.serving.station import Station

_log = logging.getLogger("headrace.serving")
_WAIT_S: Final = 5.0  # seconds for an answer that is told from memory
_LOAD_S: Final = 620.0  # seconds for one that waits until a model is loaded: more than `station` itself waits
_ORDERS: Final = ("load", "unload")
_GONE: Final = "a process of the server has ended"
_HUNG: Final = {"ready": False, **dict.fromkeys(_ORDERS, "a process of the server does not answer")}
"""What stands for the answer of a process that gives none; of its counts nothing does."""


class _Line:
    """One socket, both ways, and what was asked over it."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", int(_WAIT_S), 0))
        self._sock = sock
        self.asked = _Asked()
        self._lock = threading.Lock()
        self.reader = sock.makefile("rb")

    def say(self, **message: Any) -> bool:
        """False: nobody is there any more, or nobody who reads; then the line is at its end."""
        data = json.dumps(message).encode() + b"\n"
        with self._lock:
            try:
                self._sock.sendall(data)
            except OSError:
                with suppress(OSError):
                    self._sock.shutdown(socket.SHUT_RDWR)
                return False
        return True

    def close(self) -> None:
        self.asked.end()
        with suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)
        self._sock.close()


class _Asked:
    """Questions that wait for their answers, by number."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._count = 0
        self._open: dict[int, Future[Any]] = {}
        self._ended = False

    def ask(self) -> tuple[int, Future[Any]]:
        future = Future[Any]()
        with self._lock:
            self._count += 1
            if not self._ended:
                self._open[self._count] = future
                return self._count, future
        future.set_exception(TryAgainError(_GONE))
        return self._count, future

    def answered(self, number: int, value: Any) -> None:
        with self._lock:
            future = self._open.pop(number, None)
        if future is not None:
            future.set_result(value)

    def end(self) -> None:
        """Nobody will answer any more: what waits fails with TryAgainError."""
        with self._lock:
            self._ended = True
            waiting, self._open = list(self._open.values()), {}
        for future in waiting:
            future.set_exception(TryAgainError(_GONE))


class Hub:
    """The parent's side. `path`: where children connect, and nobody else's processes can.

    It is an address of Linux's abstract namespace, so a parent that is killed leaves no file.
    """

    def __init__(self) -> None:
        self.path = f"\0headrace-serve-{secrets.token_hex(16)}"
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(self.path)
        self._listener.listen(64)
        self._lock = threading.Lock()
        self._children: list[_Line] = []
        self._heard: dict[str, tuple[Mapping[str, int], str]] = {}
        self.counted: Callable[[], int] = lambda: 0
        threading.Thread(target=self._accept, name="serving-hub", daemon=True).start()

    def heard(self, model: str, labels: Mapping[str, int], problem: str) -> None:
        """Tell all, and those that come later."""
        with self._lock:
            self._heard[model] = (labels, problem)
            for child in self._children:  # under the lock, so that every child hears all in one order
                child.say(heard=[model, dict(labels), problem])

    def leave(self) -> None:
        """All stop being ready; they go on answering."""
        with self._lock:
            children = list(self._children)
        for child in children:
            child.say(leave=True)

    def ask_all(self, what: str, model: str) -> list[Any]:
        """The answers of those that give one; for one that hangs, that it is not ready, or did not do it. Of one that
        ends meanwhile an order alone knows: the process that takes its place hears all from the beginning.
        """
        with self._lock:
            children = list(self._children)
        futures: list[Future[Any]] = []
        for child in children:
            number, future = child.asked.ask()
            if child.say(ask=number, what=what, model=model):
                futures.append(future)
        answers: list[Any] = []
        until = time.monotonic() + (_LOAD_S if what in _ORDERS else _WAIT_S)
        for future in futures:
            try:
                answers.append(future.result(max(0.0, until - time.monotonic())))
            except FutureTimeoutError:
                answers += [_HUNG[what]] if what in _HUNG else []
            except TryAgainError as error:
                answers += [error.reason] if what in _ORDERS else []
        if what == "counts":
            answers.append([["headrace_serving_pointer_requests_total", {}, self.counted()]])
        return answers

    def close(self) -> None:
        """Children notice, and end."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        with self._lock:
            children, self._children = self._children, []
        for child in children:
            child.close()

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            if _user_at(sock) != os.getuid():  # such an address has no permissions
                sock.close()
                continue
            line = _Line(sock)
            with self._lock:  # what it has missed comes before what is heard next
                self._children.append(line)
                for model, (labels, problem) in self._heard.items():
                    line.say(heard=[model, dict(labels), problem])
                line.say(known=True)
            threading.Thread(target=self._listen, args=(line,), name="serving-child", daemon=True).start()

    def _listen(self, line: _Line) -> None:
        with suppress(OSError, ValueError):
            for text in line.reader:
                told = json.loads(text)
                if "answer" in told:
                    line.asked.answered(told["answer"], told["value"])
                else:
                    threading.Thread(target=self._gather, args=(line, told), daemon=True).start()
        with self._lock:
            if line in self._children:
                self._children.remove(line)
        line.close()

    def _gather(self, line: _Line, told: dict[str, Any]) -> None:
        line.say(answers=told["ask"], all=self.ask_all(told["what"], told["model"]))


class Link:
    """A child's side, and its `Fleet`."""

    def __init__(self, path: str, station: Station) -> None:
        """Raises OSError: the parent has gone."""
        sock = socket.socket(socket.AF_UNIX)
        sock.connect(path)
        if _user_at(sock) != os.getuid():
            sock.close()
            raise ConnectionRefusedError("another user listens there")
        self._line = _Line(sock)
        self._station = station
        self._known = threading.Event()
        threading.Thread(target=self._listen, name="serving-link", daemon=True).start()

    def ask(self, what: str, model: str) -> list[Any]:
        """See `Fleet`. Raises TryAgainError: the process that knows the others has gone."""
        number, future = self._line.asked.ask()
        if not self._line.say(ask=number, what=what, model=model):
            raise TryAgainError("the server is ending")
        try:
            return future.result(_LOAD_S + _WAIT_S if what in _ORDERS else 2 * _WAIT_S)
        except FutureTimeoutError:
            raise TryAgainError("the server's other processes do not answer", hint="ask again") from None

    def caught_up(self, seconds: float) -> bool:
        """Wait until what the others serve is loaded here too, or has failed. Nothing, when the server begins."""
        return self._known.wait(seconds) and self._station.settled(seconds)

    def close(self) -> None:
        """Hear no more."""
        self._line.close()

    def _listen(self) -> None:
        with suppress(OSError, ValueError):
            for text in self._line.reader:
                self._take(json.loads(text))
        self._line.asked.end()

    def _take(self, told: dict[str, Any]) -> None:
        if "heard" in told:
            self._station.heard(*told["heard"])
        elif "known" in told:
            self._known.set()
        elif "leave" in told:
            self._station.leaving = True
        elif "answers" in told:
            self._line.asked.answered(told["answers"], told["all"])
        else:
            threading.Thread(target=self._answer, args=(told,), daemon=True).start()

    def _answer(self, told: dict[str, Any]) -> None:
        try:
            value = self._station.told(told["what"], told["model"])
        except Exception as error:
            _log.exception("another process's question could not be answered")
            value = [] if told["what"] == "counts" else str(error)
        self._line.say(answer=told["ask"], value=value)


def _user_at(sock: socket.socket) -> int:
    """Whose the process at the other end is: ``SO_PEERCRED`` of unix(7)."""
    known = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    _pid, user, _group = struct.unpack("3i", known)
    return user
