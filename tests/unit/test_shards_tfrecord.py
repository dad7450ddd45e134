"""TFRecord shards: what TensorFlow wrote is read, what is damaged is named, and little is read to find out."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.base.errors import CorruptError
from headrace.formats.checksums.crc32c import by_numpy, crc32c
from headrace.formats.tfrecord.tfrecord import TFRECORD
from tests.shard_formats_kit import Shard, bitwise_crc32c, ranges, record, values

FIXTURES = Path(__file__).parents[1] / "compat/shards"


def test_what_tensorflow_wrote_is_read() -> None:
    data = (FIXTURES / "raw.tfrecord").read_bytes()
    assert TFRECORD.recognise(memoryview(data)[:4096])
    assert [bytes(one) for one in values(TFRECORD, data)] == [
        bytes((n * 7 + i * i) % 251 for i in range(n)) for n in (0, 1, 3, 8, 1023, 1024, 1025, 5000)
    ]


def test_an_empty_shard_has_no_records() -> None:
    assert values(TFRECORD, b"") == []


def test_the_payload_is_a_view_of_what_was_read() -> None:
    data = bytearray(record(b"payload"))
    (member,) = TFRECORD.scan(Shard(bytes(data)))
    seen = TFRECORD.decode(memoryview(data)[member.start : member.stop])
    data[member.start] = ord("P")
    assert bytes(seen) == b"Payload"


def test_other_files_are_not_taken_for_tfrecord() -> None:
    for head in (b"", b"\x1f\x8b\x08" + bytes(60), bytes(512), b'{"a": 1}\n' * 9, record(b"x")[:11]):
        assert not TFRECORD.recognise(memoryview(head))


def test_small_records_are_read_through_in_few_reads() -> None:
    shard = Shard(record(b"x" * 1000) * 5000)
    assert sum(1 for _ in TFRECORD.scan(shard)) == 5000
    assert shard.reads < 10


def test_of_large_records_only_heads_are_read() -> None:
    big = b"\0" * (2 << 20)
    one = record(b"")[:12]  # the checksum of the data is not looked at by a scan
    head = record(b"", claimed=len(big))[:12]
    shard = Shard((head + big + bytes(4)) * 20 + one + bytes(4))
    assert sum(1 for _ in TFRECORD.scan(shard)) == 21
    assert shard.bytes_read < 70_000


@pytest.mark.parametrize("where", ["length", "its checksum"])
def test_a_damaged_length_is_named_with_its_place(where: str) -> None:
    data = bytearray(record(b"a" * 100) * 3)
    data[116 + (2 if where == "length" else 9)] ^= 1
    with pytest.raises(CorruptError, match="length of record 1, at byte 116,") as caught:
        list(TFRECORD.scan(Shard(bytes(data))))
    assert caught.value.path == Shard.path


@pytest.mark.parametrize("at", [0, 50, 99, 100, 103])
def test_damaged_data_fails_when_it_is_decoded(at: int) -> None:
    data = bytearray(record(b"a" * 100))
    data[12 + at] ^= 0x10
    (found,) = ranges(TFRECORD, bytes(data))
    with pytest.raises(CorruptError, match="checksum"):
        TFRECORD.decode(found)


@pytest.mark.parametrize("cut", [1, 4, 60, 105, 115])
def test_a_shard_cut_off_is_noticed(cut: int) -> None:
    with pytest.raises(CorruptError, match=r"ends .*inside .*record 1"):
        list(TFRECORD.scan(Shard((record(b"a" * 100) * 2)[:-cut])))


@pytest.mark.parametrize("claimed", [1 << 60, (1 << 64) - 1, (1 << 64) - 16, 101])
def test_a_head_that_claims_too_much_takes_no_memory(claimed: int) -> None:
    with pytest.raises(CorruptError, match=f"has {claimed} bytes"):
        list(TFRECORD.scan(Shard(record(b"a" * 100, claimed=claimed))))


def test_too_few_bytes_are_no_record() -> None:
    with pytest.raises(CorruptError):
        TFRECORD.decode(memoryview(b"abc"))


@pytest.mark.parametrize("count", [0, 1, 3, 4, 5, 1023, 1024, 1025, 2048, 5000])
def test_checksums_are_those_of_the_definition(count: int) -> None:
    data = bytes((i * i + 3) % 256 for i in range(count))
    assert by_numpy(memoryview(data)) == crc32c(memoryview(data)) == bitwise_crc32c(data)


def test_known_checksums() -> None:
    # RFC 3720, appendix B.4
    for data, expected in ((bytes(32), 0x8A9136AA), (b"\xff" * 32, 0x62A8AB43), (bytes(range(32)), 0x46DD794E)):
        assert crc32c(memoryview(data)) == by_numpy(memoryview(data)) == expected


def test_megabytes_without_fastcrc_agree_with_their_parts() -> None:
    """A checksum over data and its own checksum is a constant: no second implementation is needed to check it."""
    data = bytes(range(256)) * 3000 + b"odd"
    whole = data + by_numpy(memoryview(data)).to_bytes(4, "little")
    assert by_numpy(memoryview(whole)) == bitwise_crc32c(bytes(4)) == 0x48674BC7


def test_records_are_verified_without_fastcrc_too() -> None:
    code = """if True:
        import sys
        sys.modules["fastcrc"] = None
        from headrace.base.errors import CorruptError
        from headrace.formats.tfrecord.tfrecord import TFRECORD
        data = bytearray(sys.stdin.buffer.read())
        assert bytes(TFRECORD.decode(memoryview(data)[12:])) == b"a" * 3000
        data[1000] ^= 1
        try:
            TFRECORD.decode(memoryview(data)[12:])
        except CorruptError:
            print("noticed")
    """
    done = subprocess.run(
        [sys.executable, "-c", code], input=record(b"a" * 3000), capture_output=True, check=True, env=dict(os.environ)
    )
    assert done.stdout == b"noticed\n"
