"""The CSI plugin, asked by a real gRPC client: volumes are published with credentials of their own, read, refuse writes
where they are read-only, outlive their server and the plugin, and leave nothing."""

from __future__ import annotations

import errno
import json
import os
import secrets
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from headrace.cluster.csi.messages import METHODS, PACKAGE, messages
from headrace.store import open_store
from headrace.testing.servers import EmbeddedS3
from headrace.testing.servers.process import ServerProcess
from tests.mount_rig import COMMAND, detach, line, need_fuse, only_a_mount, python, wait_for

grpc = pytest.importorskip("grpc")
pytestmark = pytest.mark.server

WRITER, READER = 1, 3
"""SINGLE_NODE_WRITER, MULTI_NODE_READER_ONLY."""
LARGE = b"0123456789abcdef" * (1 << 20)
READ_ON = """
import os, sys
held = os.open(sys.argv[1], os.O_RDONLY)
print(os.pread(held, 4, 0).decode(), flush=True)
for start in sys.stdin:
    print(os.pread(held, 16, int(start)).decode(), flush=True)
"""


class Rig:
    """The plugin, as its container starts it, and its client."""

    def __init__(self, server: EmbeddedS3, folder: Path) -> None:
        self.server = server
        self.folder = folder
        self.socket = folder / "csi.sock"
        self.state = folder / "state"
        self.targets = folder / "pods"
        self.targets.mkdir()
        self.bucket = f"csi-{secrets.token_hex(4)}"
        server.create_bucket(self.bucket)
        self.messages = messages()
        self.start()

    def start(self) -> None:
        variables = {
            "HEADRACE_CACHE_DIR": str(self.folder / "cache"), "HEADRACE_CACHE_MIN_FREE": "100MB",
            "HEADRACE_FETCH_MEMORY": "128MB", "AWS_ACCESS_KEY_ID": "nobody", "AWS_SECRET_ACCESS_KEY": "nothing",
        }  # fmt: skip
        command = [*COMMAND, "k8s", "csi", "--endpoint", f"unix://{self.socket}", "--node-id", "node-1"]
        self.process = ServerProcess(
            "csi", [*command, "--state", str(self.state)], folder=self.folder, environment=variables
        )
        self.process.wait_until(lambda: self.socket.exists(), 30)

    def ask(self, method: str, **fields: Any) -> Any:
        """On a connection of its own, as kubelet does: the plugin may have been started again since."""
        service = next(name for name, methods in METHODS.items() if method in methods)
        with grpc.insecure_channel(f"unix:{self.socket}") as channel:
            call = channel.unary_unary(
                f"/{PACKAGE}.{service}/{method}",
                request_serializer=lambda message: message.SerializeToString(),
                response_deserializer=self.messages[f"{method}Response"].FromString,
            )
            return call(self.messages[f"{method}Request"](**fields), timeout=120, wait_for_ready=True)

    def publish(self, name: str, *, mode: int = WRITER, **more: Any) -> Path:
        variables = self.server.variables()
        fields: dict[str, Any] = {
            "volume_id": name, "target_path": str(self.targets / name),
            "volume_capability": {"mount": {}, "access_mode": {"mode": mode}},
            "volume_context": {"path": f"s3://{self.bucket}/", "endpoint": self.server.endpoint, "region": "us-east-1"},
            "secrets": {key: variables[key] for key in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")},
        }  # fmt: skip
        self.ask("NodePublishVolume", **fields | more)
        return self.targets / name

    def unpublish(self, name: str) -> None:
        self.ask("NodeUnpublishVolume", volume_id=name, target_path=str(self.targets / name))

    def refused(self, method: str, **fields: Any) -> str:
        with pytest.raises(grpc.RpcError) as caught:
            self.ask(method, **fields)
        return caught.value.code().name

    def store(self) -> Any:
        return open_store(f"s3://{self.bucket}", self.server.options())

    def mount_pid(self, folder: Path) -> int:
        return int(json.loads((folder / ".headrace/stats.json").read_text())["pid"])

    def keeper_of(self, folder: Path) -> tuple[int, int]:
        server = self.mount_pid(folder)
        lines = Path(f"/proc/{server}/status").read_text().splitlines()
        return next(int(one.split()[1]) for one in lines if one.startswith("PPid:")), server

    def command_lines(self, folder: Path) -> list[bytes]:
        """Of the plugin's own processes and of a mount's: other tests, beside this one, use the same credentials."""
        plugin = psutil.Process(self.process.pid)
        pids = [plugin.pid, *(one.pid for one in plugin.children(recursive=True)), *self.keeper_of(folder)]
        return [Path(f"/proc/{pid}/cmdline").read_bytes() for pid in pids]

    def close(self) -> None:
        self.process.stop()
        for folder in self.targets.iterdir():
            detach(str(folder))


@pytest.fixture(scope="module")
def csi(seaweedfs: EmbeddedS3) -> Iterator[Rig]:
    only_a_mount()
    need_fuse()
    if os.geteuid() != 0:
        pytest.skip("the plugin mounts for others than itself: it needs root")
    folder = Path(tempfile.mkdtemp(prefix="headrace-test-csi-"))
    rig = Rig(seaweedfs, folder)
    try:
        rig.store().put("a/large", LARGE)
        rig.store().put("a/small", b"small")
        yield rig
    finally:
        rig.close()
        shutil.rmtree(folder, ignore_errors=True)


def test_a_volume_is_published_read_kept_and_taken_away(csi: Rig) -> None:
    assert csi.ask("Probe").ready.value
    assert csi.ask("NodeGetInfo").node_id == "node-1"
    assert csi.ask("GetPluginInfo").name == "csi.headrace"
    read_only = csi.publish("read", mode=READER)
    assert csi.publish("read", mode=READER) == read_only, "asked for again, it is there"
    assert sorted(os.listdir(read_only / "a")) == ["large", "small"]
    with pytest.raises(OSError) as caught:
        (read_only / "new").write_bytes(b"x")
    assert caught.value.errno == errno.EROFS
    with python(READ_ON, read_only / "a/large") as reader:
        assert reader.stdin is not None
        assert line(reader.stdout) == "0123"
        pid = csi.mount_pid(read_only)
        os.kill(pid, signal.SIGKILL)
        print(8 << 20, file=reader.stdin, flush=True)
        assert line(reader.stdout) == "0123456789abcdef"
        assert (read_only / "a/small").read_bytes() == b"small"
        assert csi.mount_pid(read_only) != pid
    keeper, server = csi.keeper_of(read_only)
    os.kill(keeper, signal.SIGKILL)
    os.kill(server, signal.SIGKILL)
    assert wait_for(lambda: _is_dead(read_only), 10)
    _kill_plugin(csi)
    assert csi.publish("read", mode=READER) == read_only
    assert (read_only / "a/small").read_bytes() == b"small"
    csi.unpublish("read")
    csi.unpublish("read")
    assert not read_only.exists()


def _is_dead(folder: Path) -> bool:
    try:
        os.statvfs(folder)
    except OSError as error:
        return error.errno == errno.ENOTCONN
    return False


def _kill_plugin(csi: Rig) -> None:
    """The process that answers; another takes its place."""
    (child,) = Path(f"/proc/{csi.process.pid}/task/{csi.process.pid}/children").read_text().split()
    os.kill(int(child), signal.SIGKILL)
    assert wait_for(lambda: not Path(f"/proc/{child}").exists(), 10)


def test_each_volume_has_credentials_of_its_own_and_nobody_sees_them(csi: Rig) -> None:
    good = csi.publish("good")
    (good / "written").write_bytes(b"x" * 1000)
    fields = {"volume_id": "bad", "target_path": str(csi.targets / "bad"),
              "volume_capability": {"mount": {}, "access_mode": {"mode": READER}},
              "volume_context": {"path": f"s3://{csi.bucket}/", "endpoint": csi.server.endpoint, "region": "us-east-1"},
              }  # fmt: skip
    wrong = {"AWS_ACCESS_KEY_ID": "somebody", "AWS_SECRET_ACCESS_KEY": "e1se"}
    assert csi.refused("NodePublishVolume", **fields, secrets=wrong) == "PERMISSION_DENIED"
    assert csi.refused("NodePublishVolume", **fields) == "PERMISSION_DENIED", "it is the plugin's own identity"
    assert not (csi.targets / "bad").exists()
    assert csi.refused("NodePublishVolume", **fields | {"target_path": str(good)}, secrets=wrong) == "ALREADY_EXISTS"
    assert csi.refused("NodeUnpublishVolume", volume_id="bad", target_path=str(good)) == "FAILED_PRECONDITION"
    secret = csi.server.variables()["AWS_SECRET_ACCESS_KEY"].encode()
    told = [path for path in csi.folder.rglob("*") if path.is_file() and not path.is_relative_to(csi.targets)]
    assert not [line for line in [*csi.command_lines(good), *map(_content, told)] if secret in line]
    csi.unpublish("good")
    assert csi.store().get("written").data == b"x" * 1000


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def test_the_end_of_the_plugin_ends_its_mounts_in_order_and_leaves_nothing(csi: Rig) -> None:
    folder = csi.publish("left")
    (folder / "last").write_bytes(b"x" * 1000)
    pid = csi.mount_pid(folder)
    os.kill(csi.process.pid, signal.SIGTERM)
    assert wait_for(lambda: csi.process._process.poll() is not None, 60)
    assert csi.process._process.returncode == 0
    assert csi.store().get("last").data == b"x" * 1000
    assert wait_for(lambda: not Path(f"/proc/{pid}").exists(), 10)
    assert not os.path.ismount(folder)
    csi.start()
    assert csi.publish("left") == folder
    assert (folder / "last").read_bytes() == b"x" * 1000
    csi.unpublish("left")
    assert sorted(path.name for path in csi.state.iterdir()) == ["run", "staging"]
    for folder in (csi.targets, csi.state / "run", csi.state / "staging"):
        assert list(folder.iterdir()) == []
