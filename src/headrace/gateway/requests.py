"""What a request asks for: bucket, key, parameters, headers."""

from __future__ import annotations

import itertools
import secrets
from dataclasses import dataclass, field
from functools import lru_cache
from urllib.parse import unquote_plus, unquote_to_bytes

from headrace.gateway.failures import S3Failure
from headrace.gateway.keys import Key
from headrace.gateway.signing import Signed, Verifier
from headrace.http_server import Exchange, Response

_LONGEST_KEY = 1024
"""Bytes, by S3."""
_MOST_PARTS = 10_000
"""By S3."""
_prefix = secrets.token_hex(4).upper()
_numbers = itertools.count(1)


@dataclass(slots=True)
class S3Request:
    """One request. `query`: decoded parameters, those without a value as empty text; `headers`: names in lower case.

    `id`: what the answer, and a log, name it by.
    """

    exchange: Exchange
    method: str
    bucket: str
    key: str
    query: dict[str, str]
    headers: dict[str, str]
    id: str = field(default_factory=lambda: f"{_prefix}{next(_numbers) & 0xFFFFFFFF:08X}")
    signed: Signed | None = None

    @property
    def client(self) -> Key:
        """Whose it is."""
        if self.signed is None:
            raise S3Failure("AccessDenied", "Access Denied")
        return self.signed.key

    @property
    def resource(self) -> str:
        """For errors."""
        return f"/{self.bucket}/{self.key}" if self.key else f"/{self.bucket}"

    def answer(self, response: Response) -> None:
        """Send it."""
        self.exchange.answer(response)


def parsed(exchange: Exchange, domain: str) -> S3Request:
    """What it asks for. `domain`: where ``bucket.domain`` names a bucket too.

    Raises:
        S3Failure: a name that is none; a header asked for that cannot be sent.
    """
    headers: dict[str, str] = {}
    for name, value in exchange.headers.raw:
        text = name.decode("latin-1")
        given = value.decode("latin-1")
        headers[text] = f"{headers[text]},{given}" if text in headers else given
    raw = exchange.raw_path
    path = raw if b"%" not in raw else unquote_to_bytes(raw)
    query = _query(exchange.query) if b"?" in exchange.target else {}
    request = S3Request(exchange, exchange.method, "", "", query, headers)
    try:
        text = path.decode()
    except UnicodeDecodeError:
        raise S3Failure("InvalidURI", "Couldn't parse the specified URI.") from None
    host = headers.get("host", "").rpartition(":")[0] or headers.get("host", "")
    if domain and host.endswith("." + domain):
        request.bucket, request.key = host[: -len(domain) - 1], text[1:]
    else:
        request.bucket, _, request.key = text[1:].partition("/")
    if len(request.key) * 4 > _LONGEST_KEY and len(request.key.encode()) > _LONGEST_KEY:
        raise S3Failure("KeyTooLongError", "Your key is too long")
    if "\0" in request.key:
        raise S3Failure("InvalidURI", "Couldn't parse the specified URI.")
    for name, value in query.items():  # here, before anything is held for the answer
        if name.startswith("response-") and not (value.isascii() and value.isprintable()):
            raise S3Failure("InvalidArgument", f"{name} cannot be sent as a header.")
    return request


def verified(request: S3Request, verifier: Verifier) -> None:
    """Find out whose it is. Raises S3Failure: nobody's."""
    exchange = request.exchange
    raw_path = exchange.raw_path.decode("latin-1")
    request.signed = verifier.verify(request.method, raw_path, request.query, exchange.query, request.headers)


_SHORT = 256
"""Characters of what is worth remembering; longer texts rarely come twice."""
_remembered = lru_cache(1024)(unquote_plus)


def _decoded(text: str) -> str:
    """Short ones come with every request of a client; long ones would only fill memory."""
    return _remembered(text) if len(text) <= _SHORT else unquote_plus(text)


def _query(raw: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for part in raw.split("&"):
        if part:
            name, _, value = part.partition("=")
            found[_decoded(name) if "%" in name else name] = _decoded(value) if "%" in value or "+" in value else value
    return found


def part_number(request: S3Request) -> int:
    """Which part it names. Raises S3Failure: none."""
    text = request.query.get("partNumber", "")
    if not text.isdecimal() or not 1 <= int(text[:9]) <= _MOST_PARTS:
        raise S3Failure("InvalidArgument", "Part number must be an integer between 1 and 10000, inclusive")
    return int(text)


def xml_headers(request: S3Request) -> list[tuple[str, str]]:
    """Of an answer in XML."""
    return [("Content-Type", "application/xml"), ("x-amz-request-id", request.id)]
