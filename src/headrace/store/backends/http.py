"""``http://`` and ``https://``: plain web servers. Reading is ours; listing and writing go by WebDAV where the server
has it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import quote

import obstore

from headrace.base.errors import ChangedError, CredentialsError, HeadraceError, InputError, UnsupportedError
from headrace.base.settings import environment
from headrace.store.backends.errors import from_http
from headrace.store.backends.objectinfo import info_of, measured
from headrace.store.backends.objects import ObjectStore, client_options, retry_config
from headrace.store.backends.s3xml import quoted
from headrace.store.backends.spool import SpoolAssembly
from headrace.store.http1 import NOT_MODIFIED, Endpoint, Patience, Response, Transport, persist, range_line
from headrace.store.protocol import (
    Assembly,
    Blob,
    Buffer,
    Capabilities,
    Folder,
    ObjectInfo,
    Store,
    StoreOptions,
    is_stamp,
)
from headrace.store.url import StoreUrl

_LIST_HINT = "only WebDAV servers list; name objects by URL, or give a table of paths to Dataset.open"


class HttpWire:
    """Plain GETs, nothing signed."""

    ranges = False

    def __init__(self, endpoint: Endpoint, base: str, host: str, url: str) -> None:
        self._endpoint = endpoint
        self._base = base
        self._host = host
        self._tail = f" HTTP/1.1\r\nhost: {host}\r\naccept-encoding: identity\r\n"
        self._url = url

    @property
    def endpoint(self) -> Endpoint:
        return self._endpoint

    def address(self, key: str) -> str:
        """The object's own URL."""
        return f"{'https' if self._endpoint.tls else 'http'}://{self._host}{self._base}{quote(key, safe='/~')}"

    def head(self, method: str, key: str, extra: str = "") -> bytes:
        """The complete head of any request without a body."""
        return f"{method} {self._base}{quote(key, safe='/~')}{self._tail}{extra}\r\n".encode()

    def request(self, key: str, start: int, stop: int | None, if_match: str | None) -> bytes:
        """See `headrace.store.protocol.Wire`. A weak ETag is no condition (RFC 9110, 13.1.1): compare the answer's."""
        extra = range_line(start, stop)
        if if_match is not None and not if_match.startswith("W/"):
            extra += f"if-match: {quoted(if_match)}\r\n"
        return self.head("GET", key, extra)

    def error(self, key: str, status: int, body: bytes) -> HeadraceError:
        """See `headrace.store.protocol.Wire`."""
        if status in (301, 302, 303, 307, 308):
            return UnsupportedError("the server redirects", path=f"{self._url}/{key}", hint="name the final URL")
        failure = from_http(f"{self._url}/{key}", status, body)
        if isinstance(failure, CredentialsError):
            failure.hint = "headrace reads public web servers only"
        return failure

    def refresh(self) -> bool:
        """Nothing to refresh."""
        return False


