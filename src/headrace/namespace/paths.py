"""What a path is: text that starts with ``/``, taken literally; and how a URL is cut into a store's root and a key.

Nothing is normalised below a mount point: ``//``, ``.``, ``..`` and a trailing ``/`` are parts of the key. The exact
rules are numbered in ``docs/semantics.md`` and re-enacted by ``tests/docs/test_semantics.py``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from urllib.parse import quote, unquote

from headrace.base.errors import InputError, UnsupportedError
from headrace.store.url import parse_url

PathLike = str | os.PathLike[str]

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*://")
_ENCODED = ("http://", "https://")
"""Schemes whose URLs spell keys percent-encoded; in every other URL the key stands as it is."""
_ESCAPE = re.compile("%[0-9A-Fa-f]{2}")


def is_url(path: str) -> bool:
    """True for ``scheme://…``; a namespace path always starts with ``/`` and is never a URL."""
    return _URL.match(path) is not None


def check_text(path: PathLike) -> str:
    """The text of a name. Raises InputError: it holds a NUL, or is not valid Unicode."""
    text = os.fspath(path)
    if "\0" in text or not _is_unicode(text):
        raise InputError("a path is Unicode text without NUL characters", path=ascii(text))
    return text


def check_path(path: PathLike) -> str:
    """The text of a path or URL, once it is known to be one.

    Raises:
        InputError: neither starts with ``/`` nor is a URL, or as `check_text`.
    """
    text = check_text(path)
    if text.startswith("/") or is_url(text):
        return text
    raise InputError(
        "neither a namespace path nor a URL",
        path=text,
        hint="a path starts with /, a URL with its scheme, such as s3:// or file:///",
    )


def check_mount_path(path: PathLike) -> str:
    """A mount point's path in its one spelling: no trailing ``/`` (but ``/`` itself), no empty, ``.`` or ``..`` part.

    Raises:
        InputError: anything else.
    """
    text = check_path(path)
    if is_url(text):
        raise InputError("a mount point is a path, not a URL", path=text, hint="attach PATH URL, such as /data s3://b")
    trimmed = text if text == "/" else text.removesuffix("/")
    if trimmed != "/" and any(part in ("", ".", "..") for part in trimmed[1:].split("/")):
        raise InputError("a mount point has no empty, '.' or '..' part", path=text, hint="write it like /data/imagenet")
    return trimmed


def ancestors(path: str) -> Iterator[str]:
    """Every mount point `path` could be under, longest first: ``/a/b`` gives ``/a/b``, ``/a``, ``/``."""
    end = len(path)
    while end > 0:
        yield path[:end]
        end = path.rfind("/", 0, end)
    yield "/"


def key_below(root: str, path: str) -> str:
    """The key of `path` in the store whose root is at `root`: what follows ``root/``; "" for the root itself."""
    return path[1:] if root == "/" else path[len(root) + 1 :]


def join(root: str, key: str) -> str:
    """The path, or URL, of `key` in the store whose root is at `root`. Inverse of the cut that `resolve` makes."""
    if root.startswith(_ENCODED):
        key = quote(key, safe="/~!$&'()*+,;=:@")
    return f"/{key}" if root == "/" else f"{root}/{key}"


def plain_base(root: str) -> str | None:
    """What `join` puts before every key, where that is all it does; None where keys are encoded too."""
    return None if root.startswith(_ENCODED) else "/" if root == "/" else root + "/"


def folder_path(root: str, prefix: str) -> str:
    """The path of the folder whose keys start with `prefix` (which ends in ``/``).

    Without its trailing ``/``, unless the folder's own name is empty: then only the ``/`` tells it from its parent.
    """
    name = prefix[:-1]
    return join(root, prefix if name == "" or name.endswith("/") else name)


def as_prefix(key: str) -> str:
    """The prefix of all keys inside the folder `key`."""
    return key if key == "" or key.endswith("/") else key + "/"


def base_name(key: str) -> str:
    """The last part of a key: what a listing calls it. Empty for a key that ends in ``/``."""
    return key.rpartition("/")[2]


def trim_url(url: str) -> str:
    """A URL in one spelling: canonical scheme (``s3a`` is ``s3``), no trailing ``/``.

    ``file:///`` becomes ``file://``: a key follows the root after one ``/``, here as everywhere.

    Raises:
        InputError: no URL of a store, or one with credentials inside.
    """
    scheme, separator, rest = _canonical(url).partition("://")
    return scheme + separator + rest.rstrip("/")


def _canonical(url: str) -> str:
    place = _authority(url)
    return _canonical_place(place) + url[len(place) :]


@lru_cache(maxsize=256)
def _canonical_place(place: str) -> str:
    scheme = parse_url(place + "/").scheme
    host = place.partition("://")[2]
    return f"{scheme}://{'' if scheme == 'file' and host == 'localhost' else host}"


def folders_of(keys: Iterable[str], prefix: str) -> set[str]:
    """The prefixes of all folders strictly below `prefix` that `keys` are in."""
    found: set[str] = set()
    for key in keys:
        end = key.rfind("/")
        while end >= len(prefix) and key[: end + 1] not in found:
            found.add(key[: end + 1])
            end = key.rfind("/", 0, end)
    return found


def is_below(url: str, root: str) -> bool:
    """True when `url` is `root` (as `trim_url` writes it) or inside it, cut at ``/``."""
    return url.startswith(root) and (len(url) == len(root) or url[len(root)] == "/")


def split_url(url: str, roots: Iterable[str]) -> tuple[str, str]:
    """Cut `url` into a store's root and a key: at the longest of `roots` that holds it, else after the host or bucket.

    `roots` are spelled as by `trim_url`.

    Raises:
        InputError: no URL of a store, or one with credentials inside.
        UnsupportedError: an HTTP URL with a query or a fragment, which no key can express.
    """
    url = _canonical(url)
    holding = [root for root in roots if is_below(url, root)]
    root = max(holding, key=len) if holding else _authority(url)
    key = url[len(root) + 1 :]
    if not root.startswith(_ENCODED):
        return root, key
    if "?" in key or "#" in key:
        raise UnsupportedError(
            "an HTTP URL with a query or fragment names no object",
            path=url.partition("?")[0],
            hint="write a ? or # that belongs to the name as %3F or %23",
        )
    return root, unquote(key)


def _authority(url: str) -> str:
    start = url.index("://") + 3
    end = url.find("/", start)
    return url if end < 0 else url[:end]


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def refuse_escapes(url: str) -> None:
    """``file://`` URLs are literal. One that another tool wrote with percent escapes (``Path.as_uri``) would silently
    name another folder, so it is taken only where something of that very name is there.

    Raises:
        InputError: it has an escape, and nothing of that name is there.
    """
    if not url.startswith("file://") or (decoded := unquote(url)) == url:
        return
    escape = list(_ESCAPE.finditer(url))[-1]
    named_so = url[: end if (end := url.find("/", escape.end())) >= 0 else len(url)].removeprefix("file://")
    if not os.path.lexists(named_so):
        raise InputError(
            "a file:// URL holds names as they are, without percent escapes",
            path=url,
            hint=f"did you mean {decoded!r}? A path needs no URL, and a folder that is to have that name is made first",
        )
