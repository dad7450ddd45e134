"""``gs://``, ``az://`` and ``memory://``, by obstore.

obstore names objects by paths without empty, ``.`` or ``..`` parts and control characters. Other keys are refused
here (`UnsupportedError`), never silently changed. Its lists go by whole folders; plain string prefixes are filtered
here. obstore's options, one by one: `retry_timeout` is the whole deadline, `timeout` one attempt's; `max_retries`
ours; back-off from 50 ms (its 100 ms is slow for small objects) to 10 s; HTTP/1.1 only, its default; the idle pool
is left unbounded.
"""

from __future__ import annotations

import dataclasses
import mmap
import os
import re
import secrets
import threading
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any, BinaryIO, Final, cast

import obstore

from headrace.base.errors import (
    AlreadyExistsError,
    ChangedError,
    HeadraceError,
    InputError,
    NameRefusedError,
    NameTooLongError,
    NotFoundError,
    SettingError,
    UnsupportedError,
)
from headrace.base.settings import environment
from headrace.store.backends.errors import from_obstore
from headrace.store.backends.s3xml import clean_etag
from headrace.store.backends.spool import SpoolAssembly
from headrace.store.backends.usermeta import KEPT, checked, checked_headers
from headrace.store.protocol import (
    Assembly,
    Blob,
    Buffer,
    Capabilities,
    Described,
    Folder,
    ObjectInfo,
    Store,
    StoreOptions,
)
from headrace.store.url import StoreUrl

_ODD = re.compile(r"[\x00-\x1f\x7f]|(?:^|/)\.{1,2}(?:/|\Z)|//|\A/|/\Z|\A\Z")
_ODD_AZURE = re.compile(_ODD.pattern + r"|\\")
"""Azure takes a backslash for a slash."""
_DELETE_AT_ONCE = 1000  # keys in a call
_PART: Final = 8 << 20  # bytes of a part, and of a copy's piece in memory
_AT_ONCE: Final = 4  # parts under way: with the size of one, what bounds the memory
_NOT_USERS: Final = frozenset(
    [
        "Cache-Control",
        "Content-Disposition",
        "Content-Encoding",
        "Content-Language",
        "Content-Type",
        "Storage-Class",
    ]
)
"""What obstore calls attributes and is no metadata of the user's."""

AZURE_EXTRAS: Final = frozenset(
    [
        "account_name",
        "account_key",
        "client_id",
        "client_secret",
        "tenant_id",
        "authority_host",
        "sas_key",
        "token",
        "use_emulator",
        "endpoint",
        "msi_endpoint",
        "object_id",
        "msi_resource_id",
        "federated_token_file",
        "use_azure_cli",
        "skip_signature",
        "disable_tagging",
        "use_fabric_endpoint",
        "encryption_key",
    ]
)
GOOGLE_EXTRAS: Final = frozenset(
    ["service_account", "service_account_key", "application_credentials", "bearer_token", "base_url"]
)

_ALL: Final = Capabilities(
    has_etag=True,
    create_only_put=True,
    conditional_put=True,
    conditional_get=True,
    start_after=True,
    metadata=True,
    parts=False,
    copied_parts=False,
    conditional_parts=True,
)
_LONGEST: Final = 1024  # bytes or characters of a key, its prefix included
_LONGEST_IN: Final = {"gs": "bytes", "az": "characters"}
"""In what the providers count the length of a key; others have no limit that is known here."""
_SEEN: Final = {"gs": _ALL, "az": dataclasses.replace(_ALL, start_after=False), "memory": _ALL}


