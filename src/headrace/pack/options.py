"""How a dataset is to be packed: what `pack` is told beside from where and to where."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from headrace.base.errors import InputError
from headrace.base.threads import cores
from headrace.base.where import Where
from headrace.loader import Skip
from headrace.pack.layouts import layout_named
from headrace.pack.schema import Schema
from headrace.pack.tar import BLOCK

_NAME = re.compile(r"(?:[^%/]|%%)*%0?\d*d(?:[^%/]|%%)*")
_FUNCTION = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")

_NONE = Skip(max_count=0)


@dataclass(frozen=True, slots=True)
class PackOptions:
    """What the shards are to be like, and how to make them.

    All but the last four fields make the plan: they say which bytes come out. The others only say how.

    Raises:
        InputError: a value that makes no sense.
    """

    shard_size: int = 100_000_000
    """Bytes a shard may have at most, unless one sample alone is larger. Counted before `function` changes anything."""
    seed: int | None = None
    """Shuffle with this seed, as ``Dataset.shuffle(seed)`` orders its first epoch; None: key order."""
    by: str = "stem"
    """What makes a sample, as in ``Dataset.open``."""
    function: str | None = None
    """``module:function``, applied to every sample; called from several threads at once."""
    name: str | None = None
    """Names of shards: one ``%d`` for the number, and the layout's suffix; None: ``%06d.tar`` and the like."""
    layout: str = "webdataset"
    """``"webdataset"``, ``"tfrecord"`` or ``"parquet"``."""
    columns: str | None = None
    """Types of the columns, such as ``"label:i64, features:f32[39]"``; see `headrace.pack.schema`."""
    where: str | None = None
    """Which samples are packed, such as ``'size < 1_000 and key.startswith("train/")'``; see `headrace.base.where`."""
    source_format: str | None = None
    """The format of the source, as in ``Dataset.open(…, format=…)``."""
    max_errors: Skip = _NONE
    """How many samples may be left out, of all."""
    workers: int = 0
    """Shards made at once; 0: as many as there are cores."""
    verify: Literal["quick", "full"] = "quick"
    """``"quick"``: what the store lists is what was sent. ``"full"``: and every shard is read back."""
    memory: int = 256_000_000
    """Bytes of samples read ahead, over all workers."""

    def __post_init__(self) -> None:
        if self.shard_size < 4 * BLOCK:
            raise InputError(f"a shard of {self.shard_size} bytes", hint=f"at least {4 * BLOCK}; 100MB is usual")
        if self.workers < 0 or self.memory < 1:
            raise InputError("workers is 0 or more, memory at least 1")
        if self.verify not in ("quick", "full"):
            raise InputError(f"verify={self.verify!r}", hint='"quick" or "full"')
        suffix, name = layout_named(self.layout).suffix, self.names
        if not _NAME.fullmatch(name) or not name.endswith(suffix) or name.startswith(("_", ".")):
            raise InputError(
                f"{name!r} names no shards",
                hint=f"one %06d for the number, {suffix} at the end, no folder, no _ or . in front: train-%06d{suffix}",
            )
        if self.columns is not None:
            Schema.parse(self.columns)
            if self.layout == "webdataset":
                raise InputError("a tar has no columns", hint="--format parquet, or --format tfrecord")
        if self.where is not None:
            Where.parse(self.where)
        if self.function is not None and not _FUNCTION.fullmatch(self.function):
            raise InputError(f"{self.function!r} names no function", hint="module:function, such as prepare:shrink")

    @property
    def threads(self) -> int:
        """Shards made at once."""
        return self.workers or cores()

    @property
    def names(self) -> str:
        """The pattern of the shards' names."""
        return self.name or f"%06d{layout_named(self.layout).suffix}"

    def shard_name(self, number: int) -> str:
        """The name of shard `number`."""
        return self.names % number


def load_function(text: str) -> Callable[[Any], Any]:
    """What ``module:function`` names.

    Raises:
        InputError: no such module or function, or the module cannot be imported.
    """
    module, _, path = text.partition(":")
    try:
        found: Any = importlib.import_module(module)
    except Exception as error:
        raise InputError(
            f"module {module!r} cannot be imported: {type(error).__name__}: {error}",
            path=text,
            hint="it is looked for in the working directory and where Python's modules are",
        ) from error
    for name in path.split("."):
        found = getattr(found, name, None)
    if not callable(found):
        raise InputError(f"module {module!r} has no function {path!r}", path=text, hint="module:function")
    return found
