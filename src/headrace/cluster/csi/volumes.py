"""Volumes on this node: each a mount with a holder and a server of its own, and a file about it.

The plugin holds nothing in memory: what is mounted tells the kernel, and whose it is the files of the state folder. So
a plugin that is started again knows all volumes there are. Credentials are in no file, and on no command line: the
holder has them in its environment, from which each server gets them.
"""

from __future__ import annotations

import errno
import hashlib
import json
import logging
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from typing import Final

from headrace.base import errors
from headrace.base.errors import AlreadyExistsError, ConditionError, HeadraceError, InternalError, TryAgainError
from headrace.base.settings import Settings, whole_environment
from headrace.cluster.csi.asked import Volume
from headrace.mount import MOUNT_TYPE, all_live, is_dead, live_mount_at, mount_at, staging_folder

_log = logging.getLogger("headrace.cluster")
DRIVER: Final = "csi.headrace"
"""The plugin's name, as a CSIDriver and volumes have it."""
_MOUNT_S: Final = 100.0
"""Seconds: the kubelet gives up after two minutes, and asks again."""
_UNMOUNT_S: Final = 90  # seconds in which what was written reaches the store; ten more to end are within the same
_FIRST_KEPT: Final = (6, 9)
"""The first Linux that sends a new server what the last one has not answered."""
_KINDS: Final = {
    kind.exit_code: kind
    for kind in (
        errors.InputError, errors.NotFoundError, errors.DeniedError, errors.ChangedError, TryAgainError,
        errors.NoRoomError, InternalError,
    )
}  # fmt: skip

_ERRNOS: Final = {
    errno.EACCES: errors.DeniedError, errno.EPERM: errors.DeniedError, errno.ENOENT: errors.NotFoundError,
}  # fmt: skip


class BusyError(TryAgainError):
    """Another request works on the same target."""


