"""Snapshots of any length over one object: what a manifest's size costs, and nothing else.

The static server answers every key below ``flat/`` with the bytes of one 110 kB object, so that ten million objects
need ten million manifest rows but no disk. The snapshot is written as ``headrace snapshot`` writes it, without listing.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pyarrow as pa

from headrace.catalog.manifest import MANIFEST_SCHEMA, Digest, ManifestWriter, versioned
from job import BUCKET

TEMPLATE = "small/000000.image"
SOURCE = f"s3://{BUCKET}/flat"
CHUNK = 1 << 17


def snapshot(home: Path, root: Path, rows: int) -> str:
    """Write ``flat-<rows>@v1`` below `home` unless it is there for the present template. Returns its name."""
    stat = (root / BUCKET / TEMPLATE).stat()
    etag = f"{int(stat.st_mtime):x}-{stat.st_size:x}"  # as nginx forms it
    folder = home / "datasets" / f"flat-{rows}" / "v1"
    marker = folder / "snapshot.json"
    if marker.exists() and json.loads(marker.read_text())["etag"] == etag:
        return f"flat-{rows}@v1"
    folder.mkdir(parents=True, exist_ok=True)
    marker.unlink(missing_ok=True)
    manifest = folder / "manifest.parquet"
    digest = Digest()
    with ManifestWriter(str(manifest)) as writer:
        for start in range(0, rows, CHUNK):
            batch = _rows(start, min(start + CHUNK, rows), stat.st_size, etag, int(stat.st_mtime))
            writer.add(batch)
            digest.update(versioned(batch))
    table = {
        "name": f"flat-{rows}",
        "version": "v1",
        "created": "2020-01-01T00:00:00.000000Z",
        "source": SOURCE,
        "path": None,
        "objects": digest.objects,
        "bytes": digest.bytes,
        "digest": digest.hexdigest(),
        "manifest": manifest.name,
        "manifest_bytes": manifest.stat().st_size,
        "parents": [],
        "format": 1,
        "etag": etag,
    }
    part = marker.with_suffix(".part")
    part.write_text(json.dumps(table, indent=1))
    os.replace(part, marker)
    return f"flat-{rows}@v1"


def _rows(start: int, stop: int, size: int, etag: str, mtime_s: int) -> pa.RecordBatch:
    count = stop - start
    columns = [
        pa.array([f"{number:08d}.bin" for number in range(start, stop)], pa.large_string()),
        pa.array(np.full(count, size, np.int64)),
        pa.array([etag] * count, pa.string()),
        pa.nulls(count, pa.string()),
        pa.array(np.full(count, mtime_s * 1_000_000, np.int64)),
    ]
    return pa.record_batch(columns, schema=MANIFEST_SCHEMA)
