"""What callers give as the value of a metric: read at once where that is free, later where a device still computes it.

A value must be what it was when it was logged: what may change in place is read, or copied, at once.
"""

from __future__ import annotations

import operator
import sys
from typing import Any


def taken(value: Any) -> Any:
    """A float; or, for what lies on a device, something that `float` waits for and that nobody changes any more.

    Never waits for a device. Raises what `float` raises for something that is no number.
    """
    if isinstance(value, str | bytes | bytearray):
        raise TypeError(f"{value[:40]!r} is text")
    if hasattr(value, "detach"):
        return _tensor(value.detach())  # without its graph, and what that holds
    if hasattr(value, "block_until_ready") or (hasattr(value, "numpy") and not hasattr(value, "assign")):
        return value  # JAX's arrays and TensorFlow's tensors never change
    return float(value)


def step_of(step: Any) -> int | None:
    """A step as a whole number. Raises TypeError, ValueError."""
    if step is None:
        return None
    try:
        return operator.index(step)
    except TypeError:
        whole = int(number := float(step))
        if whole != number:
            raise ValueError(f"the step {number} is not whole") from None
        return whole


def _tensor(value: Any) -> Any:
    """PyTorch's: a GPU's is copied in the order of its own stream, because a loop may change it in place."""
    if value.device.type == "cpu" or value.numel() != 1:
        return float(value)
    copy = value.clone()
    if value.device.type != "cuda":
        return copy
    cuda = sys.modules["torch"].cuda
    done = cuda.Event()
    done.record(cuda.current_stream(value.device))
    return _Later(copy, done)


class _Later:
    """A number that a GPU has been asked for. Another thread's stream knows nothing of the copy: hence the event."""

    __slots__ = ("_copy", "_done")

    def __init__(self, copy: Any, done: Any) -> None:
        self._copy, self._done = copy, done

    def __float__(self) -> float:
        self._done.synchronize()
        return float(self._copy)
