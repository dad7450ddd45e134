"""The kernel's FUSE protocol as bytes: opcodes, flags, structures. Packing and unpacking only, no I/O.

Source: Linux, ``include/uapi/linux/fuse.h``, protocol 7.45; we ask for what 7.40 (passthrough) and older know, and work
from 7.31 on. All numbers are in the machine's byte order; structures are laid out without padding by their authors.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from enum import IntEnum
from typing import NamedTuple

MAJOR, MINOR, OLDEST_MINOR = 7, 41, 31  # of the protocol; 7.31 came with Linux 5.4
ROOT = 1
"""The node id of the mount's root."""
LONGEST_NAME = 255
"""Bytes: Linux's NAME_MAX."""

IN = struct.Struct("=IIQQIIIHH")
"""Request header: length, opcode, unique, node, uid, gid, pid, extensions, padding."""
BRIEF = struct.Struct("=4xIQQ")
"""Of `IN` the opcode, the request's number, and the node's."""
OUT = struct.Struct("=IiQ")
"""Reply header: length, negated errno, unique. A notification has unique 0 and its code for the errno."""
HEADER = IN.size


class Op(IntEnum):
    """Opcodes."""

    LOOKUP = 1
    FORGET = 2
    GETATTR = 3
    SETATTR = 4
    READLINK = 5
    SYMLINK = 6
    MKNOD = 8
    MKDIR = 9
    UNLINK = 10
    RMDIR = 11
    RENAME = 12
    LINK = 13
    OPEN = 14
    READ = 15
    WRITE = 16
    STATFS = 17
    RELEASE = 18
    FSYNC = 20
    SETXATTR = 21
    GETXATTR = 22
    LISTXATTR = 23
    REMOVEXATTR = 24
    FLUSH = 25
    INIT = 26
    OPENDIR = 27
    READDIR = 28
    RELEASEDIR = 29
    FSYNCDIR = 30
    GETLK = 31
    SETLK = 32
    SETLKW = 33
    ACCESS = 34
    CREATE = 35
    INTERRUPT = 36
    BMAP = 37
    DESTROY = 38
    IOCTL = 39
    POLL = 40
    NOTIFY_REPLY = 41
    BATCH_FORGET = 42
    FALLOCATE = 43
    READDIRPLUS = 44
    RENAME2 = 45
    LSEEK = 46
    COPY_FILE_RANGE = 47
    SYNCFS = 50
    TMPFILE = 51
    STATX = 52


class Notify(IntEnum):
    """Codes of notices to the kernel."""

    INVAL_INODE = 2
    INVAL_ENTRY = 3
    RESEND = 7


class Init:
    """Flags of INIT; from bit 32 on they travel in `flags2`."""

    ASYNC_READ = 1 << 0
    ATOMIC_O_TRUNC = 1 << 3
    BIG_WRITES = 1 << 5
    DONT_MASK = 1 << 6
    AUTO_INVAL_DATA = 1 << 12
    DO_READDIRPLUS = 1 << 13
    READDIRPLUS_AUTO = 1 << 14
    ASYNC_DIO = 1 << 15
    NO_OPEN_SUPPORT = 1 << 17
    PARALLEL_DIROPS = 1 << 18
    MAX_PAGES = 1 << 22
    CACHE_SYMLINKS = 1 << 23
    INIT_EXT = 1 << 30
    PASSTHROUGH = 1 << 37
    HAS_RESEND = 1 << 39


class Fopen:
    """Flags of an answer to OPEN, CREATE or OPENDIR."""

    DIRECT_IO = 1 << 0
    KEEP_CACHE = 1 << 1
    CACHE_DIR = 1 << 3
    NOFLUSH = 1 << 5
    PASSTHROUGH = 1 << 7


class Fattr:
    """Which fields a SETATTR changes."""

    MODE = 1 << 0
    UID = 1 << 1
    GID = 1 << 2
    SIZE = 1 << 3
    ATIME = 1 << 4
    MTIME = 1 << 5
    FH = 1 << 6
    ATIME_NOW = 1 << 7
    MTIME_NOW = 1 << 8


