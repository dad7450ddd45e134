"""What became of work on a thread that nobody else looks at."""

from __future__ import annotations

from collections.abc import Callable

from headrace.base.errors import HeadraceError, InternalError


def failure(work: Callable[[], object]) -> HeadraceError | None:
    """Do it. What it raises is returned: a foreign exception as the cause of an InternalError; None: it went well."""
    try:
        work()
    except HeadraceError as failed:
        return failed
    except Exception as failed:
        error = InternalError(f"{type(failed).__name__}: {failed}")
        error.__cause__ = failed
        return error
    return None
