"""Our signatures against botocore's, for keys that break signers."""

from __future__ import annotations

import datetime
from unittest.mock import patch
from urllib.parse import parse_qsl, quote, unquote, urlsplit

import botocore.auth
from botocore.auth import S3SigV4Auth, S3SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.store.backends.sigv4 import UNSIGNED, Keys, Signer, quote_query

KEYS = st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=60)
SECONDS = st.integers(min_value=0, max_value=4_000_000_000)
TOKENS = st.none() | st.from_regex(r"[A-Za-z0-9/+=]{1,80}", fullmatch=True)


def ours(head: bytes) -> tuple[str, dict[str, str]]:
    first, *lines = head.decode().split("\r\n")
    return first.split(" ")[1], dict(line.split(": ", 1) for line in lines if line)


def theirs(method: str, url: str, token: str | None, second: int, payload: str, headers: dict[str, str]) -> str:
    """botocore's signature of the same request at the same time, by its own code with its clock replaced."""
    auth = S3SigV4Auth(Credentials("AK", "secret/+", token), "s3", "eu-central-1")
    request = AWSRequest(method, url, headers={**headers, "x-amz-content-sha256": payload})
    stamp = datetime.datetime.fromtimestamp(second, datetime.UTC).strftime("%Y%m%dT%H%M%SZ")
    request.context["timestamp"] = stamp
    request.headers["X-Amz-Date"] = stamp
    if token:
        request.headers["X-Amz-Security-Token"] = token
    auth.payload = lambda _: payload  # type: ignore[method-assign]
    return auth.signature(auth.string_to_sign(request, auth.canonical_request(request)), request)


def signer(token: str | None, second: int, **fixed: str) -> Signer:
    return Signer("h.example:9000", "eu-central-1", lambda: Keys("AK", "secret/+", token), fixed, lambda: second)


def signature(lines: dict[str, str]) -> str:
    return lines["authorization"].rpartition("Signature=")[2]


@settings(deadline=None)
@given(key=KEYS, second=SECONDS, token=TOKENS, payer=st.booleans())
def test_a_get_is_signed_as_botocore_does(key: str, second: int, token: str | None, payer: bool) -> None:
    fixed = {"x-amz-request-payer": "requester"} if payer else {}
    target, lines = ours(
        Signer("h.example:9000", "eu-central-1", lambda: Keys("AK", "secret/+", token), fixed, lambda: second).get(
            f"/bucket/{key}", "range: bytes=0-1\r\n"
        )
    )
    assert unquote(target) == f"/bucket/{key}"
    expected = theirs("GET", f"http://h.example:9000{target}", token, second, UNSIGNED, fixed)
    assert signature(lines) == expected


@settings(deadline=None)
@given(
    key=KEYS,
    second=SECONDS,
    query=st.dictionaries(st.from_regex(r"[a-zA-Z-]{1,12}", fullmatch=True), KEYS, max_size=4),
    method=st.sampled_from(["GET", "PUT", "POST", "DELETE", "HEAD"]),
)
def test_any_request_is_signed_as_botocore_does(key: str, second: int, query: dict[str, str], method: str) -> None:
    head = signer(None, second).head(method, f"/b/{key}", quote_query(query), {"content-type": "x"}, "ab" * 32)
    address, lines = ours(head)
    assert signature(lines) == theirs(method, f"http://h.example:9000{address}", None, second, "ab" * 32, {})


def test_keys_are_asked_for_once_a_second_and_after_forget() -> None:
    asked, now = [0], [100.0]

    def keys() -> Keys:
        asked[0] += 1
        return Keys(f"AK{asked[0]}", "s")

    one = Signer("h", "r", keys, clock=lambda: now[0])
    assert b"Credential=AK1/" in one.get("/a")
    assert b"Credential=AK1/" in one.get("/b")
    now[0] += 1
    assert b"Credential=AK2/" in one.get("/a")
    one.forget()
    assert b"Credential=AK3/" in one.get("/a")


def test_the_day_turns() -> None:
    now = [86_399.0]
    one = Signer("h", "r", lambda: Keys("AK", "s"), clock=lambda: now[0])
    assert b"/19700101/r/s3/" in one.get("/a")
    now[0] = 86_400.0
    assert b"/19700102/r/s3/" in one.get("/a")


def test_slashes_and_dots_go_out_as_written() -> None:
    assert signer(None, 0).get("/b/a//../x/").startswith(b"GET /b/a//../x/ HTTP/1.1\r\n")
    assert quote("é") in signer(None, 0).get("/b/é").decode()
    assert botocore.auth.S3SigV4Auth is S3SigV4Auth


@settings(deadline=None)
@given(key=KEYS, second=SECONDS, token=TOKENS, seconds=st.integers(1, 7 * 86400), payer=st.booleans())
def test_a_signed_url_is_botocore_s(key: str, second: int, token: str | None, seconds: int, payer: bool) -> None:
    fixed = {"x-amz-request-payer": "requester"} if payer else {}
    made = signer(token, second, **fixed).presigned(f"/bucket/{key}", seconds)
    target, _, query = made.partition("?")
    assert unquote(target) == f"/bucket/{key}"
    auth = S3SigV4QueryAuth(Credentials("AK", "secret/+", token), "s3", "eu-central-1", expires=seconds)
    asked = "?x-amz-request-payer=requester" if payer else ""
    request = AWSRequest("GET", f"http://h.example:9000{target}{asked}")
    with patch.object(
        botocore.auth, "get_current_datetime", lambda: datetime.datetime.fromtimestamp(second, datetime.UTC)
    ):
        auth.add_auth(request)
    assert dict(parse_qsl(query)) == dict(parse_qsl(urlsplit(request.url).query))
