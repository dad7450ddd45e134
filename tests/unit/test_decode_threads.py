"""How many threads decode: the number that was asked for, or what is found while they run."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from headrace.base.errors import InputError
from headrace.base.threads import cores
from headrace.loader import Dataset


class Waits:
    """A decoder that waits for something that is no core, and counts how many do so at once."""

    def __init__(self, seconds: float) -> None:
        self._seconds, self._lock = seconds, threading.Lock()
        self._now = self.most = 0

    def __call__(self, sample: dict[str, Any]) -> dict[str, Any]:
        with self._lock:
            self._now += 1
            self.most = max(self.most, self._now)
        time.sleep(self._seconds)
        with self._lock:
            self._now -= 1
        return sample


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    folder = tmp_path_factory.mktemp("samples")
    for number in range(64):
        (folder / f"{number:02d}.bin").write_bytes(b"x")
    return Dataset.open(str(folder))


def test_more_threads_than_cores_decode_where_that_decodes_more(dataset: Dataset) -> None:
    waits = Waits(0.002)
    with dataset.repeat().map(waits).loader() as loader:
        until = time.monotonic() + 30
        for _ in loader:
            if loader.stats().decode_threads > 4 * cores() or time.monotonic() > until:
                break
        stats = loader.stats()
        assert waits.most > cores()
        assert stats.decode_threads > 4 * cores()
        assert 0 < stats.decode.mean_threads < stats.decode_threads
        assert stats.decode.found.startswith(f"{stats.decode_threads} of at most 64")
    assert not [one.name for one in threading.enumerate() if one.name.startswith("headrace-loader")]


def test_a_number_binds(dataset: Dataset) -> None:
    waits = Waits(0.001)
    with dataset.repeat(5).map(waits, threads=3).filter(bool).batch(8).loader() as loader:
        assert sum(len(batch["__key__"]) for batch in loader) == 320
        stats = loader.stats()
    assert waits.most <= stats.decode_threads == stats.decode.mean_threads == 3
    assert stats.decode.found == ""


def test_what_is_closed_while_threads_are_added_ends(dataset: Dataset) -> None:
    for pause in range(12):
        with dataset.repeat().map(Waits(0.0005)).batch(4).loader() as loader:
            epoch = iter(loader)
            until = time.monotonic() + pause * 0.05
            while time.monotonic() < until:
                next(epoch)
    assert not [one.name for one in threading.enumerate() if one.name.startswith("headrace-loader")]


@pytest.mark.parametrize("threads", [0, -1, "many", 1.5, None])
def test_what_is_no_number_of_threads_is_refused(dataset: Dataset, threads: Any) -> None:
    with pytest.raises(InputError, match='at least 1, or "auto"'):
        dataset.map(bool, threads=threads)
