"""How a mount behaves: `MountOptions`, from the settings and from ``-o a,b=c`` as `mount` passes it."""

from __future__ import annotations

import dataclasses
import difflib
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Literal

from headrace.base.errors import InputError
from headrace.base.settings import Settings
from headrace.base.units import parse_seconds


@dataclass(frozen=True, slots=True)
class MountOptions:
    """Everything a mount can be told. Durations in seconds, sizes in bytes.

    `uid`, `gid`: owner of what has none of its own; `umask`: bits taken from 0666 and 0777. `ttl`: how long names,
    attributes and listings are trusted. `metadata`: ``full`` asks for mode, owner and mtime kept in object metadata
    (one HEAD for each file shown), ``listing`` takes what the listing tells. `publish`: how often a file that stays
    open is published. `open`: whether the kernel asks at every open; a read-only mount can do without (`unopened`).
    `source`: what the kernel's table shows in front of the mount point; empty: ``headrace``.
    """

    read_only: bool = False
    allow_other: bool = False
    uid: int = 0
    gid: int = 0
    umask: int = 0o022
    ttl: float = 60.0
    threads: int = 1
    metadata: Literal["listing", "full"] = "listing"
    passthrough: bool = True
    open: bool = True
    prefetch: bool = True
    keys: int = 2_000_000
    publish: float = 30.0
    staging: str = ""
    drain: float = 60.0
    source: str = ""

    @staticmethod
    def of(settings: Settings, text: str = "") -> MountOptions:
        """From the settings' ``[mount]`` table, then what stands in `text`.

        Raises:
            InputError: an unknown option, with the nearest known; a value of the wrong kind.
        """
        mount = settings.mount
        if mount.metadata not in ("listing", "full"):
            raise InputError(f"mount.metadata: {mount.metadata!r}", hint="it is listing or full")
        options = MountOptions(
            read_only=mount.read_only,
            uid=os.getuid(),
            gid=os.getgid(),
            ttl=mount.ttl or settings.cache.ttl,
            threads=max(1, mount.threads),
            metadata="full" if mount.metadata == "full" else "listing",
            passthrough=mount.passthrough,
            prefetch=mount.prefetch,
            keys=mount.keys,
            publish=mount.publish,
            staging=mount.staging,
            drain=mount.drain,
        )
        return parse_options(text, options)


def parse_options(text: str, options: MountOptions) -> MountOptions:
    """`options`, changed by ``a,b=c``. What only `mount` itself understands (``_netdev``, ``nofail`` …) is passed over.

    Raises:
        InputError: as `MountOptions.of`.
    """
    for part in filter(None, (each.strip() for each in text.split(","))):
        name, equals, value = part.partition("=")
        if name in _IGNORED or name.startswith("x-"):
            continue
        if name in _FLAGS and not equals:
            field, flag = _FLAGS[name]
            options = dataclasses.replace(options, **{field: flag})
        elif name in _VALUES and equals:
            field, parse = _VALUES[name]
            options = dataclasses.replace(options, **{field: _parsed(name, value, parse)})
        else:
            raise _wrong(name, has_value=bool(equals))
    return options


def _parsed(name: str, value: str, parse: Callable[[str], Any]) -> Any:
    try:
        return parse(value)
    except ValueError:
        raise InputError(f"mount option {name}={value} is malformed", hint=_HINTS.get(name, "give a number")) from None


def _wrong(name: str, *, has_value: bool) -> InputError:
    if name in _FLAGS or name in _VALUES:
        return InputError(f"mount option {name} {'takes no value' if has_value else 'needs a value'}")
    near = difflib.get_close_matches(name, [*_FLAGS, *_VALUES], n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(sorted([*_FLAGS, *_VALUES]))}"
    return InputError(f"unknown mount option {name!r}", hint=hint)


def _octal(value: str) -> int:
    return int(value, 8) & 0o777


def _metadata(value: str) -> str:
    if value not in ("listing", "full"):
        raise ValueError
    return value


def _seconds(value: str) -> float:
    return parse_seconds(value, name="mount option")


_FLAGS: Final[dict[str, tuple[str, bool]]] = {
    "ro": ("read_only", True),
    "rw": ("read_only", False),
    "allow_other": ("allow_other", True),
    "passthrough": ("passthrough", True),
    "no_passthrough": ("passthrough", False),
    "open": ("open", True),
    "no_open": ("open", False),
    "prefetch": ("prefetch", True),
    "no_prefetch": ("prefetch", False),
}
_VALUES: Final[dict[str, tuple[str, Callable[[str], Any]]]] = {
    "uid": ("uid", int),
    "gid": ("gid", int),
    "umask": ("umask", _octal),
    "ttl": ("ttl", _seconds),
    "attr_timeout": ("ttl", _seconds),
    "entry_timeout": ("ttl", _seconds),
    "threads": ("threads", int),
    "metadata": ("metadata", _metadata),
    "publish": ("publish", _seconds),
    "staging": ("staging", str),
    "drain": ("drain", _seconds),
    "fsname": ("source", str),
}
_HINTS: Final = {"umask": "give it in octal, like 022", "metadata": "it is listing or full"}
_IGNORED: Final = frozenset((
    "_netdev", "allow_root", "async", "atime", "auto", "auto_unmount", "big_writes", "default_permissions", "defaults",
    "dev", "diratime", "exec", "group", "noatime", "noauto", "nodev", "nodiratime", "noexec", "nofail", "nonempty",
    "nosuid", "nouser", "owner", "relatime", "suid", "sync", "user", "users",
))  # fmt: skip
