"""What a text names: a path of the namespace, a URL, or a file or folder of this machine. One rule for every door.

The rule stands in ``docs/semantics.md`` (P1, P7 to P9).
"""

from __future__ import annotations

import logging
import os
import re

from headrace.base.errors import InputError, NotFoundError
from headrace.namespace import paths
from headrace.namespace.mounts import MountTable

_log = logging.getLogger("headrace.namespace")
_NEARLY_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]+:)/(.*)", re.DOTALL)
_SNAPSHOT = re.compile(r"[^/@\s]+@[^/@\s]+")
_told: set[str] = set()
"""Paths of which it was said that the namespace hides what lies there on this machine."""


def named(table: MountTable, name: paths.PathLike) -> str:
    """The path or URL that a name stands for. No request; nothing need exist.

    A URL is itself. A text that starts with ``/`` is a namespace path where something is attached at, above or below
    it; otherwise it is a file here, as every other text is (``./folder``, ``~/folder``, ``folder``), and becomes
    ``file://…``. A trailing ``/`` is kept.

    Raises:
        NotFoundError: there can be nothing under that name. InputError: it was meant to be a URL, or is no text.
    """
    text = paths.check_text(name)
    if paths.is_url(text):
        paths.refuse_escapes(text)
        return text
    if text.startswith("/") and (text == "/" or _is_attached(table, text)):
        return text
    if (nearly := _NEARLY_URL.fullmatch(text)) and not os.path.isdir(nearly[1]):
        raise InputError(
            "a URL has two slashes behind its scheme, and no folder here has that name",
            path=text,
            hint=f"did you mean {nearly[1]}//{nearly[2]}?",
        )
    if not text:
        raise InputError("an empty name", hint="the folder you are in is .")
    if text.startswith("~") and os.path.expanduser(text) == text and not os.path.lexists(text):
        hint = "set HOME, or write the whole path; a name that begins with ~ is written ./~"
        raise InputError("no home directory is known for ~", path=text, hint=hint)
    absolute = os.path.abspath(os.path.expanduser(text))
    if text.startswith("/") and not os.path.lexists(absolute) and not os.path.isdir(os.path.dirname(absolute)):
        raise NotFoundError(
            "nothing is attached here, and there is no such file on this machine",
            path=text,
            hint="see what is attached: headrace mounts",
        )
    return f"file://{absolute}" + ("/" if text.endswith("/") and absolute != "/" else "")


def tell_hidden(path: str) -> None:
    """Say once, of a path of the namespace, that a file or folder of the same path lies on this machine."""
    if path.startswith("/") and path not in _told and os.path.lexists(path):
        _told.add(path)
        _log.warning("%s is what is attached there; what lies there on this machine is file://%s", path, path)


def is_snapshot_text(text: str) -> bool:
    """Whether `text` is written like a snapshot, ``name@version``, and no file here has that name."""
    return _SNAPSHOT.fullmatch(text) is not None and not os.path.lexists(text)


def _is_attached(table: MountTable, path: str) -> bool:
    below = path.rstrip("/") + "/"
    return any(
        mount.path == "/" or below.startswith(mount.path + "/") or mount.path.startswith(below) for mount in table
    )
