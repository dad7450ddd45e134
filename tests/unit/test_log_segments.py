"""What a log takes up in the memory of who looks at it."""

from __future__ import annotations

import json
import secrets
import tracemalloc

import pyarrow as pa

from headrace.store import open_store
from headrace.tracking.logs import read_segment


def test_a_segment_of_many_lines_takes_little_more_than_its_text() -> None:
    store = open_store(f"memory://segment-{secrets.token_hex(8)}")
    entries = [json.dumps({"format": 1, "stream": "stdout", "line": 0})]
    for part in range(0, 50_000, 1000):
        text = "".join(f"step {line}: loss {line / 7:.6f}, so many a second\n" for line in range(part, part + 1000))
        entries.append(json.dumps({"t": part, "text": text}))
    store.put("logs/stdout/00000000.zst", pa.compress("\n".join(entries).encode(), "zstd", asbytes=True))
    read_segment(store, "logs/", "stdout", 0)
    tracemalloc.start()
    segment = read_segment(store, "logs/", "stdout", 0)
    held = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert segment.count == 50_000
    assert held < 1.2 * segment.size
    assert next(segment.lines(49_998))[0] == 49_998
