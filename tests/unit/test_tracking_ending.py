"""How a run that did not finish is said to have ended."""

from __future__ import annotations

import pytest

from headrace.base.errors import BadSampleError, NotFoundError
from headrace.loader.pipeline.bad_samples import failure
from headrace.tracking.ending import ending
from headrace.tracking.record import Status

OURS = "headrace.base.errors."


def status(exit_code: int | None = 1, signal: int | None = None, state: str = "failed", reason: str = "") -> Status:
    return Status(3, state, "2026-01-01T00:00:00Z", 1, exit_code, signal, reason)


@pytest.mark.parametrize(
    ("how", "lines", "said"),
    [
        (
            status(),
            ["Traceback (most recent call last):", '  File "x", line 1', "KeyError: 'a'"],
            "ended by KeyError: 'a'",
        ),
        (
            status(),
            ["[rank0]: ValueError: no", "torch.distributed.ChildFailedError: x"],
            "ended by ChildFailedError: x",
        ),
        (
            status(),
            [f"{OURS}NotFoundError: s3://b/k: gone", "torch.ChildFailedError: x"],
            "ended by NotFoundError: s3://b/k: gone",
        ),
        (status(), ["KeyboardInterrupt"], "ended by KeyboardInterrupt"),
        (status(), ["Note: all is well", "Epoch: 3", "loss: 0.1"], "ended with exit code 1"),
        (status(), [], "ended with exit code 1"),
        (status(3), ["KeyError: 'caught, and written down'"], "ended with exit code 3"),
        (status(None, 9), ["KeyError: 'a'"], "killed by SIGKILL"),
        (status(None, 9, reason="out of memory"), [], "killed by SIGKILL (out of memory)"),
        (status(None, 15, "stopped", "ordered by ann"), [], "stopped by SIGTERM (ordered by ann)"),
        (status(None, 99), [], "killed by signal 99"),
        (status(None, None, "lost", "its runner is gone"), [], "lost (its runner is gone)"),
        (status(), [f"ValueError: {'x' * 1000}"], f"ended by ValueError: {'x' * 287}…"),
    ],
)
def test_it_is_said_in_a_few_words(how: Status, lines: list[str], said: str) -> None:
    assert ending(how, lines) == said


def test_the_sample_is_named_that_a_function_failed_at() -> None:
    error = failure("cat/043", "map(decode)", KeyError("label"))
    assert isinstance(error, BadSampleError)
    assert ending(status(), [f"{OURS}BadSampleError: {error}"]) == "ended by KeyError in map(decode) at cat/043"
    said = ending(status(), [f"{OURS}NotFoundError: {NotFoundError('no such object', path='s3://b/k')}"])
    assert said == "ended by NotFoundError: s3://b/k: no such object"
