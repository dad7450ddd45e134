"""ONNX models whose weights lie in a file beside them, so that a runtime maps that file instead of reading it.

`externalize` rewrites a model so, for `publish`: the same graph, its larger initializers in ``NAME.data``, each at a
multiple of a page. `open_mapped` opens it in milliseconds and shares the weights with every process of the machine;
`open_prepacked` lays the weights out anew for speed, which costs seconds and as much memory again. A server answers
from the first while it makes the second. Their outputs agree as kernels of float32 do; of weights quantized to a byte
the first is the more exact: prepacked, ORT rounds what it multiplies them with, too.

Format: ``TensorProto.external_data`` of https://github.com/onnx/onnx/blob/main/onnx/onnx.proto; pages and ORT's way to
map them: https://onnxruntime.ai/docs (``session.disable_prepacking``).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final, NamedTuple

from headrace.base.errors import CorruptError, InputError, UnsupportedError

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, TensorProto
    from onnxruntime import InferenceSession

_LEAST: Final = 16 << 10
"""Bytes from which on an initializer moves out: below, the gap before the next page would cost more than it saves."""
_PAGE: Final = 4096  # bytes: each tensor begins a page, so that it can be mapped
_BLOCK: Final = 8 << 20  # bytes copied at a time
_HINT: Final = "pip install headrace[serving]"
_OPSET: Final = "check that all its files are there, and that onnxruntime knows its opset"
_INSIDE: Final = "the files it names must lie beside it"


class Externalized(NamedTuple):
    """The files that were written: the model, and the weights; None: no initializer was large enough to move."""

    model: Path
    data: Path | None


def externalize(
    source: str | os.PathLike[str], folder: str | os.PathLike[str], *, name: str | None = None, least: int = _LEAST
) -> Externalized:
    """Write the model file `source` into `folder` as `name` (default: its own), its weights as ``NAME.data``.

    Weights that lie in files beside `source` already are copied; nothing is computed, so outputs stay as they were. In
    memory is the model file (2 GB at most, by its format), not the files beside it. Initializers of loops' and
    conditions' graphs move too; texts, and constants within nodes, stay.

    Raises:
        CorruptError: it is no ONNX model, or names weights that are not there or lie elsewhere. UnsupportedError: the
        package onnx is not installed. OSError.
    """
    source, folder = Path(source), Path(folder)
    model = _parse(source)
    target = folder / (name or source.name)
    data = target.with_name(f"{target.name}.data")
    if target.resolve() == source.resolve() or data.resolve() in {one.resolve() for one in _beside(source, model)}:
        raise InputError("would be written over itself", path=str(source), hint="name another folder")
    with data.open("wb") as file:
        for tensor in _initializers(model.graph):
            _move(tensor, file, source, data.name, least)
        moved = file.tell()
    if not moved:
        data.unlink()
    target.write_bytes(model.SerializeToString())
    return Externalized(target, data if moved else None)


def names_beside(source: str | os.PathLike[str]) -> set[str]:
    """Of the files that hold weights of the model file `source`, as it names them. Raises as `externalize`."""
    places = [_place(one) for one in _initializers(_parse(Path(source)).graph)]
    return {os.path.normpath(place["location"]) for place in places if place.get("location")}


def open_mapped(
    model: str | os.PathLike[str], *, options: Mapping[str, str] | None = None, threads: int | None = None
) -> InferenceSession:
    """A session of ONNX Runtime on the CPU whose weights are the mapped file: ready in milliseconds, slower a request.

    `options`: more entries of the session's configuration; `threads`: within one operator, None: ORT's default. The
    files may be deleted afterwards, but never changed or cut short.

    Raises:
        CorruptError: ORT does not load it. UnsupportedError: onnxruntime is not installed.
    """
    entries = {"session.disable_prepacking": "1", **(options or {})}
    return _session(model, entries, threads, ["CPUExecutionProvider"])


def open_prepacked(
    model: str | os.PathLike[str],
    *,
    options: Mapping[str, str] | None = None,
    threads: int | None = None,
    providers: Sequence[Any] = ("CPUExecutionProvider",),
) -> InferenceSession:
    """A session as ONNX Runtime makes it by default: weights laid out for its kernels, in memory of this process.

    `providers`: as `onnxruntime.InferenceSession` takes them, the first one first. Else as `open_mapped`.
    """
    return _session(model, options or {}, threads, list(providers))


def _session(
    model: str | os.PathLike[str], entries: Mapping[str, str], threads: int | None, providers: list[Any]
) -> InferenceSession:
    try:
        import onnxruntime
    except ImportError as error:
        raise UnsupportedError("onnxruntime is not installed", path=os.fspath(model), hint=_HINT) from error
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    if threads is not None:
        options.intra_op_num_threads = threads
    for name, value in entries.items():
        options.add_session_config_entry(name, value)
    try:
        return onnxruntime.InferenceSession(os.fspath(model), options, providers=providers)
    except Exception as error:  # ORT's own kinds share no base but RuntimeError, and not all of them that
        raise CorruptError(f"ONNX Runtime does not load it: {error}", path=os.fspath(model), hint=_OPSET) from error


def _parse(source: Path) -> ModelProto:
    try:
        import onnx
    except ImportError as error:
        hint = "pip install headrace[models]"
        raise UnsupportedError("the package onnx is not installed", path=str(source), hint=hint) from error
    try:
        model = onnx.load_model(str(source), load_external_data=False)
    except OSError:
        raise
    except Exception as error:  # protobuf's DecodeError, of whichever implementation
        raise CorruptError(f"is no ONNX model: {error}", path=str(source)) from error
    if not model.HasField("graph"):
        raise CorruptError("is no ONNX model: it has no graph", path=str(source))
    return model


def _initializers(graph: GraphProto) -> Iterator[TensorProto]:
    """Of a graph and of those in its nodes."""
    yield from graph.initializer
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from _initializers(attribute.g)
            for one in attribute.graphs:
                yield from _initializers(one)


def _beside(source: Path, model: ModelProto) -> set[Path]:
    places = [_place(one) for one in _initializers(model.graph)]
    return {source.parent / place["location"] for place in places if place.get("location")}


def _place(tensor: TensorProto) -> dict[str, str]:
    """Where the bytes of one lie, empty if in the model."""
    from onnx import TensorProto

    if tensor.data_location != TensorProto.EXTERNAL:
        return {}
    return {one.key: one.value for one in tensor.external_data}


def _move(tensor: TensorProto, file: IO[bytes], source: Path, name: str, least: int) -> None:
    """Write the bytes of one behind those of the others, and note where."""
    from onnx import TensorProto, numpy_helper

    place = _place(tensor)
    if not place and (tensor.data_type == TensorProto.STRING or tensor.ByteSize() < least):
        return
    if not place and not tensor.HasField("raw_data"):
        raw = numpy_helper.from_array(numpy_helper.to_array(tensor)).raw_data
    else:
        raw = tensor.raw_data
    file.write(b"\0" * (-file.tell() % _PAGE))
    start = file.tell()
    if place:
        _copy(place, file, source, tensor.name)
    else:
        file.write(raw)
    told = {"location": name, "offset": str(start), "length": str(file.tell() - start)}
    dims, kind, called = list(tensor.dims), tensor.data_type, tensor.name
    tensor.Clear()
    tensor.dims.extend(dims)
    tensor.data_type, tensor.name, tensor.data_location = kind, called, TensorProto.EXTERNAL
    for key, value in told.items():
        tensor.external_data.add(key=key, value=value)


def _copy(place: Mapping[str, str], file: IO[bytes], source: Path, name: str) -> None:
    root, where = source.parent.resolve(), (source.parent / place.get("location", "")).resolve()
    if root not in where.parents:
        reason = f"has weights of {name!r} outside its folder, at {place.get('location')!r}"
        raise CorruptError(reason, path=str(source), hint=_INSIDE)
    try:
        with where.open("rb") as data:
            start = int(place.get("offset") or 0)
            size = os.fstat(data.fileno()).st_size
            length = int(place["length"]) if place.get("length") else size - start
            if start < 0 or length < 0 or start + length > size:
                reason = f"names bytes [{start}, {start + length}) of {where.name} for {name!r}, which has {size}"
                raise CorruptError(reason, path=str(source), hint=_INSIDE)
            data.seek(start)
            _send(data, file, length)
    except ValueError as error:
        raise CorruptError(f"says of {name!r} where it lies in no numbers", path=str(source)) from error
    except FileNotFoundError as error:
        raise CorruptError(f"names weights that are not there: {where.name}", path=str(source), hint=_INSIDE) from error


def _send(data: IO[bytes], file: IO[bytes], length: int) -> None:
    while length:
        block = data.read(min(_BLOCK, length))
        if not block:
            raise CorruptError("ends before its weights do", path=data.name)
        file.write(block)
        length -= len(block)
