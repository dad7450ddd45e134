"""What the processes of one gateway have written: each sees at once that another's knowledge of an object is old.

A file of numbers, mapped by all of them; an object's number is another one after each write, and so is the one of all
objects together. Two objects may share one: then one of them is asked for once more than needed.
"""

from __future__ import annotations

import mmap
import os
import zlib

_SLOTS = 1 << 16
_WIDTH = 8
_LATEST = _SLOTS * _WIDTH
"""Where the number of all objects together is."""


class Changes:
    """Numbers of objects. Any thread, any process; `path` is the file that they share, made where it is missing."""

    def __init__(self, path: str) -> None:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            if os.fstat(fd).st_size < _LATEST + _WIDTH:
                os.ftruncate(fd, _LATEST + _WIDTH)
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
