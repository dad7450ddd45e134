"""What a server and a runtime's process say to each other over a socket: a head, then the bytes of its tensors."""

from __future__ import annotations

import socket
import struct
from collections.abc import Mapping
from typing import Final

import msgspec

from headrace.serving.packing import packed, unpacked
from headrace.serving.tensors import Array, Signature, Tensor, kind_of

_SIZE: Final = struct.Struct("<I")
_MOST: Final = 64 << 20
"""Bytes of a head."""


class Told(msgspec.Struct, frozen=True):
    """One tensor that follows: its name, kind, shape and how many bytes it has."""

    name: str
    kind: str
    shape: tuple[int, ...]
    size: int


class Load(msgspec.Struct, frozen=True):
    """The first thing that the process is told. `folder`: the model's files at their names; `hints`: of its card."""

    format: str
    folder: str
    threads: int
    hints: dict[str, str]
    signatures: dict[str, Signature]


class Loaded(msgspec.Struct, frozen=True):
    """The answer to it."""

    signatures: dict[str, Signature]
    platform: str
    batched: bool | None


class Head(msgspec.Struct, frozen=True):
    """Of every message. What does not belong to it is empty. `refused`: the model does not take this."""

    load: Load | None = None
    loaded: Loaded | None = None
    signature: str = ""
    tensors: tuple[Told, ...] = ()
    refused: str | None = None
    broken: str | None = None


_decode = msgspec.msgpack.Decoder(Head)
_encode = msgspec.msgpack.Encoder()
__all__ = ["Head", "Load", "Loaded", "Signature", "Tensor", "receive", "send"]


def send(
    to: socket.socket, *, load: Load | None = None, loaded: Loaded | None = None, signature: str = "",
    tensors: Mapping[str, Array] | None = None, refused: str | None = None, broken: str | None = None,
) -> None:  # fmt: skip
    """Raises OSError; TimeoutError, if the socket has a time-out."""
    raw = [(name, array, packed(array)) for name, array in (tensors or {}).items()]
    told = tuple(Told(name, kind_of(array), array.shape, len(data)) for name, array, data in raw)
    head = _encode.encode(Head(load, loaded, signature, told, refused, broken))
    to.sendall(_SIZE.pack(len(head)) + head)
    for _, _, data in raw:
        to.sendall(data)


def receive(origin: socket.socket) -> tuple[Head, dict[str, Array]]:
    """Raises EOFError: the other process has ended. OSError; TimeoutError, if the socket has a time-out."""
    (size,) = _SIZE.unpack(_exactly(origin, _SIZE.size))
    if size > _MOST:
        raise EOFError
    head = _decode.decode(_exactly(origin, size))
    return head, {one.name: unpacked(one.kind, one.shape, _exactly(origin, one.size)) for one in head.tensors}


def _exactly(origin: socket.socket, size: int) -> bytearray:
    data = bytearray(size)
    view = memoryview(data)
    while view:
        got = origin.recv_into(view)
        if not got:
            raise EOFError
        view = view[got:]
    return data
