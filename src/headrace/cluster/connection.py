"""Ray, reached: connected to a cluster and let go of again, with its exceptions as ours.

Ray authenticates by a token (https://docs.ray.io/en/latest/ray-security/token-auth.html): clients send none unless
they are told to, so where there is one and nothing was said, it is sent.
"""

from __future__ import annotations

import importlib
import os
import socket
import time
import warnings
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from headrace.base.errors import DeniedError, HeadraceError, InternalError, TryAgainError, UnsupportedError
from headrace.base.settings import environment

NAMESPACE: Final = "headrace"
"""Of the actors that lead runs: named by the run's id."""
HEAD: Final = {"node:__internal_head__": 0.001}
"""What only the head has: without it the cluster is gone anyway, so who leads a run loses nothing by being there."""
_AUTO: Final = "ray://auto"
_KNOCK_S: Final = 10.0  # seconds for a connection to the head
_TEXT: Final = 300  # characters of what Ray says
_YOUNG_S: Final = 60.0
"""How long a head that answers, but takes no client yet, is asked again."""


def ray_module() -> Any:
    """Ray itself. Raises UnsupportedError: it is not installed."""
    try:
        return importlib.import_module("ray")
    except ImportError as error:
        raise UnsupportedError("Ray is not installed", hint='pip install "headrace[ray]"') from error


@contextmanager
def connected(address: str) -> Generator[Any]:
    """Ray, connected to the cluster at `address` (``ray://HOST:10001``; ``ray://auto``: the one of this machine).

    One at a time in a process. Raises TryAgainError: it does not answer. DeniedError: the token is wrong, or missing.
    """
    ray = ray_module()
    _send_the_token()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it says of a time-out what the exception says again
            _knock(address)
            _init(ray, address)
    except Exception as error:
        raise translated(error, address) from error
    try:
        yield ray
    finally:
        with suppress(Exception):
            ray.shutdown()


def _knock(address: str) -> None:
    """Ray asks for half a minute where nobody listens. Raises OSError: nobody does."""
    parts = urlsplit(address)
    if parts.hostname and parts.port:
        socket.create_connection((parts.hostname, parts.port), _KNOCK_S).close()


def _init(ray: Any, address: str) -> None:
    until = time.monotonic() + _YOUNG_S
    while True:
        try:
            ray.init(
                address="auto" if address == _AUTO else address, namespace=NAMESPACE, log_to_driver=False,
                logging_level="ERROR", configure_logging=False,
            )  # fmt: skip
            return
        except ConnectionError as error:
            if not _is_young(error) or time.monotonic() > until:
                raise
            with suppress(Exception):
                ray.shutdown()
            time.sleep(1.0)


def _is_young(error: ConnectionError) -> bool:
    """Whether the head is there, and cannot serve yet: it starts a process for each client."""
    text = str(error)
    begins = isinstance(error, ConnectionAbortedError) or any(
        said in text for said in ("already been disconnected", "Initialization failure from server")
    )
    return begins and "uthentic" not in text


def translated(error: Exception, where: str | None = None) -> HeadraceError:
    """An exception of Ray's as one of ours."""
    cause = getattr(error, "cause", None)
    if isinstance(cause, HeadraceError):  # raised on the other side; Ray's own is of that class, too
        return cause
    if isinstance(error, HeadraceError):
        return error
    text = " ".join(str(error).split())
    if "uthentication" in text or "Unauthenticated" in text:
        hint = "RAY_AUTH_TOKEN, or ~/.ray/auth_token, is that of the cluster"
        return DeniedError("the cluster does not take our token", path=where, hint=hint)
    if "version" in text and "mismatch" in text.lower():
        hint = "have the same Ray and Python here as there"
        return UnsupportedError(f"is of another version: {text[:300]}", path=where, hint=hint)
    if "No module named 'headrace'" in text:
        hint = "install headrace on the nodes, in the environment that Ray runs in"
        return UnsupportedError("the nodes of the cluster have no headrace", path=where, hint=hint)
    if isinstance(error, OSError) or "connect" in text.lower():
        hint = "is it up, and is its client port (10001) reachable from here?"
        told = text if len(text) <= _TEXT else f"… {text[-_TEXT:]}"  # a traceback of the head's has the reason last
        return TryAgainError(f"the cluster does not answer: {told}", path=where, hint=hint)
    if isinstance(cause, Exception):
        return InternalError(f"{type(cause).__name__}: {cause}", path=where)
    return TryAgainError(f"{type(error).__name__}: {text[:500]}", path=where, hint="`ray status` tells how it is")


def _send_the_token() -> None:
    given = environment("RAY_AUTH_TOKEN") or environment("RAY_AUTH_TOKEN_PATH")
    if not environment("RAY_AUTH_MODE") and (given or (Path.home() / ".ray" / "auth_token").is_file()):
        os.environ["RAY_AUTH_MODE"] = "token"
