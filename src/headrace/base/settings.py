"""Settings: ``headrace.toml``, the user's file, environment variables. The only reader of the environment.

Order, later wins: defaults, the user's ``<config>/headrace/headrace.toml``, the nearest ``headrace.toml`` upward from
the working directory, ``HEADRACE_<SECTION>_<FIELD>`` variables. Unknown keys are refused, with the nearest known name.
"""

from __future__ import annotations

import dataclasses
import difflib
import os
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headrace.base.errors import SettingError
from headrace.base.places import own_folder
from headrace.base.units import parse_bytes, parse_seconds

FILE_NAME = "headrace.toml"


def _bytes(default: str, doc: str) -> Any:
    return field(default=parse_bytes(default), metadata={"parse": parse_bytes, "doc": doc, "unit": "bytes"})


def _seconds(default: str, doc: str) -> Any:
    return field(default=parse_seconds(default), metadata={"parse": parse_seconds, "doc": doc, "unit": "seconds"})


def _count(default: int, doc: str) -> Any:
    return field(default=default, metadata={"parse": _parse_count, "doc": doc, "unit": "count"})


def _dollars(default: float, doc: str) -> Any:
    return field(default=default, metadata={"parse": _parse_dollars, "doc": doc, "unit": "US$"})


def _flag(*, default: bool, doc: str) -> Any:
    return field(default=default, metadata={"parse": _parse_flag, "doc": doc, "unit": "true or false"})


def _parse_count(value: object, *, name: str) -> int:
    try:
        count = int(str(value))
    except ValueError:
        count = -1
    if count < 0:
        raise SettingError(f"{name}: {value!r} is not a count", hint="a whole number, zero or more")
    return count


def _parse_dollars(value: object, *, name: str) -> float:
    try:
        price = float(str(value))
    except ValueError:
        price = -1.0
    if not 0 <= price < float("inf"):
        raise SettingError(f"{name}: {value!r} is no price", hint="US$ as a number, like 0.005")
    return price


def _parse_flag(value: object, *, name: str) -> bool:
    known = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}
    text = str(value).strip().lower()
    if text not in known:
        raise SettingError(f"{name}: {value!r} is neither true nor false", hint="write true or false")
    return known[text]


def _parse_text(value: object, *, name: str) -> str:
    if not isinstance(value, str):
        raise SettingError(f"{name}: {value!r} is not a string", hint="put it in quotes")
    return value


@dataclass(frozen=True)
class CacheSettings:
    """The node's cache of object versions."""

    dir: str = field(
        default_factory=lambda: own_folder("cache"),
        metadata={"parse": _parse_text, "doc": "the cache's folder, shared by the user's processes", "unit": "path"},
    )
    size: int = _bytes("100GB", "most bytes the cache may hold; 0 switches it off")
    min_free: int = _bytes("5GB", "bytes to leave free on the cache's disk")
    block: int = _bytes("4MiB", "block size of large entries")
    whole: int = _bytes("16MiB", "objects up to this size are cached whole")
    ttl: float = _seconds("60s", "how long a listing or an ETag seen is trusted")
    peers: str = field(
        default="",
        metadata={
            "parse": _parse_text,
            "doc": "file that names the nodes that share their caches; empty: none does",
            "unit": "path",
        },
    )


@dataclass(frozen=True)
class FetchSettings:
    """Reading from stores."""

    memory: int = _bytes("1GB", "bytes in flight and read ahead, in one process")
    connections: int = _count(64, "most requests in flight to one store")
    deadline: float = _seconds("60s", "longest one read may take, all retries included")
    hedge: bool = _flag(default=True, doc="a second request for a read slower than the recent p95, then a third")
    hedge_rate: int = _count(5, "hedges allowed, percent of requests")
    retries: int = _count(8, "attempts after the first, within the deadline")
    verify: bool = _flag(default=False, doc="compare whole objects with their ETag where it is an MD5")