RENAME_NOREPLACE = 1  # linux/fs.h

_INIT_IN = struct.Struct("=IIIII")
_INIT_OUT = struct.Struct("=IIIIHHIIHHIIH22x")
_ATTR = struct.Struct("=QQQQQQIIIIIIIIII")
_ENTRY = struct.Struct("=IiQQQQQII" + _ATTR.format[1:])
_ATTR_OUT = struct.Struct("=IiQQII" + _ATTR.format[1:])
_BARE_ENTRY = struct.Struct("=QQQQII" + _ATTR.format[1:])
_OPEN_OUT = struct.Struct("=IiQQIi")
_CREATED = struct.Struct("=QIi")
_DIRENT = struct.Struct("=QQII")
_LISTED = struct.Struct(_BARE_ENTRY.format + _DIRENT.format[1:])
_PADDING = tuple(bytes(-length % 8) for length in range(8))
_STATFS = struct.Struct("=QQQQQIIII24x")
_FORGETS = struct.Struct("=QQ")
_INVAL_INODE = struct.Struct("=Qqq")
_INVAL_ENTRY = struct.Struct("=QII")
_EXPIRE_ONLY = 1  # FUSE_EXPIRE_ONLY
_BATCH = struct.Struct("=II")

OPEN_IN = struct.Struct("=II")
"""OPEN, OPENDIR: flags, open flags."""
READ_IN = struct.Struct("=QQIIQII")
"""READ, READDIR, READDIRPLUS: handle, offset, size, read flags, lock owner, flags, padding."""
WRITE_IN = struct.Struct("=QQIIQII")
"""WRITE: handle, offset, size, write flags, lock owner, flags, padding; then the bytes."""
RELEASE_IN = struct.Struct("=QIIQ")
"""RELEASE, RELEASEDIR: handle, flags, release flags, lock owner."""
SETATTR_IN = struct.Struct("=IIQQQQQQIIIIIIII")
CREATE_IN = struct.Struct("=IIII")
MKDIR_IN = struct.Struct("=II")
RENAME_IN = struct.Struct("=Q")
RENAME2_IN = struct.Struct("=QII")
FORGET_IN = struct.Struct("=Q")
INTERRUPT_IN = struct.Struct("=Q")
HANDLE_IN = struct.Struct("=Q")
"""The handle, which FLUSH, FSYNC and RELEASE begin with."""
FALLOCATE_IN = struct.Struct("=QQQII")
WRITE_OUT = struct.Struct("=II")

BACKING_OPEN, BACKING_CLOSE = 0x4010E501, 0x4004E502  # FUSE_DEV_IOC_BACKING_OPEN, …_CLOSE
BACKING_MAP = struct.Struct("=iIQ")
"""ioctl arguments of passthrough: descriptor, flags, padding."""


class Hello(NamedTuple):
    """What the kernel says at INIT. `flags`: all 64 bits."""

    major: int
    minor: int
    readahead: int
    flags: int


class Attr(NamedTuple):
    """Attributes of a node, as `stat` shows them. Times in nanoseconds, size in bytes."""

    ino: int
    size: int
    mtime_ns: int
    mode: int
    nlink: int
    uid: int
    gid: int
    ctime_ns: int | None = None


class AttributeChange(NamedTuple):
    """A SETATTR: `valid` says which of the others count (`Fattr`). Times in nanoseconds."""

    valid: int
    handle: int
    size: int
    atime_ns: int
    mtime_ns: int
    mode: int
    uid: int
    gid: int


def hello(body: memoryview) -> Hello:
    """INIT's body."""
    if len(body) >= _INIT_IN.size:
        major, minor, readahead, flags, more = _INIT_IN.unpack_from(body)
    else:
        major, minor, readahead, flags = struct.unpack_from("=IIII", body)
        more = 0
    if not flags & Init.INIT_EXT:
        more = 0
    return Hello(major, minor, readahead, flags | more << 32)


