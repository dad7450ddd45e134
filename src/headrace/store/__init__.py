"""The stores: one narrow protocol, and what stands behind it. See README.md in this folder.

Backends are imported when a URL needs them, so importing this package is quick.
"""

from typing import TYPE_CHECKING

from headrace.base.face import face
from headrace.store.http1 import Endpoint
from headrace.store.probe import probe
from headrace.store.protocol import (
    Assembly,
    Blob,
    Buffer,
    Capabilities,
    Described,
    Folder,
    ObjectInfo,
    Store,
    StoreOptions,
    Unfinished,
    Wire,
)
from headrace.store.registry import open_store, parse_options
from headrace.store.url import StoreUrl, parse_url
from headrace.store.wrappers import ForwardingStore, metered

if TYPE_CHECKING:
    from headrace.store.embedded import EmbeddedS3 as EmbeddedS3

__all__ = [
    "Assembly",
    "Blob",
    "Buffer",
    "Capabilities",
    "Described",
    "EmbeddedS3",
    "Endpoint",
    "Folder",
    "ForwardingStore",
    "ObjectInfo",
    "Store",
    "StoreOptions",
    "StoreUrl",
    "Unfinished",
    "Wire",
    "metered",
    "open_store",
    "parse_options",
    "parse_url",
    "probe",
]

if not TYPE_CHECKING:  # or its checker would take any name for one of the face
    __getattr__, __dir__ = face(__name__, {"embedded": ("EmbeddedS3",)})
