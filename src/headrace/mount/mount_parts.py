"""The parts of one mount, and how they are put together: names over the session, reads over names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.mount.names.circuit_breaker import CircuitBreaker
from headrace.mount.names.full_attributes import FullAttributes
from headrace.mount.names.kernel_notices import KernelNotices
from headrace.mount.names.name_lookup import NameLookup
from headrace.mount.names.node_table import NodeTable
from headrace.mount.names.open_folders import OpenFolders
from headrace.mount.names.restore_nodes import restore_nodes
from headrace.mount.names.stat_attributes import StatAttributes
from headrace.mount.read.neighbour_prefetch import NeighbourPrefetch
from headrace.mount.read.passthrough import BackingFiles
from headrace.mount.read.read_handles import ReadHandles
from headrace.mount.read.unopened import UnopenedFiles

if TYPE_CHECKING:
    from headrace.fetch import Fetcher
    from headrace.mount.kernel.process_groups import ProcessGroups
    from headrace.mount.kernel.session import FuseSession
    from headrace.mount.mount_options import MountOptions
    from headrace.mount.names.node_record import NodeRecord
    from headrace.mount.names.nodes import FolderPlace
    from headrace.namespace import Namespace
    from headrace.store.protocol import ObjectInfo

_KEYS_A_NODE = 20
"""Names in listings (`MountOptions.keys`) to one with a node of its own, which takes ten times as much memory."""


@dataclass(frozen=True, slots=True)
class MountParts:
    """What a mount is made of. `full_attributes`: None with ``metadata=listing``. `prefetch`: None: switched off."""

    session: FuseSession
    table: NodeTable
    names: NameLookup
    attributes: StatAttributes
    full_attributes: FullAttributes | None
    open_folders: OpenFolders
    notices: KernelNotices
    reads: ReadHandles
    prefetch: NeighbourPrefetch | None
    fetcher: Fetcher


def make_parts(
    session: FuseSession,
    namespace: Namespace,
    path: str,
    options: MountOptions,
    groups: ProcessGroups,
    record: NodeRecord | None = None,
) -> MountParts:
    """The parts of a mount of `path`, over a session that the kernel has agreed to.

    `record`: nodes of earlier servers, taken over; None: there will be no other server.
    """
    fetcher = namespace.fetcher
    table = NodeTable(path, options.keys // _KEYS_A_NODE, record)
    if record is not None:
        restore_nodes(record, table)

    def head(place: FolderPlace, key: str) -> ObjectInfo:
        return fetcher.head(place.store, key)

    breaker = CircuitBreaker() if options.metadata == "full" else None
    names = NameLookup(
        table, namespace, options, session.waiters, fetcher.metrics,
        head=head, deadline=fetcher.settings.fetch.deadline, breaker=breaker,
    )  # fmt: skip
    attributes = StatAttributes(table, options)
    full = FullAttributes(table, attributes, breaker, options.ttl, shared=options.allow_other) if breaker else None
    cache = fetcher.cache
    prefetch = NeighbourPrefetch(fetcher, cache, names) if cache is not None and options.prefetch else None
    return MountParts(
        session, table, names, attributes, full,
        open_folders=OpenFolders(names, attributes, plus=options.metadata == "listing"),
        notices=KernelNotices(table, session),
        reads=_reads(session, fetcher, options, groups, prefetch, record),
        prefetch=prefetch,
        fetcher=fetcher,
    )  # fmt: skip


def _reads(
    session: FuseSession,
    fetcher: Fetcher,
    options: MountOptions,
    groups: ProcessGroups,
    prefetch: NeighbourPrefetch | None,
    record: NodeRecord | None,
) -> ReadHandles:
    agreed = session.agreed
    backings = BackingFiles(
        session.fd if agreed.passthrough else -1, gone=record.drop if record is not None else None
    )
    if record is not None and record.agreed is not None and backings.enabled:
        session.waiters.add(backings.forget_earlier)
    if options.open or not agreed.no_open:
        return ReadHandles(fetcher, backings, prefetch, groups, record)
    return UnopenedFiles(fetcher, backings, prefetch, groups)
