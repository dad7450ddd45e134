"""Where a store's HTTP/1.1 requests go, and through what."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.store.http1.proxy import Proxy, proxy_of, shown
from headrace.store.http1.tls import Tls, tls_of


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a store's HTTP/1.1 requests go. `tls` is None for plain HTTP."""

    host: str
    port: int
    tls: Tls | None = None
    proxy: Proxy | None = None

    @staticmethod
    def of(scheme: str, host: str, port: int, path: str, ca_file: str | None = None) -> Endpoint:
        """By the proxy that the environment names, and trusting also the authorities in `ca_file`.

        Raises:
            SettingError: that file cannot be read, or the proxy is none. `path`: the store's URL, for it.
        """
        tls = tls_of(ca_file, path) if scheme == "https" else None
        return Endpoint(host, port, tls, proxy_of(scheme, host, port, path))

    @property
    def address(self) -> tuple[str, int]:
        """Host and port to connect to."""
        return (self.proxy.host, self.proxy.port) if self.proxy else (self.host, self.port)

    @property
    def name(self) -> str:
        """What is at `address`, for messages."""
        return f"{'the proxy ' if self.proxy else ''}{shown(*self.address)}"

    @property
    def server(self) -> str:
        """The store's own ``host:port``, for messages: what a certificate speaks of."""
        return shown(self.host, self.port)

    @property
    def tunnel(self) -> bytes:
        """What is sent, and answered by a 200, before TLS begins; empty where nothing is."""
        return self.proxy.connect(self.host, self.port) if self.proxy and self.tls else b""

    def sent(self, head: bytes) -> bytes:
        """A request's head as it goes out."""
        return self.proxy.whole(head, self.host, self.port) if self.proxy and not self.tls else head
