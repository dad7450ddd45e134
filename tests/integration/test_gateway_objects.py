"""The S3 door: what an object has beside its bytes, and its only part."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from typing import Any

import pytest
from botocore.exceptions import ClientError

from headrace.store import open_store
from headrace.testing.servers import EmbeddedS3
from tests.gateway_kit import READER, WRITER, Rig, ask, gateway_over, mount, settings_of, signed

pytestmark = pytest.mark.server
OWN = {"ContentType": "text/x-note; charset=utf-8", "CacheControl": "max-age=60", "ContentLanguage": "de",
       "ContentDisposition": 'attachment; filename="a b"'}  # fmt: skip


@pytest.fixture(scope="module")
def rig(seaweedfs: EmbeddedS3, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    folder = tmp_path_factory.mktemp("gateway")
    url, other = seaweedfs.create_bucket("objects-behind"), seaweedfs.create_bucket("objects-behind-2")
    (folder / "files").mkdir()
    mounts = {
        "/data": mount(url, seaweedfs.options()), "/other": mount(other, seaweedfs.options()),
        "/files": {"url": f"file://{folder}/files"},
    }  # fmt: skip
    with gateway_over(settings_of(mounts, folder), folder, metadata=True) as made:
        yield made


@pytest.fixture(scope="module")
def s3(rig: Rig) -> Any:
    return rig.client()


def own(s3: Any, key: str, bucket: str = "data") -> dict[str, str]:
    """An object's headers, by HEAD and GET, cold and warm."""
    answers = [s3.head_object(Bucket=bucket, Key=key)]
    answers += [s3.get_object(Bucket=bucket, Key=key) for _ in range(3)]
    found = [{name: answer[name] for name in OWN if name in answer} for answer in answers]
    assert found == found[:1] * 4
    return found[0]


# Its headers


@pytest.mark.parametrize("size", [0, 5, 9 << 20])  # at once, from memory, from a file by parts
def test_what_a_put_tells_of_an_object_comes_back(s3: Any, size: int) -> None:
    given = {"Bucket": "data", "Key": f"put-{size}.json"}
    s3.put_object(**given, Body=bytes(size), Metadata={"a": "b"}, **OWN)
    assert own(s3, given["Key"]) == OWN
    assert s3.head_object(**given)["Metadata"] == {"a": "b"}
    s3.put_object(**given, Body=bytes(size), ContentType="text/plain")
    assert own(s3, given["Key"]) == {"ContentType": "text/plain"}


def test_what_a_multipart_upload_tells_comes_back(s3: Any) -> None:
    given = {"Bucket": "data", "Key": "parts"}
    for size in (3, 9 << 20):
        name = s3.create_multipart_upload(**given, **OWN)["UploadId"]
        etag = s3.upload_part(**given, UploadId=name, PartNumber=1, Body=bytes(size))["ETag"]
        parts = {"Parts": [{"PartNumber": 1, "ETag": etag}]}
        s3.complete_multipart_upload(**given, UploadId=name, MultipartUpload=parts)
        assert own(s3, "parts") == OWN


def test_a_copy_has_its_sources_headers_or_those_it_is_given(s3: Any) -> None:
    s3.put_object(Bucket="data", Key="source", Body=b"x", **OWN)
    for bucket in ("data", "other"):  # inside the store, and from one to the other
        given = {"Bucket": bucket, "Key": "copy", "CopySource": "data/source"}
        s3.copy_object(**given)
        assert own(s3, "copy", bucket) == OWN
        s3.copy_object(**given, MetadataDirective="REPLACE", ContentType="text/plain", Metadata={"a": "b"})
        assert own(s3, "copy", bucket) == {"ContentType": "text/plain"}


def test_what_files_do_not_keep_costs_no_upload(s3: Any) -> None:
    s3.put_object(Bucket="data", Key="source", Body=b"x", **OWN)
    s3.put_object(Bucket="files", Key="a", Body=b"x", **OWN)
    s3.upload_fileobj(io.BytesIO(bytes(9 << 20)), "files", "b", ExtraArgs={"ContentType": "text/plain"})
    s3.copy_object(Bucket="files", Key="c", CopySource="data/source", MetadataDirective="REPLACE", **OWN)
    for key, size in (("a", 1), ("b", 9 << 20), ("c", 1)):
        assert own(s3, key, "files") == {"ContentType": "binary/octet-stream"}
        assert s3.head_object(Bucket="files", Key=key)["ContentLength"] == size


