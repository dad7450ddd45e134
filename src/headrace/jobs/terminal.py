"""A terminal of the command's own, where headrace stands at one: what it draws goes to ours, what is typed to it."""

from __future__ import annotations

import fcntl
import os
import select
import signal
import termios
import threading
import tty
from contextlib import suppress
from types import FrameType
from typing import Any


class Terminal:
    """A pseudo-terminal. `has`: which of standard input, output and error are a terminal here. Main thread.

    While it is entered, ours passes every key on as it is: Ctrl-C reaches the command as at any terminal, and signals
    its processes, not headrace. Ctrl-Z does not suspend.
    """

    def __init__(self, has: tuple[bool, bool, bool]) -> None:
        self.has = has
        self.controls = has[0]
        """Whether it is to be the command's controlling terminal."""
        self.ours, self.theirs = os.openpty()
        self._before: list[Any] | None = None
        self._resized: Any = None
        self._over = os.eventfd(0)
        self._typing = threading.Thread(target=self._type, name="headrace-run-typed", daemon=True)
        if has[0]:
            with suppress(termios.error):  # the modes that the user has set
                termios.tcsetattr(self.theirs, termios.TCSANOW, termios.tcgetattr(0))
        self._resize()

    @staticmethod
    def like_ours() -> Terminal | None:
        """One for the command; None: there is none here."""
        has = (os.isatty(0) and _in_foreground(), os.isatty(1), os.isatty(2))
        return Terminal(has) if any(has) else None

    def hand_over(self) -> None:
        """The command's end was duplicated for it."""
        os.close(self.theirs)

    def enter(self) -> None:
        """The command has started."""
        self._resized = signal.signal(signal.SIGWINCH, self._on_resize)
        if self.has[0]:
            with suppress(termios.error):  # it was closed
                self._before = termios.tcgetattr(0)
                tty.setraw(0, termios.TCSANOW)
            self._typing.start()

    def leave(self) -> None:
        """Ours as it was before; the descriptor `ours` is for its reader to close."""
        signal.signal(signal.SIGWINCH, self._resized)
        if self._typing.ident is not None:
            os.eventfd_write(self._over, 1)
            self._typing.join()
        if self._before is not None:
            with suppress(termios.error):  # it was closed
                termios.tcsetattr(0, termios.TCSADRAIN, self._before)
            self._before = None
        os.close(self._over)

    def _type(self) -> None:
        keys = os.dup(self.ours)
        with suppress(OSError):
            while True:
                ready, _, _ = select.select([0, self._over], [], [])
                if self._over in ready:
                    break
                data = os.read(0, 4096)
                if not data:
                    break
                os.write(keys, data)
        os.close(keys)

    def _on_resize(self, _number: int, _frame: FrameType | None) -> None:
        self._resize()

    def _resize(self) -> None:
        with suppress(OSError):
            source = self.has.index(True)
            fcntl.ioctl(self.ours, termios.TIOCSWINSZ, fcntl.ioctl(source, termios.TIOCGWINSZ, bytes(8)))


def _in_foreground() -> bool:
    """Whether standard input is a terminal that is ours to read; in the background reading it would stop us."""
    with suppress(OSError):
        return os.tcgetpgrp(0) == os.getpgrp()
    return False
