"""A shard in memory that counts what is read of it, and a TFRecord writer of our own."""

import struct
from typing import Any

from headrace.formats.shard_format import Format


class Shard:
    """A `ShardBytes`."""

    path = "s3://bucket/shard"

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.size = len(data)
        self.bytes_read = 0
        self.reads = 0

    def read(self, start: int, stop: int) -> memoryview:
        data = memoryview(self.data)[start:stop]
        self.bytes_read += len(data)
        self.reads += 1
        return data


def ranges(form: Format, data: bytes) -> list[memoryview]:
    """Every member's bytes; checks on the way that keys are the numbers and members lie in order."""
    members = list(form.scan(Shard(data)))
    assert [(m.key, m.name) for m in members] == [(f"{n:08d}", "data") for n in range(len(members))]
    edges = [edge for m in members for edge in (m.start, m.stop)]
    assert edges == sorted(edges)
    assert not edges or 0 <= edges[0] <= edges[-1] <= len(data)
    return [memoryview(data)[m.start : m.stop] for m in members]


def values(form: Any, data: bytes) -> list[Any]:
    """Every member decoded: with the shard's preamble, where the format has one."""
    found = ranges(form, data)
    decode = form.decoder(form.preamble(Shard(data))) if hasattr(form, "decoder") and found else form.decode
    return [decode(one) for one in found]


def bitwise_crc32c(data: bytes) -> int:
    """By the definition, one bit at a time."""
    register = 0xFFFFFFFF
    for byte in data:
        register ^= byte
        for _ in range(8):
            register = (register >> 1) ^ (0x82F63B78 if register & 1 else 0)
    return register ^ 0xFFFFFFFF


_OF_BYTE = [bitwise_crc32c(bytes([255 ^ byte])) ^ bitwise_crc32c(b"\xff") for byte in range(256)]
"""What a byte of the register becomes eight bits later: the registers of two bytes differ by it alone."""


def _crc32c(data: bytes) -> int:
    """The same, a byte at a time: records of a test may be megabytes."""
    register = 0xFFFFFFFF
    for byte in data:
        register = register >> 8 ^ _OF_BYTE[(register ^ byte) & 255]
    return register ^ 0xFFFFFFFF


def _masked(data: bytes) -> bytes:
    crc = _crc32c(data)
    return struct.pack("<I", (((crc >> 15) | (crc << 17 & 0xFFFFFFFF)) + 0xA282EAD8) & 0xFFFFFFFF)


def record(data: bytes, claimed: int | None = None) -> bytes:
    """One TFRecord; `claimed`: the length that its head states, with a valid checksum."""
    length = struct.pack("<Q", len(data) if claimed is None else claimed)
    return length + _masked(length) + data + _masked(data)
