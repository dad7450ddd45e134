"""`Store.get` and `Store.head`."""

from __future__ import annotations

import pytest

from headrace.base.errors import ChangedError, InputError, NotFoundError
from headrace.store.protocol import Store
from headrace.testing.conformance.base import Reader, Suite

DATA = bytes(range(256)) * 8
RANGES = [(0, None), (0, 1), (0, len(DATA)), (7, 300), (100, None), (len(DATA) - 1, None), (5, 5), (0, 0)]


class Reads(Suite):
    """Reading."""

    @pytest.mark.parametrize(("start", "stop"), RANGES)
    def test_a_range_is_exact(self, store: Store, folder: str, read: Reader, start: int, stop: int | None) -> None:
        store.put(folder + "a", DATA)
        blob = read(store, folder + "a", start, stop)
        assert bytes(blob.data) == DATA[start:stop]
        assert blob.info.key == folder + "a"

    def test_a_range_past_the_end_is_cut(self, store: Store, folder: str, read: Reader) -> None:
        store.put(folder + "a", DATA)
        assert bytes(read(store, folder + "a", 100, len(DATA) + 50).data) == DATA[100:]
        assert bytes(read(store, folder + "a", 0, len(DATA) * 2).data) == DATA

    def test_a_range_at_the_end_is_empty(self, store: Store, folder: str, read: Reader) -> None:
        store.put(folder + "a", DATA)
        assert len(read(store, folder + "a", len(DATA)).data) == 0

    def test_a_range_beyond_the_end_is_refused(self, store: Store, folder: str, read: Reader) -> None:
        store.put(folder + "a", DATA)
        with pytest.raises(InputError):
            read(store, folder + "a", len(DATA) + 1)

    def test_an_empty_object(self, store: Store, folder: str, read: Reader) -> None:
        store.put(folder + "empty", b"")
        assert len(read(store, folder + "empty").data) == 0
        assert len(read(store, folder + "empty", 0, 10).data) == 0
        assert store.head(folder + "empty").size == 0

    def test_the_answer_names_size_and_version(self, store: Store, folder: str, read: Reader) -> None:
        store.put(folder + "a", DATA)
        head = store.head(folder + "a")
        assert (head.key, head.size) == (folder + "a", len(DATA))
        whole, part = read(store, folder + "a").info, read(store, folder + "a", 10, 20).info
        assert (whole.size, part.size) == (len(DATA), len(DATA))
        assert whole.version == part.version == head.version
        assert head.etag is None or '"' not in head.etag.removeprefix('W/"')

    def test_the_time_is_recent(self, store: Store, folder: str) -> None:
        store.put(folder + "a", DATA)
        assert store.head(folder + "a").mtime_us > 1_700_000_000_000_000

    def test_one_that_has_not_changed_is_not_sent_again(self, store: Store, folder: str) -> None:
        store.put(folder + "a", DATA)
        seen = store.head(folder + "a").version
        assert store.get_if_changed(folder + "a", seen) is None
        store.put(folder + "a", DATA[:700])
        blob = store.get_if_changed(folder + "a", seen)
        assert blob is not None
        assert bytes(blob.data) == DATA[:700]
        assert store.get_if_changed(folder + "a", blob.info.version) is None
        store.delete([folder + "a"])
        with pytest.raises(NotFoundError):
            store.get_if_changed(folder + "a", seen)

    def test_only_the_version_asked_for(self, store: Store, folder: str, read: Reader) -> None:
        store.put(folder + "a", DATA)
        old = store.head(folder + "a").version
        assert bytes(read(store, folder + "a", 0, 9, old).data) == DATA[:9]
        store.put(folder + "a", DATA + b"more")
        with pytest.raises(ChangedError):
            read(store, folder + "a", 0, 9, old)
        with pytest.raises(ChangedError):
            read(store, folder + "a", if_match=old)

    def test_a_missing_key(self, store: Store, folder: str, read: Reader) -> None:
        store.put(folder + "a", DATA)
        for key in (folder + "none", folder + "none/deeper", folder + "a/below-an-object"):
            with pytest.raises(NotFoundError) as caught:
                read(store, key)
            assert key in str(caught.value)
            with pytest.raises(NotFoundError):
                store.head(key)

    def test_a_folder_is_no_object(self, store: Store, folder: str, read: Reader) -> None:
        store.put(folder + "f/a", DATA)
        with pytest.raises(NotFoundError):
            read(store, folder + "f")
        with pytest.raises(NotFoundError):
            store.head(folder + "f")

    def test_data_outlives_the_next_reads(self, store: Store, folder: str, read: Reader) -> None:
        contents = {f"{folder}{n}": bytes([n]) * 5000 for n in range(20)}
        for key, data in contents.items():
            store.put(key, data)
        blobs = {key: read(store, key) for key in contents}
        assert {key: bytes(blob.data) for key, blob in blobs.items()} == contents
