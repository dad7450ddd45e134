"""The command line. One module a command, imported when it is called; what they share is beside them.

`main` is where every error becomes one message and an exit code.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import threading
from collections.abc import Callable, Sequence
from typing import NoReturn

from headrace.base.errors import HeadraceError

INTERRUPTED = 130
"""What shells report for a command ended by Ctrl-C."""
_NOT_WRITTEN = 1  # exit code where the last of the output could not be written


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code. Call it from the main thread.

    Exit codes: 0 done, the error's own (`HeadraceError.exit_code`), 2 for a wrong command line, 130 after Ctrl-C,
    70 for a defect in headrace.
    """
    from headrace.cli.app import app

    arguments = None if argv is None else list(argv)
    return run_guarded(lambda: app.main(arguments, prog_name="headrace", standalone_mode=False))


def run() -> NoReturn:
    """The program ``headrace``: `main`, and the end of the process.

    The process ends without taking the interpreter down, object by object: that takes up to a tenth of a second for
    nothing, and after Ctrl-C threads may still be inside native code, which does not survive it. What is to be tidied
    up at exit is; but for Ctrl-C, threads are waited for as the interpreter would.
    """
    code = main()
    if code != INTERRUPTED:
        with contextlib.suppress(KeyboardInterrupt):
            threading._shutdown()  # pyright: ignore[reportAttributeAccessIssue]  # as a child of multiprocessing ends
    atexit._run_exitfuncs()  # pyright: ignore[reportPrivateUsage]
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):  # nobody reads it, the disk is full, or it is closed
            code = code or _NOT_WRITTEN
    os._exit(code)


def run_guarded(command: Callable[[], object]) -> int:
    """Run `command` and turn however it ends into an exit code, with at most one message on standard error."""
    import click

    from headrace.cli.interrupt import two_seconds_to_stop

    with two_seconds_to_stop():
        try:
            code = command()
            sys.stdout.flush()
        except click.ClickException as error:
            error.show()
            return error.exit_code
        except click.exceptions.Exit as end:
            return end.exit_code
        except (click.Abort, KeyboardInterrupt):
            return INTERRUPTED
        except BrokenPipeError:
            _silence_stdout()
            return 1
        except HeadraceError as error:
            return _report(error)
        except OSError as error:
            return _report(_from_os(error), error)
        except Exception as error:
            return _report(_from_defect(error), error)
        return code if isinstance(code, int) else 0


def _report(error: HeadraceError, cause: BaseException | None = None) -> int:
    from headrace.base.settings import environment

    if environment("HEADRACE_DEBUG"):
        import traceback

        traceback.print_exception(cause or error)
    where = f"{error.path}: " if error.path else ""
    print(f"error: {where}{error.reason}", file=sys.stderr)
    if error.hint:
        print(f"hint: {error.hint}", file=sys.stderr)
    return error.exit_code


def _from_os(error: OSError) -> HeadraceError:
    """A local file's error, in the terms of the tree."""
    import errno

    from headrace.base.errors import DeniedError, NoRoomError, NotFoundError

    kinds: dict[int | None, type[HeadraceError]] = {
        errno.ENOENT: NotFoundError,
        errno.EACCES: DeniedError,
        errno.EPERM: DeniedError,
        errno.EROFS: DeniedError,
        errno.ENOSPC: NoRoomError,
        errno.EDQUOT: NoRoomError,
    }
    kind = kinds.get(error.errno, HeadraceError)
    name: object = error.filename
    return kind(error.strerror or str(error), path=None if name is None else str(name))


def _from_defect(error: Exception) -> HeadraceError:
    from headrace.base.errors import InternalError

    return InternalError(
        f"{type(error).__name__}: {error}",
        hint="this is a defect in headrace: run again with HEADRACE_DEBUG=1 and report what it prints",
    )


def _silence_stdout() -> None:
    """The reader went away: let the interpreter's last flush go nowhere."""
    import os

    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
