"""Which proxy a request goes through, and how it is asked.

Sources: RFC 9110 §9.3.6 (CONNECT), RFC 9112 §3.2.2 (a whole URL in the request line); the variables as `urllib.request`
takes them, which botocore does too, and networks in ``NO_PROXY`` as curl does.
"""

from __future__ import annotations

import base64
import ipaddress
from contextlib import suppress
from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit
from urllib.request import proxy_bypass

from headrace.base.errors import SettingError
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
        where = shown(host, port)
        return f"CONNECT {where} HTTP/1.1\r\nhost: {where}\r\n{self._line}\r\n".encode()

    def whole(self, head: bytes, host: str, port: int) -> bytes:
        """A request's head as this proxy wants it, where there is no tunnel."""
        method, _, rest = head.partition(b" ")
        target, _, rest = rest.partition(b"\r\n")
        return b"%b http://%b%b\r\n%b%b" % (method, shown(host, port).encode(), target, self._line.encode(), rest)


def proxy_of(scheme: str, host: str, port: int, path: str) -> Proxy | None:
    """The proxy that ``HTTPS_PROXY``, ``HTTP_PROXY`` or ``ALL_PROXY`` name, in capitals or not, unless ``NO_PROXY``
    excepts the host. This machine itself is never asked for by a proxy.

    Raises:
        SettingError: a variable names something else than an HTTP proxy.
    """
    proxies = proxies_of_environment()
    text = proxies.get(scheme) or proxies.get("all")
    if not text or _is_here(host) or proxy_bypass(shown(host, port), proxies) or _in_network(host, proxies):
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


def shown(host: str, port: int) -> str:
    """``host:port``, an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _is_here(host: str) -> bool:
    with suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return host == "localhost" or host.endswith(".localhost")


def _in_network(host: str, proxies: dict[str, str]) -> bool:
    """Whether ``NO_PROXY`` names a network, like ``10.0.0.0/8``, that the address `host` is in."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    for entry in proxies.get("no", "").split(","):
        if "/" in entry:
            with suppress(ValueError):
                if address in ipaddress.ip_network(entry.strip(), strict=False):
                    return True
    return False
