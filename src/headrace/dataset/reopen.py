"""An index that can be sent to another process: as the recipe to open it again there."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from headrace.base.errors import ChangedError
from headrace.base.settings import Settings
from headrace.dataset.shards.format import Format
from headrace.dataset.source import Columns, Rows, SampleIndex, SampleSpec, open_source
from headrace.namespace import Namespace


class Reopened:
    """A `SampleIndex` opened by name. Pickles as the name; opening it again must find the same samples."""

    def __init__(
        self,
        index: SampleIndex,
        target: str,
        by: str,
        namespace: Namespace,
        on_change: str,
        format: str | Format | None = None,  # noqa: A002
        columns: Columns | None = None,
        where: Sequence[Any] | None = None,
    ) -> None:
        self._index = index
        self._recipe = (target, by, namespace, on_change, format, columns, where)
        self.recipe = _as_told(target, by, format, columns, where)
        """As JSON; None: not all of it can be written down."""
        self.namespace = namespace
        self.store = index.store
        self.fingerprint = index.fingerprint
        self.pinned = index.pinned
        self.classes = index.classes

    def __len__(self) -> int:
        return len(self._index)

    def __repr__(self) -> str:
        return repr(self._index)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._index, name)

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopen, (self.fingerprint, *self._recipe)

    def specs(self, rows: Rows) -> list[SampleSpec]:
        """See `SampleIndex.specs`."""
        return self._index.specs(rows)

    def sizes(self, rows: Rows) -> Rows:
        """See `SampleIndex.sizes`."""
        return self._index.sizes(rows)


def _reopen(
    fingerprint: str,
    target: str,
    by: str,
    namespace: Namespace,
    on_change: str,
    format: str | Format | None,  # noqa: A002
    columns: Columns | None = None,
    where: Sequence[Any] | None = None,
) -> Reopened:
    index = open_source(
        target,
        by=by,
        namespace=namespace,
        on_change=on_change,
        format=format,
        columns=columns,
        where=where,
        settings=Settings.load(),
    )
    if index.fingerprint != fingerprint:
        raise ChangedError(
            "holds other samples than when the dataset was opened",
            path=target,
            hint="train on a snapshot: name@version",
        )
    return Reopened(index, target, by, namespace, on_change, format, columns, where)


def _as_told(target: str, by: str, format: object, columns: object, where: object) -> dict[str, Any] | None:  # noqa: A002
    told = {"target": target, "by": by, "format": format, "columns": columns, "where": where}
    try:
        return json.loads(json.dumps(told))
    except (TypeError, ValueError):
        return None
