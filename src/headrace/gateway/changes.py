"""What the processes of one gateway have written: each sees at once that another's knowledge of an object is old.

A file of numbers, mapped by all of them; an object's number is another one after each write, and so is the one of all
objects together. Two objects may share one: then one of them is asked for once more than needed.
"""

from __future__ import annotations

import errno
import mmap
import os
import zlib

from headrace.base.errors import NoRoomError

_SLOTS = 1 << 16
"""Objects whose keys share a slot are looked up again too soon, never too late. Half a megabyte for all."""
_WIDTH = 8
"""Bytes of a random number, read and written by one instruction."""
_LATEST = _SLOTS * _WIDTH
"""Where the number of all objects together is."""


class Changes:
    """Numbers of objects. Any thread, any process; `path` is the file that they share, made where it is missing.

    Raises NoRoomError: the disk is full.
    """

    def __init__(self, path: str) -> None:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            if os.fstat(fd).st_size < _LATEST + _WIDTH:
                os.ftruncate(fd, _LATEST + _WIDTH)
            _allocate(fd, path)
            self._map = mmap.mmap(fd, _LATEST + _WIDTH)
        finally:
            os.close(fd)

    def number(self, bucket: str, key: str) -> bytes:
        """Of an object, now."""
        at = zlib.crc32(f"{bucket}/{key}".encode()) % _SLOTS * _WIDTH
        return self._map[at : at + _WIDTH]

    def changed(self, bucket: str, key: str) -> None:
        """It was written or deleted."""
        at = zlib.crc32(f"{bucket}/{key}".encode()) % _SLOTS * _WIDTH
        self._map[at : at + _WIDTH] = self._map[_LATEST : _LATEST + _WIDTH] = os.urandom(_WIDTH)

    def latest(self) -> bytes:
        """Another one after a write of any object."""
        return self._map[_LATEST : _LATEST + _WIDTH]

    def close(self) -> None:
        """Let go of the file."""
        self._map.close()


def _allocate(fd: int, path: str) -> None:
    """All of it has its place on the disk: to touch a page that finds none kills the process, by SIGBUS."""
    try:
        os.posix_fallocate(fd, 0, _LATEST + _WIDTH)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            hint = "free some, or set HEADRACE_CACHE_DIR"
            raise NoRoomError("the gateway's disk is full", path=path, hint=hint) from error
