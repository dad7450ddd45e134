"""What `pack` writes is a tar for everybody, and what it reads back may be anything."""

from __future__ import annotations

import io
import tarfile

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from headrace.base.errors import BadSampleError, CorruptError
from headrace.formats.shard_format import groups_of
from headrace.formats.tar.tar import Tar
from headrace.pack.archive import File, Unpackable, files_of
from headrace.pack.members import members
from headrace.pack.shard_index import members_in
from headrace.pack.tar import BLOCK, TarWriter, header, member_size
from tests.tar_kit import MemoryBytes, indexed

names = st.text(st.characters(exclude_characters="\0/", exclude_categories=["Cs"]), min_size=1, max_size=130).filter(
    lambda text: text.strip("./") != ""
)
contents = st.lists(st.tuples(names, st.binary(max_size=1500)), max_size=6, unique_by=lambda pair: pair[0])


def archive(files: list[tuple[str, bytes]]) -> bytes:
    file = io.BytesIO()
    tar = TarWriter(file)
    for name, data in files:
        tar.add(name, data)
    tar.finish()
    assert tar.size == len(file.getvalue())
    return file.getvalue()


def read(data: bytes) -> list[tuple[str, bytes]]:
    found = []
    for member in files_of(io.BytesIO(data), "shard.tar"):
        assert isinstance(member, (File, Unpackable))
        if isinstance(member, File):
            found.append((member.name, b"".join(member.pieces())))
    return found


@settings(max_examples=300, deadline=None)
@given(names, st.integers(0, (1 << 36) - 1))
@example("x" * 100, (1 << 33) - 1)
@example("x" * 101, 1 << 33)
def test_headers_are_those_of_tarfile_and_weigh_what_the_plan_says(name: str, size: int) -> None:
    info = tarfile.TarInfo(name)
    info.size = size
    assert header(name, size) == info.tobuf(tarfile.PAX_FORMAT, "utf-8", "strict")
    assert member_size(name, size) == len(header(name, size)) + -(-size // BLOCK) * BLOCK


@settings(max_examples=200, deadline=None)
@given(contents)
def test_what_is_written_is_read_by_python_and_by_unpack(files: list[tuple[str, bytes]]) -> None:
    data = archive(files)
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        assert [(info.name, tar.extractfile(info).read()) for info in tar] == files  # type: ignore[union-attr]
    assert read(data) == [(name.removeprefix("./"), content) for name, content in files]


stems = st.one_of(names, st.integers(0, 999).map("{:03d}".format), st.sampled_from(["a/b/0", "ä", "x" * 260]))
suffixes = st.lists(st.sampled_from(["png", "cls", "seg.PNG", "é"]), min_size=1, max_size=3, unique=True)
samples = st.one_of(
    st.tuples(st.lists(stems, max_size=40, unique=True), suffixes).map(
        lambda drawn: [f"{stem}.{suffix}" for stem in drawn[0] for suffix in drawn[1]]
    ),
    st.lists(names, max_size=12, unique=True),
)


@settings(max_examples=300, deadline=None)
@given(samples)
@example([f"{number:05d}.png" for number in range(5000)])
def test_the_index_made_while_writing_is_that_of_a_reader(written: list[str]) -> None:
    file = io.BytesIO()
    tar = TarWriter(file)
    for name in written:
        tar.add(name, name.encode())
    tar.finish()
    assert indexed(members_in(tar.places)) == indexed(groups_of(Tar(), MemoryBytes(file.getvalue())))


@settings(max_examples=300, deadline=None)
@given(contents.filter(bool), st.data())
def test_a_tar_cut_short_anywhere_is_refused(files: list[tuple[str, bytes]], data: st.DataObject) -> None:
    whole = archive(files)
    cut = data.draw(st.integers(0, len(whole) - 2 * BLOCK))
    with pytest.raises(CorruptError) as caught:
        read(whole[:cut])
    assert caught.value.path == "shard.tar"


@settings(max_examples=400, deadline=None)
@given(contents.filter(bool), st.lists(st.tuples(st.integers(0, 6000), st.integers(0, 255)), min_size=1, max_size=20))
def test_damage_is_refused_or_harmless_but_never_another_error(
    files: list[tuple[str, bytes]], damage: list[tuple[int, int]]
) -> None:
    data = bytearray(archive(files))
    for at, value in damage:
        data[at % len(data)] = value
    try:
        for name, _ in read(bytes(data)):
            assert not name.startswith("/")
            assert ".." not in name.split("/")
    except CorruptError:
        pass


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=3000))
def test_any_bytes_are_refused_or_a_tar(data: bytes) -> None:
    try:
        read(data)
    except CorruptError:
        pass


@settings(max_examples=300, deadline=None)
@given(
    st.one_of(
        st.none(),
        st.text(max_size=30),
        st.dictionaries(
            st.one_of(st.just("__key__"), st.text(max_size=8), st.integers()),
            st.one_of(st.text(max_size=8), st.binary(max_size=8), st.integers(), st.floats(), st.lists(st.none())),
            max_size=4,
        ),
    )
)
@example({"__key__": "a.b", "c": b""})
@example({"__key__": "../x", "c": b""})
@example({"__key__": "a/./x", "c": b""})
@example({"__key__": "x", "c": object()})
def test_whatever_a_function_returns_becomes_members_of_its_key_or_a_bad_sample(sample: object) -> None:
    try:
        found = members(sample)
    except BadSampleError:
        return
    assert isinstance(sample, dict)
    for name, data in found:
        base = name.rpartition("/")[2]
        assert name.partition(base)[0] + base.partition(".")[0] == sample["__key__"]
        assert isinstance(data, (bytes, bytearray, memoryview))
