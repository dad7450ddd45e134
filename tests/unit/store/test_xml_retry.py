"""Listings of every server's handwriting; patience; error translation."""

from __future__ import annotations

import ssl

import pytest

from headrace.base.errors import (
    CorruptError,
    CredentialsError,
    HeadraceError,
    InputError,
    NotFoundError,
    SlowDownError,
    TryAgainError,
    UnreachableError,
)
from headrace.store.backends.errors import from_http
from headrace.store.backends.s3xml import Page, clean_etag, page_text, parse_page, parse_time
from headrace.store.http1.endpoint import Endpoint
from headrace.store.http1.failures import from_network
from headrace.store.http1.retry import Patience, persist

TIME = "2024-01-31T12:00:00.500Z"
AWS = f"<Key>{{}}</Key><LastModified>{TIME}</LastModified><ETag>&quot;abc-2&quot;</ETag><Size>7</Size>"
ORDERS = {
    "aws": AWS + "<StorageClass>STANDARD</StorageClass>",
    "aws, checksums": AWS.replace("<Size>", "<ChecksumAlgorithm>CRC32</ChecksumAlgorithm><Size>"),
    "ceph": AWS + "<StorageClass>STANDARD</StorageClass><Owner><ID>x</ID></Owner><Type>Normal</Type>",
    "seaweedfs": f"<Key>{{}}</Key><ETag>&#34;abc-2&#34;</ETag><Size>7</Size><StorageClass>S</StorageClass>"
    f"<LastModified>{TIME}</LastModified>",
    "another": f'<Size>7</Size>\n<Key>{{}}</Key><ETag>"abc-2"</ETag><LastModified>{TIME}</LastModified>',
}


def page(entries: str, tail: str = "<IsTruncated>false</IsTruncated>", **how: bool) -> Page:
    body = f"<?xml version='1.0'?><ListBucketResult>{entries}{tail}</ListBucketResult>".encode()
    return parse_page(page_text(body, "p"), "", "p", **({"encoded": True, "plus_is_space": False} | how))


@pytest.mark.parametrize("order", ORDERS)
def test_every_order_of_elements(order: str) -> None:
    text = "".join(f"<Contents>{ORDERS[order].format(key)}</Contents>" for key in ("a", "b%2Fc"))
    found = page(text).objects
    assert [one.key for one in found] == ["a", "b/c"]
    assert {(one.size, one.etag, one.mtime_us) for one in found} == {(7, "abc-2", 1706702400500000)}


def test_keys_are_unescaped() -> None:
    def keys(name: str, **how: bool) -> str:
        return page(f"<Contents>{AWS.format(name)}</Contents>", **how).objects[0].key

    assert keys("a+b%2B", plus_is_space=True) == "a b+"
    assert keys("a+b%2B") == "a+b+"
    assert keys("a%0Ab%C3%A9") == "a\nbé"
    assert keys("a+%41&amp;&lt;&quot;", encoded=False) == 'a+%41&<"'
    assert keys("a%0Ab", encoded=False) == "a%0Ab"


def test_the_next_page() -> None:
    token = "<NextContinuationToken>a&amp;b</NextContinuationToken>"
    assert page("", f"<IsTruncated>true</IsTruncated>{token}").token == "a&b"
    assert page("", f"<IsTruncated>false</IsTruncated>{token}").token is None
    with pytest.raises(CorruptError):
        page("", "<IsTruncated>true</IsTruncated>")


@pytest.mark.parametrize("body", [b"", b"<html></html>", b"<ListBucketResult><Contents>", b"{}"])
def test_what_is_no_listing_is_refused(body: bytes) -> None:
    with pytest.raises(CorruptError):
        page_text(body, "p")


def test_etags_and_times() -> None:
    assert clean_etag('"a"') == "a"
    assert clean_etag('W/"a"') == 'W/"a"'
    assert clean_etag("a") == "a"
    assert clean_etag('""') is None
    assert clean_etag(None) is None
    assert parse_time("nonsense") == 0


def test_http_answers() -> None:
    def xml(code: str) -> bytes:
        return f"<Error><Code>{code}</Code><Message>secret-free</Message></Error>".encode()

    cases: list[tuple[int, bytes, type[HeadraceError]]] = [
        (404, xml("NoSuchBucket"), NotFoundError),
        (400, xml("ExpiredToken"), CredentialsError),
        (403, xml("RequestTimeTooSkewed"), CredentialsError),
        (503, b"", SlowDownError),
        (429, b"", SlowDownError),
        (500, b"", TryAgainError),
        (418, b"", InputError),
    ]
    for status, body, kind in cases:
        assert type(from_http("s3://b/k", status, body)) is kind, status
    moved = from_http("s3://b", 301, b"", region="eu-west-1")
    assert "eu-west-1" in (moved.hint or "")


class Clock:
    def __init__(self) -> None:
        self.now, self.slept = 0.0, list[float]()

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds

    def __call__(self) -> float:
        return self.now


def failing(times: int, error: HeadraceError):
    left = [times]

    def call(_: float) -> str:
        if left[0]:
            left[0] -= 1
            raise error
        return "done"

    return call


def test_patience_ends_with_success_or_its_bounds() -> None:
    clock = Clock()
    assert persist(Patience(60, 8), failing(8, TryAgainError("x")), sleep=clock.sleep, clock=clock) == "done"
    assert len(clock.slept) == 8
    assert all(pause <= 0.05 * 2**attempt for attempt, pause in enumerate(clock.slept))
    with pytest.raises(TryAgainError):
        persist(Patience(60, 8), failing(9, TryAgainError("x")), sleep=clock.sleep, clock=clock)
    clock.now = 0.0
    with pytest.raises(SlowDownError):
        persist(Patience(20, 10_000), failing(10_000, SlowDownError("x")), sleep=clock.sleep, clock=clock)
    assert clock.now <= 20


def test_what_cannot_get_better_is_not_tried_again() -> None:
    clock = Clock()
    with pytest.raises(NotFoundError):
        persist(Patience(60, 8), failing(1, NotFoundError("x")), sleep=clock.sleep, clock=clock)

    def untrusted(_: float) -> None:
        cause = ssl.SSLCertVerificationError("no")
        cause.verify_message = "self-signed"
        raise from_network("s3://b", cause, Endpoint("h", 1)) from cause

    with pytest.raises(UnreachableError, match="ca_file"):
        persist(Patience(60, 8), untrusted, sleep=clock.sleep, clock=clock)
    assert clock.slept == []
