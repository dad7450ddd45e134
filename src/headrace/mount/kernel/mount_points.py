"""Mounting and unmounting: ``mount(2)`` where we may, ``fusermount3`` where not, and what ``/proc`` says is mounted.

Source: mount(2), umount2(2), fusermount3(1) and its protocol (the descriptor comes over the socket ``_FUSE_COMMFD``).
"""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
import socket
import stat
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass

from headrace.base.errors import DeniedError, HeadraceError, InputError, NotFoundError, UnsupportedError

DEVICE = "/dev/fuse"
MOUNT_TYPE = "fuse.headrace"
_MS_RDONLY, _MS_NOSUID, _MS_NODEV, _MS_NOATIME = 1, 2, 4, 1024  # sys/mount.h
_MNT_DETACH = 2  # sys/mount.h
_HELPER = "fusermount3"
_TIMEOUT_S = 20.0
"""Seconds for fusermount3, which starts at once and asks nobody but the kernel."""
_BUSY_S = 1.0  # seconds in which a file that is just being closed may keep a mount busy


@dataclass(frozen=True, slots=True)
class MountPoint:
    """One line of ``/proc/self/mountinfo``."""

    point: str
    kind: str
    source: str
    device: str
    read_only: bool


def mounts(text: str | None = None) -> list[MountPoint]:
    """All mounts of this process's view. `text`: the content of mountinfo, for tests."""
    if text is None:
        with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
            text = file.read()
    found: list[MountPoint] = []
    for line in text.splitlines():
        left, _, right = line.partition(" - ")
        before, after = left.split(" "), right.split(" ")
        if len(before) >= 6 and len(after) >= 2:
            options = before[5].split(",")
            found.append(MountPoint(_unescape(before[4]), after[0], _unescape(after[1]), before[2], "ro" in options))
    return found


def mount_at(point: str) -> MountPoint | None:
    """The mount at `point` (the topmost), which need not answer."""
    return next((each for each in reversed(mounts()) if each.point == point), None)


def is_dead(point: str) -> bool:
    """Whether what is mounted there has lost its server. Not by `stat`, which the kernel may answer by itself."""
    try:
        os.statvfs(point)
    except OSError as error:
        return error.errno == errno.ENOTCONN
    return False


def clear_leftover(point: str) -> bool:
    """Unmount a dead mount of ours at `point`; True when there was one.

    Raises:
        InputError: a dead mount of another program. DeniedError: ours, but we may not unmount it.
    """
    left = mount_at(point)
    if left is None or not is_dead(point):
        return False
    if left.kind != MOUNT_TYPE:
        raise InputError(f"a dead mount of type {left.kind} is here", path=point, hint=f"umount -l {point}")
    unmount(point, lazy=True)
    return True


def check_point(point: str) -> str:
    """The mount point's absolute path, once it is known to be an empty folder that nothing is mounted on.

    Raises:
        InputError: it is not. NotFoundError: there is no such folder.
    """
    path = os.path.realpath(point)
    try:
        if not stat.S_ISDIR(os.stat(path).st_mode):
            raise InputError("is not a folder", path=point, hint="mount on an empty folder")
        held = mount_at(path)
        if held is not None and held.kind.startswith("fuse"):
            raise InputError(f"{held.kind} is mounted here already", path=point, hint=f"headrace umount {point}")
        if os.listdir(path):
            raise InputError("is not empty", path=point, hint="mount on an empty folder")
    except FileNotFoundError:
        raise NotFoundError("no such folder", path=point, hint=f"mkdir -p {point}") from None
    except PermissionError as error:
        raise DeniedError(f"{error.strerror}", path=point) from None
    return path


def mount(point: str, *, source: str, read_only: bool, allow_other: bool) -> int:
    """Mount, and give the descriptor the kernel talks on.

    Raises:
        UnsupportedError: no ``/dev/fuse``, or no ``fusermount3`` where it is needed. DeniedError: not allowed.
    """
    if os.geteuid() == 0:
        with suppress(DeniedError):
            return _mount_directly(point, source, read_only=read_only, allow_other=allow_other)
    return _mount_with_helper(point, source, read_only=read_only, allow_other=allow_other)


def unmount(point: str, *, lazy: bool = False) -> None:
    """Unmount. `lazy`: also while files are open there; they go on until they are closed.

    A program that watches mounts has a file of statistics open for a moment, so a busy mount is tried again for a
    second.

    Raises:
        InputError: nothing is mounted there, or files are open. DeniedError: not allowed.
    """
    until = time.monotonic() + _BUSY_S
    while (number := _unmount(point, lazy=lazy)) == errno.EBUSY and time.monotonic() < until:
        time.sleep(0.02)
    if number:
        raise _failed("unmounted", number, point)


