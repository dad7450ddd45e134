"""A snapshot taken, and the index of its shards kept with it. `hr.snapshot`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from headrace.base.errors import CorruptError, HeadraceError, InputError
from headrace.base.progress import SILENT, Progress
from headrace.base.settings import Settings
from headrace.catalog import Snapshot, take_snapshot
from headrace.formats.opening_targets import index_snapshot
from headrace.namespace import Namespace, PathLike, tell_hidden

if TYPE_CHECKING:
    from headrace.catalog import Listing


def snapshot(
    path: PathLike,
    name: str | None = None,
    version: str | None = None,
    *,
    index: bool | None = None,
    format: str | None = None,  # noqa: A002  as `Dataset.open`
    namespace: Namespace | None = None,
    settings: Settings | None = None,
    progress: Progress = SILENT,
) -> Snapshot:
    """``snapshot("/data/train", "train")``: record every object below `path`, with its version, as ``train@v1``; of
    shards, keep where each sample lies. As `headrace snapshot` does. One thread.

    Args:
        path: a path, a URL, or a folder of this machine.
        name: of the data set; None: the last part of `path`.
        version: to be made; None: the next of v1, v2, …
        index: of shards, keep their index; None: where names tell that they are shards.
        format: of the shards, where names do not tell.
        namespace: where paths are resolved; None: that of the settings.
        settings: home, cache and fetching; None: `Settings.load`.
        progress: told of objects and bytes listed.

    Raises:
        InputError: bad name or version. AlreadyExistsError: that version exists. NotFoundError: nothing to record.
        SettingError: no home. ReadOnlyError: the home is read-only. Any store error; then no snapshot exists. As
        `keep_index`; then it exists without an index.
    """
    found = settings or Settings.load()
    space = namespace or Namespace.load(found)
    made = take_with_index(path, name, version, namespace=space, settings=found, progress=progress)
    if index is not False:
        keep_index(made, format=format, wanted=bool(index or format), namespace=space, settings=found)
    return made


def take_with_index(
    path: PathLike,
    name: str | None,
    version: str | None,
    *,
    namespace: Namespace,
    settings: Settings,
    progress: Progress = SILENT,
    listing: Listing | None = None,
) -> Snapshot:
    """As `take_snapshot`, which says what is raised, of what `path` names on a command line.

    `name` None: the last part of `path`; `listing` None: listed by this process.
    """
    where = namespace.named(path)
    tell_hidden(where)
    who = {} if listing is None else {"listing": listing}
    chosen = name or where.rstrip("/").rpartition("/")[2]
    return take_snapshot(where, chosen, version, namespace=namespace, settings=settings, progress=progress, **who)


def keep_index(
    snapshot: Snapshot,
    *,
    format: str | None = None,  # noqa: A002
    wanted: bool,
    namespace: Namespace,
    settings: Settings,
    progress: Progress = SILENT,
    begins: Callable[[str, int, int], None] | None = None,
    tell: Callable[[str], object] = lambda _line: None,
    elsewhere: Any = None,
) -> int | None:
    """As `index_snapshot`, for a snapshot that stands whatever becomes of its index.

    Args:
        snapshot: a complete one.
        format: of the shards; None: found by names.
        wanted: somebody asked for the index; else it is no error that the objects have none.
        namespace: where the source is resolved.
        settings: cache and fetching.
        progress: told of shards and bytes.
        begins: called with format, number of shards and bytes, before anything is read.
        tell: called with a line that says why no index is kept.
        elsewhere: who reads the shards, as for `index_snapshot`.

    Returns:
        How many samples the index has; None: none is kept.

    Raises:
        InputError: `wanted`, and there are no shards that need one. Else as `index_snapshot`, with a hint that says how
        the index can follow.
    """
    try:
        samples = index_snapshot(
            snapshot, format=format, namespace=namespace, settings=settings, progress=progress, begins=begins,
            elsewhere=elsewhere,
        )  # fmt: skip
    except HeadraceError as error:
        if isinstance(error, InputError) and not isinstance(error, CorruptError) and not wanted:
            tell(f"no index is kept: {error.reason}; --format says what the shards are")
            return None
        error.hint = f"{error.hint}; " if error.hint else ""
        error.hint += f"the snapshot stands, and its index can follow: headrace snapshot {snapshot.id}"
        raise
    if samples is None and wanted:
        hint = "--format says what they are, if it does"
        raise InputError("holds no shards that need an index", path=snapshot.id, hint=hint)
    return samples
