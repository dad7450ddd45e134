"""Names of entries in arrays stand for the very files that single names stand for."""

from __future__ import annotations

import os

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from headrace.cache.entries import Entries, digests_of
from headrace.cache.names import Layout, object_name, size_of

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
SIZES = st.one_of(st.integers(0, 300), st.integers(0, (1 << 62) - 1))
VERSIONS = st.lists(st.tuples(TEXT, TEXT, SIZES), max_size=20)


@given(TEXT, VERSIONS, st.sampled_from(["/cache", "/Größe/日本"]), st.data())
def test_paths_and_names_are_those_of_single_entries(
    identity: str, versions: list[tuple[str, str, int]], folder: str, data: st.DataObject
) -> None:
    layout = Layout(folder, "node")
    names = [object_name(identity, *one) for one in versions]
    digests = digests_of(identity, [key for key, _, _ in versions], [version for _, version, _ in versions])
    entries = Entries.below(layout.objects, digests, np.array([size for _, _, size in versions], np.int64))
    start = data.draw(st.integers(0, len(names)))
    part = slice(start, data.draw(st.integers(start, len(names))))
    for some, expected in ((entries, names), (entries[part], names[part])):
        assert len(some) == len(expected)
        assert [some.name(at) for at in range(len(some))] == expected
        assert [os.fsdecode(path) for path in some.paths.tolist()] == list(map(layout.entry, expected))
        assert some.sizes.tolist() == list(map(size_of, expected))
        assert some.paths.dtype.itemsize > max((len(path) for path in some.paths.tolist()), default=0), (
            "ended by a zero"
        )
        assert len(set(some.marks.tolist())) == len(set(expected))
