"""Checksums that clients send with what they write: compared before anything is published.

Source: Amazon S3 User Guide, "Checking object integrity". CRC32C and CRC64NVME come from awscrt (the extra `gateway`).
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import zlib
from collections.abc import Callable, Mapping
from typing import Protocol

from headrace.gateway.failures import S3Failure

NAMES = ("crc32", "crc32c", "crc64nvme", "sha1", "sha256")
PREFIX = "x-amz-checksum-"


class Sum(Protocol):
    """A running checksum."""

    def update(self, data: bytes | memoryview, /) -> None:
        """More bytes."""
        ...

    def digest(self) -> bytes:
        """Of all so far."""
        ...


class _Crc:
    def __init__(self, step: Callable[[bytes | memoryview, int], int], width: int) -> None:
        self._step, self._width, self._value = step, width, 0

    def update(self, data: bytes | memoryview, /) -> None:
        self._value = self._step(data, self._value)

    def digest(self) -> bytes:
        return self._value.to_bytes(self._width, "big")


def running(name: str) -> Sum:
    """A new one by S3's name for it. Raises S3Failure: not known here."""
    if name == "crc32":
        return _Crc(zlib.crc32, 4)
    if name == "sha1":
        return hashlib.sha1(usedforsecurity=False)
    if name == "sha256":
        return hashlib.sha256()
    if name in NAMES:
        from awscrt import checksums

        step = checksums.crc32c if name == "crc32c" else checksums.crc64nvme
        return _Crc(lambda data, value: step(bytes(data), value), 4 if name == "crc32c" else 8)
    raise S3Failure("InvalidRequest", "The algorithm type you specified in x-amz-checksum- header is invalid.")


class Sums:
    """All that is to be compared of one body. `wanted`: by name, base64; a trailer's comes later, by `promise`."""

    def __init__(self) -> None:
        self._sums: dict[str, Sum] = {}
        self._wanted: dict[str, bytes] = {}
        self._md5 = hashlib.md5(usedforsecurity=False)
        self._with_md5 = False
        self._md5_wanted: bytes | None = None
        self._sha256: str | None = None
        self._announced = ""

    @staticmethod
    def of(headers: Mapping[str, str], payload: str, *, md5: bool = False) -> Sums:
        """From a request's headers, and the SHA-256 that its signature names, if it does. `md5`: compute that too."""
        sums = Sums()
        sums._with_md5 = md5 or "content-md5" in headers
        given = [name for name in NAMES if PREFIX + name in headers]
        if len(given) > 1:
            raise S3Failure("InvalidRequest", "Expecting a single x-amz-checksum- header.")
        for name in given:
            sums.want(name, headers[PREFIX + name])
        trailer = headers.get("x-amz-trailer", "").lower().strip()
        if trailer.startswith(PREFIX):
            sums._announced = trailer.removeprefix(PREFIX)
            sums.promise(sums._announced)
        if "content-md5" in headers:
            sums._md5_wanted = _decoded(headers["content-md5"], 16, "Content-MD5")
        if len(payload) == 64:
            sums._sha256 = payload
            sums.promise("sha256")
        return sums

    def promise(self, name: str) -> None:
        """Compute it: what it must be is told later."""
        if name not in self._sums:
            self._sums[name] = running(name)

    def want(self, name: str, value: str) -> None:
        """It must be this."""
        self.promise(name)
        self._wanted[name] = _decoded(value, len(self._sums[name].digest()), PREFIX + name)

    def update(self, data: bytes | memoryview) -> None:
        """More of the body."""
        for one in self._sums.values():
            one.update(data)
        if self._with_md5:
            self._md5.update(data)

    def check(self) -> dict[str, str]:
        """Compare. Returns the headers that tell what was compared.

        Raises:
            S3Failure: BadDigest, XAmzContentSHA256Mismatch.
        """
        if self._sha256 is not None and not hmac.compare_digest(self._sums["sha256"].digest().hex(), self._sha256):
            what = "The provided 'x-amz-content-sha256' header does not match what was computed."
            raise S3Failure("XAmzContentSHA256Mismatch", what)
        if self._md5_wanted is not None and self._md5.digest() != self._md5_wanted:
            raise S3Failure("BadDigest", "The Content-MD5 you specified did not match what we received.")
        if self._announced and self._announced not in self._wanted:
            raise S3Failure("IncompleteBody", "The trailer that x-amz-trailer announces did not come.")
        told: dict[str, str] = {}
        for name, value in self._wanted.items():
            if self._sums[name].digest() != value:
                what = f"The {name.upper()} you specified did not match the calculated checksum."
                raise S3Failure("BadDigest", what)
            told[PREFIX + name] = base64.b64encode(value).decode()
        return told

    @property
    def md5(self) -> str:
        """Of the body, in hexadecimal: a part's ETag. Where it was asked for."""
        return self._md5.hexdigest()


def _decoded(text: str, size: int, what: str) -> bytes:
    try:
        value = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        value = b""
    if len(value) != size:
        code = "InvalidDigest" if what == "Content-MD5" else "InvalidRequest"
        raise S3Failure(code, f"Value for {what} header is invalid.")
    return value
