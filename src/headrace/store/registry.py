"""From a URL to a store: which backend, and which options reach it."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Callable, Mapping
from typing import Any, Final

from headrace.base.errors import SettingError
from headrace.base.settings import Settings
from headrace.base.units import parse_seconds
from headrace.store.protocol import Store, StoreOptions
from headrace.store.url import StoreUrl, parse_url

_FIELDS: Final = {one.name: one for one in dataclasses.fields(StoreOptions) if one.name != "extra"}
_FLAGS: Final = ("anonymous", "requester_pays", "path_style", "allow_http")
_SECONDS: Final = ("timeout_s", "connect_timeout_s")
_OF_S3: Final = ("sse", "sse_kms_key_id", "sse_c", "storage_class", "acl")
_DEFAULT: Final = StoreOptions()


def _s3(url: StoreUrl, options: StoreOptions) -> Store:
    from headrace.store.backends.s3 import S3Store

    return S3Store(url, options)


def _google(url: StoreUrl, options: StoreOptions) -> Store:
    from headrace.store.backends.relay import ForkProof

    return ForkProof(url, options)


def _azure(url: StoreUrl, options: StoreOptions) -> Store:
    from headrace.store.backends.relay import ForkProof

    return ForkProof(url, options)


def _memory(url: StoreUrl, _: StoreOptions) -> Store:
    from headrace.store.backends.objects import MemoryStore

    return MemoryStore(url)


def _http(url: StoreUrl, options: StoreOptions) -> Store:
    from headrace.store.backends.http import HttpStore

    return HttpStore(url, options)


def _local(url: StoreUrl, options: StoreOptions) -> Store:
    from headrace.store.backends.local import LocalStore

    return LocalStore(url, options)


def _fsspec(url: StoreUrl, options: StoreOptions) -> Store:
    from headrace.store.backends.fsspec import FsspecStore

    return FsspecStore(url, options)


_BACKENDS: Final[dict[str, Callable[[StoreUrl, StoreOptions], Store]]] = {
    "s3": _s3,
    "gs": _google,
    "az": _azure,
    "memory": _memory,
    "http": _http,
    "https": _http,
    "file": _local,
}


def open_store(url: str, options: StoreOptions | None = None, settings: Settings | None = None) -> Store:
    """Open the store at `url`. Makes no request: a wrong bucket shows at the first call.

    Args:
        url: ``s3://bucket/prefix``, ``gs://``, ``az://``, ``http(s)://``, ``file:///folder``, ``memory://name``, or any
            protocol of fsspec. Never with credentials in it.
        options: how to reach it; fields left at their defaults are filled from the settings, then from the standard
            environment variables.
        settings: its `stores` table is searched for the longest prefix of the URL. None: no table.

    Raises:
        InputError: a bad URL. SettingError: an unknown or malformed option, or one that is for others.
        UnsupportedError: a package is missing.
        CredentialsError: no such profile, or half of a key pair.
    """
    place = parse_url(url)
    table = matching_table(str(place), settings) if settings is not None else {}
    chosen = merge(parse_options(table, scheme=place.scheme, where=str(place)), options or _DEFAULT)
    if place.scheme != "s3" and (vain := [name for name in _OF_S3 if getattr(chosen, name)]):
        raise SettingError(f"store option {vain[0]} is for s3:// only", path=str(place), hint="leave it out")
    return _BACKENDS.get(place.scheme, _fsspec)(place, chosen)


def matching_table(url: str, settings: Settings) -> Mapping[str, Any]:
    """The table of ``[stores."…"]`` whose URL is the longest prefix of `url`, ending at a slash or at its end."""
    best: tuple[int, Mapping[str, Any]] = (0, {})
    for prefix, table in settings.stores.items():
        bare = prefix.rstrip("/") if not prefix.endswith("://") else prefix
        if not bare.endswith("://"):
            bare = str(parse_url(prefix))
        if (url == bare or url.startswith(bare if bare.endswith("/") else f"{bare}/")) and len(bare) > best[0]:
            best = (len(bare), table)
    return best[1]


def parse_options(table: Mapping[str, Any], *, scheme: str, where: str) -> StoreOptions:
    """Options from a TOML table or from keywords of ``attach``.

    Args:
        table: names as in `StoreOptions`, or the backend's own, which go to `StoreOptions.extra`.
        scheme: the store's canonical scheme: decides which names are known.
        where: URL, path or file, for errors.

    Raises:
        SettingError: an unknown name (with the nearest known one) or a value of the wrong kind.
    """
    known = extra_names(scheme)
    fields: dict[str, Any] = {}
    extra: list[tuple[str, Any]] = []
    own = table.get("extra", {})
    if not isinstance(own, Mapping):
        raise SettingError("store option extra must be a table", path=where, hint=f'[stores."{where}".extra]')
    for name, value in [*((name, value) for name, value in table.items() if name != "extra"), *own.items()]:
        if name in _FIELDS and name not in own:
            fields[name] = _value(name, value, where)
        elif isinstance(value, (Mapping, list)):
            raise SettingError(f"store option {name} must be a plain value", path=where, hint=f"write {name} = …")
        elif known is None or name in known:
            extra.append((name, value if known is None else str(value)))
        else:
            near = difflib.get_close_matches(name, [*_FIELDS, *known], n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(sorted([*_FIELDS, *known]))}"
            raise SettingError(f"unknown store option {name!r}", path=where, hint=hint)
    return StoreOptions(**fields, extra=tuple(extra))


def extra_names(scheme: str) -> frozenset[str] | None:
    """Options of one kind of store beyond `StoreOptions`; None: it takes any (fsspec)."""
    if scheme in ("gs", "az"):
        from headrace.store.backends.objects import AZURE_EXTRAS, GOOGLE_EXTRAS

        return GOOGLE_EXTRAS if scheme == "gs" else AZURE_EXTRAS
    return frozenset() if scheme in _BACKENDS else None


def merge(weak: StoreOptions, strong: StoreOptions) -> StoreOptions:
    """`strong`, its fields that stand at their defaults taken from `weak`; `extra` name by name."""
    changes = {name: getattr(strong, name) for name in _FIELDS if getattr(strong, name) != getattr(_DEFAULT, name)}
    extra = {**dict(weak.extra), **dict(strong.extra)}
    return dataclasses.replace(weak, **changes, extra=tuple(extra.items()))


def _value(name: str, value: object, where: str) -> object:
    def wrong(kind: str) -> SettingError:
        return SettingError(f"store option {name} must be {kind}", path=where, hint=f"write {name} = …")

    if name in _FLAGS:
        if not isinstance(value, bool):
            raise wrong("true or false")
        return value
    if name in _SECONDS:
        if isinstance(value, bool) or not isinstance(value, (int, float, str)):
            raise wrong("a duration, like 30 or '30s'")
        seconds = parse_seconds(value, name=name)
        if seconds <= 0:
            raise wrong("longer than nothing")
        return seconds
    if name == "retries":
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise wrong("a count")
        return value
    if value is not None and not isinstance(value, str):
        raise wrong("a string")
    return value
