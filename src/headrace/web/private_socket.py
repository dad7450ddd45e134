"""A Unix socket that nobody but this user reaches: in a folder of its own, made for it and gone with it.

Source: unix(7): on Linux, who connects needs the right to enter the folder and to write to the socket.
"""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from typing import Final

from headrace.base.errors import DeniedError, InputError
from headrace.base.places import temporary_folder

_LONGEST: Final = 107
"""Bytes of a socket's path, by unix(7)."""
_BELOW: Final = 60
"""Bytes that folders of ours, one in another, and the socket's own name may take of them."""


def folder_for_sockets() -> str:
    """Where temporary files go; ``/tmp`` where what is below that would have too long a path."""
    usual = temporary_folder()
    return usual if len(os.fsencode(usual)) <= _LONGEST - _BELOW else "/tmp"  # noqa: S108 - the folder in it is private


def listen(path: str) -> socket.socket:
    """A socket at `path`, whose folder is made, with mode 0700.

    Raises:
        InputError: too long, or the folder above is missing. DeniedError: the folder is there, and somebody else may
            enter it; or it cannot be made.
    """
    if len(os.fsencode(path)) > _LONGEST:
        hint = "name one in a shorter folder, such as below /tmp"
        raise InputError(f"a socket's path has at most {_LONGEST} bytes", path=path, hint=hint)
    folder = os.path.dirname(os.path.abspath(path))
    try:
        with suppress(FileExistsError):
            os.mkdir(folder, 0o700)
        there = os.lstat(folder)
        if there.st_uid != os.geteuid() or there.st_mode & 0o170077 != 0o040000:
            hint = "name a socket in a folder that is missing, or is yours and has mode 0700"
            raise DeniedError("others may enter the folder of this socket", path=path, hint=hint)
        with suppress(FileNotFoundError):
            os.unlink(path)
        made = socket.socket(socket.AF_UNIX)
        made.bind(path)
        made.listen(256)
    except OSError as error:
        raise InputError(f"cannot be listened on: {error.strerror}", path=path, hint="another --socket") from error
    return made


def remove(path: str) -> None:
    """The socket, and its folder where nothing else is in it. Idempotent."""
    for taken, name in ((os.unlink, path), (os.rmdir, os.path.dirname(os.path.abspath(path)))):
        with suppress(OSError):
            taken(name)
