"""kill -9 of a mount's server while a keeper holds the descriptor: the mount stays, the next server goes on."""

from __future__ import annotations

import errno
import os
import random
import signal
import threading
from pathlib import Path

import pytest

from headrace.testing.plan import Fault, Kind, Plan
from headrace.testing.servers import EmbeddedS3
from tests.mount_rig import Rig, faults_before, line, only_a_mount, python, rigged, wait_for

pytestmark = pytest.mark.server

LARGE = random.Random(1).randbytes(24 << 20)
SMALL = random.Random(2).randbytes(50_000)
READER = """
import os, sys
os.chdir(sys.argv[1])
held = os.open("large", os.O_RDONLY)
print(os.pread(held, 4, 0).hex(), flush=True)
for line in sys.stdin:
    start = int(line)
    print(os.pread(held, 65536, start).hex(), len(os.listdir(".")), os.getcwd(), os.fstat(held).st_size, flush=True)
"""


def _fill(rig: Rig) -> None:
    store = rig.store()
    store.put("folder/inner/large", LARGE)
    for number in range(3):
        store.put(f"folder/inner/small{number}", SMALL)


def _server(rig: Rig) -> int:
    return int(rig.stats()["pid"])


def _kill_server(rig: Rig) -> None:
    """The next one answers once this has returned."""
    pid = _server(rig)
    os.kill(pid, signal.SIGKILL)
    assert _server(rig) != pid


@pytest.mark.parametrize("options", ["passthrough", "no_passthrough"])
def test_what_is_open_is_read_on_and_what_is_opened_is_found(options: str, seaweedfs: EmbeddedS3) -> None:
    only_a_mount()
    with rigged(seaweedfs, options=options, keep=True, before=_fill) as kept:
        _read_over_kills(kept)
        kept.stop()
        assert not list((kept.scratch / "run").glob("*.nodes"))


def _read_over_kills(kept: Rig) -> None:
    folder = Path(kept.folder, "folder/inner")
    with python(READER, folder) as reader:
        assert reader.stdin is not None
        assert line(reader.stdout) == LARGE[:4].hex()
        assert (folder / "small0").read_bytes() == SMALL
        for turn in range(2):
            _kill_server(kept)
            start = (12 + turn) << 20
            reader.stdin.write(f"{start}\n")
            reader.stdin.flush()
            data, names, where, size = line(reader.stdout).split()
            assert bytes.fromhex(data) == LARGE[start : start + 65536]
            assert (int(names), where, int(size)) == (4, str(folder), len(LARGE))
            assert (folder / "small0").read_bytes() == SMALL
            assert (folder / f"small{1 + turn}").read_bytes() == SMALL
            assert (folder / "large").read_bytes() == LARGE


def test_what_was_being_answered_is_answered_by_the_next_server(seaweedfs: EmbeddedS3) -> None:
    """A request that the dead server had read, and waited for the store with."""
    only_a_mount()
    with (
        faults_before(seaweedfs) as way,
        rigged(seaweedfs, keep=True, options="ro,no_prefetch", before=_fill, AWS_ENDPOINT_URL_S3=way.endpoint) as rig,
    ):
        assert len(os.listdir(Path(rig.folder, "folder/inner"))) == 4
        pid = _server(rig)
        way.plan = Plan((Fault(Kind.STALL, operations=frozenset({"get"})),))
        read: list[bytes] = []
        reader = threading.Thread(target=lambda: read.append(Path(rig.folder, "folder/inner/small0").read_bytes()))
        reader.start()
        assert wait_for(lambda: rig.stats()["mount.waiting_requests"] > 0, 10)
        way.plan = Plan(())
        os.kill(pid, signal.SIGKILL)
        reader.join(30)
        assert read == [SMALL]
        assert _server(rig) != pid


def test_what_was_closed_is_published_and_what_was_being_written_is_told(seaweedfs: EmbeddedS3) -> None:
    only_a_mount()
    with rigged(seaweedfs, keep=True) as kept:
        _write_over_kills(kept)
        kept.stop()
        assert kept.store().get("closed").data == SMALL
        assert kept.store().get("newer/file").data == b"b"


def _write_over_kills(kept: Rig) -> None:
    closed, opened = Path(kept.folder, "closed"), Path(kept.folder, "opened")
    closed.write_bytes(SMALL)
    descriptor = os.open(opened, os.O_WRONLY | os.O_CREAT)
    os.write(descriptor, b"a" * 1000)
    _kill_server(kept)
    with pytest.raises(OSError) as caught:
        os.fsync(descriptor)
    assert caught.value.errno == errno.ESTALE
    with pytest.raises(OSError):
        os.close(descriptor)
    assert closed.read_bytes() == SMALL
    assert kept.left(), "what was neither closed nor synced is kept beside"
    Path(kept.folder, "new").mkdir()
    Path(kept.folder, "new/file").write_bytes(b"b")
    os.rename(Path(kept.folder, "new"), Path(kept.folder, "newer"))
    _kill_server(kept)
    assert Path(kept.folder, "newer/file").read_bytes() == b"b"


def test_a_server_that_cannot_live_is_given_up(seaweedfs: EmbeddedS3) -> None:
    """Whoever uses the mount would wait for ever."""
    only_a_mount()
    with rigged(seaweedfs, keep=True, before=_fill) as rig:
        (record,) = (rig.scratch / "run").glob("*.nodes")
        pid = _server(rig)
        record.write_bytes(b"nothing that can be read")
        os.kill(pid, signal.SIGKILL)
        rig.gone(60)
        assert not os.path.ismount(rig.folder)
