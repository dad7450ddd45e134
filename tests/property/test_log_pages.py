"""Any stretch of a log by its numbers is what reading all of it gives there, however it was written."""

from __future__ import annotations

import secrets
import tempfile
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from headrace.store import open_store
from headrace.store.protocol import Store
from headrace.tracking.logs import LogReader, LogWriter
from headrace.tracking.pages import LogPages

PIECES = st.lists(
    st.sampled_from([b"one\n", b"two\nthree\n", b"part", b"bar 1%\r", b"bar 2%\r", b"\n", None]), max_size=25
)


def written(pieces: list[bytes | None], *, old: bool) -> Store:
    """A stream of these; None closes a segment. `old`: as a version did that counted no lines."""
    store = open_store(f"memory://pages-{secrets.token_hex(8)}")
    with tempfile.TemporaryDirectory(prefix="headrace-test-") as folder:
        writer = LogWriter(folder, "stdout")
        for piece in pieces:
            writer.close_segment() if piece is None else writer.feed(piece)
        writer.close_segment(last=True)
        for path in sorted(Path(folder).rglob("*.zst")):
            store.put(f"logs/stdout/{path.name}", path.read_bytes() if not old else _uncounted(path))
    return store


def _uncounted(path: Path) -> bytes:
    import io

    import pyarrow as pa

    with pa.CompressedInputStream(io.BytesIO(path.read_bytes()), "zstd") as file:
        head, *rest = file.read().splitlines(keepends=True)
    out = pa.BufferOutputStream()
    with pa.CompressedOutputStream(out, "zstd") as file:
        file.write(b"".join([head.split(b', "line"')[0] + b"}\n", *rest]))
    return out.getvalue().to_pybytes()


@given(PIECES, st.booleans(), st.integers(0, 12), st.integers(0, 12))
def test_a_stretch_is_that_of_all(pieces: list[bytes | None], old: bool, start: int, count: int) -> None:
    store = written(pieces, old=old)
    every = [line for line in LogReader(store, "logs/", ("stdout",)).read() if line.over]
    pages = LogPages(store, "logs/", "stdout")
    assert pages.count() == len(every)
    found = pages.lines(start, start + count)
    assert [one.number for one in found] == list(range(start, min(start + count, len(every))))
    assert [one.line.text for one in found] == [line.text for line in every[start : start + count]]
    wanted = [number for number, line in enumerate(every) if "t" in line.text and number >= start]
    assert [one.number for one in pages.search("T", start=start)] == wanted


def test_millions_of_lines_cost_a_few_requests() -> None:
    store = written([*([b"x\n" * 1000, None] * 300)], old=False)
    asked: list[str] = []

    class Counting:
        def get(self, key: str):
            asked.append(key)
            return store.get(key)

        def list(self, prefix: str, *, start_after: str | None = None):
            return store.list(prefix, start_after=start_after)

    pages = LogPages(Counting(), "logs/", "stdout")  # pyright: ignore[reportArgumentType]
    assert pages.lines(299_000, 299_001)[0].number == 299_000
    assert len(asked) <= 12


def test_what_comes_later_is_seen() -> None:
    store = written([b"one\n"], old=False)
    pages = LogPages(store, "logs/", "stdout")
    assert pages.count() == 1
    more = written([b"one\n", None, b"two\n"], old=False)
    store.put("logs/stdout/00000001.zst", more.get("logs/stdout/00000001.zst").data)
    assert pages.count() == 1
    pages.refresh()
    assert [one.line.text for one in pages.lines(0, 9)] == ["one", "two"]
