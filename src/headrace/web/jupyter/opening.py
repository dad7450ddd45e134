"""JupyterLab as `headrace jupyter` starts or sets it up: `open_lab`, `configure_lab`."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from headrace.namespace import Namespace
from headrace.web.extra import needed

if TYPE_CHECKING:
    from headrace.web.jupyter.configured import Shown
    from headrace.web.jupyter.lab import Running


@contextmanager
def open_lab(
    path: str = "/", *, allow_writes: bool = False, host: str = "127.0.0.1", port: int = 0
) -> Generator[Running]:
    """JupyterLab with a folder of the namespace in its file browser, for as long as the ``with`` block. Main thread.

    ``with hr.web.open_lab("/data") as lab: print(lab.entry)``

    Args:
        path: of the folder, or a URL.
        allow_writes: files may be saved, renamed and deleted there.
        host: where it listens.
        port: 0: 8888, or a free one.

    Raises:
        UnsupportedError: a library of the extra ``jupyter`` is missing. NotFoundError: no such folder.
        InputError: it is a file, or the port is taken. TryAgainError: Jupyter ended at once. DeadlineError.
        Any store error.
    """
    shown = _shown(path, allow_writes=allow_writes)
    from headrace.web.jupyter.lab import running_lab

    with running_lab(shown, host, port) as running:
        yield running


def configure_lab(path: str = "/", *, allow_writes: bool = False) -> tuple[str, Shown]:
    """Put what `open_lab` would show into this user's settings of Jupyter. Starts nothing. Any thread.

    Returns:
        The path of the file that was written, and what is shown.

    Raises:
        As `open_lab`. InputError: the file that is there is none of Jupyter's. DeniedError: it cannot be written.
    """
    shown = _shown(path, allow_writes=allow_writes)
    from headrace.web.jupyter.configured import user_folder, write

    return write(shown, user_folder()), shown


def _shown(path: str, *, allow_writes: bool) -> Shown:
    needed("jupyter")
    from headrace.web.jupyter.configured import Shown

    with Namespace.load() as namespace:
        return Shown.of(namespace, path, allow_writes=allow_writes)
