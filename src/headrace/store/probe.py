"""What a server really does, found by trying it on a throwaway key. Documentation of servers is not evidence.

A server that does not know a condition ignores it and overwrites, so a condition counts as kept only when a write
that must fail has failed, and one that must succeed has succeeded.
"""

from __future__ import annotations

import dataclasses
import hashlib
import secrets
from collections.abc import Callable, Sequence
from typing import Protocol, runtime_checkable

from headrace.base.errors import (
    AlreadyExistsError,
    ChangedError,
    DeniedError,
    HeadraceError,
    InputError,
    NotFoundError,
    TryAgainError,
    UnsupportedError,
)
from headrace.store.protocol import Assembly, Capabilities, ObjectInfo, Store

PREFIX = ".headrace-probe-"
"""Every throwaway key starts so; listings hide them, and a leftover may be deleted at any time."""
_WRONG = "00000000000000000000000000000000"


@runtime_checkable
class Unchecked(Protocol):
    """A store that itself guards conditions by a probe lets the probe past the guard."""

    def unchecked_put(self, key: str, data: bytes, header: str, value: str) -> ObjectInfo:
        """A put with one conditional header, sent in any case."""
        ...

    def unchecked_key(self, key: str, data: bytes | None) -> bytes:
        """Put `data`, or get (None), any key."""
        ...

    def unchecked_delete(self, keys: Sequence[str]) -> None:
        """Delete any keys; failures are ignored."""
        ...

    def unchecked_assemble(self, key: str, header: str, value: str) -> Assembly:
        """Begin an object by parts, with one conditional header, sent in any case."""
        ...

    def unchecked_list(self, prefix: str, start_after: str) -> Sequence[str]:
        """The first page of keys, just as the server answers."""
        ...


def probe(store: Store) -> Capabilities:
    """Try everything in `Capabilities`, record it in the store, and return it. About 20 small requests.

    What could not be tried, because writing is not allowed or not possible, stays as it was (None: unknown).

    Raises:
        TryAgainError, CredentialsError, NotFoundError: the store could not be asked.
    """
    key = PREFIX + secrets.token_hex(8)
    known = store.capabilities
    body = key.encode()
    try:
        info = store.put(key, body)
    except (UnsupportedError, DeniedError) as error:
        if type(error) not in (UnsupportedError, DeniedError):
            raise
        return known
    try:
        etag = store.head(key).etag
        seen = dataclasses.replace(
            known,
            has_etag=etag is not None,
            etag_is_md5=etag == hashlib.md5(body, usedforsecurity=False).hexdigest() if etag is not None else None,
            create_only_put=_keeps_create(store, key),
            conditional_get=_keeps_get(store, key, info.version),
            start_after=_keeps_start_after(store, key),
            metadata=_keeps_metadata(store, key),
            exact_keys=probe_exact_keys(store) if isinstance(store, Unchecked) else known.exact_keys,
        )
        seen = dataclasses.replace(seen, conditional_put=_keeps_match(store, key))
    finally:
        _remove(store, key)
    store.record(seen)
    return seen


def probe_condition(store: Store, *, create: bool) -> bool:
    """Whether a create-only put (`create`), or else an if-match put, is kept. Three to five requests.

    Raises:
        HeadraceError: the throwaway key cannot be written.
    """
    key = PREFIX + secrets.token_hex(8)
    store.put(key, key.encode())
    try:
        return _keeps_create(store, key) if create else _keeps_match(store, key)
    finally:
        _remove(store, key)


def probe_parts(store: Unchecked) -> bool:
    """Whether both conditions are kept by an object that comes in parts. About 15 requests.

    Raises:
        HeadraceError: the throwaway key cannot be written.
    """
    key = PREFIX + secrets.token_hex(8)

    def send(name: str, header: str, value: str) -> ObjectInfo:
        assembly = store.unchecked_assemble(name, header, value)
        try:
            assembly.part(1, 0, secrets.token_bytes(16))
            return assembly.complete()
        finally:
            assembly.abort()

    try:
        etag = send(key, "if-none-match", "*").etag or ""
        for header, value in (("if-none-match", "*"), ("if-match", _WRONG)):
            if not _refused(lambda header=header, value=value: send(key, header, value)):
                return False
        return not _refused(lambda: send(key, "if-match", etag))
    except (UnsupportedError, InputError, ChangedError):
        return False
    finally:
        store.unchecked_delete([key])


def probe_exact_keys(store: Unchecked) -> bool | None:
    """Whether ``a//b``, ``a/../b`` and ``a/`` are kept, with their content, apart from ``a/b``. None: cannot try."""
    stem = PREFIX + secrets.token_hex(8)
    odd = {
        f"{stem}//k": b"double",
        f"{stem}/d/": b"slash",
        f"{stem}/../{stem}/k": b"dots",
        f"{stem}/./k": b"dot",
        f"{stem}\\k": b"back",
    }
    try:
        store.unchecked_key(f"{stem}/k", b"tidy")
    except DeniedError:
        return None
    try:
        for key, data in odd.items():
            store.unchecked_key(key, data)
        return all(store.unchecked_key(key, None) == data for key, data in ({f"{stem}/k": b"tidy"} | odd).items())
    except (InputError, NotFoundError, ChangedError):
        return False
    finally:
        store.unchecked_delete([f"{stem}/k", *odd, f"{stem}/"])


def _keeps_create(store: Store, key: str) -> bool:
    fresh = f"{key}-new"
    try:
        return _refused(lambda: _create(store, key)) and not _refused(lambda: _create(store, fresh))
    finally:
        _remove(store, fresh)


def _keeps_match(store: Store, key: str) -> bool:
    version = store.head(key).version
    return _refused(lambda: _match(store, key, _WRONG)) and not _refused(lambda: _match(store, key, version))


def _keeps_get(store: Store, key: str, version: str) -> bool:
    return _refused(lambda: store.get(key, if_match=_WRONG)) and not _refused(lambda: store.get(key, if_match=version))


def _keeps_metadata(store: Store, key: str) -> bool:
    note = {"headrace": key}
    try:
        store.put(f"{key}-note", b"", metadata=note)
        return store.describe(f"{key}-note").metadata == note
    except (UnsupportedError, InputError):
        return False
    finally:
        _remove(store, f"{key}-note")


def _keeps_start_after(store: Store, key: str) -> bool:
    """Whether the server continues after any key in byte order. Some order by folders, and skip ``a/x`` after ``a``."""
    if not isinstance(store, Unchecked):
        return bool(store.capabilities.start_after)
    later = [f"{key}-y", f"{key}/x"]
    try:
        for one in later:
            store.put(one, b"")
        return list(store.unchecked_list(key, key)) == later
    except (UnsupportedError, InputError):
        return False
    finally:
        store.unchecked_delete(later)


def _create(store: Store, key: str) -> object:
    if isinstance(store, Unchecked):
        return store.unchecked_put(key, b"second", "if-none-match", "*")
    return store.put(key, b"second", create=True)


def _match(store: Store, key: str, version: str) -> object:
    if isinstance(store, Unchecked):
        return store.unchecked_put(key, b"third", "if-match", version)
    return store.put(key, b"third", if_match=version)


def _refused(call: Callable[[], object]) -> bool:
    """True when the condition stopped it, False when it went through or the server does not know it."""
    try:
        call()
    except (ChangedError, AlreadyExistsError):
        return True
    except TryAgainError:
        raise
    except (UnsupportedError, InputError):
        return False
    return False


def _remove(store: Store, key: str) -> None:
    try:
        store.delete([key])
    except HeadraceError:
        pass  # the key's name says what it is; deleting may be forbidden where writing is not
