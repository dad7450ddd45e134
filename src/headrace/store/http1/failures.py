"""Connections that fail become errors of headrace, here and nowhere else."""

from __future__ import annotations

import socket
import ssl

from headrace.base.errors import CredentialsError, DeadlineError, DeniedError, HeadraceError, UnreachableError
from headrace.store.http1.endpoint import Endpoint
from headrace.store.http1.proxy import PASSWORD_HINT, PROXY_HINT


class BrokenResponse(Exception):  # noqa: N818
    """The server's answer is not HTTP/1.1 as it is read here."""


class TunnelError(ConnectionError):
    """The proxy opened no tunnel: it answered with `status`."""

    def __init__(self, endpoint: Endpoint, status: int) -> None:
        super().__init__(f"{endpoint.name} does not connect to {endpoint.server} (HTTP {status})")
        self.status = status


def from_network(path: str, error: Exception, endpoint: Endpoint) -> HeadraceError:
    """The error for a connection that failed: refused, reset, unknown host, TLS, time out, no HTTP. `error` is its
    cause.
    """
    found = _named(path, error, endpoint)
    found.__cause__ = error
    return found


def lasting(error: HeadraceError) -> bool:
    """Whether trying again within seconds is pointless: unknown host, untrusted certificate."""
    return isinstance(error.__cause__, (ssl.SSLCertVerificationError, socket.gaierror))


def _named(path: str, error: Exception, endpoint: Endpoint) -> HeadraceError:
    if isinstance(error, TimeoutError) and error.errno is None:
        return DeadlineError("no answer in time", path=path, hint=f"is {endpoint.name} reachable from here?")
    if isinstance(error, TunnelError):
        return _no_tunnel(path, error)
    if isinstance(error, ssl.SSLCertVerificationError):
        return UnreachableError(
            f"the certificate of {endpoint.server} is not trusted: {error.verify_message}",
            path=path,
            hint="set ca_file, or AWS_CA_BUNDLE, to the authority's certificate",
        )
    if isinstance(error, ssl.SSLError):
        return UnreachableError(
            f"no TLS with {endpoint.server}: {error.reason or error}",
            path=path,
            hint="is the endpoint http:// and not https://?",
        )
    if isinstance(error, socket.gaierror):
        hint = PROXY_HINT if endpoint.proxy else "check the endpoint and the name server"
        return UnreachableError(f"unknown host {endpoint.name}", path=path, hint=hint)
    if isinstance(error, ConnectionRefusedError):
        reason = f"{endpoint.name} refuses connections ({error.strerror})"
        return UnreachableError(reason, path=path, hint="is the server up, and the port right?")
    reason = (error.strerror if isinstance(error, OSError) else None) or error
    hint = "check the endpoint, and that the server runs"
    return UnreachableError(f"the connection to {endpoint.name} failed: {reason}", path=path, hint=hint)


def _no_tunnel(path: str, error: TunnelError) -> HeadraceError:
    if error.status in (401, 407):
        return CredentialsError(f"{error}: it wants a name and a password", path=path, hint=PASSWORD_HINT)
    if error.status in (403, 405):
        return DeniedError(str(error), path=path, hint="ask for the host to be allowed, or name it in NO_PROXY")
    return UnreachableError(str(error), path=path, hint="does the proxy reach the endpoint?")
