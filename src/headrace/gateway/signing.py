"""Signature Version 4 of requests, verified: in headers, in presigned URLs, and over the chunks of a body.

Source: Amazon S3 API Reference, "Authenticating Requests (AWS Signature Version 4)". S3 encodes a path once, and does
not normalise it; every ``x-amz-*`` header must be signed.
"""

from __future__ import annotations

import calendar
import hashlib
import hmac
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import quote, unquote, unquote_plus

from headrace.gateway.failures import S3Failure, denied
from headrace.gateway.keys import Key, Keyring

ALGORITHM = "AWS4-HMAC-SHA256"
UNSIGNED = "UNSIGNED-PAYLOAD"
STREAMED = frozenset(("STREAMING-AWS4-HMAC-SHA256-PAYLOAD", "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER",
                      "STREAMING-UNSIGNED-PAYLOAD-TRAILER"))  # fmt: skip
_AUTHORIZATION = re.compile(
    r"AWS4-HMAC-SHA256 +Credential=([^, ]+)/(\d{8})/([^/, ]*)/([^/, ]+)/aws4_request, ?"
    r"SignedHeaders=([^, ]+), ?Signature=([0-9a-f]{64}) *\Z"
)
_CREDENTIAL = re.compile(r"([^/]+)/(\d{8})/([^/]*)/([^/]+)/aws4_request\Z")
_HEX = re.compile(r"[0-9a-f]{64}\Z")
_PLAIN = re.compile(r"[A-Za-z0-9/_.~-]*\Z").match
_NEEDED = ("X-Amz-Credential", "X-Amz-Date", "X-Amz-Expires", "X-Amz-SignedHeaders", "X-Amz-Signature")
_SKEW_S = 15 * 60
"""By which a client's clock may be wrong, and for how long a signed URL holds at most: both by AWS."""
_WEEK_S = 7 * 86400  # seconds that a signed URL may ask for, at most: by AWS


@dataclass(slots=True)
class Signed:
    """A request that its key has signed. `payload`: what its body must hash to, or how that is signed.

    `signing_key`, `stamp`, `scope`, `signature`: what the signatures of a body's chunks go on from.
    """

    key: Key
    payload: str
    signing_key: bytes = b""
    stamp: str = ""
    scope: str = ""
    signature: str = ""


class Verifier:
    """Verifies. Any thread."""

    def __init__(self, keyring: Keyring, clock: Callable[[], float] = time.time) -> None:
        self._keyring = keyring
        self._clock = clock

    def verify(
        self, method: str, raw_path: str, query: Mapping[str, str], raw_query: str, headers: Mapping[str, str]
    ) -> Signed:
        """Whose request it is.

        Args:
            method: as sent.
            raw_path: as sent, still encoded.
            query: decoded.
            raw_query: as sent.
            headers: by names in lower case, repeated ones joined by commas.

        Raises:
            S3Failure: nobody's, or nobody's any longer.
        """
        authorization = headers.get("authorization")
        if authorization is not None:
            if "X-Amz-Signature" in query:
                raise S3Failure("InvalidArgument", "Only one auth mechanism allowed; only the X-Amz-Algorithm query "
                                "parameter, Signature query string parameter or the Authorization header should be "
                                "specified")  # fmt: skip
            return self._by_header(authorization, method, raw_path, raw_query, headers)
        if "X-Amz-Algorithm" in query or "X-Amz-Signature" in query:
            return self._presigned(method, raw_path, query, raw_query, headers)
        if "AWSAccessKeyId" in query or "Signature" in query:
            raise _version_two()
        raise denied()

    def _by_header(
        self, authorization: str, method: str, raw_path: str, raw_query: str, headers: Mapping[str, str]
    ) -> Signed:
        match = _AUTHORIZATION.match(authorization)
        if match is None:
            if authorization.startswith("AWS "):
                raise _version_two()
            what = "The authorization header is malformed; only AWS4-HMAC-SHA256 is taken here."
            raise S3Failure("AuthorizationHeaderMalformed", what)
        access_key, day, region, service, names, signature = match.groups()
        stamp = headers.get("x-amz-date") or _stamp_of_date(headers.get("date", ""))
        if abs(_seconds(stamp) - self._clock()) > _SKEW_S:
            raise S3Failure(
                "RequestTimeTooSkewed", "The difference between the request time and the current time is too large."
            )
        payload = headers.get("x-amz-content-sha256", "")
        if payload != UNSIGNED and payload not in STREAMED and not _HEX.match(payload):
            if payload.startswith("STREAMING-"):
                raise S3Failure("NotImplemented", f"{payload} is not implemented.")
            what = "x-amz-content-sha256 must be UNSIGNED-PAYLOAD, a streaming payload, or a valid sha256 value."
            if not payload:
                what = "Missing required header for this request: x-amz-content-sha256"
            raise S3Failure("InvalidRequest", what)
        key, signing_key = self._key(access_key, day, region, service, stamp)
        scope = f"{day}/{region}/s3/aws4_request"
        lines = _canonical_headers(names, headers)
        query = _canonical_query(raw_query, "") if raw_query else ""
        request = f"{method}\n{_canonical_path(raw_path)}\n{query}\n{lines}\n{names}\n{payload}"
        _compare(signing_key, stamp, scope, request, signature)
        return Signed(key, payload, signing_key, stamp, scope, signature)

    def _presigned(
        self, method: str, raw_path: str, query: Mapping[str, str], raw_query: str, headers: Mapping[str, str]
    ) -> Signed:
        needed = [query.get(name) for name in _NEEDED]
        if query.get("X-Amz-Algorithm") != ALGORITHM or None in needed:
            what = (
                "Query-string authentication version 4 requires the X-Amz-Algorithm, X-Amz-Credential, "
                "X-Amz-Signature, X-Amz-Date, X-Amz-SignedHeaders, and X-Amz-Expires parameters."
            )
            raise _query_wrong(what)
        credential, stamp, expires, signed, signature = (text or "" for text in needed)
        match = _CREDENTIAL.match(credential)
        if match is None or not _HEX.match(signature):
            raise _query_wrong("Error parsing the X-Amz-Credential or X-Amz-Signature parameter.")
        if not expires.isdecimal() or not 1 <= int(expires[:9]) <= _WEEK_S:
            raise _query_wrong("X-Amz-Expires must be between 1 and 604800 seconds")
        began, now = _seconds(stamp), self._clock()
        if now > began + int(expires):
            raise denied("Request has expired")
        if began > now + _SKEW_S:
            raise denied("Request is not yet valid")
        access_key, day, region, service = match.groups()
        key, signing_key = self._key(access_key, day, region, service, stamp)
        scope = f"{day}/{region}/s3/aws4_request"
        payload = headers.get("x-amz-content-sha256", "") or query.get("X-Amz-Content-Sha256", UNSIGNED)
        lines = _canonical_headers(signed, headers)
        canonical = _canonical_query(raw_query, "X-Amz-Signature")
        request = f"{method}\n{_canonical_path(raw_path)}\n{canonical}\n{lines}\n{signed}\n{payload}"
        _compare(signing_key, stamp, scope, request, signature)
        return Signed(key, payload, signing_key, stamp, scope, signature)

    def _key(self, access_key: str, day: str, region: str, service: str, stamp: str) -> tuple[Key, bytes]:
        if service != "s3" or not stamp.startswith(day):
            what = "The credential's scope must be of the service s3 and of the day of the request."
            raise S3Failure("AuthorizationHeaderMalformed", what)
        key = self._keyring.get(access_key)
        if key is None:
            what = "The AWS Access Key Id you provided does not exist in our records."
            raise S3Failure("InvalidAccessKeyId", what)
        return key, _signing_key(key.secret, day, region)


