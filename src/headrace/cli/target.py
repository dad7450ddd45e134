"""What a PATH on the command line names: a path of the namespace, a URL, a file on this machine, or a snapshot."""

from __future__ import annotations

import os
import re
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from headrace.base.errors import HeadraceError, InputError, NotFoundError

if TYPE_CHECKING:
    from headrace.namespace import Entry, Namespace

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*://")
_NEARLY_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]+:)/(.*)")
_SNAPSHOT = re.compile(r"[^/@\s]+@[^/@\s]+")
_FORMAT = re.compile(r'format="(\w+)"')


@contextmanager
def from_option() -> Generator[None]:
    """Hints that name Python's ``format=…`` name the option ``--from …`` instead. Also a decorator of commands."""
    try:
        yield
    except HeadraceError as error:
        if error.hint is not None:
            error.hint = _FORMAT.sub(r"--from \1", error.hint)
        raise


def open_namespace() -> Namespace:
    """The namespace of the settings that apply here."""
    from headrace.namespace import Namespace

    return Namespace.load()


def target(namespace: Namespace, text: str) -> str:
    """The path or URL that `text` names.

    A URL is itself. A text that starts with ``/`` is a namespace path where something is attached at, above or below
    it; otherwise it is a file here, as every other text is (``./folder``, ``~/folder``, ``folder``), and becomes
    ``file://…``. A trailing ``/`` is kept.

    Raises:
        NotFoundError: there can be nothing under that name. InputError: it was meant to be a URL.
    """
    if _URL.match(text):
        return text
    if text.startswith("/") and (text == "/" or _is_attached(namespace, text)):
        return text
    if (nearly := _NEARLY_URL.fullmatch(text)) and not os.path.isdir(nearly[1]):
        raise InputError(
            "a URL has two slashes behind its scheme, and no folder here has that name",
            path=text,
            hint=f"did you mean {nearly[1]}//{nearly[2]}?",
        )
    absolute = os.path.abspath(os.path.expanduser(text))
    if text.startswith("/") and not os.path.lexists(absolute) and not os.path.isdir(os.path.dirname(absolute)):
        raise NotFoundError(
            "nothing is attached here, and there is no such file on this machine",
            path=text,
            hint="see what is attached: headrace mounts",
        )
    return f"file://{absolute}" + ("/" if text.endswith("/") and absolute != "/" else "")


def is_snapshot(text: str) -> bool:
    """Whether `text` is written like a snapshot, ``name@version``, and no file here has that name."""
    return _SNAPSHOT.fullmatch(text) is not None and not os.path.lexists(text)


def walk(namespace: Namespace, path: str) -> Iterator[Entry]:
    """The files at or below `path`: one entry for a file.

    Raises:
        NotFoundError: there is neither a file nor a folder.
    """
    entry = namespace.stat(path)
    if entry.kind == "file":
        yield entry
    else:
        yield from namespace.walk(path)


def base_name(path: str) -> str:
    """The last part of a path or URL."""
    return path.rstrip("/").rpartition("/")[2]


def _is_attached(namespace: Namespace, path: str) -> bool:
    below = path.rstrip("/") + "/"
    return any(
        mount.path == "/" or below.startswith(mount.path + "/") or mount.path.startswith(below)
        for mount in namespace.mounts()
    )
