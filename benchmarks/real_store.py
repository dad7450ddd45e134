"""SeaweedFS, a real object store, filled once: the small data set, and a prefix of many tiny objects to list."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import obstore
from obstore.store import S3Store

from data import entries
from headrace.store.embedded import EmbeddedS3
from job import BUCKET

TINY_BODY = b"tiny"
FOLDERS = 20  # tiny objects lie in this many folders, so that a listing by folder is possible too


@dataclass(frozen=True)
class RealStore:
    """A running SeaweedFS with the bucket in it."""

    endpoint: str
    env: dict[str, str]


@contextmanager
def real_store(folder: Path, root: Path, *, tiny: int, objects: bool) -> Iterator[RealStore]:
    """Start SeaweedFS over `folder` and fill in what is missing: ``tiny-<count>/`` and, if asked, ``small/``."""
    with EmbeddedS3(folder) as server:
        server.create_bucket(BUCKET)
        store = S3Store(
            BUCKET,
            endpoint=server.endpoint,
            access_key_id=server.access_key,
            secret_access_key=server.secret_key,
            region="us-east-1",
            virtual_hosted_style_request=False,
            client_options={"allow_http": True},
        )

        def put(item: tuple[str, bytes | Path]) -> None:
            obstore.put(store, item[0], item[1], use_multipart=False)

        def fill(wanted: Sequence[tuple[str, bytes | Path]]) -> None:
            # the last one is written after all others: where it is, the rest is
            if _holds(store, wanted[-1][0]):
                return
            print(f"  writing {len(wanted):,} objects to SeaweedFS (once)", flush=True)
            with ThreadPoolExecutor(16) as pool:
                deque(pool.map(put, wanted[:-1]), maxlen=0)
            put(wanted[-1])

        if tiny:
            width = -(-tiny // FOLDERS)
            fill([(f"tiny-{tiny}/{number // width:03d}/{number:08d}.txt", TINY_BODY) for number in range(tiny)])
        if objects:
            fill([(entry.key, root / BUCKET / entry.key) for entry in entries(str(root), "small")])
        env = {"AWS_ACCESS_KEY_ID": server.access_key, "AWS_SECRET_ACCESS_KEY": server.secret_key}
        yield RealStore(server.endpoint, env)


def _holds(store: S3Store, key: str) -> bool:
    try:
        obstore.head(store, key)
    except FileNotFoundError:
        return False
    return True
