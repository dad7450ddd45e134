"""AWS Signature Version 4 for S3, made for many small requests: about 10 µs each.

Source: AWS General Reference, "Create a signed AWS API request", and Amazon S3 API Reference, "Authenticating
Requests: Using the Authorization Header". Only ``host`` and ``x-amz-*`` headers are signed, as the standard
demands; ``Range`` and conditions travel unsigned beside them. S3 encodes the path once, unlike other services.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

UNSIGNED = "UNSIGNED-PAYLOAD"
_WEEK_S = 7 * 86400  # seconds: the most that S3 takes
_PLAIN = re.compile(r"[A-Za-z0-9/_.~-]*\Z").match
_HMAC_BLOCK = 64  # bytes of a block of SHA-256 (RFC 2104)
_INNER, _OUTER = (bytes(byte ^ pad for byte in range(256)) for pad in (0x36, 0x5C))
EMPTY_SHA256 = hashlib.sha256(b"").hexdigest()


@dataclass(frozen=True, slots=True)
class Keys:
    """One set of credentials. The repr shows none of the secrets."""

    access_key: str
    secret_key: str
    token: str | None = None

    def __repr__(self) -> str:
        return f"Keys(access_key={self.access_key!r})"


def quote_path(path: str) -> str:
    """An object's path as S3 signs it: UTF-8, all but ``A-Z a-z 0-9 - . _ ~ /`` percent-encoded."""
    return quote(path, safe="/~")


def quote_query(parameters: Mapping[str, str]) -> str:
    """A query string in canonical order."""
    return "&".join(f"{quote(name, safe='~')}={quote(parameters[name], safe='~')}" for name in sorted(parameters))


@dataclass(frozen=True, slots=True)
class _Moment:
    """All of a signature that stays the same for one second and one set of keys."""

    second: int
    keys: Keys | None
    stamp: str = ""
    credential: str = ""
    signing_key: bytes = b""
    to_sign: str = ""
    """The string to sign, up to the digest of the request."""
    inner: Any = None
    """SHA-256 that has seen HMAC's inner key and `to_sign`; `outer`: the outer key (RFC 2104)."""
    outer: Any = None
    get_canonical: bytes = b""
    """The canonical request of a plain GET, from its headers down."""
    get_lines: str = ""
    """The header lines of a plain GET, up to its signature."""


