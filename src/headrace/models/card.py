"""`ModelCard`: what ``model.json`` says of one version, as frozen data.

    <home>/models/<name>/<number>/model.json    `ModelCard`, written before ``COMMITTED`` and never changed

It holds sizes and digests of the version's files; its own SHA-256 is in the note of ``COMMITTED``.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Final, cast

from headrace.base.errors import CorruptError, UnsupportedError

FORMAT_VERSION: Final = 1
CARD: Final = "model.json"
WARMUP: Final = "warmup.jsonl"
"""Recorded requests: JSON bodies of the Open Inference Protocol v2, one a line."""
FORMATS: Final = (
    "onnx", "torch-export", "torchscript", "saved_model", "safetensors", "state_dict", "orbax", "python", "files",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Tensor:
    """One input or output. `dtype`: as NumPy names it, or ``string``. `shape`: None or a name where a length is free;
    None: it is not known.
    """

    name: str
    dtype: str
    shape: tuple[int | str | None, ...] | None = None


@dataclass(frozen=True, slots=True)
class Signature:
    """What a model takes, and what it gives, each in its own order."""

    inputs: tuple[Tensor, ...] = ()
    outputs: tuple[Tensor, ...] = ()


@dataclass(frozen=True, slots=True)
class ModelFile:
    """One file of a version. `path`: below the version's folder, with ``/``; `bytes`: how many."""

    path: str
    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class ModelCard:
    """One version of a model. Times are RFC 3339, UTC. What is not known is None or empty."""

    name: str
    number: int
    created: str
    by: str
    """``user@host`` that published it."""
    headrace: str
    """The version that wrote this."""
    format: str
    """One of `FORMATS`."""
    entry: str | None
    """The file that a runtime opens first, ``model.onnx``; None: the folder as a whole."""
    files: tuple[ModelFile, ...]
    signatures: Mapping[str, Signature] = field(default_factory=dict[str, Signature])
    runtime: str | None = None
    """``module:Class`` of a model that is Python; else None."""
    source: str = ""
    """Where the files came from: a URL."""
    run: str | None = None
    checkpoint: str | None = None
    data: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """The inputs of the run as it recorded them, by name."""
    code: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """The code of the run as it recorded it."""
    metrics: Mapping[str, Mapping[str, Any]] = field(default_factory=dict[str, "Mapping[str, Any]"])
    """Of the run, when this was published: of each ``last``, ``min``, ``max``, ``step``, ``points``."""
    gate: str | None = None
    """The condition under which it was published."""
    note: str = ""

    @property
    def bytes(self) -> int:
        """Of all files."""
        return sum(one.bytes for one in self.files)

    @property
    def digest(self) -> str:
        """SHA-256 over names and digests of all files: equal for two versions that hold the same bytes."""
        told = "".join(f"{one.sha256} {one.path}\n" for one in sorted(self.files, key=lambda one: one.path))
        return hashlib.sha256(told.encode("utf-8", "surrogateescape")).hexdigest()

    def as_json(self) -> bytes:
        """As it is written."""
        text = json.dumps({"format_version": FORMAT_VERSION, **asdict(self)}, ensure_ascii=False, indent=1)
        return text.encode("utf-8", "surrogateescape")

    @staticmethod
    def from_json(data: bytes, where: str) -> ModelCard:
        """Raises CorruptError, UnsupportedError; both name `where`."""
        try:
            told: Any = json.loads(data.decode("utf-8", "surrogateescape"))
            version = int(told["format_version"])
            if version > FORMAT_VERSION:
                reason = f"has format {version}, newer than this headrace knows"
                raise UnsupportedError(reason, path=where, hint="update headrace")
            known = {one.name for one in fields(ModelCard)}
            values = {name: value for name, value in cast("dict[str, Any]", told).items() if name in known}
            values["files"] = tuple(ModelFile(one["path"], one["bytes"], one["sha256"]) for one in told["files"])
            signatures: dict[str, Any] = told.get("signatures") or {}
            values["signatures"] = {name: signature_from(one) for name, one in signatures.items()}
            return ModelCard(**values)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise CorruptError(f"says nothing of a model: {error}", path=where) from error


def signature_from(told: Mapping[str, Any]) -> Signature:
    """Of ``{"inputs": [{"name", "dtype", "shape"}, …], "outputs": […]}``. Raises KeyError, TypeError, ValueError."""

    def tensors(ones: Any) -> tuple[Tensor, ...]:
        return tuple(Tensor(str(one["name"]), str(one["dtype"]), _shape(one.get("shape"))) for one in ones)

    return Signature(tensors(told["inputs"]), tensors(told["outputs"]))


def _shape(told: Any) -> tuple[int | str | None, ...] | None:
    if told is None:
        return None
    shape = tuple(cast("list[Any]", told))
    if not all(one is None or isinstance(one, (int, str)) for one in shape):
        raise ValueError("a shape holds whole numbers, names and nulls")
    return shape
