"""OpenSSH's SFTP server on loopback, with throwaway keys: the tests' fsspec protocol."""

from __future__ import annotations

import getpass
import os
import signal
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from headrace.base.ports import reserve_port
from headrace.store.protocol import StoreOptions
from headrace.testing.servers.process import HOST, Server, find_program, freeze, listens, run_tool, thaw

_CONFIG = """\
Port {port}
ListenAddress {host}
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/user_key.pub
PidFile none
PubkeyAuthentication yes
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin prohibit-password
StrictModes no
UsePAM {pam}
PrintMotd no
MaxStartups 200
MaxSessions 200
Subsystem sftp internal-sftp
AllowUsers {user}
"""
_SEPARATION = Path("/run/sshd")
"""Where Debian's sshd, run by root, insists on an empty folder."""


class Sftp(Server):
    """``sshd`` on a free loopback port that lets the present user in by one key. Buckets are folders.

    Raises (on entry):
        UnsupportedError: openssh-server or ssh-keygen is missing.
        ServerError: it did not start.
    """

    def __init__(self) -> None:
        super().__init__()
        self.port = 0
        self._pid = 0
        self.user = getpass.getuser()

    def options(self) -> StoreOptions:
        """How `open_store("sftp://…")` reaches it: names are those of asyncssh, which the `sshfs` package passes on."""
        key, hosts = self.folder / "user_key", self.folder / "known_hosts"
        return StoreOptions(extra=(("client_keys", str(key)), ("known_hosts", str(hosts)), ("username", self.user)))

    def start(self) -> None:
        sshd = find_program("sshd", package="openssh-server")
        keygen = find_program("ssh-keygen", package="openssh-client")
        for name in ("host_key", "user_key"):
            run_tool([keygen, "-q", "-t", "ed25519", "-N", "", "-C", "headrace-test", "-f", str(self.folder / name)])
        self.port = reserve_port()
        kind, key, *_ = (self.folder / "host_key.pub").read_text().split()
        (self.folder / "known_hosts").write_text(f"[{HOST}]:{self.port} {kind} {key}\n")
        root = os.geteuid() == 0
        if root:
            _SEPARATION.mkdir(mode=0o755, exist_ok=True)
        config = self.folder / "sshd_config"
        pam = "yes" if root else "no"
        config.write_text(_CONFIG.format(port=self.port, host=HOST, folder=self.folder, user=self.user, pam=pam))
        # sshd's children end with their connections, so it gets the milder signal.
        process = self.launch("sshd", [sshd, "-D", "-e", "-f", str(config)], death=signal.SIGTERM)
        process.wait_until(lambda: listens(self.port))
        self._pid = process.pid

    def create_bucket(self, name: str) -> str:
        """Make a folder, and return its URL."""
        path = self.folder / "data" / name
        path.mkdir(parents=True, exist_ok=True)
        return f"sftp://{HOST}:{self.port}{path}"

    def drop_connections(self) -> None:
        """End every connection there is, as a failing network or a restarted server does."""
        for pid in self._connections():
            os.kill(pid, signal.SIGKILL)

    @contextmanager
    def stalled_connections(self) -> Generator[None]:
        """Every connection there is stays open and says nothing, until the end of the block; new ones are served."""
        stopped = self._connections()
        for pid in stopped:
            freeze(pid)
        try:
            yield
        finally:
            for pid in stopped:
                thaw(pid)

    def _connections(self) -> list[int]:
        """The processes that serve one each."""
        children = Path(f"/proc/{self._pid}/task/{self._pid}/children")
        return [int(child) for child in children.read_text().split()]