def sign_next(signed: Signed, kind: str, previous: str, *digests: str) -> str:
    """The signature of a chunk, or of a trailer, of a body. `kind`: ``PAYLOAD`` or ``TRAILER``."""
    text = "\n".join([f"{ALGORITHM}-{kind}", signed.stamp, signed.scope, previous, *digests])
    return hmac.digest(signed.signing_key, text.encode(), "sha256").hex()


def _compare(signing_key: bytes, stamp: str, scope: str, request: str, signature: str) -> None:
    digest = hashlib.sha256(request.encode("utf-8", "surrogateescape")).hexdigest()
    expected = hmac.digest(signing_key, f"{ALGORITHM}\n{stamp}\n{scope}\n{digest}".encode(), "sha256").hex()
    if not hmac.compare_digest(expected, signature):
        raise S3Failure("SignatureDoesNotMatch", "The request signature we calculated does not match the signature you "
                        "provided. Check your key and signing method.")  # fmt: skip


def _canonical_path(raw: str) -> str:
    return raw if _PLAIN(raw) else quote(unquote(raw, "utf-8", "surrogateescape"), "/~", "utf-8", "surrogateescape")


def _canonical_query(raw: str, without: str) -> str:
    pairs = [part.partition("=") for part in raw.split("&") if part]
    return "&".join(sorted([f"{_quoted(name)}={_quoted(value)}" for name, _, value in pairs if name != without]))


def _quoted(text: str) -> str:
    """Names and values as they are signed. Short ones come with every request of a client; long ones would only fill
    memory.
    """
    return _remembered(text) if len(text) <= _SHORT else _signed_form(text)


def _signed_form(text: str) -> str:
    return quote(unquote_plus(text, "utf-8", "surrogateescape"), "~", "utf-8", "surrogateescape")


_SHORT = 256
"""Characters of what is worth remembering; longer texts rarely come twice."""
_remembered = lru_cache(4096)(_signed_form)


def _canonical_headers(names: str, headers: Mapping[str, str]) -> str:
    signed = names.split(";")
    if "host" not in signed:
        raise denied("The Host header must be signed.")
    lines: list[str] = []
    for name in signed:
        value = headers.get(name)
        if value is None:
            raise denied(f"The signed header {name} is missing.")
        if "  " in value or value[:1] == " " or value[-1:] == " ":
            value = " ".join(value.split())
        lines.append(f"{name}:{value}\n")
    for name in headers:
        if name.startswith("x-amz-") and name not in signed and name != "x-amz-content-sha256":
            raise denied("There were headers present in the request which were not signed")
    return "".join(lines)


@lru_cache(256)
def _signing_key(secret: str, day: str, region: str) -> bytes:
    key = f"AWS4{secret}".encode()
    for part in (day, region, "s3", "aws4_request"):
        key = hmac.digest(key, part.encode(), "sha256")
    return key


@lru_cache(64)
def _seconds(stamp: str) -> int:
    try:
        return calendar.timegm(time.strptime(stamp, "%Y%m%dT%H%M%SZ"))
    except ValueError:
        raise denied("AWS authentication requires a valid Date or x-amz-date header") from None


def _stamp_of_date(text: str) -> str:
    try:
        return time.strftime("%Y%m%dT%H%M%SZ", time.strptime(text, "%a, %d %b %Y %H:%M:%S GMT"))
    except ValueError:
        return text


def _query_wrong(what: str) -> S3Failure:
    return S3Failure("AuthorizationHeaderMalformed", what)


def _version_two() -> S3Failure:
    what = (
        "The authorization mechanism you have provided is not supported. Please use AWS4-HMAC-SHA256: Signature "
        "Version 2 is not taken here (boto3: signature_version='s3v4')."
    )
    return S3Failure("InvalidRequest", what)