def _unmount(point: str, *, lazy: bool) -> int:
    """Zero, or the error's number. Raises DeniedError: the helper refused, and not because it is busy."""
    if _libc().umount2(os.fsencode(point), _MNT_DETACH if lazy else 0) == 0:
        return 0
    number = ctypes.get_errno()
    if number not in (errno.EPERM, errno.EACCES) or not shutil.which(_HELPER):
        return number
    command = [_HELPER, "-u", *(["-z"] if lazy else []), "--", point]
    environment = {"PATH": os.defpath, "LC_ALL": "C"}  # its reason is read
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_TIMEOUT_S, env=environment)
    if done.returncode == 0:
        return 0
    if os.strerror(errno.EBUSY) in done.stderr:
        return errno.EBUSY
    raise DeniedError(done.stderr.strip() or "fusermount3 refused", path=point)


def set_readahead(point: str, kib: int) -> bool:
    """Let the kernel read that far ahead through this mount; False where we may not say so (128 KiB then)."""
    mounted = mount_at(point)
    if mounted is None:
        return False
    try:
        with open(f"/sys/class/bdi/{mounted.device}/read_ahead_kb", "w", encoding="ascii") as file:
            file.write(str(kib))
    except OSError:
        return False
    return True


def stack_depth(folder: str) -> int:
    """How deep backing files below `folder` are stacked already, plus one: 2 on overlayfs, else 1."""
    best: MountPoint | None = None
    real = os.path.realpath(folder)
    for each in mounts():
        inside = real == each.point or real.startswith(each.point.rstrip("/") + "/")
        if inside and (best is None or len(each.point) >= len(best.point)):
            best = each
    return 2 if best is not None and best.kind == "overlay" else 1


def _mount_directly(point: str, source: str, *, read_only: bool, allow_other: bool) -> int:
    fd = _open_device(point)
    options = f"fd={fd},rootmode=40000,user_id={os.getuid()},group_id={os.getgid()},default_permissions"
    options += ",allow_other" if allow_other else ""
    flags = _MS_NOSUID | _MS_NODEV | _MS_NOATIME | (_MS_RDONLY if read_only else 0)
    code = _libc().mount(os.fsencode(source), os.fsencode(point), MOUNT_TYPE.encode(), flags, options.encode())
    if code != 0:
        number = ctypes.get_errno()
        os.close(fd)
        raise _failed("mounted", number, point)
    return fd


def _open_device(point: str) -> int:
    try:
        return os.open(DEVICE, os.O_RDWR | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in (errno.EACCES, errno.EPERM):
            raise DeniedError(f"{DEVICE}: {error.strerror}", path=point) from error
        hint = "load the kernel's fuse module (modprobe fuse), or give the container --device /dev/fuse"
        raise UnsupportedError(f"{DEVICE}: {error.strerror}", path=point, hint=hint) from error


def _mount_with_helper(point: str, source: str, *, read_only: bool, allow_other: bool) -> int:
    helper = shutil.which(_HELPER)
    if helper is None:
        hint = "install the package fuse3, or mount as root"
        raise UnsupportedError(f"{_HELPER} is not installed", path=point, hint=hint)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        options = f"fsname={source.replace(',', '')},subtype=headrace,default_permissions,nosuid,nodev,noatime"
        options += (",ro" if read_only else "") + (",allow_other" if allow_other else "")
        done = subprocess.run(
            [helper, "-o", options, "--", point],
            pass_fds=[theirs.fileno()],
            env={"PATH": os.defpath, "_FUSE_COMMFD": str(theirs.fileno())},
            capture_output=True,
            text=True,
            check=False,
            timeout=_TIMEOUT_S,
        )
        if done.returncode != 0:
            text = done.stderr.strip().replace("\n", "; ") or "fusermount3 failed"
            hint = "allow_other needs user_allow_other in /etc/fuse.conf" if allow_other else None
            raise DeniedError(text, path=point, hint=hint)
        ours.settimeout(_TIMEOUT_S)
        _, descriptors, _, _ = socket.recv_fds(ours, 1, 1)
    if not descriptors:
        raise UnsupportedError("fusermount3 gave no descriptor", path=point)
    os.set_inheritable(descriptors[0], False)
    return descriptors[0]


def _failed(what: str, number: int, point: str) -> HeadraceError:
    reason = f"cannot be {what}: {os.strerror(number)}"
    if number in (errno.EPERM, errno.EACCES):
        return DeniedError(reason, path=point, hint="run as root, or install fuse3")
    if number == errno.EBUSY:
        return InputError(reason, path=point, hint="close the files open there (fuser -vm PATH), or use --lazy")
    if number == errno.EINVAL:
        return InputError("nothing is mounted here", path=point, hint="see what is: headrace mounts --live")
    if number == errno.ENODEV:
        return UnsupportedError(reason, path=point, hint="the kernel has no FUSE")
    return InputError(reason, path=point)


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _unescape(text: str) -> str:
    r"""In mountinfo, blanks, tabs, line feeds and backslashes are \040 and so on."""
    if "\\" not in text:
        return text
    parts = text.split("\\")
    return parts[0] + "".join(chr(int(part[:3], 8)) + part[3:] for part in parts[1:])
