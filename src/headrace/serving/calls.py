"""One request to a model, whatever protocol it came by."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from headrace.serving.tensors import Array


class Call:
    """Inputs that fit a signature, and where the outputs go. A protocol's own kind says how they are written.

    Attributes:
        signature, inputs: what is run. rows: the first length of every input; 1 where it has none.
        key: calls of one key may be run together; None: only alone.
        arrived, deadline: monotonic seconds; without a deadline it is infinite.
        wanted: the version's number, or the label, that it names. number: of the version that it was given to.
    """

    __slots__ = ("arrived", "deadline", "inputs", "key", "number", "rows", "signature", "wanted")

    def __init__(self, signature: str, inputs: dict[str, Array], arrived: float, deadline: float = math.inf) -> None:
        self.signature = signature
        self.inputs = inputs
        self.arrived = arrived
        self.deadline = deadline
        self.wanted: tuple[int | None, str | None] = (None, None)
        self.number = 0
        self.key: tuple[Any, ...] | None = None
        self.rows = 1

    def may_join(self) -> None:
        """Find out its rows, and with which others it may be run: those of the same signature, whose inputs differ in
        their first length alone.
        """
        lengths: set[int] = set()
        shapes: list[Any] = [self.signature]
        for name, array in self.inputs.items():
            if not array.ndim:
                return
            lengths.add(array.shape[0])
            shapes.append((name, array.shape[1:]))
        if len(lengths) == 1:
            self.rows = lengths.pop()
            self.key = tuple(shapes) if self.rows else None

    @property
    def gone(self) -> bool:
        """Whether nobody waits for the answer any more."""
        return False

    def answer(self, outputs: Mapping[str, Array]) -> None:
        """Once, from any thread; or `fail`, once. May raise what cannot be written; then `fail` follows."""
        raise NotImplementedError

    def fail(self, error: Exception) -> None:
        """Once, from any thread."""
        raise NotImplementedError