@dataclass(frozen=True)
class MountSettings:
    """The namespace as a folder."""

    read_only: bool = _flag(default=False, doc="refuse every write, also where the attachment allows it")
    ttl: float = _seconds("0s", "how long names, attributes and listings are trusted; 0: as `cache.ttl`")
    threads: int = _count(1, "threads that read the kernel's requests; what must wait moves to others")
    metadata: str = field(
        default="listing",
        metadata={
            "parse": _parse_text,
            "doc": "`listing`: mode and owner from the options, times from the listing; `full`: those kept with the "
            "object, for one HEAD a file shown",
            "unit": "text",
        },
    )
    passthrough: bool = _flag(default=True, doc="let the kernel read cached files itself (Linux 6.9, as root)")
    prefetch: bool = _flag(default=True, doc="fetch the small files beside those being opened")
    keys: int = _count(2_000_000, "names remembered in listings, 75 bytes each; of those just written a 20th, 750 each")
    publish: float = _seconds("30s", "how often a file that stays open for writing is published; 0: only when closed")
    drain: float = _seconds("60s", "longest wait at the end for what is not published; the next mount does the rest")
    staging: str = field(
        default="",
        metadata={
            "parse": _parse_text,
            "doc": "folder for what is being written; empty: beside the cache",
            "unit": "path",
        },
    )
    run_dir: str = field(
        default="",
        metadata={
            "parse": _parse_text,
            "doc": "folder where live mounts are noted; empty: `headrace` in `XDG_RUNTIME_DIR`, `/run` or `/tmp`",
            "unit": "path",
        },
    )


@dataclass(frozen=True)
class SyncSettings:
    """A bucket that follows a folder."""

    period: float = _seconds("5s", "shortest time between two uploads of one small file")
    drain: float = _seconds("60s", "longest wait at the end for what is not sent; `sync --recover` does the rest")
    bandwidth: int = _bytes("0", "bytes a second to send, on average; 0: no limit")
    requests: int = _count(20_000, "requests an hour while the job runs, and as many in one burst")
    state: str = field(
        default_factory=lambda: own_folder("state", "sync"),
        metadata={"parse": _parse_text, "doc": "folder for what is remembered of each sync", "unit": "path"},
    )


@dataclass(frozen=True)
class RunSettings:
    """Runs of this machine."""

    state: str = field(
        default_factory=lambda: own_folder("state", "runs"),
        metadata={"parse": _parse_text, "doc": "folder for what runs write, until it is in the bucket", "unit": "path"},
    )
    cache: str = field(
        default_factory=lambda: own_folder("cache", "runs"),
        metadata={
            "parse": _parse_text,
            "doc": "folder for virtual environments and copies of inputs, kept for later runs",
            "unit": "path",
        },
    )
    copies: int = _count(4, "copies of inputs that are kept when no run uses them")
    mlflow: bool = _flag(default=True, doc="mirror runs to MLflow, where `MLFLOW_TRACKING_URI` is set")
    mlflow_backend: str = field(
        default="",
        metadata={
            "parse": _parse_text,
            "doc": "what `headrace mlflow` keeps its data in: a file (SQLite), or `postgresql://…`; empty: a file "
            "beside `run.state`",
            "unit": "path or URL",
        },
    )


@dataclass(frozen=True)
class PriceSettings:
    """What requests cost."""

    write: float = _dollars(0.005, "US$ for 1,000 PUT, COPY, POST or LIST requests; the default is an example")
    read: float = _dollars(0.0004, "US$ for 1,000 GET or HEAD requests; the default is an example")


@dataclass(frozen=True)
class Settings:
    """Everything that can be set. `mounts` and `stores` hold tables as written: path or URL prefix → options."""

    home: str | None = None
    cache: CacheSettings = field(default_factory=CacheSettings)
    fetch: FetchSettings = field(default_factory=FetchSettings)
    mount: MountSettings = field(default_factory=MountSettings)
    sync: SyncSettings = field(default_factory=SyncSettings)
    run: RunSettings = field(default_factory=RunSettings)
    prices: PriceSettings = field(default_factory=PriceSettings)
    mounts: Mapping[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]])
    stores: Mapping[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]])
    progress: bool = True
    """Whether long work draws a bar where standard error is a terminal."""
    files: tuple[str, ...] = ()
    """The TOML files read, weakest first."""

    @staticmethod
    def load(start: str | os.PathLike[str] | None = None, environ: Mapping[str, str] | None = None) -> Settings:
        """Read files and environment.

        Raises:
            SettingError: unreadable or malformed file, unknown key, value of the wrong kind; names file and key.
        """
        environ = os.environ if environ is None else environ
        settings = Settings()
        for path in config_files(start):
            settings = _merge(settings, _read_toml(path), str(path))
        return _merge_environment(settings, environ)


def user_file() -> Path:
    """The user's own settings file (it need not exist)."""
    return Path(own_folder("config", FILE_NAME))


