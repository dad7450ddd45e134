"""Buckets that demand encryption, an ACL or a storage class of what is written, and keys that the customer keeps."""

from __future__ import annotations

import base64
import dataclasses
import json
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from headrace import Namespace
from headrace.base.errors import DeniedError, HeadraceError, InputError, SettingError, UnsupportedError
from headrace.base.metrics import Metrics
from headrace.base.settings import Settings
from headrace.fetch import Fetcher, Read
from headrace.store import Store, StoreOptions, open_store
from headrace.store.backends.s3 import S3Store
from headrace.store.backends.s3api import S3Api
from headrace.store.embedded import EmbeddedS3
from headrace.testing.servers import CephRGW

pytestmark = pytest.mark.server

KEY = base64.b64encode(bytes(range(32))).decode()
OTHER = base64.b64encode(bytes(range(32, 64))).decode()
LARGE = bytes(range(256)) * (96 << 12)
"""Goes by parts."""


def opened(server: CephRGW | EmbeddedS3, bucket: str, **options: Any) -> Store:
    server.create_bucket(bucket)
    return open_store(f"s3://{bucket}", dataclasses.replace(server.options(), retries=1, **options))


def headers_of(store: Store, key: str) -> dict[str, str]:
    """As the server answers them, names in lower case."""
    assert isinstance(store, S3Store)
    answer = store._api.call("HEAD", key, path=key)
    return dict(answer.headers())


def by_wire(store: Store, key: str) -> bytes:
    with closing(Fetcher(Settings(), None, Metrics())) as fetcher:
        return bytes(fetcher.get(Read(store, key)).data)


def write(store: Store, *, parts_too: bool = True) -> dict[str, bytes]:
    """Keys and what each holds."""
    store.put("plain", b"one", metadata={"who": "ann"})
    store.put("created", b"two", create=True)
    if not parts_too:
        return {"plain": b"one", "created": b"two"}
    store.put("large", LARGE)
    parts = store.assemble("assembled")
    parts.part(1, 0, LARGE[: 6 << 20])
    parts.part(2, 6 << 20, b"end")
    parts.complete()
    return {"plain": b"one", "created": b"two", "large": LARGE, "assembled": LARGE[: 6 << 20] + b"end"}


def copy(store: Store) -> dict[str, bytes]:
    """The same, of copies of these."""
    store.copy("plain", "copied")
    store.copy("plain", "described", metadata={"who": "bob"})
    return {"copied": b"one", "described": b"one"}


def compose(store: Store) -> dict[str, bytes]:
    """One more, of parts that are copied."""
    parts = store.assemble("composed")
    parts.copy_part(1, 0, "large", 0, 6 << 20, if_match=None)
    parts.copy_part(2, 6 << 20, "large", 0, 6 << 20, if_match=None)
    parts.complete()
    return {"composed": LARGE[: 6 << 20] * 2}


@pytest.fixture
def demanding(rgw: CephRGW) -> Iterator[str]:
    """A bucket whose policy refuses what comes without these."""
    rgw.create_bucket("demanding")
    api = S3Api("demanding", rgw.options(), "s3://demanding")

    def deny(condition: dict[str, Any]) -> dict[str, Any]:
        to = {"Action": "s3:PutObject", "Resource": "arn:aws:s3:::demanding/*"}
        return {"Effect": "Deny", "Principal": "*", **to, "Condition": condition}

    wanted = [
        deny({"Null": {"s3:x-amz-server-side-encryption": "true"}}),
        deny({"StringNotEquals": {"s3:x-amz-acl": "bucket-owner-full-control"}}),
    ]
    body = json.dumps({"Version": "2012-10-17", "Statement": wanted}).encode()
    api.call("PUT", path="policy", query={"policy": ""}, body=body)
    yield "demanding"
    api.call("DELETE", path="policy", query={"policy": ""})
    api.close()


def test_a_bucket_that_demands_encryption_and_an_acl(rgw: CephRGW, demanding: str) -> None:
    for short in ({}, {"sse": "aws:kms", "sse_kms_key_id": "test-key"}, {"acl": "bucket-owner-full-control"}):
        with closing(opened(rgw, demanding, **short)) as refused, pytest.raises(DeniedError) as denied:
            refused.put("k", b"x")
        if not short:
            assert all(name in (denied.value.hint or "") for name in ("sse", "storage_class", "acl"))
    enough = {"sse_kms_key_id": "test-key", "acl": "bucket-owner-full-control"}
    with closing(opened(rgw, demanding, **enough)) as store:
        # Ceph 16 looks at copies and parts as if they said nothing, and S3 takes no such header with parts.
        are_encrypted(store, write(store, parts_too=False), "aws:kms")
    with closing(opened(rgw, "keyed", **enough)) as store:
        are_encrypted(store, write(store) | compose(store), "aws:kms")  # it copies no encrypted object
        assert headers_of(store, "large")["x-amz-server-side-encryption-aws-kms-key-id"] == "test-key"


