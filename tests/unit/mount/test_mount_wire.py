"""The kernel's structures, byte for byte: sizes and offsets as ``linux/fuse.h`` lays them out."""

from __future__ import annotations

import errno
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.base import errors
from headrace.base.errors import InputError
from headrace.base.settings import MountSettings, Settings
from headrace.fetch.readahead import BlockCursor, Limits
from headrace.mount.kernel import mount_points, wire
from headrace.mount.kernel.error_numbers import errno_of
from headrace.mount.kernel.wire import Attr, Fattr, Init
from headrace.mount.mount_options import MountOptions
from headrace.mount.names.listing_pages import FILE, FOLDER, LINK, ListingPage
from headrace.mount.names.node_table import NodeTable
from headrace.mount.names.nodes import FolderNode
from headrace.store.protocol import ObjectInfo

ATTR = Attr(ino=7, size=1025, mtime_ns=1_700_000_000_123_456_789, mode=0o100644, nlink=1, uid=5, gid=6)


def test_headers() -> None:
    assert wire.HEADER == 40
    assert wire.reply(9, b"abc") == struct.pack("=IiQ", 19, 0, 9) + b"abc"
    assert wire.failure(9, errno.ENOENT) == struct.pack("=IiQ", 16, -2, 9)


def test_attributes_are_where_the_kernel_looks() -> None:
    raw = wire.attributes(1, ATTR, 1.5)
    assert len(raw) == 16 + 104
    assert struct.unpack_from("=QI", raw, 16) == (1, 500_000_000)
    body = raw[32:]
    ino, size, blocks, _, mtime, ctime = struct.unpack_from("=6Q", body)
    nanos = struct.unpack_from("=3I", body, 48)
    mode, nlink, uid, gid, rdev, block, flags = struct.unpack_from("=7I", body, 60)
    assert (ino, size, blocks, mtime, ctime) == (7, 1025, 3, 1_700_000_000, 1_700_000_000)
    assert nanos == (123_456_789,) * 3
    assert (mode, nlink, uid, gid, rdev, block, flags) == (0o100644, 1, 5, 6, 0, 4096, 0)


def test_times_before_1970() -> None:
    raw = wire.attributes(1, ATTR._replace(mtime_ns=-1), 1)
    assert struct.unpack_from("=q", raw, 32 + 32) == (-1,)
    assert struct.unpack_from("=I", raw, 32 + 52) == (999_999_999,)


def test_entries() -> None:
    raw = wire.entry(1, ATTR, 2.0, 3600.0)
    assert len(raw) == 16 + 128
    assert struct.unpack_from("=QQQQII", raw, 16) == (7, 0, 2, 3600, 0, 0)
    assert raw[16:] == wire.bare_entry(ATTR, 2.0, 3600.0)
    assert len(wire.no_entry()) == 128
    absent = wire.absent(1, 5.0)
    assert (len(absent), struct.unpack_from("=QQQ", absent, 16)) == (144, (0, 0, 5))


@pytest.mark.parametrize("name", [b"n" * length for length in range(1, 18)])
def test_a_listed_name_is_its_entry_and_its_place_in_the_folder(name: bytes) -> None:
    raw = wire.listed(ATTR, wire.lasting(2.25), wire.lasting(3600.0), 99, 8, name)
    assert raw == wire.bare_entry(ATTR, 2.25, 3600.0) + wire.dirent(7, 99, 8, name)
    assert len(raw) % 8 == 0


def test_open_and_create() -> None:
    raw = wire.opened(3, 77, wire.Fopen.PASSTHROUGH, 5)
    assert struct.unpack("=IiQQIi", raw) == (32, 0, 3, 77, 1 << 7, 5)
    assert wire.handle_of(raw) == 77
    made = wire.created(3, ATTR, 1.0, 77, 2, 0)
    assert len(made) == 16 + 128 + 16
    assert struct.unpack_from("=QIi", made, 144) == (77, 2, 0)


def test_init() -> None:
    told = struct.pack("=IIIII44x", 7, 45, 131072, 1 << 30 | 1, 1 << 5)
    assert wire.hello(memoryview(told)) == (7, 45, 131072, 1 << 30 | 1 | Init.PASSTHROUGH)
    assert wire.hello(memoryview(told[:16])).flags == 1 << 30 | 1, "an old kernel sends less"
    raw = wire.init(1, 40, readahead=1 << 20, flags=Init.PASSTHROUGH | 1, write=1 << 20, background=64, depth=1)
    assert len(raw) == 16 + 64
    fields = struct.unpack_from("=IIIIHHIIHHII", raw, 16)
    assert fields == (7, 40, 1 << 20, 1, 64, 48, 1 << 20, 1, 256, 0, 1 << 5, 1)


