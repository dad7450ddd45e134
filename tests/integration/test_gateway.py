"""The S3 door by boto3 and by requests written by hand: reading, writing, listing, multipart, who may do what."""

from __future__ import annotations

import base64
import datetime
import io
import os
import re
import urllib.error
import urllib.request
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from headrace.base.errors import InternalError
from headrace.gateway.changes import Changes
from headrace.http_server import Exchange, Headers, Response
from headrace.store import open_store
from headrace.testing.servers import EmbeddedS3
from tests.gateway_kit import KEYS, NARROW, READER, WRITER, Rig, ask, gateway_over, mount, settings_of, signed
from tests.http_server_kit import until

pytestmark = pytest.mark.server
BUCKET = "through-the-gateway"
FIRST = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)


@pytest.fixture(scope="module")
def rig(seaweedfs: EmbeddedS3, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    folder = tmp_path_factory.mktemp("gateway")
    options = seaweedfs.options()
    url, other = seaweedfs.create_bucket(BUCKET), seaweedfs.create_bucket(BUCKET + "-2")
    mounts = {
        "/data": mount(url, options), "/data/nested": mount(other, options),
        "/kept": mount(other, options, read_only=True),
    }  # fmt: skip
    with gateway_over(settings_of(mounts, folder), folder, domain="s3.test") as made:
        yield made


@pytest.fixture(scope="module")
def s3(rig: Rig) -> Any:
    return rig.client()


@pytest.fixture(scope="module")
def store(seaweedfs: EmbeddedS3, rig: Rig) -> Iterator[Any]:
    opened = open_store(f"s3://{BUCKET}", seaweedfs.options())
    yield opened
    opened.close()


def refused(call: Any, **given: Any) -> tuple[int, str]:
    with pytest.raises(ClientError) as caught:
        call(**given)
    answer = caught.value.response
    return answer["ResponseMetadata"]["HTTPStatusCode"], answer["Error"]["Code"]


# Reading


@pytest.mark.parametrize("size", [0, 5, 200_000, 9 << 20, 18 << 20])
def test_an_object_is_the_same_cold_warm_and_in_ranges(rig: Rig, s3: Any, store: Any, size: int) -> None:
    key, data = f"sized/{size}", os.urandom(size)
    store.put(key, data)
    for _ in range(3):
        answer = s3.get_object(Bucket="data", Key=key)
        assert answer["Body"].read() == data
        assert answer["ContentLength"] == size
        rig.gateway._server.application._namespace.fetcher.settle()  # type: ignore[union-attr]
    for start, stop in ((0, 1), (size // 2, size // 2 + 10), (max(size - 3, 0), size + 100)) if size else ():
        answer = s3.get_object(Bucket="data", Key=key, Range=f"bytes={start}-{stop - 1}")
        assert answer["Body"].read() == data[start:stop]
        assert answer["ContentRange"] == f"bytes {start}-{min(stop, size) - 1}/{size}"
    if size:
        assert s3.get_object(Bucket="data", Key=key, Range="bytes=-2")["Body"].read() == data[-2:]
    assert refused(s3.get_object, Bucket="data", Key=key, Range=f"bytes={size}-") == (416, "InvalidRange")


def test_a_warm_object_needs_no_store_and_another_version_shows_in_time(rig: Rig, s3: Any, store: Any) -> None:
    s3.put_object(Bucket="data", Key="twice", Body=b"one")
    fetched = rig.gateway._server.application._namespace.fetcher  # type: ignore[union-attr]
    assert s3.get_object(Bucket="data", Key="twice")["Body"].read() == b"one"

    def asked() -> tuple[float, ...]:
        before = fetched.metrics.get("fetch.requests"), fetched.metrics.get("fetch.heads")
        assert s3.get_object(Bucket="data", Key="twice")["Body"].read() == b"one"
        return tuple(after - one for after, one in zip(
            (fetched.metrics.get("fetch.requests"), fetched.metrics.get("fetch.heads")), before, strict=True
        ))  # fmt: skip

    until(lambda: asked() == (0, 0))  # it is written into the cache behind the answer
    assert refused(s3.get_object_acl, Bucket="data", Key="twice") == (501, "NotImplemented")
    assert refused(s3.list_parts, Bucket="data", Key="twice", UploadId="0" * 32) == (404, "NoSuchUpload")
    assert s3.get_object(Bucket="data", Key="twice", PartNumber=1)["PartsCount"] == 1
    s3.put_object(Bucket="data", Key="twice", Body=b"two!")
    assert s3.get_object(Bucket="data", Key="twice")["Body"].read() == b"two!"
    s3.delete_object(Bucket="data", Key="twice")
    assert refused(s3.get_object, Bucket="data", Key="twice") == (404, "NoSuchKey")


def test_conditions(s3: Any) -> None:
    etag = s3.put_object(Bucket="data", Key="conditions", Body=b"hello")["ETag"]
    later = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=1)
    for call in (s3.get_object, s3.head_object, s3.get_object):
        given = {"Bucket": "data", "Key": "conditions"}
        assert call(**given, IfMatch=etag)["ETag"] == etag
        assert call(**given, IfNoneMatch='"other"')["ETag"] == etag
        assert call(**given, IfModifiedSince=FIRST)["ETag"] == etag
        assert refused(call, **given, IfMatch='"other"')[0] == 412
        assert refused(call, **given, IfNoneMatch=etag)[0] == 304
        assert refused(call, **given, IfNoneMatch="*")[0] == 304
        assert refused(call, **given, IfUnmodifiedSince=FIRST)[0] == 412
        assert refused(call, **given, IfModifiedSince=later)[0] == 304
        assert call(**given, PartNumber=1)["ContentLength"] == 5
        assert refused(call, **given, PartNumber=2)[0] == 416


def test_head_tells_metadata_and_answers_can_be_renamed(s3: Any) -> None:
    s3.put_object(Bucket="data", Key="told", Body=b"x", Metadata={"Who": "me"})
    assert s3.head_object(Bucket="data", Key="told")["Metadata"]["who"] == "me"
    answer = s3.get_object(Bucket="data", Key="told", ResponseContentType="text/x", ResponseContentDisposition="inline")
    assert (answer["ContentType"], answer["ContentDisposition"]) == ("text/x", "inline")
    assert answer["Metadata"]["who"] == "me"  # a HEAD has told it
    s3.copy_object(Bucket="data", Key="told-2", CopySource="data/told")
    assert s3.head_object(Bucket="data", Key="told-2")["Metadata"]["who"] == "me"
    replaced = {"MetadataDirective": "REPLACE", "Metadata": {"a": "b"}}
    s3.copy_object(Bucket="data", Key="told-2", CopySource="data/told", **replaced)
    assert s3.head_object(Bucket="data", Key="told-2")["Metadata"] == {"a": "b"}
    s3.copy_object(Bucket="data", Key="nested/copied", CopySource="data/told")
    assert s3.get_object(Bucket="data", Key="nested/copied")["Body"].read() == b"x"
    assert refused(s3.copy_object, Bucket="data", Key="told", CopySource="data/told") == (400, "InvalidRequest")
    assert refused(s3.copy_object, Bucket="data", Key="x", CopySource="data/absent") == (404, "NoSuchKey")


ODD = ["a=b", "a+b c", "größe/日本", "100%/%2F", "q?u#e&r;y", "[x]{y}", "'\"", "~tilde", "-", "a:b@c,d!$()*"]


@pytest.mark.parametrize("key", ODD)
def test_odd_keys(s3: Any, key: str) -> None:
    key = f"odd/{key}"
    s3.put_object(Bucket="data", Key=key, Body=key.encode())
    assert s3.get_object(Bucket="data", Key=key)["Body"].read() == key.encode()
    assert key in [one["Key"] for one in s3.list_objects_v2(Bucket="data", Prefix="odd/")["Contents"]]
    assert key in [one["Key"] for one in s3.list_objects(Bucket="data", Prefix="odd/")["Contents"]]
    s3.delete_objects(Bucket="data", Delete={"Objects": [{"Key": key}]})
    assert refused(s3.get_object, Bucket="data", Key=key) == (404, "NoSuchKey")


@pytest.mark.parametrize("key", ["a/../b", "../b", "a//b", "a/./b"])
def test_keys_that_this_store_cannot_hold_are_refused_and_lead_nowhere(s3: Any, key: str) -> None:
    assert refused(s3.put_object, Bucket="data", Key=key, Body=b"x")[0] in (400, 501)
    assert refused(s3.get_object, Bucket="data", Key=key)[0] in (400, 404, 501)


# Listing


def test_listings(rig: Rig, s3: Any, store: Any) -> None:
    keys = ["list/a", "list/a-b", "list/a/x", "list/a/y/z", "list/b", "list/c/1", "list/c/2", "list/é"]
    for key in keys:
        store.put(key, b"x")
    s3.put_object(Bucket="data", Key="nested/list", Body=b"y")

    def listed(**given: Any) -> tuple[list[str], list[str]]:
        found: tuple[list[str], list[str]] = ([], [])
        for page in s3.get_paginator("list_objects_v2").paginate(Bucket="data", **given):
            assert page["KeyCount"] <= given.get("PaginationConfig", {}).get("PageSize", 1000)
            found[0].extend(one["Key"] for one in page.get("Contents", []))
            found[1].extend(one["Prefix"] for one in page.get("CommonPrefixes", []))
        return found

    for size in (1, 2, 3, 1000):
        paged = {"PaginationConfig": {"PageSize": size}}
        assert sorted(listed(Prefix="list/", **paged)[0]) == sorted(keys)
        found = listed(Prefix="list/", Delimiter="/", **paged)
        assert sorted(found[0]) == ["list/a", "list/a-b", "list/b", "list/é"]
        assert sorted(found[1]) == ["list/a/", "list/c/"]
        assert listed(Prefix="list/a", Delimiter="/", **paged) == (["list/a", "list/a-b"], ["list/a/"])
        assert listed(Prefix="list/a", Delimiter="-", **paged)[1] == ["list/a-"]
        pages = s3.get_paginator("list_objects").paginate(Bucket="data", Prefix="list/c", **paged)
        assert [one["Key"] for page in pages for one in page.get("Contents", [])] == ["list/c/1", "list/c/2"]
    rig.gateway._server.application._listings.forget()  # type: ignore[union-attr]
    assert listed(Prefix="list/", StartAfter="list/b")[0] == ["list/c/1", "list/c/2", "list/é"]
    assert "nested/" in listed(Delimiter="/")[1]
    assert "nested/list" in listed()[0]
    assert listed(Prefix="none/")[0] == []
    answer = s3.list_objects_v2(Bucket="data", Prefix="list/b", FetchOwner=True)["Contents"][0]
    assert (answer["Size"], answer["Owner"]["ID"]) == (1, "WRITER")
    assert refused(s3.list_objects_v2, Bucket="data", ContinuationToken="nonsense!") == (400, "InvalidArgument")


def test_a_page_goes_on_in_another_process_than_it_began(rig: Rig, s3: Any, store: Any) -> None:
    keys = [f"go-on/{name}" for name in ("a", "a-b", "a/x", "a/y", "b")]
    for key in keys:
        store.put(key, b"x")
    for delimiter in ({}, {"Delimiter": "/"}):
        found, token = list[str](), {}
        while True:
            page = s3.list_objects_v2(Bucket="data", Prefix="go-on/", MaxKeys=1, **delimiter, **token)
            found += [one["Key"] for one in page.get("Contents", [])]
            found += [one["Prefix"] for one in page.get("CommonPrefixes", [])]
            rig.gateway._server.application._listings.forget()  # type: ignore[union-attr]
            if not page["IsTruncated"]:
                break
            token = {"ContinuationToken": page["NextContinuationToken"]}
        assert sorted(found) == (sorted(keys) if not delimiter else ["go-on/a", "go-on/a-b", "go-on/a/", "go-on/b"])


def test_buckets(rig: Rig, s3: Any) -> None:
    assert [one["Name"] for one in s3.list_buckets()["Buckets"]] == ["data", "data-nested", "kept"]
    assert s3.head_bucket(Bucket="data")["ResponseMetadata"]["HTTPStatusCode"] == 200
    assert s3.get_bucket_location(Bucket="data")["LocationConstraint"] is None
    assert refused(s3.head_bucket, Bucket="none")[0] == 404
    assert refused(s3.list_objects_v2, Bucket="none") == (404, "NoSuchBucket")
    assert refused(s3.get_object_acl, Bucket="data", Key="x") == (501, "NotImplemented")
    assert refused(s3.create_bucket, Bucket="new")[0] == 404


# Writing


@pytest.mark.parametrize("algorithm", ["CRC32", "CRC32C", "CRC64NVME", "SHA1", "SHA256"])
def test_checksums_are_compared(rig: Rig, s3: Any, algorithm: str) -> None:
    for size in (3, 300_000, 9 << 20):
        data = os.urandom(size)
        answer = s3.put_object(Bucket="data", Key="summed", Body=io.BytesIO(data), ChecksumAlgorithm=algorithm)
        assert answer[f"Checksum{algorithm}"]
        assert s3.get_object(Bucket="data", Key="summed")["Body"].read() == data
    wrong = base64.b64encode(bytes(len(base64.b64decode(answer[f"Checksum{algorithm}"])))).decode()
    given = {f"Checksum{algorithm}": wrong}
    assert refused(s3.put_object, Bucket="data", Key="summed-not", Body=b"abc", **given) == (400, "BadDigest")
    assert refused(s3.head_object, Bucket="data", Key="summed-not")[0] == 404


def test_a_body_that_is_not_what_was_signed_is_not_written(rig: Rig, s3: Any) -> None:
    headers = signed(rig, WRITER, "PUT", "/data/forged", payload=b"good")
    status, _, body = ask(rig, "PUT", "/data/forged", headers, b"evil")
    assert (status, b"XAmzContentSHA256Mismatch" in body) == (400, True)
    headers = signed(rig, WRITER, "PUT", "/data/forged", payload=b"good", headers={"content-md5": "A" * 22 + "=="})
    status, _, body = ask(rig, "PUT", "/data/forged", headers, b"good")
    assert (status, b"BadDigest" in body) == (400, True)
    assert refused(s3.head_object, Bucket="data", Key="forged")[0] == 404


def test_conditional_writes(s3: Any) -> None:
    given = {"Bucket": "data", "Key": "once"}
    etag = s3.put_object(**given, Body=b"one", IfNoneMatch="*")["ETag"]
    assert refused(s3.put_object, **given, Body=b"two", IfNoneMatch="*") == (412, "PreconditionFailed")
    assert refused(s3.put_object, **given, Body=b"two", IfMatch='"0123456789abcdef0123456789abcdef"')[0] == 412
    s3.put_object(**given, Body=b"two", IfMatch=etag)
    assert s3.get_object(**given)["Body"].read() == b"two"


def test_multipart(s3: Any) -> None:
    given = {"Bucket": "data", "Key": "parts"}
    name = s3.create_multipart_upload(**given, Metadata={"a": "b"})["UploadId"]
    parts = [os.urandom(5 << 20), os.urandom(6 << 20), b"end"]
    etags: dict[int, str] = {}
    for number in (3, 1, 2):
        answer = s3.upload_part(**given, UploadId=name, PartNumber=number, Body=parts[number - 1])
        etags[number] = answer["ETag"]
    assert [one["Size"] for one in s3.list_parts(**given, UploadId=name)["Parts"]] == [5 << 20, 6 << 20, 3]
    assert s3.list_parts(**given, UploadId=name, MaxParts=1)["NextPartNumberMarker"] == 1
    assert name in [one["UploadId"] for one in s3.list_multipart_uploads(Bucket="data")["Uploads"]]
    assert refused(s3.head_object, **given)[0] == 404

    def whole(numbers: list[int], **wrong: str) -> dict[str, Any]:
        return {"Parts": [{"PartNumber": n, "ETag": wrong.get(f"p{n}", etags[n])} for n in numbers]}

    call = s3.complete_multipart_upload
    assert refused(call, **given, UploadId=name, MultipartUpload=whole([2, 1])) == (400, "InvalidPartOrder")
    assert refused(call, **given, UploadId=name, MultipartUpload=whole([1, 3], p3='"0"')) == (400, "InvalidPart")
    assert refused(call, **given, UploadId="0" * 32, MultipartUpload=whole([1])) == (404, "NoSuchUpload")
    assert refused(call, **given, UploadId="../x", MultipartUpload=whole([1])) == (404, "NoSuchUpload")
    etag = call(**given, UploadId=name, MultipartUpload=whole([1, 2, 3]))["ETag"]
    assert call(**given, UploadId=name, MultipartUpload=whole([1, 2, 3]))["ETag"] == etag  # its answer was lost
    assert s3.get_object(**given)["Body"].read() == b"".join(parts)
    assert s3.head_object(**given)["Metadata"] == {"a": "b"}
    assert name not in [one["UploadId"] for one in s3.list_multipart_uploads(Bucket="data").get("Uploads", [])]


def test_parts_that_are_copied_or_too_small_or_thrown_away(s3: Any) -> None:
    data = os.urandom(6 << 20)
    s3.put_object(Bucket="data", Key="source", Body=data)
    given = {"Bucket": "data", "Key": "from-parts"}
    name = s3.create_multipart_upload(**given)["UploadId"]
    for number, span in ((1, f"bytes=0-{(5 << 20) - 1}"), (2, "bytes=1-3")):
        s3.upload_part_copy(**given, UploadId=name, PartNumber=number, CopySource="data/source", CopySourceRange=span)
    parts = [{"PartNumber": p["PartNumber"], "ETag": p["ETag"]} for p in s3.list_parts(**given, UploadId=name)["Parts"]]
    small = [{**parts[1], "PartNumber": 2}, {**parts[1], "PartNumber": 3}]
    s3.upload_part(**given, UploadId=name, PartNumber=3, Body=data[1:4])
    call = s3.complete_multipart_upload
    assert refused(call, **given, UploadId=name, MultipartUpload={"Parts": small}) == (400, "EntityTooSmall")
    call(**given, UploadId=name, MultipartUpload={"Parts": parts})
    assert s3.get_object(**given)["Body"].read() == data[: 5 << 20] + data[1:4]
    name = s3.create_multipart_upload(**given)["UploadId"]
    s3.abort_multipart_upload(**given, UploadId=name)
    assert refused(s3.list_parts, **given, UploadId=name) == (404, "NoSuchUpload")


def test_a_body_in_chunks_each_signed(rig: Rig, s3: Any) -> None:
    from tests.unit.test_gateway_signing import chunks

    for trailer in (False, True):
        for spoilt in (False, True):
            data = os.urandom(150_000)
            kind = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD" + ("-TRAILER" if trailer else "")
            more = {"x-amz-decoded-content-length": str(len(data)), "content-encoding": "aws-chunked"}
            if trailer:
                more["x-amz-trailer"] = "x-amz-checksum-crc32"
            headers = signed(rig, WRITER, "PUT", "/data/chunked", headers=more, content=kind)
            total = base64.b64encode(zlib.crc32(data).to_bytes(4, "big")).decode() if trailer else ""
            body = chunks(headers, WRITER.secret, data, 65536, total)
            if spoilt:
                body = body.replace(data[70_000:70_010], b"0123456789")
            status, _, text = ask(rig, "PUT", "/data/chunked", headers, body)
            assert (status, b"SignatureDoesNotMatch" in text) == ((403, True) if spoilt else (200, False)), text
            if not spoilt:
                assert s3.get_object(Bucket="data", Key="chunked")["Body"].read() == data


# Who may


def test_a_reader_may_not_write_and_what_is_read_only_stays_so(rig: Rig, s3: Any) -> None:
    s3.put_object(Bucket="data", Key="guarded", Body=b"x")
    reader = rig.client(READER)
    assert reader.get_object(Bucket="data", Key="guarded")["Body"].read() == b"x"
    assert not NARROW.sees("data", "mine/../theirs/x")
    calls = (
        (reader.put_object, {"Body": b"y"}), (reader.delete_object, {}), (reader.create_multipart_upload, {}),
        (reader.copy_object, {"CopySource": "data/guarded"}),
    )  # fmt: skip
    for call, more in calls:
        assert refused(call, Bucket="data", Key="guarded", **more) == (403, "AccessDenied")
    deleted = {"Objects": [{"Key": "guarded"}]}
    assert refused(reader.delete_objects, Bucket="data", Delete=deleted) == (403, "AccessDenied")
    assert refused(s3.put_object, Bucket="kept", Key="x", Body=b"y") == (403, "AccessDenied")
    assert reader.get_object(Bucket="data", Key="guarded")["Body"].read() == b"x"


def test_a_key_for_a_prefix_sees_nothing_else(rig: Rig, s3: Any) -> None:
    s3.put_object(Bucket="data", Key="theirs/x", Body=b"x")
    mine = rig.client(NARROW)
    mine.put_object(Bucket="data", Key="mine/x", Body=b"x")
    assert mine.get_object(Bucket="data", Key="mine/x")["Body"].read() == b"x"
    assert s3.get_object(Bucket="data", Key="theirs/x")["Body"].read() == b"x"  # warm
    for _ in range(2):
        assert refused(mine.get_object, Bucket="data", Key="theirs/x") == (403, "AccessDenied")
    assert refused(mine.head_object, Bucket="data", Key="theirs/x")[0] == 403
    assert refused(mine.list_objects_v2, Bucket="data") == (403, "AccessDenied")
    assert refused(mine.copy_object, Bucket="data", Key="mine/y", CopySource="data/theirs/x") == (403, "AccessDenied")
    assert refused(mine.put_object, Bucket="data", Key="mine", Body=b"x") == (403, "AccessDenied")
    assert [one["Key"] for one in mine.list_objects_v2(Bucket="data", Prefix="mine/")["Contents"]] == ["mine/x"]
    assert [one["Name"] for one in mine.list_buckets()["Buckets"]] == ["data"]
    assert refused(mine.list_objects_v2, Bucket="kept")[0] == 403


def test_whose_request_it_is(rig: Rig, s3: Any) -> None:
    s3.put_object(Bucket="data", Key="secret", Body=b"x")
    cases = {
        "SignatureDoesNotMatch": signed(rig, READER, "GET", "/data/secret", secret="another"),
        "RequestTimeTooSkewed": signed(rig, READER, "GET", "/data/secret", skew_s=-1000),
        "AccessDenied": {},
        "InvalidRequest": {"authorization": "AWS READER:c2lnbmF0dXJl"},
        "AuthorizationHeaderMalformed": {"authorization": "Bearer x"},
    }
    for code, headers in cases.items():
        status, _, body = ask(rig, "GET", "/data/secret", headers)
        assert (status >= 400, code in body.decode()) == (True, True), body
        assert b"x-secret" not in body
    good = signed(rig, READER, "GET", "/data/secret")
    assert ask(rig, "GET", "/data/secret", good)[::2] == (200, b"x")
    for changed in ({"x-amz-meta-a": "b"}, {"x-amz-date": "20200101T000000Z"}, {"x-amz-content-sha256": "0" * 64}):
        assert ask(rig, "GET", "/data/secret", {**good, **changed})[0] == 403
    assert ask(rig, "HEAD", "/data/secret", good)[0] == 403
    assert ask(rig, "GET", "/data/secret?partNumber=1", good)[0] == 403
    other = signed(rig, READER, "GET", "/data/secret", secret="x")
    unknown = {**other, "authorization": other["authorization"].replace("READER", "NOBODY")}
    assert b"InvalidAccessKeyId" in ask(rig, "GET", "/data/secret", unknown)[2]


def test_presigned_urls(rig: Rig, s3: Any) -> None:
    s3.put_object(Bucket="data", Key="pre signed", Body=b"x")
    given = {"Params": {"Bucket": "data", "Key": "pre signed"}}
    new, old = rig.client(signature_version="s3v4"), rig.client(signature_version="s3")
    url = new.generate_presigned_url("get_object", **given)
    for _ in range(2):
        assert urllib.request.urlopen(url).read() == b"x"
    for spoilt in (url.replace("pre%20signed", "told"), url + "&x=y", re.sub(r"Expires=\d+", "Expires=604800", url),
                   url.replace("X-Amz-Signature=", "X-Amz-Signature=0")):  # fmt: skip
        with pytest.raises(urllib.error.HTTPError) as caught:
            urllib.request.urlopen(spoilt)
        assert caught.value.code in (400, 403)
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(old.generate_presigned_url("get_object", **given))
    assert (caught.value.code, b"Signature Version 2 is not taken" in caught.value.read()) == (400, True)
    put = new.generate_presigned_url("put_object", **given)
    assert urllib.request.urlopen(urllib.request.Request(put, b"new", method="PUT")).status == 200
    assert urllib.request.urlopen(url).read() == b"new"


def test_buckets_in_host_names(rig: Rig, s3: Any) -> None:
    s3.put_object(Bucket="data", Key="hosted", Body=b"x")
    headers = signed(rig, READER, "GET", "/hosted", headers={"host": "data.s3.test"})
    assert ask(rig, "GET", "/hosted", headers)[::2] == (200, b"x")


def test_an_error_is_words_as_s3_has_them(rig: Rig) -> None:
    status, headers, body = ask(rig, "GET", "/data/absent", signed(rig, READER, "GET", "/data/absent"))
    assert (status, headers["content-type"]) == (404, "application/xml")
    start = rb"<\?xml .*\?>\n<Error><Code>NoSuchKey</Code><Message>The specified key does not exist.</Message>"
    end = rb"<Resource>/data/absent</Resource><RequestId>([0-9A-F]{16})</RequestId></Error>"
    match = re.fullmatch(start + end, body)
    assert match is not None
    assert match[1].decode() == headers["x-amz-request-id"]


@pytest.mark.parametrize("body", [
    b'<!DOCTYPE x [<!ENTITY e "boo">]><Delete><Object><Key>&e;</Key></Object></Delete>',
    b"<Delete>" + b"<Object>" * 100 + b"</Object>" * 100 + b"</Delete>",
    b"<Delete><Object><Key>x</Key>", b"", b"<Other/>", b"\xff\xfe",
])  # fmt: skip
def test_xml_that_is_no_request(rig: Rig, body: bytes) -> None:
    headers = signed(rig, WRITER, "POST", "/data", payload=body, query="delete=")
    status, _, text = ask(rig, "POST", "/data?delete", {**headers, "content-length": str(len(body))}, body)
    assert (status, b"MalformedXML" in text) == (400, True)


def test_the_whole_tree_in_one_bucket_by_several_processes(seaweedfs: EmbeddedS3, tmp_path: Path) -> None:
    url = seaweedfs.create_bucket(BUCKET)
    settings = settings_of({"/a/b": mount(url, seaweedfs.options())}, tmp_path)
    with gateway_over(settings, tmp_path, tree="all", processes=2, keys=KEYS) as rig:
        for number in range(8):  # each over a connection of its own, so that both answer
            s3 = rig.client()
            s3.put_object(Bucket="all", Key="a/b/tree", Body=b"%d" % number)
            assert rig.client().get_object(Bucket="all", Key="a/b/tree")["Body"].read() == b"%d" % number
        assert [one["Prefix"] for one in s3.list_objects_v2(Bucket="all", Delimiter="/")["CommonPrefixes"]] == ["a/"]
        assert "a/b/tree" in [one["Key"] for one in s3.list_objects_v2(Bucket="all", Prefix="a/b/t")["Contents"]]
        assert refused(s3.put_object, Bucket="all", Key="elsewhere", Body=b"x")[0] == 404


# What is held, and let go


def door(rig: Rig) -> Any:
    return rig.gateway._server.application  # type: ignore[union-attr]


@pytest.mark.parametrize("wrong", ['attachment; filename="é.pdf"', "a\0b", "a\r\nb: c"])
def test_a_header_that_cannot_be_sent_is_refused_before_anything_is_held(rig: Rig, s3: Any, wrong: str) -> None:
    data = bytes(300_000)
    s3.put_object(Bucket="data", Key="named", Body=data)
    files = door(rig)._reading._warm._files

    def warm() -> bool:
        assert s3.get_object(Bucket="data", Key="named")["Body"].read() == data
        return ("data", "named") in files

    until(warm)
    file = files["data", "named"]
    until(lambda: file._users == 1)
    client = rig.client(read_timeout=5)
    s3.put_object(Bucket="data", Key="named-cold", Body=b"y")  # its first bytes come on a fetch thread
    for key in ("named", "named-cold"):
        for name in ("ResponseContentDisposition", "ResponseContentType"):
            with pytest.raises(ClientError) as caught:
                client.get_object(Bucket="data", Key=key, **{name: wrong})
            assert caught.value.response["Error"]["Code"] == "InvalidArgument"
            assert not caught.value.response["ResponseMetadata"]["RetryAttempts"]
    assert file._users == 1
    assert s3.get_object(Bucket="data", Key="named-cold")["Body"].read() == b"y"


def test_first_reads_are_bounded_and_each_is_let_go_of(rig: Rig, s3: Any, store: Any) -> None:
    s3.put_object(Bucket="data", Key="firsts/0", Body=b"x")
    s3.get_object(Bucket="data", Key="firsts/0")["Body"].read()  # its store is open
    firsts = door(rig)._reading._firsts
    free = firsts._value
    store.put("firsts/small", b"small")
    store.put("firsts/large", bytes(300_000))
    assert refused(s3.get_object, Bucket="data", Key="firsts/absent") == (404, "NoSuchKey")
    assert s3.get_object(Bucket="data", Key="firsts/small")["Body"].read() == b"small"
    assert s3.get_object(Bucket="data", Key="firsts/large")["Body"].read() == bytes(300_000)
    until(lambda: firsts._value == free)
    for _ in range(free):
        firsts.acquire()
    try:
        store.put("firsts/waits", b"by a thread")
        assert s3.get_object(Bucket="data", Key="firsts/waits")["Body"].read() == b"by a thread"
        assert firsts._value == 0
    finally:
        firsts.release(free)


def test_a_request_with_a_body_is_verified_before_it_has_a_thread(rig: Rig) -> None:
    headers = signed(rig, READER, "PUT", "/data/x", payload=b"x", secret="another")
    exchange = Exchange(door(rig), "PUT", b"/data/x", Headers([(n.encode(), v.encode()) for n, v in headers.items()]),
                        old=False, close=False, peer="", arrived=0.0)  # fmt: skip
    answer = door(rig).head(exchange)
    assert isinstance(answer, Response)
    assert answer.status == 403


def test_a_listing_has_as_many_pages_as_it_needs(rig: Rig, s3: Any, store: Any) -> None:
    """A page of its own for each of 600 keys, all from one listing of the store."""
    folder = door(rig)._namespace.resolve("/data").store
    keys = [f"many/{number:03d}" for number in range(600)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda key: folder.put(key, b""), keys))
    paged = {"PaginationConfig": {"PageSize": 1}}
    pages = s3.get_paginator("list_objects_v2").paginate(Bucket="data", Prefix="many/", **paged)
    found = list[str]()
    for page in pages:
        assert not page["ResponseMetadata"]["RetryAttempts"]
        found += [one["Key"] for one in page.get("Contents", [])]
    assert found == keys
    s3.delete_objects(Bucket="data", Delete={"Objects": [{"Key": key} for key in keys]})


def test_an_open_listing_is_begun_anew_when_it_is_old_or_another_process_wrote(rig: Rig, s3: Any, store: Any) -> None:
    listings = door(rig)._listings
    for name in "ac":
        store.put(f"open/{name}", b"")

    def second(meanwhile: Callable[[], object]) -> list[str]:
        listings.forget()
        given = {"Bucket": "data", "Prefix": "open/"}
        token = s3.list_objects_v2(**given, MaxKeys=1)["NextContinuationToken"]
        meanwhile()
        page = s3.list_objects_v2(**given, ContinuationToken=token)
        return [one["Key"] for one in page["Contents"]]

    def written_elsewhere() -> None:
        store.put("open/b", b"")
        other = Changes(f"{os.path.dirname(rig.settings.cache.dir)}/spool/changes")
        other.changed("data", "open/b")
        other.close()

    assert second(lambda: None) == ["open/c"]
    assert second(written_elsewhere) == ["open/b", "open/c"]
    ttl, listings._ttl = listings._ttl, 0.0
    try:
        assert second(lambda: store.put("open/bb", b"")) == ["open/b", "open/bb", "open/c"]
    finally:
        listings._ttl = ttl


# What is refused rather than passed over


def test_a_completed_objects_checksum_is_compared(rig: Rig, s3: Any) -> None:
    data, given = [os.urandom(5 << 20), b"end"], {"Bucket": "data", "Key": "parts-summed"}

    def sums(*of: bytes) -> str:
        return base64.b64encode(zlib.crc32(b"".join(of)).to_bytes(4, "big")).decode()

    name = s3.create_multipart_upload(**given, ChecksumAlgorithm="CRC32")["UploadId"]
    parts = [{"PartNumber": at, "ETag": s3.upload_part(**given, UploadId=name, PartNumber=at, Body=one)["ETag"]}
             for at, one in enumerate(data, 1)]  # fmt: skip
    each = sums(*(zlib.crc32(one).to_bytes(4, "big") for one in data))
    given |= {"UploadId": name, "MultipartUpload": {"Parts": parts}}
    call = s3.complete_multipart_upload
    assert refused(call, **given, ChecksumCRC32=sums(b"other")) == (400, "BadDigest")
    assert refused(call, **given, MpuObjectSize=7) == (400, "InvalidRequest")
    assert refused(call, **given, ChecksumCRC32=f"{each}-3", ChecksumType="COMPOSITE") == (400, "BadDigest")
    right = {"ChecksumCRC32": sums(*data), "ChecksumType": "FULL_OBJECT", "MpuObjectSize": (5 << 20) + 3}
    call(**given, **right)
    assert s3.get_object(Bucket="data", Key="parts-summed")["Body"].read() == b"".join(data)
    given = {"Bucket": "data", "Key": "parts-summed"}
    name = s3.create_multipart_upload(**given)["UploadId"]
    for at, one in enumerate(data, 1):
        s3.upload_part(**given, UploadId=name, PartNumber=at, Body=one)
    call(**given, UploadId=name, MultipartUpload={"Parts": parts}, ChecksumCRC32=f"{each}-2", ChecksumType="COMPOSITE")


def test_deletes_with_conditions_that_are_not_kept_are_refused(rig: Rig, s3: Any) -> None:
    given = {"Bucket": "data", "Key": "not-deleted"}
    etag = s3.put_object(**given, Body=b"x")["ETag"]
    for more in ({"VersionId": "7"}, {"ETag": '"other"'}, {"Size": 7}, {"LastModifiedTime": FIRST}):
        wanted = {"Objects": [{"Key": "not-deleted", **more}]}
        assert refused(s3.delete_objects, Bucket="data", Delete=wanted) == (501, "NotImplemented")
    for more in ({"IfMatchSize": 7}, {"IfMatchLastModifiedTime": FIRST}):
        assert refused(s3.delete_object, **given, **more) == (501, "NotImplemented")
    assert refused(s3.delete_object, **given, IfMatch='"other"')[0] == 412
    assert s3.head_object(**given)["ETag"] == etag
    s3.delete_objects(Bucket="data", Delete={"Objects": [{"Key": "not-deleted", "VersionId": "null"}]})
    assert refused(s3.head_object, **given)[0] == 404


def test_a_range_of_a_copied_part_is_exact(rig: Rig, s3: Any) -> None:
    s3.put_object(Bucket="data", Key="ranged", Body=b"0123456789")
    given = {"Bucket": "data", "Key": "from-range", "CopySource": "data/ranged", "PartNumber": 1}
    given["UploadId"] = s3.create_multipart_upload(Bucket="data", Key="from-range")["UploadId"]
    for span in ("0-2", "bytes=0-", "bytes=-2", "bytes=3-2", "bytes=0-1,3-4", "bytes=0 - 2", "bytes=hello-world"):
        assert refused(s3.upload_part_copy, **given, CopySourceRange=span) == (400, "InvalidArgument"), span
    for span in ("bytes=0-10", "bytes=10-11"):
        assert refused(s3.upload_part_copy, **given, CopySourceRange=span) == (416, "InvalidRange"), span
    s3.upload_part_copy(**given, CopySourceRange="bytes=8-9")
    given = {"Bucket": "data", "Key": "from-range", "UploadId": given["UploadId"]}
    assert refused(s3.abort_multipart_upload, **given, IfMatchInitiatedTime=FIRST) == (501, "NotImplemented")
    s3.abort_multipart_upload(**given)


def test_uploads_that_nobody_goes_on_with_are_thrown_away_while_it_runs(rig: Rig, s3: Any) -> None:
    uploads = door(rig)._uploads
    left, gone = f"{uploads._folder}/{'a' * 32}", f"{uploads._folder}/{'b' * 32}"
    os.mkdir(left)
    os.utime(left, (0, 0))
    os.symlink("nowhere", gone)  # as one that another process removes just now
    try:
        uploads._cleared = float("-inf")  # an hour later
        name = s3.create_multipart_upload(Bucket="data", Key="cleared")["UploadId"]
        s3.abort_multipart_upload(Bucket="data", Key="cleared", UploadId=name)
        assert not os.path.exists(left)
    finally:
        os.unlink(gone)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_gateway_whose_loop_failed_says_so_to_who_waits(tmp_path: Path) -> None:
    """The command that waits ends with it, and so with another code than 0."""
    with gateway_over(settings_of({"/data": {"url": f"file://{tmp_path}"}}, tmp_path), tmp_path) as rig:

        def fail() -> None:
            raise RuntimeError("the loop fails")

        rig.gateway._server._loop.call(fail)  # type: ignore[union-attr]
        with pytest.raises(InternalError, match="ended by an error"):
            rig.gateway.wait()
