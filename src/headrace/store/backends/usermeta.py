"""What an object has beside its bytes, as it goes through HTTP headers: checked on the way out, decoded on the way in.

Amazon S3 User Guide, "Working with object metadata": names are case-insensitive, values should be US-ASCII; what is
not comes back in RFC 2047's encoding.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from email.errors import HeaderParseError
from email.header import decode_header, make_header
from typing import Final

from headrace.base.errors import InputError
from headrace.store.protocol import HEADERS

_NAME = re.compile(r"[a-z0-9_][a-z0-9_.-]*\Z")
_VALUE = re.compile(r"(?:[!-~](?:[ -~]*[!-~])?)?\Z")
_S3: Final = "x-amz-meta-"
KEPT: Final = (*HEADERS, "content-encoding")
"""Headers of an object that are no metadata of the user's, but lost with it when S3 replaces metadata."""


def checked(metadata: Mapping[str, str] | None, path: str) -> dict[str, str]:
    """The same with names in lower case.

    Raises:
        InputError: a name or a value that no HTTP header can carry as it is.
    """
    found = {name.lower(): value for name, value in (metadata or {}).items()}
    for name, value in found.items():
        if not _NAME.match(name) or not _VALUE.match(value):
            hint = "names: letters, digits, '-', '_', '.'; values: printable ASCII without spaces at the ends"
            raise InputError(f"the metadata {name!r} cannot be written", path=path, hint=hint)
    return found


def checked_headers(headers: Mapping[str, str] | None, path: str) -> dict[str, str]:
    """An object's own headers: those of `HEADERS`, with names in lower case, without empty ones.

    Raises:
        InputError: another header, or a value that none can carry.
    """
    found = {name.lower(): value for name, value in (headers or {}).items()}
    for name, value in found.items():
        if name not in HEADERS or not _VALUE.match(value):
            hint = f"names: {', '.join(HEADERS)}; values: printable ASCII without spaces at the ends"
            raise InputError(f"the header {name!r} cannot be written", path=path, hint=hint)
    return {name: value for name, value in found.items() if value}


def s3_headers(
    metadata: Mapping[str, str] | None, path: str, headers: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Request headers. Raises as `checked` and `checked_headers`."""
    return checked_headers(headers, path) | {_S3 + name: value for name, value in checked(metadata, path).items()}


def from_s3(headers: Iterable[tuple[str, str]]) -> dict[str, str]:
    """The metadata among an answer's headers."""
    named = ((name.lower(), str(value)) for name, value in headers)
    return {name[len(_S3) :]: _decoded(value) for name, value in named if name.startswith(_S3)}


def _decoded(value: str) -> str:
    if value.isascii() and "=?" not in value:
        return value
    try:
        value = value.encode("latin-1").decode()  # some servers send UTF-8, which came here as Latin-1
        return str(make_header(decode_header(value)))
    except (UnicodeError, HeaderParseError, LookupError):
        return value
