"""An index that can be sent to another process: as the recipe to open it again there."""

from __future__ import annotations

import json
from typing import Any

from headrace.base.errors import ChangedError
from headrace.base.settings import Settings
from headrace.catalog import Rows, SampleIndex, SampleSpec
from headrace.formats import OpenOptions, open_source
from headrace.namespace import Namespace


class Reopened:
    """A `SampleIndex` opened by name. Pickles as the name; opening it again must find the same samples."""

    def __init__(self, index: SampleIndex, target: str, options: OpenOptions, namespace: Namespace) -> None:
        self._index, self._target, self._options = index, target, options
        self.recipe = _as_told(target, options)
        """As JSON; None: not all of it can be written down."""
        self.namespace = namespace
        self.store = index.store
        self.fingerprint = index.fingerprint
        self.pinned = index.pinned
        self.classes = index.classes
        self.abilities = index.abilities

    def __len__(self) -> int:
        return len(self._index)

    def __repr__(self) -> str:
        return repr(self._index)

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopen, (self.fingerprint, self._target, self._options, self.namespace)

    def specs(self, rows: Rows) -> list[SampleSpec]:
        """See `SampleIndex.specs`."""
        return self._index.specs(rows)

    def sizes(self, rows: Rows) -> Rows:
        """See `SampleIndex.sizes`."""
        return self._index.sizes(rows)


def _reopen(fingerprint: str, target: str, options: OpenOptions, namespace: Namespace) -> Reopened:
    index = open_source(target, options, namespace=namespace, settings=Settings.load())
    if index.fingerprint != fingerprint:
        raise ChangedError(
            "holds other samples than when the dataset was opened",
            path=target,
            hint="train on a snapshot: name@version",
        )
    return Reopened(index, target, options, namespace)


def _as_told(target: str, options: OpenOptions) -> dict[str, Any] | None:
    told = {
        "target": target,
        "by": options.by,
        "format": options.format,
        "columns": options.columns,
        "where": options.where,
    }
    try:
        return json.loads(json.dumps(told))
    except (TypeError, ValueError):
        return None
