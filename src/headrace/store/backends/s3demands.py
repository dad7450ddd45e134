"""What a bucket may demand of each object: encryption, storage class, ACL. Headers of requests to S3.

Source: Amazon S3 User Guide, "Protecting data with server-side encryption" (SSE-S3, SSE-KMS, SSE-C); API Reference,
PutObject, CreateMultipartUpload, CopyObject, UploadPart, GetObject: which of these headers each takes.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from headrace.base.errors import DeniedError, HeadraceError, InputError, SettingError
from headrace.store.protocol import StoreOptions

_KINDS: Final = ("AES256", "aws:kms", "aws:kms:dsse")
_PLAIN: Final = re.compile(r"[\x21-\x7e]+")
_ENCRYPTION: Final = "x-amz-server-side-encryption"
_DENIED_HINT: Final = (
    "check the credentials' policy; where the bucket demands encryption, a storage class or an ACL, "
    "set sse, storage_class or acl in [stores]"
)
_KEY_HINT: Final = "set sse_c in [stores] to the key that the object was written with"


@dataclass(frozen=True, slots=True)
class Demands:
    """`written`: of an object that is made. `customer`: of every request for an object's bytes; it holds a key."""

    written: Mapping[str, str]
    customer: Mapping[str, str] = field(repr=False)

    @classmethod
    def of(cls, options: StoreOptions, path: str) -> Demands:
        """As the options say.

        Raises:
            SettingError: a value that S3 does not know, or two that exclude each other.
        """

        def wrong(name: str, reason: str, hint: str) -> SettingError:
            return SettingError(f"store option {name} {reason}", path=path, hint=hint)

        sse = options.sse or ("aws:kms" if options.sse_kms_key_id else None)
        if sse is not None and sse not in _KINDS:
            raise wrong("sse", f"is {sse!r}", f"it is one of {', '.join(_KINDS)}")
        if options.sse_kms_key_id and sse == "AES256":
            raise wrong("sse_kms_key_id", "goes with sse = 'aws:kms' only", "leave one of them out")
        if options.sse_c and sse is not None:
            raise wrong("sse_c", "excludes sse and sse_kms_key_id", "leave one of them out")
        written = {
            _ENCRYPTION: sse,
            f"{_ENCRYPTION}-aws-kms-key-id": options.sse_kms_key_id,
            "x-amz-storage-class": options.storage_class,
            "x-amz-acl": options.acl,
        }
        for name in ("sse_kms_key_id", "storage_class", "acl"):
            if (value := getattr(options, name)) and not _PLAIN.fullmatch(value):
                raise wrong(name, "has characters that no header holds", "write it as S3's reference does")
        return cls({name: value for name, value in written.items() if value}, _customer(options.sse_c, path))

    def headers(self, method: str, key: str, query: Mapping[str, str], headers: Mapping[str, str]) -> Mapping[str, str]:
        """Those of one request, beside the `headers` that it has."""
        if not key or method not in ("GET", "HEAD", "PUT", "POST"):
            return {}
        made = (method == "PUT" and "uploadId" not in query) or (method == "POST" and "uploads" in query)
        found = {**self.written, **self.customer} if made else {**self.customer}
        if "x-amz-copy-source" in headers:
            found |= {name.replace("x-amz-", "x-amz-copy-source-", 1): value for name, value in self.customer.items()}
        return found

    def explained(self, error: HeadraceError, method: str) -> HeadraceError:
        """The same refusal, its hint naming what may be missing here."""
        if isinstance(error, DeniedError) and method in ("PUT", "POST") and not (self.written or self.customer):
            error.hint = _DENIED_HINT
        if isinstance(error, InputError) and "ncryption" in error.reason and not self.customer:
            error.hint = _KEY_HINT
        return error


def _customer(text: str | None, path: str) -> dict[str, str]:
    if not text:
        return {}
    try:
        key = base64.b64decode(text, validate=True)
    except binascii.Error:
        key = b""
    if len(key) != 32:
        hint = "32 random bytes in base64, as `openssl rand -base64 32` prints them"
        raise SettingError("store option sse_c is no key of 256 bits", path=path, hint=hint)
    digest = hashlib.md5(key, usedforsecurity=False).digest()
    names = (f"{_ENCRYPTION}-customer-{name}" for name in ("algorithm", "key", "key-md5"))
    return dict(zip(names, ("AES256", text, base64.b64encode(digest).decode()), strict=True))
