"""``s3://``: any S3 service, spoken to in our own signed HTTP/1.1, so that every key reaches the server as written.

Source: Amazon S3 API Reference. Not obstore, because it normalises keys, cannot list odd ones and its runtime does
not promise to survive a fork; not botocore, because of its cost (see `README.md` in the room above).
"""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from urllib.parse import unquote

from headrace.base.errors import (
    AlreadyExistsError,
    ChangedError,
    DeniedError,
    HeadraceError,
    InputError,
    NameRefusedError,
    NameTooLongError,
    NotFoundError,
    UnsupportedError,
)
from headrace.store.backends import s3upload, s3xml, usermeta
from headrace.store.backends.errors import from_http
from headrace.store.backends.objectinfo import info_of, measured
from headrace.store.backends.s3api import ContestedError, S3Api
from headrace.store.backends.s3upload import S3Assembly
from headrace.store.backends.s3xml import quoted
from headrace.store.backends.sigv4 import quote_path
from headrace.store.http1 import NOT_MODIFIED, Endpoint, Response, byte_range, range_line
from headrace.store.probe import PREFIX, probe_condition, probe_exact_keys, probe_parts
from headrace.store.protocol import (
    LARGEST_OBJECT,
    Blob,
    Buffer,
    Capabilities,
    Described,
    Folder,
    ObjectInfo,
    Store,
    StoreOptions,
    Unfinished,
)
from headrace.store.url import StoreUrl

_DELETE_AT_ONCE = 1000  # keys: the most that DeleteObjects takes
_ODD = re.compile(r"//|\A/|/\Z|(?:\A|/)\.{1,2}(?:/|\Z)|\\")
_ODD_HINT = "use keys without '//', '.' or '..' parts, backslash, or '/' at an end"
_LONGEST = 1024
"""Bytes of a key in its bucket, in UTF-8."""
_SINGLE_PUT = 5 << 30  # bytes: the most that one PUT, or one copy, takes
_AWS = Capabilities(
    has_etag=True,
    create_only_put=True,
    conditional_put=True,
    conditional_get=True,
    start_after=True,
    etag_is_md5=None,
    exact_keys=True,
    metadata=True,
    parts=True,
    copied_parts=True,
    conditional_parts=True,
)
"""Amazon documents these; every other server is asked."""


class S3Wire:
    """The store as plain GETs. One thread at a time may not be assumed: any thread."""

    ranges = True

    def __init__(self, api: S3Api, root: str, url: str) -> None:
        self._api = api
        self._url = url
        self._base = api.address.base + root
        self._get = api.signer.get

    @property
    def endpoint(self) -> Endpoint:
        return self._api.address.endpoint

    def request(self, key: str, start: int, stop: int | None, if_match: str | None) -> bytes:
        """See `headrace.store.protocol.Wire`."""
        extra = range_line(start, stop)
        if if_match is not None:
            extra += f"if-match: {quoted(if_match)}\r\n"
        return self._get(self._base + key, extra)

    def error(self, key: str, status: int, body: bytes) -> HeadraceError:
        """See `headrace.store.protocol.Wire`."""
        return self._api.error(f"{self._url}/{key}", status, body)

    def refresh(self) -> bool:
        """See `headrace.store.protocol.Wire`."""
        return self._api.renew()


