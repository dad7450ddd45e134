"""Small pictures that are kept: bounded, shared by processes, and never in the way when the disk is."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from headrace.web.pictures import Pictures


def test_they_are_kept_for_the_next_server(tmp_path: Path) -> None:
    one, other = Pictures(str(tmp_path / "web")), Pictures(str(tmp_path / "web"))
    assert one.get("a") is None
    one.keep("a", b"picture")
    assert other.get("a") == b"picture"
    other.keep("a", b"again")
    assert one.get("a") == b"again"
    one.close()
    one.close()
    assert Pictures(str(tmp_path / "web")).get("a") == b"again"


def test_there_is_room_for_so_many(tmp_path: Path) -> None:
    kept = Pictures(str(tmp_path), room=1 << 20)
    for number in range(1000):
        kept.keep(str(number), bytes(5000))
    left = [number for number in range(1000) if kept.get(str(number)) is not None]
    assert 100 < len(left) < 220
    assert left[-1] == 999
    assert left == list(range(left[0], 1000)), "what has been kept longest goes"
    assert sum(one.stat().st_size for one in tmp_path.iterdir()) < 8 << 20


def test_without_a_folder_they_are_in_memory() -> None:
    kept = Pictures(None)
    kept.keep("a", b"picture")
    assert kept.get("a") == b"picture"


@pytest.mark.parametrize("data", [b"no database" * 1000, b"SQLite format 3\0" + bytes(4000)])
def test_a_damaged_file_is_made_anew(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "pictures-1.sqlite").write_bytes(data)
    kept = Pictures(str(tmp_path))
    kept.keep("a", b"picture")
    assert kept.get("a") == b"picture"
    assert Pictures(str(tmp_path)).get("a") == b"picture"


def test_a_file_damaged_or_deleted_meanwhile_is_a_miss(tmp_path: Path) -> None:
    kept = Pictures(str(tmp_path))
    for number in range(300):
        kept.keep(str(number), bytes(9000))
    for path in tmp_path.iterdir():
        path.write_bytes(b"damage" * 5000)
    for number in range(300):
        kept.get(str(number))
        kept.keep(str(number), b"new")
    assert kept.get("299") == b"new"
    for path in tmp_path.iterdir():
        path.unlink()
    kept.keep("b", b"picture")
    kept.keep("b", b"picture")
    assert kept.get("b") in (b"picture", None)


def test_a_folder_that_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "web").write_text("a file")
    kept = Pictures(str(tmp_path / "web"))
    kept.keep("a", b"picture")
    assert kept.get("a") == b"picture"


def test_many_threads(tmp_path: Path) -> None:
    kept = Pictures(str(tmp_path))

    def work(number: int) -> bytes | None:
        kept.keep(str(number % 50), bytes([number % 50]))
        return kept.get(str(number % 50))

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(work, range(400))) == [bytes([number % 50]) for number in range(400)]
