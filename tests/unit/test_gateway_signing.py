"""Signatures of chunks, bodies that break off, keys and their file, checksums, names."""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import zlib
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.base.errors import DeniedError, NotFoundError, SettingError
from headrace.gateway.checksums import Sums
from headrace.gateway.chunked import decoded
from headrace.gateway.conditions import span
from headrace.gateway.failures import S3Failure
from headrace.gateway.keys import Key, load
from headrace.gateway.signing import Signed
from headrace.gateway.xml import element

NOTHING = hashlib.sha256(b"").hexdigest()


def chunks(headers: Mapping[str, str], secret: str, data: bytes, size: int, crc32: str = "") -> bytes:
    """A body in signed chunks, from a request's signed headers."""
    signature = headers["authorization"].rpartition("=")[2]
    stamp = headers["x-amz-date"]
    scope = f"{stamp[:8]}/us-east-1/s3/aws4_request"
    key = f"AWS4{secret}".encode()
    for part in (stamp[:8], "us-east-1", "s3", "aws4_request"):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()

    def sign(kind: str, *digests: str) -> str:
        text = "\n".join([f"AWS4-HMAC-SHA256-{kind}", stamp, scope, signature, *digests])
        return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()

    body = b""
    for piece in [data[at : at + size] for at in range(0, len(data), size)] + [b""]:
        signature = sign("PAYLOAD", NOTHING, hashlib.sha256(piece).hexdigest())
        body += b"%x;chunk-signature=%s\r\n" % (len(piece), signature.encode())
        body += piece + b"\r\n" if piece else b""
    if crc32:
        line = f"x-amz-checksum-crc32:{crc32}\n".encode()
        told = sign("TRAILER", hashlib.sha256(line).hexdigest())
        body += line.rstrip() + b"\r\nx-amz-trailer-signature:" + told.encode() + b"\r\n"
    return body + b"\r\n"


def reader(data: bytes):
    position = 0

    def read(size: int) -> bytes:
        nonlocal position
        piece = data[position : position + size]
        position += len(piece)
        return piece

    return read


UNSIGNED = Signed(Key("A", "secret-of-a"), "STREAMING-UNSIGNED-PAYLOAD-TRAILER")


@settings(max_examples=60)
@given(
    st.binary(max_size=500), st.lists(st.integers(1, 200), min_size=1, max_size=5), st.booleans(), st.integers(0, 40)
)  # fmt: skip
def test_chunks_come_back_whole_or_not_at_all(data: bytes, sizes: list[int], good: bool, cut: int) -> None:
    body, at, turn = b"", 0, 0
    while at < len(data):
        piece = data[at : at + sizes[turn % len(sizes)]]
        body += b"%x\r\n%s\r\n" % (len(piece), piece)
        at, turn = at + len(piece), turn + 1
    value = zlib.crc32(data) ^ (0 if good else 1)
    body += b"0\r\nx-amz-checksum-crc32: " + base64.b64encode(value.to_bytes(4, "big")) + b"\r\n\r\n"
    sums = Sums.of({"x-amz-trailer": "x-amz-checksum-crc32"}, "")
    if cut > 2:
        assert _read(body[:-cut], sums) in ("IncompleteBody", "InvalidRequest")
        return
    got = b""
    for piece in decoded(reader(body), UNSIGNED, sums):
        sums.update(piece)
        got += piece
    assert got == data
    if good:
        assert "x-amz-checksum-crc32" in sums.check()
    else:
        with pytest.raises(S3Failure, match="CRC32"):
            sums.check()


def _read(body: bytes, sums: Sums) -> str:
    """What reading it fails with."""
    try:
        for piece in decoded(reader(body), UNSIGNED, sums):
            sums.update(piece)
        sums.check()
    except S3Failure as failure:
        return failure.code
    return ""


@settings(max_examples=100)
@given(st.integers(0, 50), st.text("0123456789-=bytes, ", max_size=15))
def test_a_range_lies_within_the_object(size: int, text: str) -> None:
    try:
        found = span({"range": f"bytes={text}"}, size, "v")
    except S3Failure:
        assert text
        return
    assert found is None or 0 <= found[0] < found[1] <= size


def test_a_file_of_keys(tmp_path: Path) -> None:
    path = tmp_path / "keys.toml"

    def written(text: str) -> str:
        path.write_text(text)
        path.chmod(0o600)
        return str(path)

    both = '[keys.A]\nsecret = "long-enough"\n[keys.B]\nsecret = "long-enough"\nwrite = true\nprefixes = ["b/x", "c"]'
    keys = load(written(both))
    a, b = keys.get("A"), keys.get("B")
    assert a is not None
    assert b is not None
    assert (a.write, a.sees("any", "thing"), b.write) == (False, True, True)
    assert [b.sees("b", "x1"), b.sees("b", "y"), b.sees("c", "y"), b.sees("b"), b.sees("d"), b.sees("cc", "y")] == [
        True, False, True, True, False, False,
    ]  # fmt: skip
    assert [b.lists("b", ""), b.lists("b", "x"), b.lists("c", "")] == [False, True, True]
    assert "long-enough" not in repr(a)
    good = '[keys.A]\nsecret = "long-enough"\n'
    for wrong in ("", "[keys]", "[keys.A]\nsecret = 1", '[keys.A]\nsecret = "short"', good.replace("A", '"a/b"'),
                  good + "write = 1", good + "admin = true", "x = ["):  # fmt: skip
        with pytest.raises(SettingError) as caught:
            load(written(wrong))
        assert "long-enough" not in str(caught.value)
    os.chmod(path, 0o644)
    with pytest.raises(DeniedError, match="chmod 600"):
        load(str(path))
    with pytest.raises(NotFoundError):
        load(str(tmp_path / "none"))


def test_xml_says_what_it_can() -> None:
    assert element("Key", "a&b<c>\x01\ud800é") == "<Key>a&amp;b&lt;c&gt;\ufffd\ud800é</Key>"


def test_long_names_and_values_are_not_remembered() -> None:
    from headrace.gateway import requests, signing

    long = "%41" * 1000
    before = signing._remembered.cache_info().currsize, requests._remembered.cache_info().currsize
    assert signing._quoted(long) == requests._decoded(long) == "A" * 1000
    assert (signing._remembered.cache_info().currsize, requests._remembered.cache_info().currsize) == before


@pytest.mark.timeout(20)
def test_xml_text_in_many_pieces_costs_no_more_than_its_length() -> None:
    """A fifth of a second; a cost by the square of the length would be minutes."""
    from headrace.gateway.xml import parsed

    text = "x\n" * 1_000_000
    assert parsed(f"<Delete><Quiet>{text}</Quiet></Delete>".encode(), "Delete").findtext("Quiet") == text
