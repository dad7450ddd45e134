"""The one door to bytes: mount table, path resolution, read, open, list, walk, write, copy, delete."""

from headrace.namespace.attaching import Attached, attach, detach
from headrace.namespace.copying import CopyOptions, Existing
from headrace.namespace.entry import Entry
from headrace.namespace.home import Home
from headrace.namespace.location import Location
from headrace.namespace.mounts import Mount
from headrace.namespace.namespace import Namespace
from headrace.namespace.naming import is_snapshot_text, tell_hidden
from headrace.namespace.paging import FolderPage
from headrace.namespace.paths import PathLike
from headrace.namespace.persist import remove_mount, write_mount
from headrace.namespace.reader import File, open_version
from headrace.namespace.usage import Usage

__all__ = [
    "Attached", "CopyOptions", "Entry", "Existing", "File", "FolderPage", "Home", "Location", "Mount", "Namespace",
    "PathLike", "Usage", "attach", "detach", "is_snapshot_text", "open_version", "remove_mount", "tell_hidden",
    "write_mount",
]  # fmt: skip
