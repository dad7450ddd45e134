"""The one door to bytes: mount table, path resolution, read, open, list, walk, write, copy, delete."""

from headrace.namespace.entry import Entry
from headrace.namespace.location import Location
from headrace.namespace.mounts import Mount
from headrace.namespace.namespace import Namespace
from headrace.namespace.paging import FolderPage
from headrace.namespace.persist import remove_mount, write_mount
from headrace.namespace.reader import File

__all__ = ["Entry", "File", "FolderPage", "Location", "Mount", "Namespace", "remove_mount", "write_mount"]