def init(unique: int, minor: int, *, readahead: int, flags: int, write: int, background: int, depth: int) -> bytes:
    """The answer to INIT. `write`: bytes of the largest READ and WRITE; `depth`: stacking depth of backing files."""
    body = _INIT_OUT.pack(
        MAJOR, minor, readahead, flags & 0xFFFFFFFF, background, background * 3 // 4, write, 1, write // 4096, 0,
        flags >> 32, depth, 0,
    )  # fmt: skip
    return reply(unique, body)


def reply(unique: int, body: bytes = b"") -> bytes:
    """An answer without error."""
    return OUT.pack(16 + len(body), 0, unique) + body


def failure(unique: int, errno: int) -> bytes:
    """An answer that is an error."""
    return OUT.pack(16, -errno, unique)


def _attr(attr: Attr) -> tuple[int, ...]:
    ino, size, mtime, mode, nlink, uid, gid, ctime = attr
    seconds, nanos = divmod(mtime, 1_000_000_000)
    changed, changed_nanos = (seconds, nanos) if ctime is None else divmod(ctime, 1_000_000_000)
    seconds, changed = seconds & 0xFFFFFFFFFFFFFFFF, changed & 0xFFFFFFFFFFFFFFFF
    return (
        ino, size, (size + 511) >> 9, seconds, seconds, changed, nanos, nanos, changed_nanos, mode, nlink, uid, gid,
        0, 4096, 0,
    )  # fmt: skip


def lasting(seconds: float) -> tuple[int, int]:
    """A duration as it travels: whole seconds, nanoseconds."""
    whole = int(seconds)
    return whole, int((seconds - whole) * 1_000_000_000)


def entry(unique: int, attr: Attr, valid_s: float, attr_s: float) -> bytes:
    """LOOKUP, MKDIR, SYMLINK: a node, its name trusted for `valid_s` seconds, its attributes for `attr_s`."""
    whole, nanos = lasting(valid_s)
    attr_whole, attr_nanos = lasting(attr_s)
    return _ENTRY.pack(144, 0, unique, attr.ino, 0, whole, attr_whole, nanos, attr_nanos, *_attr(attr))


def bare_entry(attr: Attr, valid_s: float, attr_s: float) -> bytes:
    """The same without a header: part of CREATE's answer."""
    whole, nanos = lasting(valid_s)
    attr_whole, attr_nanos = lasting(attr_s)
    return _BARE_ENTRY.pack(attr.ino, 0, whole, attr_whole, nanos, attr_nanos, *_attr(attr))


def listed(
    attr: Attr, valid: tuple[int, int], attr_valid: tuple[int, int], offset: int, kind: int, name: bytes
) -> bytes:
    """One name of READDIRPLUS with its attributes: `bare_entry` and `dirent` in one piece, as there are thousands.

    `valid`, `attr_valid`: as `lasting` gives them; the caller has them from the name before.
    """
    whole, nanos = valid
    attr_whole, attr_nanos = attr_valid
    ino, length = attr.ino, len(name)
    head = _LISTED.pack(ino, 0, whole, attr_whole, nanos, attr_nanos, *_attr(attr), ino, offset, length, kind)
    return head + name + _PADDING[length & 7]


def no_entry() -> bytes:
    """In READDIRPLUS, for a name that is listed but not looked up: ``.`` and ``..``."""
    return bytes(_BARE_ENTRY.size)


def absent(unique: int, valid_s: float) -> bytes:
    """LOOKUP: there is no such name, and will be none for `valid_s` seconds."""
    whole, nanos = lasting(valid_s)
    return _ENTRY.pack(144, 0, unique, 0, 0, whole, 0, nanos, *(0,) * 17)


def attributes(unique: int, attr: Attr, valid_s: float) -> bytes:
    """GETATTR, SETATTR."""
    whole, nanos = lasting(valid_s)
    return _ATTR_OUT.pack(120, 0, unique, whole, nanos, 0, *_attr(attr))


