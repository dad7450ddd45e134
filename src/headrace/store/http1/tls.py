"""TLS to stores: the authorities that are trusted, and sessions that are resumed.

A resumed session saves the server's signature and our check of its certificates: RFC 8446 §2.2.
"""

from __future__ import annotations

import os
import socket
import ssl
from functools import lru_cache

from headrace.base.errors import SettingError
from headrace.base.settings import environment

_MOST_SESSIONS = 256
"""Servers whose sessions are kept, about 4 kB each; past that, all are forgotten."""


class Tls:
    """One SSL context, and the last session with each server. Any thread, also after a fork.

    OpenSSL resumes a session only in the context in which it began, so all connections of a process that trust the same
    authorities share one of these.
    """

    __slots__ = ("_context", "_sessions")

    def __init__(self, context: ssl.SSLContext) -> None:
        self._context = context
        self._sessions: dict[tuple[str, int], ssl.SSLSession] = {}

    def wrap(self, sock: socket.socket, host: str, port: int) -> ssl.SSLSocket:
        """A socket that is connected to `host`, for TLS: the handshake is the caller's to do."""
        session = self._sessions.get((host, port))
        return self._context.wrap_socket(sock, server_hostname=host, do_handshake_on_connect=False, session=session)

    def learn(self, sock: ssl.SSLSocket, host: str, port: int) -> None:
        """Keep the session for the next connections to that server. It is complete when an answer has been read:
        a server of TLS 1.3 sends its tickets after the handshake.
        """
        session = sock.session
        if session is not None:
            if len(self._sessions) >= _MOST_SESSIONS:
                self._sessions.clear()
            self._sessions[host, port] = session


def tls_of(ca_file: str | None, path: str) -> Tls:
    """The system's authorities (``SSL_CERT_FILE`` and ``SSL_CERT_DIR`` name others), and those in `ca_file`.

    Raises:
        SettingError: that file cannot be read. `path`: the store's URL, for it.
    """
    try:
        stamp = os.stat(ca_file) if ca_file else None
        mark = (stamp.st_mtime_ns, stamp.st_size) if stamp else (0, 0)
        return _tls(ca_file, mark, environment("SSL_CERT_FILE"), environment("SSL_CERT_DIR"))
    except (OSError, ssl.SSLError) as error:
        raise SettingError(
            f"the certificate file {ca_file} cannot be used: {error.strerror or error}",
            path=path,
            hint="ca_file, AWS_CA_BUNDLE and a profile's ca_bundle name a PEM file",
        ) from error


@lru_cache(maxsize=16)
def _tls(ca_file: str | None, mark: tuple[int, int], *system: str | None) -> Tls:  # noqa: ARG001
    """`mark` changes with the file, `system` are variables that OpenSSL itself reads."""
    context = ssl.create_default_context()
    if ca_file:
        context.load_verify_locations(cafile=ca_file)
    return Tls(context)