class Signer:
    """Signs requests to one host. Any thread: the state shared between threads is replaced whole, never changed.

    Args:
        host: the Host header's value.
        region: the signing region.
        keys: gives the present credentials, None for anonymous; asked once a second.
        headers: ``x-amz-*`` headers of every request (requester pays), lower-case.
        clock: seconds since the epoch.
    """

    def __init__(
        self,
        host: str,
        region: str,
        keys: Callable[[], Keys | None],
        headers: Mapping[str, str] | None = None,
        clock: Callable[[], float] = time.time,
        *,
        got: Mapping[str, str] | None = None,
    ) -> None:
        self._host = host
        self._region = region
        self._keys = keys
        self._fixed = {"host": host, **(headers or {})}
        self._got = {**self._fixed, **(got or {})}
        self._clock = clock
        self._moment = _Moment(-1, None)
        self._day: tuple[str, Keys, bytes] | None = None

    def forget(self) -> None:
        """Ask for the credentials again at the next request."""
        self._moment = _Moment(-1, None)

    def get(self, path: str, extra: str = "") -> bytes:
        """The complete head of a GET: the hot path.

        Args:
            path: the path, not yet encoded, starting with ``/``; any UTF-8.
            extra: further header lines, each ending in CRLF, unsigned.

        Raises:
            CredentialsError: from the keys' source.
        """
        moment = self._now()
        target = path if _PLAIN(path) else quote(path, safe="/~")
        if moment.keys is None:
            return f"GET {target} HTTP/1.1\r\n{moment.get_lines}{extra}\r\n".encode()
        digest = hashlib.sha256(b"GET\n%b\n\n%b" % (target.encode(), moment.get_canonical)).hexdigest()
        # As `hmac.digest`, which would do more than half of its work over again for each request, and lets go of the
        # interpreter's lock: getting that back from busy threads takes milliseconds.
        inner, outer = moment.inner.copy(), moment.outer.copy()
        inner.update(digest.encode())
        outer.update(inner.digest())
        signature = outer.hexdigest()
        return f"GET {target} HTTP/1.1\r\n{moment.get_lines}{signature}\r\n{extra}\r\n".encode()

    def head(
        self,
        method: str,
        path: str,
        query: str = "",
        headers: Mapping[str, str] | None = None,
        payload_sha256: str = EMPTY_SHA256,
    ) -> bytes:
        """The complete head of any request.

        Args:
            method: the HTTP verb.
            path: not yet encoded, starting with ``/``.
            query: canonical, from `quote_query`.
            headers: lower-case names; those that start with ``x-amz-`` are signed.
            payload_sha256: hex digest of the body, or `UNSIGNED`.

        Raises:
            CredentialsError: from the keys' source.
        """
        moment = self._now()
        target = quote_path(path)
        lines = {**self._fixed, **(headers or {})}
        if moment.keys is not None:
            lines |= _dated(moment.keys, moment.stamp, payload_sha256)
            names, canonical = _canonical(lines)
            request = f"{method}\n{target}\n{query}\n{canonical}\n{names}\n{payload_sha256}"
            digest = hashlib.sha256(request.encode()).hexdigest()
            signature = hmac.digest(moment.signing_key, (moment.to_sign + digest).encode(), "sha256").hex()
            lines["authorization"] = _authorization(moment.credential, names) + signature
        text = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
        return f"{method} {target}{'?' if query else ''}{query} HTTP/1.1\r\n{text}\r\n".encode()

    def presigned(self, path: str, seconds: int) -> str:
        """Path and query of a GET that anybody may make for so many seconds (at most seven days).

        Raises CredentialsError: from the keys' source.
        """
        moment, target = self._now(), quote_path(path)
        if moment.keys is None:
            return target
        query = {name: value for name, value in self._fixed.items() if name != "host"} | {
            "X-Amz-Algorithm": "AWS4-HMAC-SHA256",
            "X-Amz-Credential": moment.credential,
            "X-Amz-Date": moment.stamp,
            "X-Amz-Expires": str(max(1, min(seconds, _WEEK_S))),
            "X-Amz-SignedHeaders": "host",
        }
        if moment.keys.token:
            query["X-Amz-Security-Token"] = moment.keys.token
        text = quote_query(query)
        request = f"GET\n{target}\n{text}\nhost:{self._host}\n\nhost\n{UNSIGNED}"
        digest = hashlib.sha256(request.encode()).hexdigest()
        signature = hmac.digest(moment.signing_key, (moment.to_sign + digest).encode(), "sha256").hex()
        return f"{target}?{text}&X-Amz-Signature={signature}"

    def _now(self) -> _Moment:
        second = int(self._clock())
        moment = self._moment
        if moment.second != second:
            moment = self._moment = self._at(second)
        return moment

    def _at(self, second: int) -> _Moment:
        keys = self._keys()
        if keys is None:
            return _Moment(second, None, get_lines="".join(f"{name}: {value}\r\n" for name, value in self._got.items()))
        stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(second))
        day = stamp[:8]
        scope = f"{day}/{self._region}/s3/aws4_request"
        lines = {**self._got, **_dated(keys, stamp, UNSIGNED)}
        names, canonical = _canonical(lines)
        credential = f"{keys.access_key}/{scope}"
        text = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
        signing_key, to_sign = self._signing_key(day, keys), f"AWS4-HMAC-SHA256\n{stamp}\n{scope}\n"
        padded = signing_key.ljust(_HMAC_BLOCK, b"\0")
        return _Moment(
            second,
            keys,
            stamp,
            credential,
            signing_key,
            to_sign,
            hashlib.sha256(padded.translate(_INNER) + to_sign.encode()),
            hashlib.sha256(padded.translate(_OUTER)),
            f"{canonical}\n{names}\n{UNSIGNED}".encode(),
            f"{text}authorization: {_authorization(credential, names)}",
        )

    def _signing_key(self, day: str, keys: Keys) -> bytes:
        kept = self._day
        if kept is not None and kept[0] == day and kept[1] == keys:
            return kept[2]
        key = f"AWS4{keys.secret_key}".encode()
        for part in (day, self._region, "s3", "aws4_request"):
            key = hmac.digest(key, part.encode(), "sha256")
        self._day = (day, keys, key)
        return key


def _dated(keys: Keys, stamp: str, payload_sha256: str) -> dict[str, str]:
    lines = {"x-amz-content-sha256": payload_sha256, "x-amz-date": stamp}
    return lines | {"x-amz-security-token": keys.token} if keys.token else lines


def _canonical(lines: Mapping[str, str]) -> tuple[str, str]:
    """The names of the signed headers, and the canonical headers."""
    signed = sorted(name for name in lines if name == "host" or name.startswith("x-amz-"))
    return ";".join(signed), "".join(f"{name}:{' '.join(lines[name].split())}\n" for name in signed)


def _authorization(credential: str, names: str) -> str:
    return f"AWS4-HMAC-SHA256 Credential={credential}, SignedHeaders={names}, Signature="
