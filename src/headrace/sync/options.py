"""What a sync does with which file, and how much it may spend."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Any

from headrace.base.errors import InputError
from headrace.base.settings import Settings, SyncSettings
from headrace.store.protocol import ObjectInfo


@dataclass(frozen=True, slots=True)
class FileClass:
    """Files that are treated alike. A pattern without ``/`` is for the last part of a name, else for all of it.

    Raises:
        InputError: a period that is none.
    """

    name: str
    patterns: tuple[str, ...] = ("*",)
    at_least: int = 0
    """Bytes: smaller files are not of this class."""
    period: float = 5.0
    """Seconds between two uploads of one file, at least."""
    when_closed: bool = False
    """Sent at once when nobody has it open for writing any more; `period` is for files that stay open."""
    growing: bool = False
    """Its writer only appends, as to a log: what was sent stays true while it is being written to."""

    def __post_init__(self) -> None:
        if self.period <= 0:
            raise InputError(f"class {self.name}: a period is more than 0 seconds")

    def takes(self, name: str, size: int) -> bool:
        """Whether a file is of this class."""
        return size >= self.at_least and matches(name, self.patterns)


LOGS = ("*.log", "*.out", "*.err", "*.jsonl", "*.ndjson", "*.csv", "*.tsv", "*.txt", "events.out.tfevents.*", "stdout",
        "stderr")  # fmt: skip
MODELS = ("*.pt", "*.pth", "*.ckpt", "*.safetensors", "*.bin", "*.h5", "*.hdf5", "*.keras", "*.onnx", "*.gguf",
          "*.msgpack", "*.distcp")  # fmt: skip
IGNORED = ("*.tmp", "*.temp", "*.partial", "*.incomplete", "*~", ".*.sw?", ".nfs*", "__pycache__", ".ipynb_checkpoints",
           ".git", "*.lock")  # fmt: skip
"""Not sent: what is about to be renamed into place, and what editors and file systems leave."""

CLASSES = (
    FileClass("log", LOGS, growing=True),
    FileClass("model", MODELS, period=600.0, when_closed=True),
    FileClass("large", at_least=64 << 20, period=600.0, when_closed=True),
    FileClass("small"),
)
"""The first that takes a file counts."""
_CHECKPOINTS = ("checkpoints/*",)


@dataclass(frozen=True, slots=True)
class Deletion:
    """Delete in the store what was sent by this sync and is deleted here, within bounds.

    Raises:
        InputError: `most` is no share.
    """

    most: float = 0.5
    """Share of what was sent that may be gone at once; with more nothing is deleted. Everything never is."""
    checkpoints: tuple[str, ...] = ()
    """Patterns of checkpoint folders that may go though they are committed; no others do."""
    force: bool = False
    """Whatever is gone here, also where the folder is another or empty."""

    def __post_init__(self) -> None:
        if not 0 <= self.most <= 1:
            raise InputError("the share that may be deleted is between 0 and 1")

    def names(self, folder: str) -> bool:
        """Whether a checkpoint folder is named."""
        return any(fnmatchcase(folder, pattern) for pattern in self.checkpoints)


Mark = Callable[[str, Sequence[ObjectInfo], Mapping[str, str]], None]
"""Told the folder, its objects, and what the marker is to say beside (`headrace.upload.commit`). Any thread."""


@dataclass(frozen=True, slots=True)
class SyncOptions:
    """How one `Sync` works.

    Raises:
        InputError: a value that makes no sense.
    """

    classes: tuple[FileClass, ...] = CLASSES
    ignore: tuple[str, ...] = IGNORED
    """Patterns of files and folders that are left out."""
    checkpoints: tuple[str, ...] = _CHECKPOINTS
    """Patterns of folders that count as one: their marker ``COMMITTED`` is written when all of it is there."""
    quiet: float = 10.0
    """Seconds without a change after which a checkpoint folder counts as finished."""
    judge: bool = True
    """Whether quiet counts. False: the job is over, and may have been cut short."""
    delete: Deletion | None = None
    """Delete in the store what is deleted here; None: nothing."""
    bandwidth: float | None = None
    """Bytes a second, on average; None: no limit."""
    memory: int = 64 << 20
    """Bytes read and not yet acknowledged, at most."""
    requests: int = 20_000
    """Requests an hour while the job runs, and as many in one burst. At the end all that is left is sent regardless."""
    shared: bool = False
    """Others send below the same prefix: what one of them has written is not replaced, and told as not sent."""
    mark: Mark | None = None
    """What is called when all of a checkpoint folder is in the store, instead of writing its marker: another does, who
    knows what else belongs to it."""
    rescan: float = 30.0
    """Seconds between two looks at every file, for changes nobody was told of. `watch` False: the shortest period."""
    watch: bool = True
    """Be told of changes by the kernel (needs the ``runs`` extra)."""

    def __post_init__(self) -> None:
        if not self.classes:
            raise InputError("a sync needs at least one class of files")
        if self.requests < 1 or self.quiet < 0 or self.rescan <= 0:
            raise InputError("requests, quiet and rescan are more than 0")

    @staticmethod
    def of(
        settings: SyncSettings | None = None,
        *,
        period_s: float | None = None,
        exclude: Sequence[str] = (),
        checkpoints: Sequence[str] = (),
        delete: Deletion | None = None,
        bandwidth: float | None = None,
        watch: bool = True,
    ) -> SyncOptions:
        """As the settings say (None: `Settings.load`), but for what is given; `exclude`: left out beside `IGNORED`.

        Raises InputError.
        """
        settings = settings or Settings.load().sync
        period = settings.period if period_s is None else period_s
        rate = settings.bandwidth if bandwidth is None else bandwidth
        return SyncOptions(
            tuple(one if one.when_closed else replace(one, period=period) for one in CLASSES),
            (*IGNORED, *exclude), tuple(checkpoints) or _CHECKPOINTS, delete=delete, bandwidth=rate or None,
            requests=settings.requests, watch=watch,
        )  # fmt: skip

    def class_of(self, name: str, size: int) -> FileClass:
        """The class of a file; the last one takes what no other does."""
        return next((one for one in self.classes if one.takes(name, size)), self.classes[-1])

    def selection(self) -> dict[str, Any]:
        """The fields that say which files are sent, for JSON: `SyncOptions.recovering` reads them."""
        told = self.delete and {"most": self.delete.most, "checkpoints": list(self.delete.checkpoints)}
        return {"ignore": list(self.ignore), "checkpoints": list(self.checkpoints), "delete": told,
                "shared": self.shared}  # fmt: skip

    def recovering(self, selection: Mapping[str, Any]) -> SyncOptions:
        """These, for what a sync with that `selection` has left: its job is over, and may have been cut short."""
        kept = {name: tuple(selection[name]) for name in ("ignore", "checkpoints") if name in selection}
        told, force = selection.get("delete"), self.delete is not None and self.delete.force
        delete = Deletion(force=force) if told else None
        if isinstance(told, dict):
            delete = Deletion(told["most"], tuple(told["checkpoints"]), force)
        shared = bool(selection.get("shared"))
        return replace(self, **kept, delete=delete, shared=shared, judge=False, watch=False)

    def ignores(self, name: str) -> bool:
        """Whether a file or folder is left out, by its name below the synced folder."""
        return matches(name, self.ignore)

    def checkpoint_of(self, name: str) -> str | None:
        """The checkpoint folder that a file belongs to, None if none."""
        return _checkpoint_of(name.rpartition("/")[0], self.checkpoints)


@lru_cache(maxsize=4096)
def _checkpoint_of(folder: str, patterns: tuple[str, ...]) -> str | None:
    parts = folder.split("/")
    for count in range(1, len(parts) + 1):
        above = "/".join(parts[:count])
        if any(pattern.count("/") == count - 1 and fnmatchcase(above, pattern) for pattern in patterns):
            return above
    return None


def matches(name: str, patterns: tuple[str, ...]) -> bool:
    """Whether any of the patterns is for this name."""
    last = name.rpartition("/")[2]
    return any(fnmatchcase(name if "/" in pattern else last, pattern) for pattern in patterns)
