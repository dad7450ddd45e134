"""A rename whose old objects could not be deleted at first: nobody ever sees the old name again, done late or not."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from headrace.testing.http import FaultServer
from headrace.testing.plan import Fault, Kind, Plan
from headrace.testing.servers import EmbeddedS3
from tests.mount_rig import Rig, faults_before, rigged

pytestmark = pytest.mark.server

_NO_DELETES = Fault(Kind.INTERNAL, operations=frozenset({"delete"}))


@pytest.fixture
def faults(seaweedfs: EmbeddedS3) -> Iterator[FaultServer]:
    with faults_before(seaweedfs) as server:
        yield server


def _fill(rig: Rig) -> None:
    for key in ("top/old/one", "top/old/deep/two", "top/file"):
        rig.store().put(key, b"content")
    (rig.scratch / "headrace.toml").write_text(f'[stores."s3://{rig.bucket}"]\ntimeout_s = "2s"\n')


def _keys(rig: Rig) -> set[str]:
    return {info.key for page in rig.store().list("top/") for info in page}


def test_what_was_listed_before_the_end_shows_no_old_names(seaweedfs: EmbeddedS3, faults: FaultServer) -> None:
    variables = {"AWS_ENDPOINT_URL_S3": faults.endpoint, "HEADRACE_MOUNT_TTL": "1h"}
    with rigged(seaweedfs, before=_fill, **variables) as rig:
        top = Path(rig.folder, "top")
        assert sorted(os.listdir(top)) == ["file", "old"]
        faults.plan = Plan([_NO_DELETES])
        with ThreadPoolExecutor(2) as pool:  # each waits for as long as the store is asked
            renamed = [
                pool.submit(os.rename, top / old, top / new) for old, new in (("old", "new"), ("file", "renamed"))
            ]
        assert [each.result() for each in renamed] == [None, None]
        rig.show("top/then", b"listed while the old objects are there still")
        assert sorted(os.listdir(top)) == ["new", "renamed", "then"]
        assert {"top/old/one", "top/old/deep/two", "top/file"} < _keys(rig)
        faults.plan = Plan()
        new = {"top/new/one", "top/new/deep/two", "top/renamed", "top/then"}
        pending, deadline = Path(rig.folder, ".headrace/pending.json"), time.monotonic() + 60
        over = False
        while not over:
            assert time.monotonic() < deadline, f"{_keys(rig) - new}\n{rig.log()}"
            over = not json.loads(pending.read_text())
            assert not (top / "old").exists()
            assert not (top / "file").exists()
            assert sorted(os.listdir(top)) == ["new", "renamed", "then"]
            time.sleep(0.05)
        assert {key for key in _keys(rig) if not key.endswith("/")} == new
        assert (top / "new/deep/two").read_bytes() == b"content"
        rig.stop()
