"""``metadata=full`` while the store is silent: one name waits for it, of the others what was listed is shown."""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from headrace.store.embedded import EmbeddedS3
from headrace.testing.http import FaultServer
from headrace.testing.plan import Fault, Kind, Plan
from tests.mount_rig import Rig, faults_before, rigged, wait_for

pytestmark = pytest.mark.server

COUNT = 40
SILENT = Plan([Fault(Kind.LATENCY, operations=frozenset({"head", "list", "get"}), delay_s=3600)])
STORED = {"mode": str(0o100640), "uid": "1234", "gid": "56", "mtime": "1500000000.000000000"}


def _fill(rig: Rig) -> None:
    (rig.scratch / "headrace.toml").write_text(f'[stores."s3://{rig.bucket}"]\ntimeout_s = "2s"\n')
    store = rig.store()
    for number in range(COUNT):
        store.put(f"{number:02d}", b"x" * (number + 1), metadata=STORED)


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def _all_is_shown(seaweedfs: EmbeddedS3, ttl: str) -> None:
    options = f"metadata=full,ttl={ttl}"
    with _mounted(seaweedfs, options, HEADRACE_MOUNT_PREFETCH="false") as (rig, way):
        files = sorted(Path(rig.folder).iterdir())
        assert len(files) == COUNT
        assert [(_mode(path), path.stat().st_uid) for path in files[:2]] == [(0o640, 1234)] * 2
        if ttl == "1s":
            time.sleep(1.5)  # what was listed is no longer trusted
        way.plan, before = SILENT, len(way.seen)
        found = [path.stat() for path in files]
        asked = {seen.path for seen in way.seen[before:] if seen.operation == "head"}
        assert len(asked) <= 3, f"{len(asked)} of {COUNT} names waited for the store"
        assert [each.st_size for each in found] == [number + 1 for number in range(COUNT)]
        assert {(stat.S_IMODE(each.st_mode), each.st_uid) for each in found[2:]} == {(0o644, os.getuid())}
        assert [(stat.S_IMODE(each.st_mode), each.st_uid) for each in found[:2]] == [(0o640, 1234)] * 2
        assert "shown as it was listed" in rig.log()
        assert len(_names(rig)) == COUNT
        way.plan = Plan()
        assert wait_for(lambda: {_mode(path) for path in files} == {0o640}, 60), rig.log()
        assert {path.stat().st_uid for path in files} == {1234}


def _names(rig: Rig) -> list[str]:
    """What is listed. Who comes when the store is to be asked again waits for it, and is told so."""
    try:
        return os.listdir(rig.folder)
    except OSError as error:
        if error.errno != errno.EIO:
            raise
        return os.listdir(rig.folder)


def _folders_are_shown(seaweedfs: EmbeddedS3) -> None:
    """Where nothing but folders is looked at: one waits and fails, the others are shown what was listed."""
    with _mounted(seaweedfs, "metadata=full,ttl=100ms", HEADRACE_MOUNT_PREFETCH="false") as (rig, way):
        assert len(os.listdir(rig.folder)) == COUNT
        time.sleep(0.2)  # what was listed is no longer trusted
        way.plan = SILENT
        with pytest.raises(OSError, match="Input/output"):
            os.listdir(rig.folder)
        assert len(_names(rig)) == COUNT


def _nothing_is_allowed(seaweedfs: EmbeddedS3) -> None:
    with _mounted(seaweedfs, "metadata=full,allow_other") as (rig, way):
        files = sorted(Path(rig.folder).iterdir())
        assert _mode(files[0]) == 0o640
        way.plan = SILENT
        assert [_mode(path) for path in files[:3]] == [0o640, 0, 0]
        way.plan = Plan()
        assert wait_for(lambda: [_mode(path) for path in files[:3]] == [0o640] * 3, 60), rig.log()


@contextmanager
def _mounted(seaweedfs: EmbeddedS3, options: str, **more: str) -> Iterator[tuple[Rig, FaultServer]]:
    """A mount whose store can be silenced."""
    with faults_before(seaweedfs) as way:
        variables = {"AWS_ENDPOINT_URL_S3": way.endpoint, "HEADRACE_FETCH_DEADLINE": "2s", **more}
        with rigged(seaweedfs, before=_fill, options=options, **variables) as rig:
            yield rig, way


@pytest.fixture(scope="module")
def cases(seaweedfs: EmbeddedS3) -> Iterator[dict[str, Future[None]]]:
    """All of them at once: each waits out a deadline, and then the pause before the store is asked again."""
    with ThreadPoolExecutor(4) as pool:
        running = {ttl: pool.submit(_all_is_shown, seaweedfs, ttl) for ttl in ("1s", "60s")}
        running["folders"] = pool.submit(_folders_are_shown, seaweedfs)
        if os.geteuid() == 0:
            running["shared"] = pool.submit(_nothing_is_allowed, seaweedfs)
        yield running


@pytest.mark.parametrize("ttl", ["1s", "60s"])
def test_all_is_shown_and_the_store_is_hardly_asked(cases: dict[str, Future[None]], ttl: str) -> None:
    cases[ttl].result()


def test_folders_are_shown_as_they_were_listed_too(cases: dict[str, Future[None]]) -> None:
    cases["folders"].result()


@pytest.mark.skipif(os.geteuid() != 0, reason="allow_other is root's to give")
def test_where_others_may_come_a_mode_that_is_not_known_allows_nothing(cases: dict[str, Future[None]]) -> None:
    cases["shared"].result()