class ObjectStore(Store):
    """A bucket or container reached through obstore. Any thread.

    Args:
        url: its root.
        backend: the obstore store of the whole bucket.
        endpoint: where it is when not at the provider's own address; part of the identity.
    """

    def __init__(self, url: StoreUrl, backend: Any, endpoint: str | None = None) -> None:
        self.url = str(url)
        self._root = url.root
        self._backend = backend
        self._endpoint = endpoint
        self._odd = _ODD_AZURE if url.scheme == "az" else _ODD
        self._pid = os.getpid()
        self._capabilities = _SEEN.get(url.scheme, Capabilities())
        if self._root and _ODD.search(self._root[:-1]):
            raise UnsupportedError(
                "this kind of store cannot express the prefix", path=self.url, hint="see docs/semantics.md"
            )

    def __repr__(self) -> str:
        return f"ObjectStore({self.url!r})"

    @property
    def capabilities(self) -> Capabilities:
        return self._capabilities

    def record(self, seen: Capabilities) -> None:
        self._capabilities = seen

    @property
    def identity(self) -> str:
        return f"{self.url}@{self._endpoint}" if self._endpoint else self.url

    def _path(self, key: str) -> str:
        return f"{self.url}/{key}"

    def _refuse_fork(self) -> None:
        """Obstore's runtime has threads, which do not survive a fork: refused at once, where it would hang.

        Objects in memory need no runtime.
        """
        if self._pid != os.getpid() and not self.url.startswith("memory://"):
            raise UnsupportedError(
                "this kind of store cannot be used in a forked process",
                path=self.url,
                hint="start worker processes by spawn or forkserver",
            )

    def _full(self, key: str) -> str:
        self._refuse_fork()
        if self._odd.search(key):
            raise NameRefusedError(
                f"this kind of store cannot express the key {key!r}", path=self.url, hint="see docs/semantics.md"
            )
        return self._root + key

    def _full_to_write(self, key: str) -> str:
        full = self._full(key)
        unit = _LONGEST_IN.get(self.url.partition(":")[0])
        length = 0 if unit is None else len(full) if unit == "characters" else len(full.encode())
        if length > _LONGEST:
            hint = f"this kind of store takes {_LONGEST:,}, its prefix included"
            raise NameTooLongError(f"a key of {length:,} {unit}", path=self._path(key), hint=hint)
        return full

    def check_key(self, key: str) -> None:
        self._full_to_write(key)

    def _info(self, meta: Mapping[str, Any]) -> ObjectInfo:
        when = round(meta["last_modified"].timestamp() * 1_000_000)
        key = str(meta["path"])[len(self._root) :]
        return ObjectInfo(key, meta["size"], clean_etag(meta["e_tag"]), when, meta["version"])

    def get(self, key: str, start: int = 0, stop: int | None = None, *, if_match: str | None = None) -> Blob:
        full = self._full(key)
        if start < 0 or (stop is not None and stop <= start):
            return self._empty(key, start, if_match)
        options: dict[str, Any] = {}
        if start or stop is not None:
            options["range"] = (start, stop) if stop is not None else {"offset": start}
        if if_match is not None:
            options["if_match"] = _quoted(if_match)
        try:
            answer = obstore.get(self._backend, full, options=cast("Any", options or None))
            info = self._info(cast("Mapping[str, Any]", answer.meta))
            if if_match is not None and info.etag != if_match:  # not every server looks at the condition
                raise ChangedError("the object has changed", path=self._path(key))
            return Blob(memoryview(answer.bytes()), info)
        except HeadraceError:
            raise
        except Exception as error:
            failure = from_obstore(self._path(key), error)
            if "range" in options and not isinstance(failure, (NotFoundError, ChangedError)):
                return self._past_end(key, start, if_match, failure, error)
            raise failure from error

    def get_if_changed(self, key: str, version: str) -> Blob | None:
        full = self._full(key)
        try:
            answer = obstore.get(self._backend, full, options={"if_none_match": _quoted(version)})
            info = self._info(cast("Mapping[str, Any]", answer.meta))
            return None if info.version == version else Blob(memoryview(answer.bytes()), info)
        except obstore.exceptions.NotModifiedError:
            return None
        except Exception as error:
            raise from_obstore(self._path(key), error) from error

    def _past_end(self, key: str, start: int, if_match: str | None, failure: HeadraceError, cause: Exception) -> Blob:
        """A range at or past the end fails in as many ways as there are stores: ask for the size."""
        if self.head(key).size > start:
            raise failure from cause
        return self._empty(key, start, if_match)

    def _empty(self, key: str, start: int, if_match: str | None) -> Blob:
        info = self.head(key)
        if if_match is not None and info.etag != if_match:
            raise ChangedError("the object has changed", path=self._path(key))
        if not 0 <= start <= info.size:
            raise InputError(f"the range starts at {start}, the object ends at {info.size}", path=self._path(key))
        return Blob(memoryview(b""), info)

    def head(self, key: str) -> ObjectInfo:
        full = self._full(key)
        try:
            return self._info(cast("Mapping[str, Any]", obstore.head(self._backend, full)))
        except Exception as error:
            raise from_obstore(self._path(key), error) from error

    def describe(self, key: str) -> Described:
        full = self._full(key)
        try:
            answer = obstore.get(self._backend, full, options={"head": True})
            info, attributes = self._info(cast("Mapping[str, Any]", answer.meta)), dict(answer.attributes)
        except Exception as error:
            raise from_obstore(self._path(key), error) from error
        headers = {name.lower(): str(attributes[name]) for name in attributes if name.lower() in KEPT}
        metadata = {name.lower(): str(attributes[name]) for name in attributes if name not in _NOT_USERS}
        return Described(info, metadata, headers)

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
        full = self._full_to_write(key)
        mode: Any = "create" if create else "overwrite" if if_match is None else self._update(key, if_match)
        view = memoryview(data).cast("B")
        attributes = cast("Any", self._attributes(key, metadata, headers) or None)
        try:
            result = obstore.put(self._backend, full, view, mode=mode, attributes=attributes)
        except Exception as error:
            failure = from_obstore(self._path(key), error)
            if create and isinstance(failure, ChangedError):
                failure = AlreadyExistsError("already exists", path=self._path(key))
            elif if_match is not None and isinstance(failure, NotFoundError):
                failure = ChangedError("the object is gone", path=self._path(key))
            raise failure from error
        return ObjectInfo(key, len(view), clean_etag(result["e_tag"]), 0, result["version"])

    def _attributes(
        self, key: str, metadata: Mapping[str, str] | None, headers: Mapping[str, str] | None
    ) -> dict[str, str]:
        """Both as obstore takes them: headers by their names in HTTP."""
        path = self._path(key)
        own = {name.title(): value for name, value in checked_headers(headers, path).items()}
        return checked(metadata, path) | own

    def _update(self, key: str, if_match: str) -> dict[str, str]:
        """GCS conditions a write on its generation, not on the ETag: look it up; the write is still atomic."""
        try:
            info = self.head(key) if self.url.startswith("gs://") else None
        except NotFoundError as error:
            raise ChangedError("the object is gone", path=self._path(key)) from error
        if info is not None and info.etag != if_match:
            raise ChangedError("the object has changed", path=self._path(key))
        version = {"version": info.version_id} if info is not None and info.version_id is not None else {}
        return {"e_tag": _quoted(if_match), **version}

    def assemble(
        self,
        key: str,
        *,
        if_match: str | None = None,
        create: bool = False,
        metadata: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Assembly:
        full = self._full_to_write(key)
        attributes = self._attributes(key, metadata, headers)

        def publish(file: BinaryIO, size: int) -> ObjectInfo:
            if (create or if_match is not None) and size:
                # One request, because parts know no conditions. The file is nobody else's: it cannot shrink here.
                data = memoryview(mmap.mmap(file.fileno(), size, prot=mmap.PROT_READ))
                return self.put(key, data, if_match=if_match, create=create, metadata=metadata, headers=headers)
            if not size:
                return self.put(key, b"", if_match=if_match, create=create, metadata=metadata, headers=headers)
            return self._put_stream(key, full, file, attributes)._replace(size=size)

        return SpoolAssembly(
            key,
            self._path(key),
            lambda source, start, stop, match: self.get(source, start, stop, if_match=match),
            publish,
        )

    def _put_stream(self, key: str, full: str, source: Any, attributes: Mapping[str, str]) -> ObjectInfo:
        """By parts in bounded memory, visible at the end. Size 0 in the answer: the caller knows it."""
        named = cast("Any", dict(attributes) or None)
        try:
            result = obstore.put(
                self._backend, full, source, attributes=named, chunk_size=_PART, max_concurrency=_AT_ONCE
            )
        except Exception as error:
            raise from_obstore(self._path(key), error) from error
        return ObjectInfo(key, 0, clean_etag(result["e_tag"]), 0, result["version"])

    def copy(
        self,
        source: str,
        target: str,
        *,
        metadata: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        if metadata is not None:
            self._copy_replacing(source, target, metadata, headers)
            return
        try:
            obstore.copy(self._backend, self._full(source), self._full_to_write(target))
        except HeadraceError:
            raise
        except Exception as error:
            raise from_obstore(self._path(source), error) from error

    def _copy_replacing(
        self, source: str, target: str, metadata: Mapping[str, str], headers: Mapping[str, str] | None
    ) -> None:
        """The bytes come here and go back: obstore has no other way to change metadata. Of one version: one GET."""
        full, given = self._full_to_write(target), self._attributes(source, metadata, headers)
        try:
            answer = obstore.get(self._backend, self._full(source))
            size = int(answer.meta["size"])
            stay = _NOT_USERS if headers is None else {"Storage-Class"}
            kept = {name: value for name, value in dict(answer.attributes).items() if name in stay}
            whole = bytes(answer.bytes()) if size <= _PART else None
        except HeadraceError:
            raise
        except Exception as error:
            raise from_obstore(self._path(source), error) from error
        pieces = whole if whole is not None else (bytes(piece) for piece in answer.stream(min_chunk_size=_PART))
        self._put_stream(target, full, pieces, kept | given)

    def delete(self, keys: Sequence[str]) -> None:
        full = [self._full(key) for key in keys]
        for start in range(0, len(full), _DELETE_AT_ONCE):
            batch = full[start : start + _DELETE_AT_ONCE]
            try:
                obstore.delete(self._backend, batch)
            except Exception as error:
                if not isinstance(from_obstore(self.url, error), NotFoundError):
                    raise from_obstore(self._path(keys[start]), error) from error
                self._delete_each(batch)

    def _delete_each(self, batch: Sequence[str]) -> None:
        """One absent key ends obstore's batch; the rest go one by one."""
        for full in batch:
            try:
                obstore.delete(self._backend, full)
            except Exception as error:
                failure = from_obstore(f"{self.url}/{full[len(self._root) :]}", error)
                if not isinstance(failure, NotFoundError):
                    raise failure from error

    def list(self, prefix: str = "", *, start_after: str | None = None) -> Iterator[Sequence[ObjectInfo]]:
        self._refuse_fork()
        whole = self._root + prefix
        folder = whole.rpartition("/")[0]
        if folder and _ODD.search(folder):
            return
        offset = None if start_after is None else self._root + start_after
        try:
            for page in obstore.list(self._backend, folder or None, offset=offset, chunk_size=1000):
                infos = [self._info(cast("Mapping[str, Any]", meta)) for meta in page if meta["path"].startswith(whole)]
                found = [one for one in infos if start_after is None or one.key > start_after]
                if found:
                    yield found
        except Exception as error:
            raise from_obstore(self._path(prefix), error) from error

    def list_folder(self, prefix: str = "") -> Folder:
        self._refuse_fork()
        whole = (self._root + prefix).rstrip("/")
        if (prefix and not prefix.endswith("/")) or (whole and _ODD.search(whole)) or prefix.endswith("//"):
            return Folder((), ())
        try:
            found = obstore.list_with_delimiter(self._backend, whole or None)
        except Exception as error:
            raise from_obstore(self._path(prefix), error) from error
        cut = len(self._root)
        objects = [self._info(cast("Mapping[str, Any]", meta)) for meta in found["objects"]]
        folders = [f"{name}/"[cut:] for name in found["common_prefixes"]]
        return Folder(tuple(sorted(folders)), tuple(sorted(objects, key=lambda one: one.key)))


class MemoryStore(ObjectStore):
    """``memory://name``: objects of this process, the same for everyone who opens the name, gone with the process.

    Its ETags are small counters, so the identity holds the process: two runs never share cache entries.
    """

    _shared: Final[dict[str, Any]] = {}
    _guard: Final = threading.Lock()
    _token: Final = secrets.token_hex(8)

    def __init__(self, url: StoreUrl) -> None:
        with self._guard:
            backend = self._shared.setdefault(url.place, None) or obstore.store.MemoryStore()
            self._shared[url.place] = backend
        super().__init__(url, backend)

    @property
    def identity(self) -> str:
        return f"{self.url}#{self._token}-{os.getpid()}"


def open_google(url: StoreUrl, options: StoreOptions) -> ObjectStore:
    """``gs://``. `extra`: service_account, service_account_key, application_credentials, bearer_token, base_url."""
    config: dict[str, Any] = dict(options.extra)
    base = options.endpoint or config.get("base_url") or environment("GOOGLE_BASE_URL")
    if base:
        config["base_url"] = base
    if not config.keys() & {"service_account", "service_account_key", "application_credentials", "bearer_token"}:
        config |= _variables(
            {"service_account": "GOOGLE_SERVICE_ACCOUNT", "application_credentials": "GOOGLE_APPLICATION_CREDENTIALS"}
        )
    if options.anonymous:
        config["skip_signature"] = True
    return ObjectStore(url, _build(obstore.store.GCSStore, url, options, config, base), base)


def open_azure(url: StoreUrl, options: StoreOptions) -> ObjectStore:
    """``az://container``. `extra`: account_name, account_key, sas_key, client_id, … (obstore's AzureConfig)."""
    config: dict[str, Any] = dict(options.extra)
    names = (
        "account_name",
        "account_key",
        "client_id",
        "client_secret",
        "tenant_id",
        "federated_token_file",
        "use_emulator",
    )
    config = _variables({name: f"AZURE_STORAGE_{name}".upper() for name in names}) | config
    config = _variables({name: f"AZURE_{name}".upper() for name in names[2:6]}) | config
    if options.access_key_id:
        config.setdefault("account_name", options.access_key_id)
    if options.secret_access_key:
        config.setdefault("account_key", options.secret_access_key)
    if options.endpoint:
        config["endpoint"] = options.endpoint
    if options.anonymous:
        config["skip_signature"] = True
    if "account_name" not in config and not config.get("use_emulator"):
        raise SettingError("no storage account", path=str(url), hint="set account_name, or AZURE_STORAGE_ACCOUNT_NAME")
    for flag in ("use_emulator", "skip_signature", "use_azure_cli", "disable_tagging", "use_fabric_endpoint"):
        if flag in config:
            config[flag] = str(config[flag]).strip().lower() in ("1", "true", "yes", "on")
    where = config.get("endpoint") or config.get("account_name")
    return ObjectStore(url, _build(obstore.store.AzureStore, url, options, config, config.get("endpoint")), where)


def _variables(names: Mapping[str, str]) -> dict[str, Any]:
    found = {name: environment(variable) for name, variable in names.items()}
    return {name: value for name, value in found.items() if value is not None}


def _build(kind: Any, url: StoreUrl, options: StoreOptions, config: Mapping[str, Any], endpoint: str | None) -> Any:
    try:
        return kind(
            url.place,
            config=dict(config),
            client_options=client_options(options, endpoint),
            retry_config=retry_config(options),
        )
    except Exception as error:
        reason = str(error).partition("\n")[0]
        for value in config.values():  # obstore repeats what it could not read; that may be a key
            reason = reason.replace(str(value), "…") if len(str(value)) > 3 else reason
        raise SettingError(
            f"cannot be opened: {reason[:200]}", path=str(url), hint="check the store's options"
        ) from None


def client_options(options: StoreOptions, endpoint: str | None) -> Any:
    """Obstore's ClientConfig: deadlines, TLS. Raises SettingError when the CA file cannot be read."""
    config: dict[str, Any] = {
        "connect_timeout": timedelta(seconds=options.connect_timeout_s),
        "timeout": timedelta(seconds=options.timeout_s),
        "allow_http": options.allow_http
        if options.allow_http is not None
        else bool(endpoint and endpoint.startswith("http:")),
    }
    if options.ca_file:
        try:
            with open(options.ca_file, "rb") as file:
                config["root_certificate"] = file.read()
        except OSError as error:
            raise SettingError(
                f"the certificate file cannot be read: {error.strerror}", path=options.ca_file
            ) from error
    return config


def retry_config(options: StoreOptions) -> Any:
    """Obstore's RetryConfig."""
    backoff = {"init_backoff": timedelta(milliseconds=50), "max_backoff": timedelta(seconds=10), "base": 2}
    return {"max_retries": options.retries, "retry_timeout": timedelta(seconds=options.timeout_s), "backoff": backoff}


def _quoted(etag: str) -> str:
    return etag if etag.startswith('W/"') else f'"{etag}"'
