"""What `Store.check_key` refuses before any request."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.base.errors import NameRefusedError, NameTooLongError
from headrace.store import Store, StoreOptions, open_store

NOWHERE = StoreOptions(endpoint="http://127.0.0.1:9", allow_http=True, anonymous=True, region="us-east-1", timeout_s=1)


def store_at(url: str) -> Store:
    return open_store(url, NOWHERE if url.startswith("s3") else StoreOptions(anonymous=True, extra=_extra(url)))


def _extra(url: str) -> tuple[tuple[str, str], ...]:
    return (("account_name", "nobody"),) if url.startswith("az") else ()


@pytest.mark.parametrize(
    ("url", "letter", "longest"),
    [
        ("s3://bucket", "k", 1024),
        ("s3://bucket/pre/fix", "k", 1024 - len("pre/fix/")),
        ("s3://bucket/pre/fix", "ö", (1024 - len("pre/fix/")) // 2),
        ("gs://bucket/p", "k", 1022),
        ("gs://bucket/p", "ö", 511),
        ("az://container/p", "ö", 1022),
        ("file://", "k", 255),
        ("file://", "ö", 127),
    ],
)
def test_a_key_that_is_too_long(tmp_path: Path, url: str, letter: str, longest: int) -> None:
    store = store_at(f"{url}{tmp_path}" if url == "file://" else url)
    store.check_key(letter * longest)
    for write in (store.check_key, lambda key: store.put(key, b"x")):
        with pytest.raises(NameTooLongError) as caught:
            write(letter * (longest + 1))
        assert caught.value.hint
    store.close()


def test_a_path_that_is_too_long(tmp_path: Path) -> None:
    store = store_at(f"file://{tmp_path}")
    levels = (4095 - len(str(tmp_path)) - 1) // 201
    key = "/".join(["n" * 200] * levels)
    store.check_key(key)
    with pytest.raises(NameTooLongError):
        store.check_key(key + "/" + "n" * 200)


@pytest.mark.parametrize(("url", "key"), [("gs://bucket", "a\nb"), ("memory://b", "a\x7f"), ("az://container", "a\\b")])
def test_a_key_that_cannot_be_held(url: str, key: str) -> None:
    store = store_at(url)
    with pytest.raises(NameRefusedError):
        store.check_key(key)
    store.check_key("a b/ö")
