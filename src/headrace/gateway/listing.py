"""Listings: pages of a bucket's keys in the store's order, with folders where a delimiter is given.

A page ends where the client's count is reached; what comes next is taken from the same listing of the store, as long as
this process still has it open, it is no older than ``cache.ttl``, and no process of this gateway has written since.
Else it is taken from a new one that starts behind the last key.
"""

from __future__ import annotations

import base64
import binascii
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import lru_cache
from itertools import islice
from typing import NamedTuple
from urllib.parse import quote

from headrace.base.errors import NotFoundError
from headrace.gateway.buckets import Bucket
from headrace.gateway.changes import Changes
from headrace.gateway.failures import S3Failure
from headrace.gateway.keys import Key
from headrace.gateway.requests import S3Request, xml_headers
from headrace.gateway.xml import Raw, document, element, escaped
from headrace.http_server import Response
from headrace.namespace import Namespace
from headrace.store.protocol import ObjectInfo

_MOST = 1000
"""Keys of a page, by S3."""
_OPEN = 64
"""Listings that are kept open for their next page."""
_WORTH = 100
"""Entries of a page from which on a next page is expected."""
_LAST = "\U0010ffff"


class Item(NamedTuple):
    """A key with what is known of it, or a folder's prefix, whose `info` is None."""

    name: str
    info: ObjectInfo | None


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a page is asked of. `after`: names that come later. `told`: those up to it, in the store's own order, have
    been told; else it is any name, and the order is that of bytes.
    """

    prefix: str
    delimiter: str
    after: str
    told: bool


class Listings:
    """Lists for clients. Any thread."""

    def __init__(
        self, namespace: Namespace, changes: Changes, ttl: float, work: Callable[[Callable[[], None]], None]
    ) -> None:  # fmt: skip
        """`ttl`: seconds after which one is begun anew; any write of this gateway's does so, too. `work`: runs a task
        on another thread.
        """
        self._namespace = namespace
        self._changes, self._ttl = changes, ttl
        self._work = work
        self._open: OrderedDict[tuple[str, str, Wanted], _Listing] = OrderedDict()
        self._lock = threading.Lock()

    def page(self, request: S3Request, bucket: Bucket) -> Response:
        """ListObjectsV2, or V1 where it is not said to be that. Raises S3Failure, HeadraceError."""
        query = request.query
        second = query.get("list-type") == "2"
        count = _count(query, "max-keys")
        url = query.get("encoding-type") == "url"
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
        if not request.client.lists(bucket.name, prefix):
            raise S3Failure("AccessDenied", "Access Denied")
        told = second and "continuation-token" in query
        begin = query.get("start-after" if second else "marker", "")
        after = _from_token(query["continuation-token"]) if told else begin
        items, last = self._items(bucket, Wanted(prefix, delimiter, after, told), count)
        text = _quoted if url else escaped
        said = [element("Name", bucket.name), _said("Prefix", prefix, url)]
        if delimiter or not second:
            said += [_said("Delimiter", delimiter, url)] if delimiter else []
        if second:
            said += [_said("StartAfter", query["start-after"], url)] if "start-after" in query else []
            said += [element("KeyCount", str(len(items)))]
            token = query.get("continuation-token")
            said += [element("ContinuationToken", token)] if token is not None else []
            said += [element("NextContinuationToken", _token(last))] if last is not None else []
        else:
            said += [_said("Marker", after, url)]
            said += [_said("NextMarker", last, url)] if last is not None and delimiter else []
        said += [element("MaxKeys", str(count)), element("IsTruncated", "true" if last is not None else "false")]
        said += [element("EncodingType", "url")] if url else []
        owner = _owner(request.client) if not second or query.get("fetch-owner") == "true" else ""
        said.append(Raw("".join([_entry(item, text, owner) for item in items])))
        return Response(200, xml_headers(request), document("ListBucketResult", said))

    def _items(self, bucket: Bucket, wanted: Wanted, count: int) -> tuple[list[Item], str | None]:
        """A page, and what the next one comes after; None: there is no more."""
        if not count:
            return [], None
        name = (bucket.name, bucket.root, wanted)
        with self._lock:  # a marker of V1 is most likely the last key of the page before
            listing = self._open.pop((*name[:2], replace(wanted, told=True)), None)
        if listing is None or listing.until <= time.monotonic() or listing.number != self._changes.latest():
            until, number = time.monotonic() + self._ttl, self._changes.latest()  # both before the store is asked
            listing = _Listing(_listed(self._namespace, bucket, wanted), until, number)
        items: list[Item] = []
        for item in listing:
            if len(items) == count:
                last = items[-1].name
                listing.back(item)
                if wanted.told or count >= _WORTH:  # who asked for few may have wanted no more
                    listing.ahead(count + 1, self._work)
                self._keep((*name[:2], replace(wanted, after=last, told=True)), listing)
                return items, last
            items.append(item)
        return items, None

    def _keep(self, name: tuple[str, str, Wanted], listing: _Listing) -> None:
        with self._lock:
            self._open[name] = listing
            while len(self._open) > _OPEN:
                self._open.popitem(last=False)

    def forget(self) -> None:
        """Something was written here: what is open may not show it."""
        if self._open:
            with self._lock:
                self._open.clear()


class _Listing(Iterator[Item]):
    """A listing over all its pages. The next items may be asked for while the client reads those before.

    Whoever comes first takes from the source, the page or the thread that was to be ahead of it: no page waits for a
    thread that has not begun. `until` and `number`: up to when, and to which write, it may be gone on with.
    """

    def __init__(self, source: Iterator[Item], until: float, number: bytes) -> None:
        self._source = source
        self.until, self.number = until, number
        self._ready: deque[Item] = deque()
        self._wanted = 0
        self._error: Exception | None = None
        self._lock = threading.Lock()

    def back(self, item: Item) -> None:
        """It comes next, again."""
        with self._lock:
            self._ready.appendleft(item)

    def ahead(self, count: int, work: Callable[[Callable[[], None]], None]) -> None:
        """Have so many items at hand, soon."""
        self._wanted = count
        work(self._pull)

    def _pull(self) -> None:
        with self._lock:
            wanted, self._wanted = self._wanted - len(self._ready), 0
            try:
                self._ready.extend(islice(self._source, max(0, wanted)))
            except Exception as error:
                self._error = error

    def __next__(self) -> Item:
        with self._lock:
            self._wanted = 0
            if self._ready:
                return self._ready.popleft()
            if self._error is not None:
                raise self._error
            return next(self._source)


def _listed(namespace: Namespace, bucket: Bucket, wanted: Wanted) -> Iterator[Item]:
    store = namespace.resolve(bucket.root).store if not bucket.nested else None
    ordered = store is not None and (store.capabilities.start_after or not store.url.startswith("s3://"))
    if not wanted.told or ordered:
        yield from _begun(namespace, bucket, wanted)
        return
    # A server with another order than that of bytes (SeaweedFS) is gone through again, up to what was told last.
    found = False
    for item in _begun(namespace, bucket, replace(wanted, after="")):
        if found:
            yield item
        found = found or item.name == wanted.after
    if not found:  # it was deleted meanwhile
        yield from _begun(namespace, bucket, wanted)


def _begun(namespace: Namespace, bucket: Bucket, wanted: Wanted) -> Iterator[Item]:
    if wanted.delimiter == "/":
        return _by_folder(namespace, bucket, wanted)
    keys = _keys(namespace, bucket, wanted)
    return _grouped(keys, wanted) if wanted.delimiter else keys


def _keys(namespace: Namespace, bucket: Bucket, wanted: Wanted) -> Iterator[Item]:
    """Every key below the prefix, after what has been told."""
    prefix, after = wanted.prefix, wanted.after
    if not bucket.nested:
        store = namespace.resolve(bucket.root).store
        for page in store.list(prefix, start_after=after or None):
            for info in page:
                yield Item(info.key, info)
        return
    folder = prefix[: prefix.rfind("/") + 1]
    try:
        for entry in namespace.walk(bucket.path(folder) if folder else bucket.root):
            key = bucket.key(entry.path)
            if key > after and key.startswith(prefix):
                yield Item(key, ObjectInfo(key, entry.size, entry.etag, entry.mtime_us))
    except NotFoundError:
        return


def _by_folder(namespace: Namespace, bucket: Bucket, wanted: Wanted) -> Iterator[Item]:
    """One level, delimiter ``/``."""
    prefix, after = wanted.prefix, wanted.after
    folder = prefix[: prefix.rfind("/") + 1]
    if bucket.nested:
        yield from _nested_level(namespace, bucket, wanted, folder)
        return
    store = namespace.resolve(bucket.root).store
    behind = after or (_before(prefix) if prefix != folder else "")
    for page in store.list_pages(folder, start_after=behind or None):
        items = [Item(one, None) for one in page.folders]
        items += [Item(info.key, info) for info in page.objects]
        items.sort(key=_name)
        for item in items:
            if item.name.startswith(prefix) and item.name > after:
                yield item


def _nested_level(namespace: Namespace, bucket: Bucket, wanted: Wanted, folder: str) -> Iterator[Item]:
    try:
        entries = namespace.list(bucket.path(folder) if folder else bucket.root, refresh=True)
    except NotFoundError:
        return
    found: list[Item] = []
    for entry in entries:
        key = bucket.key(entry.path)
        if entry.is_file:
            found.append(Item(key, ObjectInfo(key, entry.size, entry.etag, entry.mtime_us)))
        else:
            found.append(Item(key.removesuffix("/") + "/", None))
    found.sort(key=_name)
    yield from (one for one in found if one.name.startswith(wanted.prefix) and one.name > wanted.after)


def _grouped(keys: Iterator[Item], wanted: Wanted) -> Iterator[Item]:
    """Keys up to another delimiter. All of them are looked at."""
    cut, last = len(wanted.prefix), wanted.after
    for item in keys:
        end = item.name.find(wanted.delimiter, cut)
        if end < 0:
            yield item
            continue
        group = item.name[: end + len(wanted.delimiter)]
        if group != last:
            last = group
            yield Item(group, None)


def _before(prefix: str) -> str:
    """A name that comes before all that begin so."""
    code = ord(prefix[-1]) - 1
    if code < 1 or 0xD800 <= code <= 0xDFFF:
        return prefix[:-1]
    return prefix[:-1] + chr(code) + _LAST


def _name(item: Item) -> str:
    return item.name


# Words


def _count(query: Mapping[str, str], name: str) -> int:
    text = query.get(name)
    if text is None:
        return _MOST
    if not text.isdecimal() or len(text) > 10:
        raise S3Failure("InvalidArgument", f"Provided {name} not an integer or within integer range")
    return min(int(text), _MOST)


def _token(last: str) -> str:
    return base64.urlsafe_b64encode(last.encode()).decode()


def _from_token(token: str) -> str:
    try:
        after = base64.b64decode(token, altchars=b"-_", validate=True).decode()
    except (binascii.Error, UnicodeDecodeError, ValueError):
        after = ""
    if not after:
        raise S3Failure("InvalidArgument", "The continuation token provided is incorrect")
    return after


def _quoted(text: str) -> str:
    return quote(text, safe="/*-._~")


def _said(name: str, text: str, url: bool) -> Raw:
    return element(name, Raw(_quoted(text)) if url else text)


def _owner(key: Key) -> str:
    return element("Owner", element("ID", key.access_key), element("DisplayName", key.access_key))


def _entry(item: Item, text: Callable[[str], str], owner: str) -> str:
    name = text(item.name)
    info = item.info
    if info is None:
        return f"<CommonPrefixes><Prefix>{name}</Prefix></CommonPrefixes>"
    return (
        f"<Contents><Key>{name}</Key><LastModified>{iso_time(info.mtime_us)}</LastModified>"
        f"<ETag>&quot;{escaped(info.version)}&quot;</ETag><Size>{info.size}</Size>{owner}"
        "<StorageClass>STANDARD</StorageClass></Contents>"
    )


@lru_cache(4096)
def iso_time(mtime_us: int) -> str:
    """As S3's XML tells times."""
    moment = datetime.fromtimestamp(mtime_us / 1e6, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{moment.microsecond // 1000:03d}Z"
