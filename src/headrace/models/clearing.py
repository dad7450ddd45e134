"""All that lies below a prefix, deleted."""

from __future__ import annotations

from headrace.namespace.paths import folders_of
from headrace.store.protocol import Store


def clear_below(store: Store, prefix: str) -> tuple[int, int]:
    """Delete every object below `prefix`, page by page; how many, and their bytes. Raises any store error."""
    objects = size = 0
    folders = {prefix}
    for page in store.list(prefix):
        keys = [info.key for info in page]
        store.delete(keys)
        folders.update(folders_of(keys, prefix))
        objects += len(keys)
        size += sum(info.size for info in page)
    if store.url.startswith("s3://"):
        # Some servers (SeaweedFS) keep folders, and list them when empty: one with a number would look like a version.
        store.delete(sorted(folders, key=len, reverse=True))
    return objects, size