@given(st.binary(min_size=1, max_size=255).filter(lambda name: b"\0" not in name), st.integers(0, 2**63))
def test_directory_entries_are_aligned(name: bytes, offset: int) -> None:
    raw = wire.dirent(9, offset, 8, name)
    assert len(raw) % 8 == 0
    assert struct.unpack_from("=QQII", raw) == (9, offset, len(name), 8)
    assert raw[24 : 24 + len(name)] == name
    assert not any(raw[24 + len(name) :])


def test_setattr() -> None:
    raw = struct.pack("=IIQQQQQQIIIIIIII", Fattr.SIZE | Fattr.MTIME, 0, 3, 4096, 0, 1, 2, 0, 5, 6, 0, 0o600, 0, 8, 9, 0)
    assert len(raw) == 88
    change = wire.setattr_of(memoryview(raw))
    assert change == (Fattr.SIZE | Fattr.MTIME, 3, 4096, 1_000_000_005, 2_000_000_006, 0o600, 8, 9)


def test_names_and_forgets() -> None:
    assert wire.name_of(memoryview(b"abc\0rest")) == b"abc"
    assert wire.names_of(memoryview(b"12345678old\0new\0"), 8) == (b"old", b"new")
    batch = struct.pack("=II", 2, 0) + struct.pack("=QQQQ", 5, 1, 6, 2) + b"more"
    assert list(wire.forgotten(memoryview(batch))) == [(5, 1), (6, 2)]


def test_notices() -> None:
    assert wire.inval_inode(5) == struct.pack("=IiQQqq", 40, 2, 0, 5, 0, -1)
    assert wire.inval_entry(5, b"ab") == struct.pack("=IiQQII", 35, 3, 0, 5, 2, 0) + b"ab\0"
    assert wire.inval_entry(5, b"ab", expire=True) == struct.pack("=IiQQII", 35, 3, 0, 5, 2, 1) + b"ab\0"


@pytest.mark.parametrize(
    ("error", "number"),
    [
        (errors.NotFoundError("x"), errno.ENOENT),
        (errors.ReadOnlyError("x"), errno.EROFS),
        (errors.CredentialsError("x"), errno.EACCES),
        (errors.AlreadyExistsError("x"), errno.EEXIST),
        (errors.ChangedError("x"), errno.ESTALE),
        (errors.NoRoomError("x"), errno.ENOSPC),
        (errors.UnsupportedError("x"), errno.ENOTSUP),
        (errors.DeadlineError("x"), errno.EIO),
        (errors.InternalError("x"), errno.EIO),
        (OSError(errno.ENOTEMPTY, "x"), errno.ENOTEMPTY),
        (InterruptedError(), errno.EINTR),
        (KeyError("x"), errno.EIO),
    ],
)
def test_every_error_has_its_errno(error: Exception, number: int) -> None:
    assert errno_of(error) == number


def test_mountinfo() -> None:
    text = (
        "22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw\n"
        "40 22 0:45 / /mnt/with\\040blank ro,nosuid - fuse.headrace headrace ro,user_id=0\n"
    )
    found = mount_points.mounts(text)
    assert [(each.point, each.kind, each.device, each.read_only) for each in found] == [
        ("/", "ext4", "254:0", False),
        ("/mnt/with blank", "fuse.headrace", "0:45", True),
    ]


def test_options() -> None:
    settings = Settings(mount=MountSettings(ttl=5.0))
    options = MountOptions.of(settings, "ro,uid=12,umask=077,_netdev,x-systemd.automount,ttl=2m,no_passthrough")
    assert (options.read_only, options.uid, options.umask, options.ttl) == (True, 12, 0o077, 120.0)
    assert not options.passthrough
    assert MountOptions.of(settings).ttl == 5.0
    assert MountOptions.of(Settings()).ttl == Settings().cache.ttl
    wrong = {"umsak=1": "umask", "umask=9": "octal", "ro=1": "takes no value", "uid": "needs a value"}
    for text, says in wrong.items():
        with pytest.raises(InputError) as caught:
            MountOptions.of(settings, text)
        assert says in str(caught.value)


# pages

KEYS = st.text(st.characters(exclude_characters="/\0", exclude_categories=("Cs",)), min_size=1, max_size=40)


