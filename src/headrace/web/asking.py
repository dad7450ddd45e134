"""Several things asked side by side, none waited for longer than so long."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from headrace.base.account import carried
from headrace.base.errors import HeadraceError
from headrace.base.units import format_seconds

_NAME: Final = "headrace-asking"


@dataclass(frozen=True, slots=True)
class Answer:
    """`value`: None where there is a `problem`."""

    value: Any = None
    problem: str | None = None


class _Question:
    """One, on a thread of its own, which may outlast everybody's patience, and the program."""

    def __init__(self, work: Callable[[], Any]) -> None:
        self.answer: Answer | None = None
        self.done = threading.Event()
        self._work = work
        threading.Thread(target=carried(self._run), name=_NAME, daemon=True).start()

    def _run(self) -> None:
        value, problem = None, None
        try:
            value = self._work()
        except HeadraceError as error:
            problem = str(error)
        except OSError as error:
            problem = error.strerror or str(error)
        except Exception as error:
            problem = f"{type(error).__name__}: {error}"
        self.answer = Answer(value, problem)
        self.done.set()


class Asking:
    """Any thread, one call at a time. What did not answer is not asked again before it has."""

    def __init__(self, patience_s: float) -> None:
        self._patience_s = patience_s
        self._open: dict[str, _Question] = {}

    def ask(self, works: Mapping[str, Callable[[], Any]]) -> dict[str, Answer]:
        """The answers by name; all of them at the latest when the time is over."""
        deadline = time.monotonic() + self._patience_s
        for name, work in works.items():
            if name not in self._open:
                self._open[name] = _Question(work)
        found: dict[str, Answer] = {}
        for name in works:
            question = self._open[name]
            question.done.wait(max(0.0, deadline - time.monotonic()))
            if question.answer is None:
                found[name] = Answer(problem=f"no answer within {format_seconds(self._patience_s)}")
            else:
                found[name] = question.answer
                del self._open[name]
        return found