def opened(unique: int, handle: int, flags: int, backing: int = 0) -> bytes:
    """OPEN, OPENDIR. `backing`: id of the backing file where `flags` has PASSTHROUGH."""
    return _OPEN_OUT.pack(32, 0, unique, handle, flags, backing)


def handle_of(answer: bytes) -> int:
    """The handle in an answer made by `opened`."""
    return HANDLE_IN.unpack_from(answer, OUT.size)[0]


def created(unique: int, attr: Attr, valid_s: float, handle: int, flags: int, backing: int = 0) -> bytes:
    """CREATE."""
    return reply(unique, bare_entry(attr, valid_s, valid_s) + _CREATED.pack(handle, flags, backing))


def written(unique: int, size: int) -> bytes:
    """WRITE, COPY_FILE_RANGE."""
    return reply(unique, WRITE_OUT.pack(size, 0))


def statfs(unique: int, *, blocks: int, free: int, files: int) -> bytes:
    """STATFS, in blocks of 4 KiB."""
    return reply(unique, _STATFS.pack(blocks, free, free, files, files, 4096, LONGEST_NAME, 4096, 0))


def dirent(ino: int, offset: int, kind: int, name: bytes) -> bytes:
    """One name of READDIR. `offset`: where the next READDIR goes on; `kind`: the file type bits, shifted by 12."""
    return _DIRENT.pack(ino, offset, len(name), kind) + name + _PADDING[len(name) & 7]


def setattr_of(body: memoryview) -> AttributeChange:
    """SETATTR's body."""
    told = SETATTR_IN.unpack_from(body)
    valid, _, handle, size, _, atime, mtime, _, atime_ns, mtime_ns, _, mode, _, uid, gid, _ = told
    second = 1_000_000_000
    return AttributeChange(valid, handle, size, atime * second + atime_ns, mtime * second + mtime_ns, mode, uid, gid)


def name_of(body: memoryview, start: int = 0) -> bytes:
    """A name, which ends in a NUL."""
    return bytes(body[start:]).partition(b"\0")[0]


def names_of(body: memoryview, start: int = 0) -> tuple[bytes, bytes]:
    """Two names (RENAME, SYMLINK), each of which ends in a NUL."""
    first, _, rest = bytes(body[start:]).partition(b"\0")
    return first, rest.partition(b"\0")[0]


def forgotten(body: memoryview) -> Iterator[tuple[int, int]]:
    """BATCH_FORGET's body: nodes, and how many lookups of each are forgotten."""
    count, _ = _BATCH.unpack_from(body)
    return _FORGETS.iter_unpack(body[8 : 8 + 16 * count])


def changed_names(op: int, node: int, body: memoryview) -> list[tuple[int, bytes]]:
    """The names, with their folders' nodes, that a request takes away or gives; others change none."""
    if op in (Op.UNLINK, Op.RMDIR):
        return [(node, name_of(body))]
    if op in (Op.RENAME, Op.RENAME2):
        old, new = names_of(body, RENAME_IN.size if op == Op.RENAME else RENAME2_IN.size)
        return [(node, old), (RENAME_IN.unpack_from(body)[0], new)]
    return []


def inval_inode(node: int, start: int = 0, length: int = -1) -> bytes:
    """Tell the kernel to drop a node's attributes, and its pages from `start` on (negative: only attributes)."""
    body = _INVAL_INODE.pack(node, start, length)
    return OUT.pack(16 + len(body), Notify.INVAL_INODE, 0) + body


def inval_entry(parent: int, name: bytes, *, expire: bool = False) -> bytes:
    """Tell the kernel to look up one name again. `expire` (7.38): when it is next used, without dropping it now."""
    body = _INVAL_ENTRY.pack(parent, len(name), _EXPIRE_ONLY if expire else 0) + name + b"\0"
    return OUT.pack(16 + len(body), Notify.INVAL_ENTRY, 0) + body


def resend() -> bytes:
    """Ask the kernel (7.40) to send all requests again that were read and not answered."""
    return OUT.pack(16, Notify.RESEND, 0)