@given(st.sets(KEYS, max_size=40), st.sets(KEYS, max_size=10), st.booleans())
def test_a_page_finds_what_it_was_given(files: set[str], folders: set[str], md5: bool) -> None:
    etag = "0123456789abcdef" * 2 if md5 else "odd-3"
    objects = [ObjectInfo(f"p/{name}", len(name), etag, 1_000 + len(name)) for name in sorted(files)]
    table = NodeTable("/")
    page = ListingPage("p/", [f"p/{name}/" for name in sorted(folders)], objects)
    table.enrol(page, table.root)
    shown = {name for name in folders | files if name not in (".", "..") and len(name.encode()) <= 255}
    names = {page.name(index).decode() for index in range(len(page))}
    assert names == {_bare(name) if name in files - folders else name for name in shown}
    for name in shown:
        kind = FOLDER if name in folders else LINK if _bare(name) != name else FILE
        text = _bare(name) if kind == LINK else name
        index = page.find(text.encode())
        assert index >= 0
        if page.kinds[index] == FILE:
            assert (page.sizes[index], page.etag(index), page.key(index)) == (len(name), etag, name)
        assert table.get(page.node(index)).name == text.encode()
    assert page.find(b"never there") == -1 or "never there" in shown


def _bare(name: str) -> str:
    return name.removesuffix(".rclonelink") or name


def test_a_folder_hides_the_file_of_its_name() -> None:
    page = ListingPage("", ["a/"], [ObjectInfo("a", 1), ObjectInfo("b", 2), ObjectInfo("b/", 0)])
    assert [(page.name(i), page.kinds[i]) for i in range(len(page))] == [(b"a", FOLDER), (b"b", FILE)]


def test_forgotten_pages_leave_the_table() -> None:
    table = NodeTable("/")
    page = ListingPage("", ["d/"], [ObjectInfo("f", 1, "e" * 32)])
    table.enrol(page, table.root)
    with table.lock:
        numbers = [table.show(table.root, page, index) for index in range(len(page))]
        page.live = False
        table.forget(numbers[0], 1)
        assert table.get(numbers[1]).name == b"f"
        table.forget(numbers[1], 1)
    assert not table.pages
    with pytest.raises(OSError, match="unknown node") as caught:
        table.get(numbers[1])
    assert caught.value.errno == errno.ESTALE


def test_an_id_carried_from_a_page_that_went_is_replaced() -> None:
    table = NodeTable("/")
    old, new = (ListingPage("", [], [ObjectInfo("f", 1, "e" * 32)]) for _ in range(2))
    with table.lock:
        for page in (old, new):
            table.enrol(page, table.root)
        new.carry(0, table.show(table.root, old, 0))
        assert new.node(0) == old.node(0)
        old.live = False
        table.forget(old.node(0), 1)
        number = table.node_of(table.root, new, 0)
    assert table.get(number).name == b"f"


def test_renaming_a_folder_moves_the_paths_below() -> None:
    table = NodeTable("s3://bucket")
    top = FolderNode(5, table.root, b"old", 0)
    below = FolderNode(6, top, b"in", 0)
    assert below.child(b"f") == "s3://bucket/old/in/f"
    top.name = b"new"
    assert below.child(b"f") == "s3://bucket/new/in/f"


# how far ahead a handle reads

BLOCK = 4 << 20


def position() -> BlockCursor:
    return BlockCursor(1000 * BLOCK, Limits(BLOCK, 64 * BLOCK, BLOCK, BLOCK, 2 * BLOCK), 64 << 10)


def test_reading_forward_reads_ever_further_ahead() -> None:
    reach = position()
    windows: list[int] = []
    for start in range(0, 8 * BLOCK, 1 << 20):
        assert reach.read(start, 1 << 20)
        windows.append(reach.window // BLOCK)
    assert windows == sorted(windows)
    assert windows[0] == 2
    assert windows[-1] >= 64


def test_jumping_about_reads_nothing_ahead() -> None:
    reach = position()
    for start in (100 * BLOCK, 3 * BLOCK, 77 * BLOCK, 12 * BLOCK):
        assert not reach.read(start, 4096)
        assert reach.window == 0


def test_the_head_of_a_file_alone_is_no_reading_forward() -> None:
    assert not position().read(0, 16384)


def test_a_little_disorder_is_still_forward() -> None:
    reach = position()
    assert reach.read(0, 1 << 20)
    for start in (2 << 20, 1 << 20, 4 << 20, 3 << 20, 5 << 20):
        assert reach.read(start, 1 << 20)