class HttpStore(Store):
    """A folder of a web server. Any thread; reading is fork-safe."""

    def __init__(self, url: StoreUrl, options: StoreOptions) -> None:
        self.url = str(url)
        host, port = _split(url)
        ca_file = options.ca_file or environment("AWS_CA_BUNDLE")
        endpoint = Endpoint.of(url.scheme, host, port, self.url, ca_file)
        base = "/" + "".join(f"{quote(part, safe='~%')}/" for part in url.prefix.split("/") if url.prefix)
        self._wire = HttpWire(endpoint, base, url.place, self.url)
        self._transport = Transport(endpoint, options.connect_timeout_s, max(1.0, options.timeout_s / 4))
        self._patience = Patience(options.timeout_s, options.retries)
        self._options = options
        self._dav: ObjectStore | None = None
        self._place = url
        self._capabilities = Capabilities()

    def __repr__(self) -> str:
        return f"HttpStore({self.url!r})"

    @property
    def capabilities(self) -> Capabilities:
        return self._capabilities

    def record(self, seen: Capabilities) -> None:
        self._capabilities = seen

    def wire(self) -> HttpWire:
        return self._wire

    def presigned(self, key: str, seconds: int) -> str:  # noqa: ARG002  it is public as it is
        return self._wire.address(key)

    def _call(self, key: str, head: bytes, *, also: int = 206) -> Response:
        """`also`: a status that is no failure, beside 200 and 206."""

        def attempt(deadline: float) -> Response:
            answer = self._transport.exchange(f"{self.url}/{key}", head, deadline=deadline)
            if answer.status not in (200, 206, also):
                raise self._wire.error(key, answer.status, bytes(answer.body[:65536]))
            return answer

        return persist(self._patience, attempt)

    def get(self, key: str, start: int = 0, stop: int | None = None, *, if_match: str | None = None) -> Blob:
        if start < 0 or (stop is not None and stop <= start):
            return self._empty(key, start, if_match)
        try:
            answer = self._call(key, self._wire.request(key, start, stop, if_match))
        except InputError as error:
            if "range" not in error.reason:
                raise
            return self._empty(key, start, if_match)
        info = info_of(key, answer)
        if if_match is not None and info.version != if_match:
            raise ChangedError("the object has changed", path=f"{self.url}/{key}")
        if answer.status == 200 and (start or stop is not None):
            return Blob(answer.body[start:stop], info)
        return Blob(answer.body, info)

    def get_if_changed(self, key: str, version: str) -> Blob | None:
        condition = "" if is_stamp(version) else f"if-none-match: {quoted(version)}\r\n"
        answer = self._call(key, self._wire.head("GET", key, condition), also=NOT_MODIFIED)
        if answer.status == NOT_MODIFIED:
            return None
        info = info_of(key, answer)
        return None if info.version == version else Blob(answer.body, info)

    def _empty(self, key: str, start: int, if_match: str | None) -> Blob:
        info = self.head(key)
        if if_match is not None and info.version != if_match:
            raise ChangedError("the object has changed", path=f"{self.url}/{key}")
        if not 0 <= start <= info.size:
            raise InputError(f"the range starts at {start}, the object ends at {info.size}", path=f"{self.url}/{key}")
        return Blob(memoryview(b""), info)

    def head(self, key: str) -> ObjectInfo:
        def get(headers: Mapping[str, str]) -> Response:
            return self._call(
                key, self._wire.head("GET", key, "".join(f"{name}: {text}\r\n" for name, text in headers.items()))
            )

        return measured(key, self._call(key, self._wire.head("HEAD", key)), get)

    @property
    def _webdav(self) -> ObjectStore:
        if self._dav is None:
            backend: Any = obstore.store.HTTPStore.from_url(
                self.url,
                client_options=client_options(self._options, self.url),
                retry_config=retry_config(self._options),
            )
            self._dav = ObjectStore(StoreUrl(self._place.scheme, self._place.place, ""), backend)
            self._dav.url = self.url
        return self._dav

    def list(self, prefix: str = "", *, start_after: str | None = None) -> Iterator[Sequence[ObjectInfo]]:
        try:
            yield from self._webdav.list(prefix, start_after=start_after)
        except HeadraceError as error:
            raise self._no_dav(error) from error

    def list_folder(self, prefix: str = "") -> Folder:
        try:
            return self._webdav.list_folder(prefix)
        except HeadraceError as error:
            raise self._no_dav(error) from error

    def check_key(self, key: str) -> None:
        self._webdav.check_key(key)

    def put(
        self,
        key: str,
        data: Buffer,
        *,
        if_match: str | None = None,
        create: bool = False,
        metadata: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,  # noqa: ARG002
    ) -> ObjectInfo:
        self._check_promises(key, if_match, create, metadata)
        try:
            return self._webdav.put(key, data)
        except HeadraceError as error:
            raise self._no_dav(error) from error

    def assemble(
        self,
        key: str,
        *,
        if_match: str | None = None,
        create: bool = False,
        metadata: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,  # noqa: ARG002
    ) -> Assembly:
        self._check_promises(key, if_match, create, metadata)
        return SpoolAssembly.before_put(self, key, lambda data: self.put(key, data))

    def _check_promises(self, key: str, if_match: str | None, create: bool, metadata: Mapping[str, str] | None) -> None:
        if if_match is not None or create or metadata:
            raise UnsupportedError("web servers promise no conditional writes", path=f"{self.url}/{key}")

    def copy(
        self,
        source: str,
        target: str,
        *,
        metadata: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,  # noqa: ARG002
    ) -> None:
        if metadata:
            raise UnsupportedError("web servers keep no metadata", path=f"{self.url}/{source}")
        self._webdav.copy(source, target)

    def delete(self, keys: Sequence[str]) -> None:
        self._webdav.delete(keys)

    def _no_dav(self, error: HeadraceError) -> HeadraceError:
        """Most web servers answer 405 or a page that is no WebDAV."""
        if isinstance(error.__cause__, OSError) or error.code in ("unreachable", "deadline", "credentials"):
            return error
        return InputError("this web server does not do that", path=error.path, hint=_LIST_HINT)

    def close(self) -> None:
        self._transport.close()


def _split(url: StoreUrl) -> tuple[str, int]:
    host, colon, port = url.place.rpartition(":")
    if not colon or url.place.endswith("]"):
        return url.place.strip("[]"), 443 if url.scheme == "https" else 80
    if not port.isdigit() or not 0 < int(port) < 65536:
        raise InputError(
            f"{port!r} is not a port", path=str(url), hint=f"write it like {url.scheme}://host:8080/folder"
        )
    return host.strip("[]"), int(port)
