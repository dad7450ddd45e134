"""URLs of stores: ``scheme://place/prefix``, parsed once, and never with credentials in them."""

from __future__ import annotations

import re
from dataclasses import dataclass

from headrace.base.errors import InputError

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,254}\Z")
_ALIASES = {"s3a": "s3", "s3n": "s3", "gcs": "gs", "azure": "az", "abfs": "az", "abfss": "az", "adl": "az"}
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")

OBJECT_SCHEMES = frozenset({"s3", "gs", "az"})
"""Schemes whose place is a bucket or container."""


@dataclass(frozen=True, slots=True)
class StoreUrl:
    """The root of a store.

    `scheme`: canonical (``gs``, never ``gcs``). `place`: bucket, container or ``host[:port]``; empty for ``file``.
    `prefix`: key prefix without slashes at its ends; for ``file`` the absolute path. Empty: the whole bucket.
    """

    scheme: str
    place: str
    prefix: str

    def __str__(self) -> str:
        if self.scheme == "file":
            return f"file://{self.prefix}"
        return f"{self.scheme}://{self.place}" + (f"/{self.prefix}" if self.prefix else "")

    @property
    def root(self) -> str:
        """What stands before every key: empty, or the prefix and one slash."""
        return f"{self.prefix}/" if self.prefix else ""


def parse_url(url: str) -> StoreUrl:
    """Parse and normalise the URL of a store.

    Slashes inside a prefix are kept as they are (``a//b`` is another prefix than ``a/b``); those at its end are cut.

    Raises:
        InputError: not a URL, no bucket, a bad bucket name, credentials inside (the message masks them).
    """
    match = _SCHEME.match(url)
    if match is None:
        raise InputError("is not a URL", path=mask(url), hint="write it like s3://bucket/prefix or file:///data")
    scheme = match[1].lower()
    scheme = _ALIASES.get(scheme, scheme)
    rest = url[match.end() :]
    if _CONTROL.search(rest):
        raise InputError("holds a control character", path=repr(mask(url)), hint="check where the URL came from")
    place, _, prefix = rest.partition("/")
    if scheme == "file":
        return _file(url, place, prefix)
    if scheme == "az":
        place, prefix = _azure_place(place, prefix)
    _refuse_credentials(url, scheme, place, prefix)
    if scheme in OBJECT_SCHEMES and not _BUCKET.match(place):
        reason = "names no bucket" if not place else f"{place!r} is not a bucket's name"
        raise InputError(reason, path=mask(url), hint=f"write it like {scheme}://bucket/prefix")
    if scheme in ("http", "https") and not place:
        raise InputError("names no host", path=mask(url), hint=f"write it like {scheme}://host/folder")
    return StoreUrl(scheme, place, prefix.strip("/") if scheme != "memory" else prefix.rstrip("/"))


def mask(url: str) -> str:
    """The URL with ``user:password@`` and any query cut, for messages."""
    return re.sub(r"://[^/@]*@", "://***@", url).partition("?")[0] if _SCHEME.match(url) else url


def _file(url: str, place: str, prefix: str) -> StoreUrl:
    if place not in ("", "localhost"):
        raise InputError("names a host", path=url, hint=f"an absolute path has three slashes: file:///{place}/{prefix}")
    path = "/" + prefix.strip("/")
    if any(part in (".", "..") for part in path.split("/")):
        raise InputError("holds '.' or '..'", path=url, hint="write the absolute path without them")
    return StoreUrl("file", "", re.sub("/+", "/", path))


def _azure_place(place: str, prefix: str) -> tuple[str, str]:
    """``abfs://container@account.dfs.core.windows.net/p`` names the container before the ``@``."""
    container, at, host = place.partition("@")
    if at and "." in host and ":" not in container:
        return container, prefix
    return place, prefix


def _refuse_credentials(url: str, scheme: str, place: str, prefix: str) -> None:
    user, at, _ = place.rpartition("@")
    if at and (":" in user or scheme in OBJECT_SCHEMES or scheme in ("http", "https")):
        raise InputError(
            "holds credentials",
            path=mask(url),
            hint="put them in the environment, a profile, or [stores] of headrace.toml",
        )
    if scheme in ("http", "https") and ("?" in prefix or "?" in place or "#" in prefix):
        raise InputError("has a query or a fragment", path=mask(url), hint="attach the folder, without '?' or '#'")
