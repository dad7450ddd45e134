"""Real servers on loopback, on free ports, gone with their context or with the process that started them.

Each is a context manager with `create_bucket(name) -> url` and `options() -> StoreOptions` for `open_store`
(`Nginx` serves a folder instead, `Tinyproxy` passes requests on). A missing program is an UnsupportedError that names
the package.
"""

from headrace.store.embedded import EmbeddedS3
from headrace.testing.servers.azurite import Azurite
from headrace.testing.servers.ceph import CephRGW
from headrace.testing.servers.gcs import FakeGCS
from headrace.testing.servers.nginx import Delay, Nginx
from headrace.testing.servers.process import ServerError
from headrace.testing.servers.sftp import Sftp
from headrace.testing.servers.tinyproxy import Tinyproxy

__all__ = ["Azurite", "CephRGW", "Delay", "EmbeddedS3", "FakeGCS", "Nginx", "ServerError", "Sftp", "Tinyproxy"]
