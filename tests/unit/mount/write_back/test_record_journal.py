from __future__ import annotations

import os
import resource
import signal
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.base.errors import CorruptError, NoRoomError
from headrace.mount.write_back.record_journal import RecordJournal

NUMBERS = st.integers(1, 5)
RECORDS = st.dictionaries(st.text(max_size=5), st.text(max_size=300))
STEPS = st.lists(st.tuples(NUMBERS, st.none() | RECORDS), max_size=40)


def reopened(path: Path) -> dict[int, object]:
    journal = RecordJournal(str(path))
    try:
        return dict(journal.live)
    finally:
        journal.close()


@settings(deadline=None, max_examples=60)
@given(STEPS, st.integers(100, 3000))
def test_what_was_set_last_is_there(tmp_path_factory: pytest.TempPathFactory, steps: list, compact: int):
    path = tmp_path_factory.mktemp("j") / "journal"
    journal = RecordJournal(str(path), compact=compact)
    model: dict[int, object] = {}
    for number, record in steps:
        if record is None:
            journal.drop(number)
            model.pop(number, None)
        else:
            journal.set(number, record)
            model[number] = record
        assert journal.live == model
    assert reopened(path) == model  # as after a kill: never closed
    journal.close()
    assert path.stat().st_size <= compact + 4 * sum(len(str(record)) * 6 + 60 for record in model.values()) + 2000


@settings(deadline=None, max_examples=40)
@given(st.data())
def test_a_torn_tail_is_dropped_and_written_over(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject):
    path = tmp_path_factory.mktemp("j") / "journal"
    journal = RecordJournal(str(path))
    ends = [path.stat().st_size]
    for number in range(1, 6):
        journal.set(number, {"text": "x" * number * 7})
        ends.append(path.stat().st_size)
    journal.close()
    whole = path.read_bytes()
    cut = data.draw(st.integers(0, len(whole)))
    junk = data.draw(st.binary(max_size=20))
    path.write_bytes(whole[:cut] + (junk if cut >= ends[0] else b""))
    kept = max(0, sum(end <= cut for end in ends) - 1)
    live = reopened(path)
    assert set(range(1, kept + 1)) <= set(live) <= set(range(1, kept + 2))  # junk may happen to complete a record
    journal = RecordJournal(str(path))
    journal.set(9, {"after": 1}, sync=True)
    journal.close()
    assert reopened(path) == {**live, 9: {"after": 1}}


def test_a_flipped_bit_ends_what_is_believed(tmp_path: Path):
    path = tmp_path / "journal"
    journal = RecordJournal(str(path))
    journal.set(1, {"a": 1})
    end = path.stat().st_size
    journal.set(2, {"a": 2})
    journal.close()
    raw = bytearray(path.read_bytes())
    raw[end + 12] ^= 1
    path.write_bytes(raw)
    assert reopened(path) == {1: {"a": 1}}


@pytest.mark.parametrize("head", [b"headrace-journal 2\n", b"something else, quite long"])
def test_other_formats_are_refused_untouched(tmp_path: Path, head: bytes):
    path = tmp_path / "journal"
    path.write_bytes(head + b"rest")
    with pytest.raises(CorruptError):
        RecordJournal(str(path))
    assert path.read_bytes() == head + b"rest"


def test_a_full_disk_changes_nothing(tmp_path: Path):
    path = tmp_path / "journal"
    journal = RecordJournal(str(path))
    journal.set(1, {"a": 1})
    before, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 20, hard))
        with pytest.raises(NoRoomError):
            journal.set(2, {"long": "x" * 100})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (before, hard))
        signal.signal(signal.SIGXFSZ, handler)
    assert reopened(path) == dict(journal.live) == {1: {"a": 1}}
    journal.set(3, {"b": 1})
    assert set(reopened(path)) == {1, 3}
    journal.close()
    assert os.listdir(tmp_path) == ["journal"]


def test_version_1_is_read(tmp_path: Path):
    """Bytes as the first version wrote them: what a crashed mount left must be read by every later one."""
    path = tmp_path / "journal"
    path.write_bytes(
        b"headrace-journal 1\n"
        b'\x10\x00\x00\x00C\xfb\xe4\x88[7,{"kind":"a"}]'
        b'\x10\x00\x00\x000\x97\xd9\xce[8,{"kind":"b"}]'
        b"\x08\x00\x00\x00\xa5\xbc0a[8,null]"
    )
    assert reopened(path) == {7: {"kind": "a"}}
