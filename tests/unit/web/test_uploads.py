"""Uploads: where they stand, how many there may be, and that none is taken for another."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.base.errors import ChangedError, InputError, TryAgainError
from headrace.base.settings import Settings
from headrace.namespace import Namespace
from headrace.web.uploads import LARGEST_PIECE, Uploads, What

MIB = 1 << 20


@pytest.fixture
def namespace(tmp_path: Path) -> Namespace:
    made = Namespace(Settings(), local=False)
    made.attach("/here", f"file://{tmp_path}")
    return made


def what(name: str = "a", size: int = 10, stamp: int = 1, *, replace: bool = False) -> What:
    return What(f"/here/{name}", size, stamp, replace)


def test_the_same_file_goes_on_and_another_does_not(namespace: Namespace) -> None:
    uploads = Uploads(namespace)
    first = uploads.begin(what(size=9 * MIB))
    assert uploads.take(first.id, 0, bytes(8 * MIB)).offset == 8 * MIB
    again = uploads.begin(what(size=9 * MIB))
    assert (again.id, again.offset) == (first.id, 8 * MIB)
    for other in (what(size=9 * MIB, stamp=2), what(size=9 * MIB + 1), what("b", 9 * MIB)):
        assert uploads.begin(other).offset == 0
    assert uploads.take(first.id, 8 * MIB, bytes(MIB)).over
    assert namespace.stat("/here/a").size == 9 * MIB
    uploads.close()


def test_a_file_that_was_deleted_since_is_sent_anew(namespace: Namespace) -> None:
    uploads = Uploads(namespace)
    for _ in range(2):
        begun = uploads.begin(what())
        assert (begun.offset, begun.over) == (0, False)
        assert uploads.take(begun.id, 0, b"0123456789").over
        assert uploads.begin(what()).over
        namespace.delete("/here/a")


def test_an_empty_file_has_one_empty_piece(namespace: Namespace) -> None:
    uploads = Uploads(namespace)
    begun = uploads.begin(what(size=0))
    assert not namespace.exists("/here/a")
    assert uploads.take(begun.id, 0, b"").over
    assert namespace.stat("/here/a").size == 0


def test_a_piece_comes_once_and_whole(namespace: Namespace) -> None:
    uploads = Uploads(namespace)
    begun = uploads.begin(what())
    for offset, data, error in ((1, b"x", ChangedError), (0, b"short", InputError), (0, b"x" * 11, InputError)):
        with pytest.raises(error):
            uploads.take(begun.id, offset, data)
    assert uploads.take(begun.id, 0, b"0123456789").over
    assert uploads.take(begun.id, 0, b"0123456789").over, "whose answer was lost"
    assert bytes(namespace.read("/here/a")) == b"0123456789"


def test_there_are_not_too_many_and_nothing_of_them_stays(namespace: Namespace, tmp_path: Path) -> None:
    uploads = Uploads(namespace)
    for number in range(16):
        uploads.begin(what(str(number)))
    with pytest.raises(TryAgainError):
        uploads.begin(what("more"))
    uploads.drop(uploads.begin(what("3")).id)
    uploads.begin(what("more"))
    uploads.close()
    assert list(tmp_path.iterdir()) == []


def test_pieces_of_large_files_are_larger(namespace: Namespace) -> None:
    uploads = Uploads(namespace)
    for size in (1, 70 * 10**9, 80 * 10**9, 500 * 10**9):
        piece = uploads.begin(what(size=size)).piece
        assert 8 * MIB <= piece <= LARGEST_PIECE
        assert piece * 9500 >= size
    with pytest.raises(InputError, match="cannot be sent from a page"):
        uploads.begin(what(size=10**13))
    uploads.close()
