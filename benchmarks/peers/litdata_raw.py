"""litdata's `StreamingRawDataset`: single objects, no packing; obstore and uvloop installed as its README advises.

Sequential order, because its look-ahead works only there; ``workers`` 0 runs its loop thread in this process, otherwise
a DataLoader with that many workers. Objects are grouped by stem through `setup`, as its documentation shows. The key
list is given (an indexer), no listing is measured. With ``hedge`` its opt-in duplicate request is on.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from litdata import StreamingRawDataset
from litdata.raw.indexer import BaseIndexer, FileMetadata
from litdata.streaming import downloader

from data import entries
from job import BUCKET, REGION, Job
from meter import Batch
from peers.torch_loader import through_loader


class Given(BaseIndexer):
    """The key list every contender gets."""

    def __init__(self, job: Job) -> None:
        self.job = job

    def discover_files(self, input_dir: str, storage_options: dict[str, Any] | None) -> list[FileMetadata]:  # noqa: ARG002
        found = entries(self.job.root, self.job.dataset)
        return [FileMetadata(f"s3://{BUCKET}/{entry.key}", entry.size) for entry in found]

    def build_or_load_index(self, input_dir: str, *_: Any, **__: Any) -> list[FileMetadata]:
        return self.discover_files(input_dir, None)


class Stems(StreamingRawDataset):
    """Groups objects that share a stem."""

    def setup(self, files: list[FileMetadata]) -> list[list[FileMetadata]]:
        grouped: dict[str, list[FileMetadata]] = {}
        for file in files:
            grouped.setdefault(file.path.rsplit(".", 1)[0], []).append(file)
        return list(grouped.values())


def batches(job: Job) -> Iterator[Batch]:
    # its obstore client refuses plain HTTP and has no option for it; TLS would only make it slower
    downloader._OBSTORE_CLIENT_OPTIONS["allow_http"] = True  # type: ignore[typeddict-unknown-key]
    dataset = Stems(
        job.url,
        cache_dir=job.scratch,
        indexer=Given(job),
        storage_options={"endpoint_url": job.endpoint, "region_name": REGION},
        max_prefetch=int(job.options.get("max_prefetch", 16)),
        hedge_delay=float(job.options.get("hedge", 0.0)),
        max_concurrent_downloads=job.options.get("downloads"),
    )
    return through_loader(dataset, job, int(job.options.get("workers", 0)), shuffle=False)