class S3Store(Store):
    """One bucket, or a prefix of one. Any thread, fork-safe. See `headrace.store.protocol.Store` for every method."""

    lists_by_pages = True

    def __init__(self, url: StoreUrl, options: StoreOptions) -> None:
        self.url = str(url)
        self._root = url.root
        self._options = options
        self._api = S3Api(url.place, options, self.url)
        self._identity = f"{self.url}@{self._api.address.url}"
        self._wire = S3Wire(self._api, self._root, self.url)
        self._capabilities = _AWS if self._api.address.is_aws else Capabilities(parts=True)
        self._cleared = False
        self._plus: bool | None = True if self._api.address.is_aws else None

    def __repr__(self) -> str:
        return f"S3Store({self.url!r}, endpoint={self._api.address.url!r})"

    @property
    def capabilities(self) -> Capabilities:
        return self._capabilities

    def record(self, seen: Capabilities) -> None:
        self._capabilities = seen

    @property
    def identity(self) -> str:
        return self._identity

    @property
    def largest(self) -> int:
        """On AWS as many parts as there may be, of the largest size: 48.8 TiB. Others have kept what S3 began with."""
        return s3upload.LARGEST if self._api.address.is_aws else LARGEST_OBJECT

    def wire(self) -> S3Wire:
        return self._wire

    def variables(self) -> Mapping[str, str]:
        """For AWS's own clients, and MLflow. A profile is named, so that its keys are renewed there too."""
        options, address = self._options, self._api.address
        found = {"AWS_REGION": address.region, "AWS_DEFAULT_REGION": address.region}
        if not address.is_aws:
            found |= dict.fromkeys(("AWS_ENDPOINT_URL_S3", "MLFLOW_S3_ENDPOINT_URL"), address.url)
        if options.path_style is not None or not address.is_aws:
            found["MLFLOW_BOTO_CLIENT_ADDRESSING_STYLE"] = "virtual" if options.path_style is False else "path"
        if options.ca_file:
            found["AWS_CA_BUNDLE"] = options.ca_file
        if options.profile and not options.role_arn and not options.access_key_id:
            return found | {"AWS_PROFILE": options.profile}
        keys = self._api.credentials.keys()
        if keys is not None:
            found |= {"AWS_ACCESS_KEY_ID": keys.access_key, "AWS_SECRET_ACCESS_KEY": keys.secret_key}
            found |= {"AWS_SESSION_TOKEN": keys.token} if keys.token else {}
        return found

    def presigned(self, key: str, seconds: int) -> str:
        return self._api.presigned(self._full(key), seconds)

    def _clear_abandoned(self) -> None:
        """Before the first write: what writers that died have left."""
        if not self._cleared:
            self._cleared = True
            s3upload.clear_abandoned(self._api)

    def _path(self, key: str) -> str:
        return f"{self.url}/{key}"

    def _full(self, key: str) -> str:
        """The key in the bucket, for reading. Refused where the server is known to take it for a tidier one."""
        if self._capabilities.exact_keys is False and _ODD.search(key.removesuffix("/")):
            raise self._mixed_up(key)
        return self._root + key

    def _full_to_write(self, key: str, *, marker: bool = False) -> str:
        """The key in the bucket, for writing, where it is not too long. Else as `_full_to_delete`."""
        full = self._full_to_delete(key, marker=marker)
        if len(full) > _LONGEST // 4 and (length := len(full.encode())) > _LONGEST:
            hint = f"S3 keys hold at most {_LONGEST:,} bytes, the prefix included"
            raise NameTooLongError(f"a key of {length:,} bytes", path=self._path(key), hint=hint)
        return full

    def _full_to_delete(self, key: str, *, marker: bool = True) -> str:
        """The key in the bucket. An odd one only where the server was seen to keep it exactly.

        `marker`: an empty object, or a deletion; then a slash at the end is safe everywhere.
        """
        if _ODD.search(key.removesuffix("/") if marker else key):
            if self._capabilities.exact_keys is None:
                self.record(dataclasses.replace(self._capabilities, exact_keys=probe_exact_keys(self)))
            if self._capabilities.exact_keys is False:
                raise self._mixed_up(key)
        return self._root + key

    def check_key(self, key: str) -> None:
        self._full_to_write(key, marker=key.endswith("/"))

    def _mixed_up(self, key: str) -> NameRefusedError:
        reason = f"this server does not keep the key {key!r} apart from others"
        return NameRefusedError(reason, path=self.url, hint=_ODD_HINT)

    def get(self, key: str, start: int = 0, stop: int | None = None, *, if_match: str | None = None) -> Blob:
        full = self._full(key)
        if start < 0 or (stop is not None and stop <= start):
            return self._empty(key, start, if_match)
        headers: dict[str, str] = {}
        if asked := byte_range(start, stop):
            headers["range"] = asked
        if if_match is not None:
            headers["if-match"] = quoted(if_match)
        try:
            answer = self._api.call("GET", full, path=self._path(key), headers=headers)
        except InputError as error:
            if not headers.get("range") or "range" not in error.reason:
                raise
            return self._empty(key, start, if_match)
        info = info_of(key, answer)
        if if_match is not None and info.etag != if_match:  # not every server looks at the condition
            raise ChangedError("the object has changed", path=self._path(key))
        if answer.status == 200 and "range" in headers:  # a server, or a proxy, that knows no ranges
            return Blob(answer.body[start:stop], info._replace(size=len(answer.body)))
        return Blob(answer.body, info)

    def get_if_changed(self, key: str, version: str) -> Blob | None:
        headers = {"if-none-match": quoted(version)}
        answer = self._api.call("GET", self._full(key), path=self._path(key), headers=headers)
        if answer.status == NOT_MODIFIED:
            return None
        info = info_of(key, answer)
        return None if info.version == version else Blob(answer.body, info)  # not every server looks at the condition

    def _empty(self, key: str, start: int, if_match: str | None) -> Blob:
        info = self.head(key)
        if if_match is not None and info.etag != if_match:
            raise ChangedError("the object has changed", path=self._path(key))
        if not 0 <= start <= info.size:
            raise InputError(f"the range starts at {start}, the object ends at {info.size}", path=self._path(key))
        return Blob(memoryview(b""), info)

    def head(self, key: str) -> ObjectInfo:
        return self._info(key, self._head(key))

    def describe(self, key: str) -> Described:
        answer = self._head(key)
        return Described(self._info(key, answer), usermeta.from_s3(answer.headers()), _kept(answer))

    def _info(self, key: str, head: Response) -> ObjectInfo:
        def get(headers: Mapping[str, str]) -> Response:
            return self._api.call("GET", self._full(key), path=self._path(key), headers=headers)

        return measured(key, head, get)

    def _head(self, key: str) -> Response:
        full = self._full(key)
        try:
            return self._api.call("HEAD", full, path=self._path(key))
        except (NotFoundError, DeniedError, InputError) as error:
            # HEAD's answers have no body that says why; those of a GET of one byte do. Once anything has been
            # answered, bucket and credentials are known to be good, and a 404 means what it says.
            if not self._api.answered:
                self._api.call("GET", full, path=self._path(key), headers={"range": "bytes=0-0"})
            raise error from None

    def put(
        self,
        key: str,
        data: Buffer,
        *,
        if_match: str | None = None,
        create: bool = False,
        metadata: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> ObjectInfo:
        self._clear_abandoned()
        view = memoryview(data).cast("B")
        full = self._full_to_write(key, marker=not len(view))
        sent = usermeta.s3_headers(metadata, self._path(key), headers)
        if not (create or if_match is not None):
            if len(view) > s3upload.MULTIPART_FROM:
                return s3upload.upload(self._assemble(key, full, sent, {}), view)
            return self._put(key, view, sent)
        if len(view) > _SINGLE_PUT:
            raise UnsupportedError("a conditional write holds at most 5 GiB", path=self._path(key))
        self._need(create, key)
        sent |= {"if-none-match": "*"} if create else {"if-match": quoted(if_match or "")}
        try:
            return self._put(key, view, sent)
        except (ChangedError, NotFoundError) as error:
            if isinstance(error, ContestedError) and (mine := self._landed(key, view)) is not None:
                return mine
            if create:
                raise AlreadyExistsError("already exists", path=error.path) from error
            raise ChangedError("the object has changed, or is gone", path=error.path) from error

    def _put(self, key: str, view: memoryview, headers: Mapping[str, str]) -> ObjectInfo:
        answer = self._api.call("PUT", self._root + key, path=self._path(key), headers=headers, body=view)
        return info_of(key, answer)._replace(size=len(view))

    def _landed(self, key: str, view: memoryview) -> ObjectInfo | None:
        """Whether an earlier try whose answer was lost had written these very bytes."""
        try:
            blob = self.get(key)
        except NotFoundError:
            return None
        return blob.info if blob.data == view else None

    def _need(self, create: bool, key: str) -> None:
        """Conditions are trusted only where they were seen to hold: a server that ignores one would overwrite."""
        name = "create_only_put" if create else "conditional_put"
        if getattr(self._capabilities, name) is None:
            self._capabilities = dataclasses.replace(self._capabilities, **{name: probe_condition(self, create=create)})
        self._must_keep(name, create, key)

    def _must_keep(self, name: str, create: bool, key: str) -> None:
        if not getattr(self._capabilities, name):
            what = "create-only" if create else "if-match"
            raise UnsupportedError(
                f"this server ignores the condition of a {what} write",
                path=self._path(key),
                hint="use a store that keeps it",
            )

    def unchecked_put(self, key: str, data: bytes, header: str, value: str) -> ObjectInfo:
        """A put with one condition, whether or not the server is known to keep it: for `headrace.store.probe`."""
        return self._put(key, memoryview(data), {header: value if value == "*" else quoted(value)})

    def unchecked_key(self, key: str, data: bytes | None) -> bytes:
        """Put (`data`) or get any key, whether or not the server is known to keep it apart: for the probe."""
        if data is not None:
            self._put(key, memoryview(data), {})
            return data
        return bytes(self._api.call("GET", self._root + key, path=self._path(key)).body)

    def unchecked_delete(self, keys: Sequence[str]) -> None:
        """Delete any keys, ignoring failures: for the probe."""
        for key in keys:
            with suppress(HeadraceError):
                self._api.call("DELETE", self._root + key, path=self._path(key))

    def unchecked_list(self, prefix: str, start_after: str) -> Sequence[str]:
        """The first page of keys just as the server answers: for `headrace.store.probe`."""
        page = next(self._pages(prefix, {"start-after": self._root + start_after}))
        return [one.key for one in page.objects]

    def assemble(
        self,
        key: str,
        *,
        if_match: str | None = None,
        create: bool = False,
        metadata: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> S3Assembly:
        self._clear_abandoned()
        full, sent = self._full_to_write(key), usermeta.s3_headers(metadata, self._path(key), headers)
        if create or if_match is not None:
            if self._capabilities.conditional_parts is None:
                self.record(dataclasses.replace(self._capabilities, conditional_parts=probe_parts(self)))
            self._must_keep("conditional_parts", create, key)
        condition = {"if-none-match": "*"} if create else {"if-match": quoted(if_match)} if if_match is not None else {}
        return self._assemble(key, full, sent, condition)

    def _assemble(self, key: str, full: str, headers: Mapping[str, str], condition: Mapping[str, str]) -> S3Assembly:
        return S3Assembly(
            self._api,
            full,
            key,
            self._path(key),
            headers=headers,
            condition=condition,
            source=self._origin,
            locate=self.head,
        )

    def unchecked_assemble(self, key: str, header: str, value: str) -> S3Assembly:
        """Begin an object with one condition, whether or not the server is known to keep it: for the probe."""
        return self._assemble(key, self._root + key, {}, {header: value if value == "*" else quoted(value)})

    def unfinished(self, prefix: str = "") -> Sequence[Unfinished]:
        return s3upload.unfinished(self._api, self._root, prefix, self._path(prefix))

    def discard(self, left: Unfinished) -> None:
        s3upload.abort(self._api, self._root + left.key, left.token, self._path(left.key))

    def _origin(self, source: str) -> str:
        """The source of a copy, as its header names it."""
        return quote_path(f"/{self._api.bucket}/{self._full(source)}")

    def copy(
        self,
        source: str,
        target: str,
        *,
        metadata: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        if source == target and metadata is None:
            self.head(source)
            return
        path, destination = self._path(source), self._full_to_write(target)
        sent = {"x-amz-copy-source": self._origin(source)}
        if metadata is not None:
            sent |= {"x-amz-metadata-directive": "REPLACE"} | self._replacing(source, metadata, headers)
        try:
            self._api.call("PUT", destination, path=path, headers=sent, slow=True)
        except InputError:
            info, kept, _ = self.describe(source)
            if info.size <= _SINGLE_PUT:
                raise
            replaced = (kept, None) if metadata is None else (metadata, headers)
            sent = self._replacing(source, *replaced)
            s3upload.copy_parts(self._assemble(target, destination, sent, {}), source, info.size, info.etag)

    def _replacing(
        self, source: str, metadata: Mapping[str, str], headers: Mapping[str, str] | None
    ) -> dict[str, str]:
        """Headers of a copy with other metadata: those of its own (the content type) stay where none are given."""
        own = _kept(self._head(source)) if headers is None else {}
        return own | usermeta.s3_headers(metadata, self._path(source), headers)

    def redescribe(self, known: Described, metadata: Mapping[str, str]) -> None:
        key, size, etag = (info := known.info).key, info.size, info.etag
        if size > _SINGLE_PUT:
            self.copy(key, key, metadata=metadata)
            return
        headers = {"x-amz-copy-source": self._origin(key), "x-amz-metadata-directive": "REPLACE"}
        if etag is not None:
            headers["x-amz-copy-source-if-match"] = quoted(etag)
        headers |= {**(known.headers or {}), **usermeta.s3_headers(metadata, self._path(key))}
        self._api.call("PUT", self._full_to_write(key), path=self._path(key), headers=headers, slow=True)

    def delete(self, keys: Sequence[str]) -> None:
        full = [self._full_to_delete(key) for key in keys]
        many = [key for key in full if s3xml.sendable(key)] if len(full) > 1 else []
        for key in full if not many else [key for key in full if not s3xml.sendable(key)]:
            try:
                self._api.call("DELETE", key, path=self._path(key.removeprefix(self._root)))
            except NotFoundError as error:
                if "bucket" in error.reason:
                    raise
        for start in range(0, len(many), _DELETE_AT_ONCE):
            self._delete_batch(many[start : start + _DELETE_AT_ONCE])

    def _delete_batch(self, full_keys: Sequence[str]) -> None:
        body = s3xml.delete_body(full_keys)
        digest = base64.b64encode(hashlib.md5(body, usedforsecurity=False).digest()).decode()
        headers = {"content-md5": digest, "content-type": "application/xml"}
        answer = self._api.call("POST", path=self.url, query={"delete": ""}, headers=headers, body=body)
        for key, error in s3xml.delete_errors(bytes(answer.body)):
            failure = from_http(self._path(key.removeprefix(self._root)), 403, error)
            if not isinstance(failure, NotFoundError):
                raise failure

    def list(self, prefix: str = "", *, start_after: str | None = None) -> Iterator[Sequence[ObjectInfo]]:
        query = {"start-after": self._root + start_after} if start_after is not None else {}
        after = start_after or ""
        skipped = self._skipped(prefix, after) if start_after is not None else []
        for page in self._pages(prefix, query):
            # Not the marker of the root itself (the empty key), nor what comes later in another order than of bytes.
            objects = [one for one in page.objects if one.key > after and not one.key.startswith(PREFIX)]
            if skipped:
                skipped = [below for below in skipped if not any(one.key.startswith(below) for one in objects)]
            if objects:
                yield objects
        for below in skipped:
            for page in self.list(max(below, prefix, key=len)):
                # SeaweedFS takes the prefix `a//` for `a/`.
                if objects := [one for one in page if one.key.startswith(below)]:
                    yield objects

    def _skipped(self, prefix: str, after: str) -> list[str]:
        """Prefixes of keys above `after` in byte order that a server with another order may have left out.

        SeaweedFS orders folder by folder: to it ``/`` sorts below every other character, and what is below ``a/`` goes
        with ``a``. So after ``a-b`` it leaves out ``a/…``: wherever `after` has a character below ``/``, or ends.
        """
        if self._capabilities.start_after:
            return []
        ends = [at for at, letter in enumerate(after) if letter < "/"] + [len(after)]
        found = [f"{after[:at]}/" for at in ends]
        return [below for below in found if below.startswith(prefix) or prefix.startswith(below)]

    def list_folder(self, prefix: str = "") -> Folder:
        folders: list[str] = []
        objects: list[ObjectInfo] = []
        for page in self.list_pages(prefix):
            folders += page.folders
            objects += page.objects
        return Folder(tuple(folders), tuple(objects))

    def list_pages(self, prefix: str = "", *, start_after: str | None = None) -> Iterator[Folder]:
        after = {"start-after": self._root + start_after} if start_after is not None else {}
        for page in self._pages(prefix, {"delimiter": "/", **after}):
            yield Folder(
                tuple(name for name in page.folders if not name.startswith(PREFIX)),
                tuple(one for one in page.objects if one.key and not one.key.startswith(PREFIX)),
            )

    def _pages(self, prefix: str, extra: Mapping[str, str]) -> Iterator[s3xml.Page]:
        query = {"list-type": "2", "encoding-type": "url", "max-keys": "1000", "prefix": self._root + prefix, **extra}
        path = self._path(prefix)
        tokens = s3xml.Tokens(path)
        while True:
            text = s3xml.page_text(bytes(self._api.call("GET", path=path, query=query).body), path)
            encoded = "<EncodingType>url</EncodingType>" in text
            plus = encoded and "+" in text and self._plus_is_a_space(text, path)
            page = s3xml.parse_page(text, self._root, path, encoded=encoded, plus_is_space=plus)
            yield page
            if page.token is None:
                return
            query["continuation-token"] = tokens.next(page.token)
            query.pop("start-after", None)

    def _plus_is_a_space(self, text: str, path: str) -> bool:
        """What ``+`` stands for in this server's URL-encoded keys: a space (AWS, SeaweedFS), or itself. Asked once."""
        if self._plus is None:
            keys = s3xml.keys_of(text)
            doubtful = next((key for key in keys if "+" in key), None)
            if any("%2b" in key.lower() for key in keys):
                self._plus = True
            elif doubtful is not None:
                query = {"list-type": "2", "max-keys": "1", "prefix": unquote(doubtful.replace("+", " "))}
                answer = self._api.call("GET", path=path, query=query)
                self._plus = b"<Contents>" in bytes(answer.body)
        return bool(self._plus)

    def close(self) -> None:
        self._api.close()


def _kept(answer: Response) -> dict[str, str]:
    """Headers that a copy with other metadata loses, unless it is given them: what is not the user's."""
    return {name: value for name in usermeta.KEPT if (value := answer.header(name))}


def list_buckets(options: StoreOptions) -> None:
    """Succeeds when the service answers a signed request. Raises as any call."""
    once = dataclasses.replace(options, retries=0, timeout_s=min(options.timeout_s, 5.0))
    api = S3Api("", once, options.endpoint or "s3://")
    try:
        api.call("GET", path=api.path)
    finally:
        api.close()


def create_bucket(name: str, options: StoreOptions) -> None:
    """Make a bucket; fine if it is ours already. Raises as any call."""
    api = S3Api(name, dataclasses.replace(options, path_style=True), f"s3://{name}")
    try:
        api.call("PUT", path=api.path)
    except HeadraceError as error:
        if not isinstance(error, (ChangedError, AlreadyExistsError)):
            raise
    finally:
        api.close()
