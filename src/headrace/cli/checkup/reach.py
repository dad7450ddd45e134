"""The way to the store: name, connection, credentials, clock, and what the store can do."""

from __future__ import annotations

import http.client
import time
from collections.abc import Iterator
from email.utils import parsedate_to_datetime

from headrace.base.units import format_seconds
from headrace.cli.checkup.finding import Finding
from headrace.store.protocol import Store

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
    to = wire.endpoint
    connection = (
        http.client.HTTPSConnection(to.host, to.port, timeout=5, context=to.tls)
        if to.tls
        else http.client.HTTPConnection(to.host, to.port, timeout=5)
    )
    try:
        connection.request("HEAD", "/")
        date = connection.getresponse().getheader("Date")
    except OSError:
        return  # whether the store can be reached at all is for check_reach to tell
    finally:
        connection.close()
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
