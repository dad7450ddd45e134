"""Hypothesis strategies for object keys and trees of them. Needs `hypothesis`."""

from __future__ import annotations

import string

from hypothesis import strategies as st

_PLAIN = string.ascii_letters + string.digits + "-_."
_UGLY = " +%&?#=:;,@!$'()*[]{}^~`|<>\\\""
_FAR = "äßéñ中日本語Ελλ😀\u00a0\u0301\u200d"
_MOST_BYTES = 900
"""S3 allows 1,024 bytes of UTF-8 in a key; the store's own prefix needs some."""


def plain_keys() -> st.SearchStrategy[str]:
    """Keys that every store can hold: one to four ordinary names joined by ``/``."""
    name = st.text(_PLAIN, min_size=1, max_size=12).filter(lambda text: text.strip(".") != "")
    return st.lists(name, min_size=1, max_size=4).map("/".join)


def keys() -> st.SearchStrategy[str]:
    """Keys of all sorts that S3 can hold: any printable UTF-8, spaces, ``//``, ``..``, ``+``, ``%``, trailing ``/``.

    Never empty, never beginning with ``/``, at most 900 bytes.
    """
    printable = st.characters(codec="utf-8", exclude_categories=("Cc", "Cs", "Cn", "Co"))
    part = st.one_of(
        st.text(_PLAIN, min_size=1, max_size=12),
        st.text(_PLAIN + _UGLY, min_size=1, max_size=8),
        st.text(_FAR, min_size=1, max_size=4),
        st.text(printable, min_size=1, max_size=6),
        st.sampled_from(["", ".", "..", "...", " ", "%2F", "%", "+", "a b", "~"]),
    )
    joined = st.lists(part, min_size=1, max_size=5).map("/".join)
    return joined.map(lambda key: key.lstrip("/")).filter(lambda key: 0 < len(key.encode()) <= _MOST_BYTES)


def contents(*, max_size: int = 2000) -> st.SearchStrategy[bytes]:
    """Bytes of an object, often empty or tiny."""
    return st.one_of(st.just(b""), st.binary(max_size=8), st.binary(max_size=max_size))


def trees(key: st.SearchStrategy[str] | None = None, *, max_size: int = 20) -> st.SearchStrategy[dict[str, bytes]]:
    """Whole stores, key → bytes. Plain keys by default, with siblings and nesting likely (names repeat).

    A plain tree may hold a key that is also a folder of another (``a`` and ``a/b``); see `files`.
    """
    near = st.lists(st.sampled_from(["a", "b", "c", "a.b", "a-b", "train", "x0"]), min_size=1, max_size=4).map("/".join)
    chosen = st.one_of(near, plain_keys()) if key is None else key
    return st.dictionaries(chosen, contents(max_size=64), max_size=max_size)


def files(*, max_size: int = 20) -> st.SearchStrategy[dict[str, bytes]]:
    """Trees that a file system can hold too: no key is a folder of another."""
    return trees(max_size=max_size).map(_without_clashes)


def _without_clashes(tree: dict[str, bytes]) -> dict[str, bytes]:
    folders = {key[:at] for key in tree for at, letter in enumerate(key) if letter == "/"}
    return {key: data for key, data in tree.items() if key not in folders}


def ranges(size: int) -> st.SearchStrategy[tuple[int, int | None]]:
    """(start, stop) to read from an object of `size` bytes: start within it or at its end, stop None or any."""
    start = st.integers(0, size)
    return start.flatmap(
        lambda first: st.tuples(st.just(first), st.one_of(st.none(), st.integers(first, size + 10)))
    )
