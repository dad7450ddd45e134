"""Where a store's HTTP/1.1 requests go, and by which proxy.

Sources: RFC 9110 §9.3.6 (CONNECT), RFC 9112 §3.2.2 (a whole URL in the request line); the variables as `urllib.request`
takes them, which botocore does too.
"""

from __future__ import annotations

import base64
import ipaddress
import ssl
from contextlib import suppress
from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit
from urllib.request import proxy_bypass

from headrace.base.errors import CredentialsError, DeniedError, HeadraceError, SettingError, UnreachableError
from headrace.base.settings import proxies_of_environment

_HINT = "write it like http://host:port, or http://name:password@host:port"
PROXY_HINT = "check HTTPS_PROXY or HTTP_PROXY"
PASSWORD_HINT = "write both into HTTPS_PROXY or HTTP_PROXY: http://name:password@host:port"


@dataclass(frozen=True, slots=True)
class Proxy:
    """An HTTP proxy, itself reached by plain HTTP. `_line`: a header that says who asks, or nothing."""

    host: str
    port: int
    _line: str = field(default="", repr=False)

    def connect(self, host: str, port: int) -> bytes:
        """The head that asks for a tunnel."""
        where = _shown(host, port)
        return f"CONNECT {where} HTTP/1.1\r\nhost: {where}\r\n{self._line}\r\n".encode()

    def whole(self, head: bytes, host: str, port: int) -> bytes:
        """A request's head as this proxy wants it, where there is no tunnel."""
        method, _, rest = head.partition(b" ")
        target, _, rest = rest.partition(b"\r\n")
        return b"%b http://%b%b\r\n%b%b" % (method, _shown(host, port).encode(), target, self._line.encode(), rest)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a store's HTTP/1.1 requests go. `tls` is None for plain HTTP."""

    host: str
    port: int
    tls: ssl.SSLContext | None = None
    proxy: Proxy | None = None

    @property
    def address(self) -> tuple[str, int]:
        """Host and port to connect to."""
        return (self.proxy.host, self.proxy.port) if self.proxy else (self.host, self.port)

    @property
    def name(self) -> str:
        """What is at `address`, for messages."""
        return f"{'the proxy ' if self.proxy else ''}{_shown(*self.address)}"

    @property
    def server(self) -> str:
        """The store's own ``host:port``, for messages: what a certificate speaks of."""
        return _shown(self.host, self.port)

    @property
    def tunnel(self) -> bytes:
        """What is sent, and answered by a 200, before TLS begins; empty where nothing is."""
        return self.proxy.connect(self.host, self.port) if self.proxy and self.tls else b""

    def sent(self, head: bytes) -> bytes:
        """A request's head as it goes out."""
        return self.proxy.whole(head, self.host, self.port) if self.proxy and not self.tls else head


class TunnelError(ConnectionError):
    """The proxy opened no tunnel: it answered with `status`."""

    def __init__(self, endpoint: Endpoint, status: int) -> None:
        super().__init__(f"{endpoint.name} does not connect to {endpoint.server} (HTTP {status})")
        self.status = status

    def ours(self, path: str) -> HeadraceError:
        """The error of headrace that says so."""
        if self.status in (401, 407):
            return CredentialsError(f"{self}: it wants a name and a password", path=path, hint=PASSWORD_HINT)
        if self.status in (403, 405):
            return DeniedError(str(self), path=path, hint="ask for the host to be allowed, or name it in NO_PROXY")
        return UnreachableError(str(self), path=path, hint="does the proxy reach the endpoint?")


def tunnel_status(head: bytes) -> int:
    """The status of a proxy's answer; 0 where it is no HTTP."""
    return int(head[9:12]) if head[:7] == b"HTTP/1." and head[9:12].isdigit() else 0


def proxy_of(scheme: str, host: str, port: int, path: str) -> Proxy | None:
    """The proxy that ``HTTPS_PROXY``, ``HTTP_PROXY`` or ``ALL_PROXY`` name, in capitals or not, unless ``NO_PROXY``
    excepts the host. This machine itself is never asked for by a proxy.

    Raises:
        SettingError: a variable names something else than an HTTP proxy.
    """
    proxies = proxies_of_environment()
    text = proxies.get(scheme) or proxies.get("all")
    if not text or _is_here(host) or proxy_bypass(_shown(host, port), proxies):
        return None
    parts = urlsplit(text if "://" in text else f"http://{text}")
    variable = f"{scheme.upper()}_PROXY" if proxies.get(scheme) else "ALL_PROXY"
    try:
        given = parts.port
    except ValueError:
        given = -1
    if parts.scheme != "http":
        reason = f"{variable} names a proxy of the kind {parts.scheme}://, and only http:// is spoken with proxies"
        raise SettingError(reason, path=path, hint=_HINT)
    if not parts.hostname or given == -1:
        raise SettingError(f"{variable} names no proxy", path=path, hint=_HINT)
    line = ""
    if parts.username is not None:
        who = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        line = f"proxy-authorization: Basic {base64.b64encode(who.encode()).decode()}\r\n"
    return Proxy(parts.hostname, given or 80, line)


def _is_here(host: str) -> bool:
    with suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return host == "localhost" or host.endswith(".localhost")


def _shown(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