def are_encrypted(store: Store, written: dict[str, bytes], how: str) -> None:
    for key, data in written.items():
        assert bytes(store.get(key).data) == data, key
        assert by_wire(store, key) == data, key
        assert headers_of(store, key)["x-amz-server-side-encryption"] == how, key


def test_s3_encrypts_and_keeps_the_class(seaweedfs: EmbeddedS3) -> None:
    with closing(opened(seaweedfs, "encrypted", sse="AES256", storage_class="STANDARD_IA")) as store:
        written = write(store) | copy(store) | compose(store)
        are_encrypted(store, written, "AES256")
        assert {headers_of(store, key).get("x-amz-storage-class") for key in written} == {"STANDARD_IA"}


@pytest.mark.parametrize("server", ["seaweedfs", "rgw"])
def test_a_key_that_the_customer_keeps(server: str, request: pytest.FixtureRequest) -> None:
    running = request.getfixturevalue(server)
    with closing(opened(running, "customer", sse_c=KEY)) as store:
        written = write(store)
        able, unable = (compose, copy) if server == "rgw" else (copy, compose)
        written |= able(store)
        with pytest.raises(UnsupportedError):  # of such objects
            unable(store)
        for key, data in written.items():
            assert bytes(store.get(key).data) == data, key
            assert bytes(store.get(key, 1, 3).data) == data[1:3], key
            assert store.head(key).size == len(data), key
            assert by_wire(store, key) == data, key
        listed = {one.key for page in store.list() for one in page}
        assert listed == written.keys()
    with closing(opened(running, "customer")) as keyless:
        for read in (lambda: keyless.get("plain"), lambda: keyless.head("plain"), lambda: by_wire(keyless, "plain")):
            with pytest.raises(HeadraceError) as missing:
                read()
            assert isinstance(missing.value, (InputError, DeniedError))
            assert "sse_c" in (missing.value.hint or ""), missing.value
    with closing(opened(running, "customer", sse_c=OTHER)) as stranger, pytest.raises(HeadraceError):
        stranger.get("plain")


def test_the_key_is_never_shown(rgw: CephRGW, tmp_path: Any) -> None:
    options = dataclasses.replace(rgw.options(), sse_c=KEY, retries=0, endpoint="http://127.0.0.1:1", timeout_s=1.0)
    store = open_store("s3://customer", options)
    with pytest.raises(HeadraceError) as failed:
        store.get("k")
    shown = f"{options!r} {store!r} {store.identity} {failed.value!r} {failed.value.hint} {failed.value.__cause__!r}"
    assert KEY not in shown
    from headrace.namespace import write_mount

    with pytest.raises(InputError, match="sse_c"):
        write_mount("/data", "s3://customer", {"sse_c": KEY}, tmp_path / "headrace.toml")
    write_mount("/data", "s3://customer", {"sse_kms_key_id": "alias/team"}, tmp_path / "headrace.toml")
    assert "alias/team" in (tmp_path / "headrace.toml").read_text()


def test_a_namespace_takes_them_from_its_settings(rgw: CephRGW) -> None:
    rgw.create_bucket("customer")
    own = dataclasses.asdict(dataclasses.replace(rgw.options(), extra=())) | {"sse_c": KEY}
    table = {name: value for name, value in own.items() if value is not None and name != "extra"}
    space = Namespace(Settings(stores={"s3://customer": table}))
    space.attach("/c", "s3://customer")
    space.write("/c/from-settings", b"x")
    assert bytes(space.read("/c/from-settings")) == b"x"
    with closing(opened(rgw, "customer")) as keyless, pytest.raises(InputError):
        keyless.get("from-settings")


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"sse": "rot13"}, "sse"),
        ({"sse": "AES256", "sse_kms_key_id": "k"}, "sse_kms_key_id"),
        ({"sse": "aws:kms", "sse_c": KEY}, "sse_c"),
        ({"sse_c": "short"}, "sse_c"),
        ({"sse_c": base64.b64encode(b"x" * 31).decode()}, "sse_c"),
        ({"storage_class": "A\r\nB: c"}, "storage_class"),
        ({"acl": "public read"}, "acl"),
    ],
)
def test_what_s3_does_not_know_is_refused_at_once(options: dict[str, str], named: str) -> None:
    with pytest.raises(SettingError, match=f"option {named} ") as refused:
        open_store("s3://bucket", StoreOptions(**options))  # type: ignore[arg-type]
    assert named != "sse_c" or options[named] not in str(refused.value)


@pytest.mark.parametrize("url", ["file:///tmp", "memory://x", "http://127.0.0.1:1/x"])
def test_other_stores_refuse_them(url: str) -> None:
    with pytest.raises(SettingError, match="s3:// only"):
        open_store(url, StoreOptions(sse="AES256"))
