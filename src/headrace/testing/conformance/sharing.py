"""One store used by many threads, by a forked child and by its parent, at once."""

from __future__ import annotations

import multiprocessing
import random
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection

from headrace.base.errors import HeadraceError
from headrace.store.protocol import Store
from headrace.testing.conformance.base import Reader, Suite, fill, listed_keys


class Sharing(Suite):
    """Threads and processes."""

    def test_many_threads(self, store: Store, folder: str, read: Reader) -> None:
        contents = {f"{folder}{n:02d}": random.Random(n).randbytes(1000 + n * 977) for n in range(24)}

        def work(key: str) -> bool:
            store.put(key, contents[key])
            store.put(key + ".copy", contents[key][::-1])
            same = bytes(read(store, key).data) == contents[key] and store.head(key).size == len(contents[key])
            assert key in listed_keys(store, key)
            store.delete([key + ".copy"])
            return same

        with ThreadPoolExecutor(12) as pool:
            assert all(pool.map(work, contents))
        assert set(listed_keys(store, folder)) == set(contents)

    def test_a_forked_child_may_go_on(self, store: Store, folder: str, read: Reader) -> None:
        """Both sides read what the parent wrote before and after; nobody hangs, nobody gets the other's bytes."""
        contents = {f"{folder}{n}": bytes([n]) * 3000 for n in range(8)}
        fill(store, contents)
        assert bytes(read(store, folder + "0").data) == contents[folder + "0"]  # connections and threads exist now
        context = multiprocessing.get_context("fork")
        ours, theirs = context.Pipe()
        child = context.Process(target=_reread, args=(store, read, contents, theirs))
        child.start()
        try:
            assert all(bytes(read(store, key).data) == data for key, data in contents.items())
            assert ours.poll(30), "the forked child hangs"
            assert ours.recv() == "well"
            child.join(20)
            assert child.exitcode == 0
        finally:
            if child.is_alive():
                child.kill()
            child.join()
        assert not self.outside or bytes(store.get(folder + "from-the-child").data) == b"hello"
        assert all(bytes(read(store, key).data) == data for key, data in contents.items())


def _reread(store: Store, read: Reader, contents: dict[str, bytes], answer: Connection) -> None:
    try:
        wrong = [key for key, data in contents.items() if bytes(read(store, key).data) != data]
        folder = next(iter(contents)).rpartition("/")[0] + "/"
        store.put(folder + "from-the-child", b"hello")
        answer.send("well" if not wrong else f"wrong bytes: {wrong}")
    except HeadraceError as error:
        answer.send(f"{type(error).__name__}: {error}")
