"""The checks in their order. `hr.doctor`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from itertools import islice

from headrace.base.settings import Settings
from headrace.base.units import format_seconds
from headrace.checkup.finding import Finding, guarded
from headrace.checkup.node import check_cache, check_settings
from headrace.namespace import Namespace, PathLike, tell_hidden

_OBJECTS = 2000
"""Objects to read while measuring; more than a store's own small caches would favour."""


def doctor(
    path: PathLike | None = None,
    *,
    write: bool = False,
    seconds: float = 12.0,
    settings: Settings | None = None,
    tell: Callable[[str], object] = lambda _line: None,
) -> Iterator[Finding]:
    """Check settings, cache and, with `path`, the store behind it, as `headrace doctor` does: ``for finding in
    hr.doctor("s3://bucket/train"): print(finding.text, finding.advice)``.

    Each finding is given as soon as it is made. What goes wrong in a check is a finding, too, of the status ``fail``.
    One thread. Measuring reads objects below `path`, past the cache, and of some at most 256 MB more to see whether
    packing pays.

    Args:
        path: a path, a URL, or a snapshot ``NAME@VERSION``; None: this machine alone.
        write: also write a few throwaway objects, to see what the store can do.
        seconds: to spend measuring the store; a quarter more is spent on packing.
        settings: what is checked; None: `Settings.load`.
        tell: called with a line before something that takes long.

    Raises:
        SettingError: the settings cannot be read.
    """
    where = None if path is None else os.fspath(path)
    return _findings(settings or Settings.load(), where, tell, write=write, seconds=seconds)


def _findings(
    settings: Settings, path: str | None, tell: Callable[[str], object], *, write: bool, seconds: float
) -> Iterator[Finding]:
    yield from guarded("settings", lambda: check_settings(settings))
    yield from guarded("cache", lambda: check_cache(settings.cache))
    if path is not None:
        yield from guarded("store", lambda: _store(settings, path, tell, write=write, seconds=seconds))


def _store(
    settings: Settings, path: str, tell: Callable[[str], object], *, write: bool, seconds: float
) -> Iterator[Finding]:
    from headrace.catalog import reads_below
    from headrace.checkup.packing import Spot, check_packing
    from headrace.checkup.reach import check_capabilities, check_clock, check_reach, check_uploads
    from headrace.checkup.speed import check_speed

    namespace = Namespace.load(settings)
    where = namespace.named(path)
    tell_hidden(where)
    location = namespace.resolve(where)
    prefix = location.key if location.key == "" or location.key.endswith("/") else f"{location.key}/"
    yield from guarded("clock", lambda: check_clock(location.store))
    yield from check_reach(location.store, prefix)
    yield from guarded("capabilities", lambda: check_capabilities(location.store, write=write))
    if write:
        yield from guarded("uploads", lambda: check_uploads(location.store, prefix, where))
    reads = list(islice((read for read in reads_below(namespace, path) if read.size), _OBJECTS))
    yield from guarded("speed", lambda: check_speed(settings, reads, seconds=seconds))
    scratch = prefix if write and not location.read_only else None
    more = seconds / 4
    if reads:
        tell(f"reading for {format_seconds(more)} more, at most 256 MB, to see whether packing pays")
    spot = Spot(path, location.store, scratch)
    yield from guarded("packing", lambda: check_packing(settings, reads, spot, seconds=more))
