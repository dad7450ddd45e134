from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.mount.write_back.object_metadata import Attributes, from_metadata, is_link, link_path

MODES = st.integers(0o100000, 0o107777)
IDS = st.integers(0, 2**32 - 1)
TIMES = st.integers(-(10**18), 4 * 10**18)


@given(st.builds(Attributes, MODES | st.none(), IDS | st.none(), IDS | st.none(), TIMES | st.none()))
def test_what_is_written_reads_back(attrs: Attributes):
    assert from_metadata(attrs.metadata()) == attrs


def test_as_s3fs_and_rclone_write_it():
    assert Attributes(0o644, 7, 8, 1_600_000_000_000_000_005).metadata() == {
        "mode": "33188", "uid": "7", "gid": "8", "mtime": "1600000000.000000005",
    }  # fmt: skip
    found = from_metadata({"mode": "33188", "mtime": "1600000000"})
    assert found == Attributes(0o100644, mtime_ns=1_600_000_000 * 10**9)
    assert from_metadata({"mode": "100644"}).mode == from_metadata({"mode": "0100644"}).mode == 0o100644
    assert from_metadata({"mtime": "1600000000.5"}).mtime_ns == 1_600_000_000_500_000_000
    assert from_metadata({"mtime": "1600000000.1234567891"}).mtime_ns == 1_600_000_000_123_456_789


@pytest.mark.parametrize("wrong", ["", "x", "-1", "1e9", "²", "99999999", "2023-05-11T17:54:11Z"])
def test_what_cannot_be_read_is_not_said(wrong: str):
    found = from_metadata({"mode": wrong, "uid": wrong if wrong != "99999999" else "", "mtime": wrong + "x"})
    assert found == Attributes()


def test_links():
    assert link_path("/d/a") == "/d/a.rclonelink"
    assert is_link("a.rclonelink")
    assert not is_link("a")
    assert not is_link(".rclonelink")
