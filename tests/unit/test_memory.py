"""The buffers that reads fill: where they begin, when they are used again, and how much is kept."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.base.memory import Buffers, aligned

MB = 1 << 20


def address(view: memoryview) -> int:
    return np.frombuffer(view, np.uint8).ctypes.data


@given(st.integers(16 * 1024, 5 * MB))
def test_they_begin_at_a_page_and_are_as_long_as_asked(size: int) -> None:
    view = Buffers().take(size)
    assert (len(view), address(view) % 4096, view.readonly) == (size, 0, False)
    assert (len(aligned(size)), aligned(size).ctypes.data % 4096) == (size, 0)


@pytest.mark.parametrize("size", [2 * MB, 3 * MB + 5000, 9 * MB - 1])
def test_large_ones_hold_no_more_than_they_are(size: int) -> None:
    """In a process of its own: whatever else a process lets go of meanwhile counts too."""
    asked = subprocess.run([sys.executable, "-c", HELD, str(size)], capture_output=True, text=True, check=True)
    begins_at, held = map(int, asked.stdout.split())
    assert begins_at % (2 * MB) == 0
    assert size <= held <= size + MB // 4


HELD = """
import gc, sys
from headrace.base.memory import aligned

def resident():
    with open("/proc/self/smaps_rollup") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("Rss:"))

resident()
aligned(1)  # loads NumPy
gc.disable()
before = resident()
buffer = aligned(int(sys.argv[1]))
buffer[:] = 1
print(buffer.ctypes.data, resident() - before)
"""
"""Prints where an array of as many bytes as given begins, and what the process holds more with it."""


def test_a_buffer_comes_back_when_its_last_view_is_gone() -> None:
    buffers = Buffers()
    first = buffers.take(MB)
    piece, where = first[5:9], address(first)
    del first
    assert buffers.unused == 0
    assert address(buffers.take(MB)) != where
    del piece
    assert where in {address(view) for view in (buffers.take(MB), buffers.take(MB))}


def test_it_does_not_come_back_while_an_array_made_by_hand_looks_into_it() -> None:
    """Such an array refers to what the memory is a part of, as far as NumPy can tell."""
    buffers = Buffers()
    array: np.ndarray[Any, Any] = np.ndarray((2, 50_000), np.uint8, buffers.take(100_000))
    array = array[1:].view(np.uint16)
    gc.collect()
    assert buffers.unused == 0
    del array
    gc.collect()
    assert buffers.unused >= 100_000


def test_a_larger_one_will_do_where_none_fits() -> None:
    buffers = Buffers()
    where = address(buffers.take(2 * MB))
    small = buffers.take(MB + 5)
    assert (address(small), len(small)) == (where, MB + 5)
    assert address(buffers.take(MB // 2)) != where


def test_what_was_lent_at_once_is_kept_while_it_is_used_and_given_back_by_trim() -> None:
    buffers = Buffers(keep=2 * MB)
    for _ in range(3):
        lent = [buffers.take(MB) for _ in range(10)]
        del lent
        assert 9 * MB <= buffers.unused <= 10 * MB
    buffers.trim()
    assert buffers.unused <= 2 * MB


def test_threads_do_not_lose_count() -> None:
    buffers = Buffers(keep=2 * MB)

    def work() -> None:
        for turn in range(3000):
            held = [buffers.take(20_000 + 5000 * (turn % 7)) for _ in range(3)]
            del held

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    assert buffers.lent == 0
    assert buffers.unused == sum(size * len(blocks) for size, blocks in buffers._free.items())


def test_a_peak_is_forgotten() -> None:
    buffers = Buffers(keep=2 * MB)
    lent = [buffers.take(MB) for _ in range(10)]
    del lent
    for _ in range(5000):
        buffers.take(MB)
    assert buffers.unused <= 2 * MB