class Volumes:
    """Publishes and unpublishes. Any thread; two at once for one target are refused.

    Args:
        state: folder for what is known of volumes, mode 0700; survives the plugin.
    """

    def __init__(self, state: str) -> None:
        self._state = state
        self._run = os.path.join(state, "run")
        self._staging = os.path.join(state, "staging")
        self._lock = threading.Lock()
        self._busy: set[str] = set()
        os.makedirs(self._run, mode=0o700, exist_ok=True)
        os.chmod(state, 0o700)

    def publish(self, volume: Volume, secrets: Mapping[str, str]) -> None:
        """Mount; nothing where it is mounted so already.

        Raises:
            AlreadyExistsError: something else is mounted there. BusyError: the target is being worked on.
            TryAgainError: the store cannot be reached. InputError, NotFoundError, DeniedError: as the mount says.
        """
        volume = replace(volume, target=_real(volume.target))
        with self._alone(volume.target):
            there, known = mount_at(volume.target), self._read(volume.target)
            if there is not None and (there.kind != MOUNT_TYPE or known != volume):
                what = f"volume {known.id}" if known is not None and known.id != volume.id else "something else"
                raise AlreadyExistsError(f"{what} is mounted here", path=volume.target)
            if there is not None and not is_dead(volume.target):
                return
            self._write(volume)
            try:
                with suppress(FileExistsError):  # also where a dead mount lies, which answers nothing
                    os.makedirs(volume.target, mode=0o750)
                self._mount(volume, secrets)
            except BaseException:
                self._forget(volume.target)
                raise

    def unpublish(self, identity: str, target: str) -> None:
        """Unmount, once all that was written is in the store, and remove the target; nothing where it is gone.

        Raises:
            ConditionError: another volume is there. TryAgainError: not all could be sent yet. BusyError: the target is
            being worked on. DeniedError.
        """
        target = _real(target)
        with self._alone(target):
            there, known = mount_at(target), self._read(target)
            if known is not None and known.id != identity:
                raise ConditionError(f"volume {known.id} is mounted here", path=target)
            if there is not None and there.kind != MOUNT_TYPE:
                raise ConditionError(f"{there.kind} is mounted here", path=target)
            if there is not None:
                self._unmount(target)
            self._forget(target)

    def targets(self) -> list[str]:
        """Of all volumes that are published, or were when the node went down."""
        found = [self._load(os.path.join(self._state, name)) for name in sorted(os.listdir(self._state))]
        return [volume.target for volume in found if volume is not None]

    def end(self, within_s: float) -> None:
        """End all mounts in order, as far as they do within that many seconds: the container that they live in ends."""
        settings = Settings.load(environ={**whole_environment(), **self._places()})
        until = time.monotonic() + within_s
        for one in (live_mount_at(settings, target) for target in self.targets()):
            if one is not None:
                with suppress(ProcessLookupError):
                    os.kill(one.pid, signal.SIGTERM)
        while time.monotonic() < until and all_live(settings):
            time.sleep(0.05)

    @contextmanager
    def _alone(self, target: str) -> Generator[None]:
        with self._lock:
            if target in self._busy:
                raise BusyError("is being worked on", path=target)
            self._busy.add(target)
        try:
            yield
        finally:
            with self._lock:
                self._busy.discard(target)

    def _mount(self, volume: Volume, secrets: Mapping[str, str]) -> None:
        keep = ["--keep"] if _kernel_version() >= _FIRST_KEPT else []
        log = self._file(volume.target).removesuffix(".json") + ".log"
        command = ["mount", *keep, "-o", volume.options, "--log-file", log, volume.path, volume.target]
        given = {"AWS_ENDPOINT_URL_S3": volume.endpoint, "AWS_REGION": volume.region, **secrets}
        self._command(command, {name: value for name, value in given.items() if value}, _MOUNT_S, own=bool(secrets))
        try:
            with os.scandir(volume.target) as names:
                next(names, None)
        except OSError as error:
            with suppress(HeadraceError):
                self._unmount(volume.target)
            kind = _ERRNOS.get(error.errno or 0, TryAgainError)
            raise kind(f"cannot be listed: {error.strerror}", path=volume.path, hint="its secret?") from error

    def _unmount(self, target: str) -> None:
        self._command(["umount", "--lazy", "--timeout", f"{_UNMOUNT_S}s", target], {}, _UNMOUNT_S + 10)

    def _command(self, words: list[str], given: Mapping[str, str], within_s: float, *, own: bool = False) -> None:
        """Run `headrace`. `own`: with no credentials but those given. Raises what it said."""
        environment = {
            name: value
            for name, value in whole_environment().items()
            if not own or not name.startswith(("AWS_", "AZURE_", "GOOGLE_"))
        }
        try:
            done = subprocess.run(
                [sys.executable, "-P", "-m", "headrace.cli", *words],
                env={**environment, **self._places(), **given},
                stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", check=False,
                timeout=within_s,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise TryAgainError(f"headrace {words[0]} did not end within {within_s:g} s", path=words[-1]) from None
        if done.returncode != 0:
            raise _told(done.returncode, done.stderr)

    def _places(self) -> dict[str, str]:
        return {"HEADRACE_MOUNT_RUN_DIR": self._run, "HEADRACE_MOUNT_STAGING": self._staging}

    def _forget(self, target: str) -> None:
        """Nothing is mounted there: no trace is left. A target that is not empty is not ours."""
        with suppress(OSError):
            os.rmdir(target)
        for path in (self._file(target), self._file(target).removesuffix(".json") + ".log"):
            with suppress(FileNotFoundError):
                os.unlink(path)
        staged = staging_folder(self._staging, target)
        if any(files for folder in ("files", "left") for _, _, files in os.walk(os.path.join(staged, folder))):
            _log.warning("%s: what could not be published is kept in %s", target, staged)
        else:
            shutil.rmtree(staged, ignore_errors=True)

    def _file(self, target: str) -> str:
        digest = hashlib.blake2b(target.encode("utf-8", "surrogateescape"), digest_size=16).hexdigest()
        return os.path.join(self._state, f"{digest}.json")

    def _read(self, target: str) -> Volume | None:
        return self._load(self._file(target))

    def _load(self, path: str) -> Volume | None:
        try:
            with open(path, encoding="utf-8") as file:
                return Volume(**json.load(file))
        except (OSError, ValueError, TypeError):
            return None

    def _write(self, volume: Volume) -> None:
        path = self._file(volume.target)
        with open(f"{path}.new", "w", encoding="utf-8") as file:
            json.dump(asdict(volume), file)
        os.rename(f"{path}.new", path)


def _told(code: int, text: str) -> HeadraceError:
    """The error that a command ended with, from its exit code and what it printed."""
    lines = text.strip().splitlines()
    reason = next((line.removeprefix("error: ") for line in lines if line.startswith("error: ")), "")
    hint = next((line.removeprefix("hint: ") for line in lines if line.startswith("hint: ")), None)
    return _KINDS.get(code, InternalError)(reason or f"headrace ended with {code}", hint=hint)


def _real(target: str) -> str:
    """As the kernel's table has it. The target itself is not looked at: nobody may answer there."""
    return os.path.join(os.path.realpath(os.path.dirname(target)), os.path.basename(target))


def _kernel_version() -> tuple[int, ...]:
    return tuple(int(part) for part in os.uname().release.split("-")[0].split(".")[:2] if part.isdecimal())