def config_files(start: str | os.PathLike[str] | None = None) -> list[Path]:
    """The settings files that apply, weakest first: the user's, then the nearest upward from `start` (default: cwd)."""
    own = user_file()
    found = [own] if own.is_file() else []
    here = Path(start or Path.cwd()).resolve()
    nearest = next((folder / FILE_NAME for folder in (here, *here.parents) if (folder / FILE_NAME).is_file()), None)
    return found if nearest is None or nearest in found else [*found, nearest]


def environment(name: str) -> str | None:
    """One standard variable (``AWS_PROFILE``, ``RANK`` …): all other modules ask here."""
    return os.environ.get(name) or None


def proxies_of_environment() -> dict[str, str]:
    """What ``HTTPS_PROXY`` and its kin name, by scheme, `all` and `no` too, as `urllib.request` takes them."""
    from urllib.request import getproxies_environment  # here: few need it, and it brings much

    return getproxies_environment()


def whole_environment() -> dict[str, str]:
    """All variables, for a command that is started; values of any of them may be secret."""
    return dict(os.environ)


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text())
    except OSError as error:
        raise SettingError(f"cannot be read: {error.strerror}", path=str(path), hint="check its permissions") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        hint = "see docs/reference/settings.md"
        raise SettingError(f"is not valid TOML: {error}", path=str(path), hint=hint) from error


def _merge(settings: Settings, table: Mapping[str, Any], where: str) -> Settings:
    known = {"home", "progress", "cache", "fetch", "mount", "sync", "run", "prices", "mounts", "stores"}
    changes: dict[str, Any] = {"files": (*settings.files, where)}
    for key, value in table.items():
        if key not in known:
            raise _unknown(key, known, where)
        if key == "home":
            changes[key] = _guard(where, lambda v=value: _parse_text(v, name="home"))
            continue
        if key == "progress":
            changes[key] = _guard(where, lambda v=value: _parse_flag(v, name="progress"))
            continue
        if not isinstance(value, dict):
            raise SettingError(f"{key} must be a table", path=where, hint=f"write [{key}]")
        if key in ("mounts", "stores"):
            changes[key] = {**getattr(settings, key), **_tables(key, value, where)}
        else:
            changes[key] = _section(getattr(settings, key), key, value, where)
    return dataclasses.replace(settings, **changes)


def _tables(key: str, value: Mapping[str, Any], where: str) -> dict[str, Mapping[str, Any]]:
    for name, options in value.items():
        if not isinstance(options, dict):
            raise SettingError(f"{key}.{name!r} must be a table", path=where, hint=f'write [{key}."{name}"]')
    return dict(value)


def _section(current: Any, section: str, table: Mapping[str, Any], where: str) -> Any:
    fields = {f.name: f for f in dataclasses.fields(current)}
    changes: dict[str, Any] = {}
    for key, value in table.items():
        if key not in fields:
            raise _unknown(key, set(fields), where, section)
        parse: Callable[..., Any] = fields[key].metadata["parse"]
        changes[key] = _guard(where, lambda v=value, k=key, p=parse: p(v, name=f"{section}.{k}"))
    return dataclasses.replace(current, **changes)


def _guard(where: str, parse: Callable[[], Any]) -> Any:
    try:
        return parse()
    except SettingError as error:
        raise error.at(where) from None


def _unknown(key: str, known: set[str], where: str, section: str | None = None) -> SettingError:
    near = difflib.get_close_matches(key, known, n=1)
    place = f"[{section}] " if section else ""
    hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(sorted(known))}"
    return SettingError(f"{place}unknown key {key!r}", path=where, hint=hint)


def _merge_environment(settings: Settings, environ: Mapping[str, str]) -> Settings:
    if environ.get("HEADRACE_HOME"):
        settings = dataclasses.replace(settings, home=environ["HEADRACE_HOME"])
    if environ.get("HEADRACE_PROGRESS"):
        flag = _parse_flag(environ["HEADRACE_PROGRESS"], name="HEADRACE_PROGRESS")
        settings = dataclasses.replace(settings, progress=flag)
    for section in ("cache", "fetch", "mount", "sync", "run", "prices"):
        current = getattr(settings, section)
        for f in dataclasses.fields(current):
            name = f"HEADRACE_{section}_{f.name}".upper()
            if environ.get(name):
                table = {f.name: environ[name]}
                current = _section(current, section, table, name)
        settings = dataclasses.replace(settings, **{section: current})
    return settings
