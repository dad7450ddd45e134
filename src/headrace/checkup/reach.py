"""The way to the store: name, connection, credentials, clock, and what the store can do."""

from __future__ import annotations

import time
from collections.abc import Iterator
from email.utils import parsedate_to_datetime

from headrace.base.errors import HeadraceError
from headrace.base.units import format_seconds
from headrace.checkup.finding import Finding
from headrace.store.http1 import Transport
from headrace.store.protocol import Store

_PATIENCE_S = 5.0  # seconds for a connection and an answer
_SKEW_REFUSED_S = 900.0
"""S3 refuses requests signed further off than this: RequestTimeTooSkewed. Ours are then dated by the store's clock."""


def check_reach(store: Store, prefix: str) -> Iterator[Finding]:
    """List one level: proves the name, the connection and the credentials."""
    started = time.perf_counter()
    folder = store.list_folder(prefix)
    seconds = time.perf_counter() - started
    found = f"{len(folder.folders)} folders and {len(folder.objects)} objects"
    yield Finding(
        "reach", "ok", f"{store.url} answers: {found} in {format_seconds(seconds)}", values={"seconds": seconds}
    )


def check_clock(store: Store) -> Iterator[Finding]:
    """Compare this machine's clock with the store's ``Date`` header (RFC 9110 §6.6.1), which has whole seconds."""
    wire = store.wire()
    if wire is None:
        return
    asking = Transport(wire.endpoint, _PATIENCE_S, _PATIENCE_S)
    head = f"HEAD / HTTP/1.1\r\nhost: {wire.endpoint.host}\r\n\r\n".encode()
    try:
        date = asking.exchange(store.url, head, deadline=time.monotonic() + _PATIENCE_S).header("date")
    except HeadraceError:
        return  # whether the store can be reached at all is for check_reach to tell
    finally:
        asking.close()
    if date is None:
        return
    skew = abs(time.time() - parsedate_to_datetime(date).timestamp())
    values = {"skew_seconds": round(skew, 1)}
    if skew > _SKEW_REFUSED_S / 3:
        advice = "set this machine's clock, for example by timedatectl set-ntp true; other S3 clients may be refused"
        yield Finding("clock", "warn", f"the clock is {format_seconds(skew)} off the store's", advice, values)
    else:
        yield Finding("clock", "ok", "the clock agrees with the store's to a few seconds", values=values)


def check_capabilities(store: Store, *, write: bool) -> Iterator[Finding]:
    """What the store was seen to do; tried with throwaway objects only if `write`."""
    if not write:
        text = "capabilities not tried: that writes a few throwaway objects"
        yield Finding("capabilities", "note", text, "add --write to try them")
        return
    import dataclasses

    from headrace.store.probe import probe

    seen = dataclasses.asdict(probe(store))
    able = ", ".join(name.replace("_", " ") for name, yes in seen.items() if yes)
    yield Finding("capabilities", "ok", f"the store can: {able or 'none of the optional things'}", values=seen)
    if not seen["create_only_put"]:
        advice = "two writers of one snapshot version are not told apart; give each its own --version"
        yield Finding("create-only", "warn", "the store has no create-only put", advice)


def check_uploads(store: Store, prefix: str, path: str) -> Iterator[Finding]:
    """Uploads begun a day ago and more, and never ended: their parts cost money, and no listing shows them."""
    from headrace.upload import leftovers

    found = leftovers(store, prefix)
    if not found:
        yield Finding("uploads", "ok", "no upload was left unfinished")
        return
    oldest = max(0.0, time.time() - min(one.started_us for one in found) / 1e6)
    text = f"{len(found):,} uploads were begun and never ended, the oldest {format_seconds(oldest)} ago"
    advice = f"headrace rm --uploads {path}; and give the bucket a rule: AbortIncompleteMultipartUpload"
    yield Finding("uploads", "warn", text, advice, {"uploads": len(found), "oldest_seconds": round(oldest)})