def test_an_encoding_or_words_that_are_not_kept_cost_no_upload(rig: Rig, s3: Any) -> None:
    s3.put_object(Bucket="data", Key="packed", Body=b"x", ContentEncoding="gzip", ContentType="text/plain")
    answer = s3.get_object(Bucket="data", Key="packed")
    assert (answer["ContentType"], answer["Body"].read(), answer.get("ContentEncoding")) == ("text/plain", b"x", None)
    line = "attachment; filename=größe".encode().decode("latin-1")
    headers = signed(rig, WRITER, "PUT", "/data/words", payload=b"x") | {"content-disposition": line}
    assert ask(rig, "PUT", "/data/words", headers, b"x")[0] == 200
    assert "ContentDisposition" not in own(s3, "words")


# Its only part


@pytest.mark.parametrize("size", [1, 300_000, 17 << 20])
@pytest.mark.parametrize("bucket", ["data", "files"])
def test_part_one_is_the_whole_object(s3: Any, bucket: str, size: int) -> None:
    given = {"Bucket": bucket, "Key": f"whole-{size}"}
    data = os.urandom(size)
    s3.upload_fileobj(io.BytesIO(data), *given.values())  # the longest by parts
    for _ in range(2):  # cold and warm
        answer = s3.get_object(**given, PartNumber=1)
        assert answer["Body"].read() == data
        head = s3.head_object(**given, PartNumber=1)
        for one in (answer, head):
            assert one["ResponseMetadata"]["HTTPStatusCode"] == 206
            assert one["ContentRange"] == f"bytes 0-{size - 1}/{size}"
            assert (one["ContentLength"], one["PartsCount"]) == (size, 1)


def test_an_empty_object_is_its_own_part_too(s3: Any) -> None:
    given = {"Bucket": "data", "Key": "empty", "PartNumber": 1}
    s3.put_object(Bucket="data", Key="empty", Body=b"")
    assert s3.get_object(**given)["Body"].read() == b""
    assert (s3.head_object(**given)["ContentLength"], s3.get_object(**given).get("ContentRange")) == (0, None)


def test_a_download_part_by_part_is_whole_although_it_was_written_in_parts(seaweedfs: EmbeddedS3, s3: Any) -> None:
    """As the AWS SDKs for Java and Go begin: part 1, then as many more as it says that there are."""
    store = open_store("s3://objects-behind", seaweedfs.options())
    data = os.urandom(11 << 20)
    assembly = store.assemble("written-in-parts")
    for number, at in enumerate((0, 5 << 20, 10 << 20), 1):
        assembly.part(number, at, data[at : at + (5 << 20)] if number < 3 else data[at:])
    assembly.complete()
    store.close()
    given = {"Bucket": "data", "Key": "written-in-parts"}
    first = s3.get_object(**given, PartNumber=1)
    assert first["ETag"].endswith('-3"')
    more = [s3.get_object(**given, PartNumber=number) for number in range(2, first["PartsCount"] + 1)]
    assert b"".join(one["Body"].read() for one in [first, *more]) == data


def test_no_other_part_is_answered(rig: Rig, s3: Any) -> None:
    given = {"Bucket": "data", "Key": "one-part"}
    s3.put_object(**given, Body=b"hello")
    for call, told in ((s3.get_object, True), (s3.head_object, False)):
        for _ in range(2):
            for number, status, code in ((2, 416, "InvalidPartNumber"), (10_000, 416, "InvalidPartNumber"),
                                         (0, 400, "InvalidArgument"), (10_001, 400, "InvalidArgument")):  # fmt: skip
                with pytest.raises(ClientError) as caught:
                    call(**given, PartNumber=number)
                answer = caught.value.response
                assert answer["ResponseMetadata"]["HTTPStatusCode"] == status
                assert not told or answer["Error"]["Code"] == code
            with pytest.raises(ClientError) as caught:
                call(**given, PartNumber=1, Range="bytes=0-1")
            assert caught.value.response["ResponseMetadata"]["HTTPStatusCode"] == 400
            s3.get_object(**given)["Body"].read()  # warm from now on
    for nonsense in ("", "x", "-1", "1.0", "1" * 40):
        headers = signed(rig, READER, "GET", "/data/one-part", query=f"partNumber={nonsense}")
        status, _, text = ask(rig, "GET", f"/data/one-part?partNumber={nonsense}", headers)
        assert (status, b"<Code>InvalidArgument</Code>" in text) == (400, True)


def test_a_part_of_no_upload_does_not_take_an_objects_place(rig: Rig, s3: Any) -> None:
    s3.put_object(Bucket="data", Key="stays", Body=b"whole")
    headers = signed(rig, WRITER, "PUT", "/data/stays", query="partNumber=2", payload=b"part")
    assert ask(rig, "PUT", "/data/stays?partNumber=2", headers, b"part")[0] == 404
    assert s3.get_object(Bucket="data", Key="stays")["Body"].read() == b"whole"
