from __future__ import annotations

import pytest

from headrace.base.errors import InputError
from headrace.store import open_store, parse_url


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("s3://bucket", "s3://bucket"),
        ("s3://bucket/", "s3://bucket"),
        ("S3A://bucket/a/b/", "s3://bucket/a/b"),
        ("s3://bucket/a//b/", "s3://bucket/a//b"),
        ("gcs://bucket/ä b", "gs://bucket/ä b"),
        ("abfs://container@account.dfs.core.windows.net/p", "az://container/p"),
        ("azure://container", "az://container"),
        ("file:///a//b/", "file:///a/b"),
        ("file:///", "file:///"),
        ("http://host:80/x/", "http://host:80/x"),
        ("memory://name", "memory://name"),
        ("sftp://user@host:22/x", "sftp://user@host:22/x"),
    ],
)
def test_urls_are_normalised(text: str, normal: str) -> None:
    assert str(parse_url(text)) == normal
    assert str(parse_url(normal)) == normal


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("bucket/key", "not a URL"),
        ("", "not a URL"),
        ("s3:/bucket", "not a URL"),
        ("s3://", "names no bucket"),
        ("s3:///key", "names no bucket"),
        ("s3://bu cket/x", "not a bucket's name"),
        ("s3://b\n/x", "control character"),
        ("http://", "names no host"),
        ("file://data/x", "names a host"),
        ("file:///a/../b", "'.' or '..'"),
        ("https://host/x?token=1", "query"),
    ],
)
def test_bad_urls_are_refused_with_a_hint(text: str, word: str) -> None:
    with pytest.raises(InputError) as caught:
        open_store(text)
    assert word in str(caught.value)
    assert caught.value.hint


@pytest.mark.parametrize("text", ["s3://KEY:SECRET@bucket/x", "https://me:SECRET@host/x", "sftp://me:SECRET@host/x"])
def test_credentials_in_urls_are_refused_and_masked(text: str) -> None:
    with pytest.raises(InputError) as caught:
        open_store(text)
    assert "SECRET" not in str(caught.value)
    assert "SECRET" not in repr(caught.value)
