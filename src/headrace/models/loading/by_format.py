"""`hr.models.load`: a version of a model as the object that its format is in memory."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import sys
import weakref
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

from headrace.base.errors import CorruptError, InputError, NotFoundError, UnsupportedError
from headrace.base.progress import SILENT, Progress
from headrace.models.loading import safetensors
from headrace.models.loading.checksums import recorded
from headrace.models.loading.files import File, Weights, open_weights
from headrace.models.loading.objects import Source
from headrace.models.loading.onnx_external import open_mapped, open_prepacked
from headrace.models.registry import ModelVersion, Registry

if TYPE_CHECKING:
    from headrace.models.holding import LocalModel

_TORCH: Final = "pip install headrace[torch]"


def load(
    text: str | ModelVersion,
    *,
    device: Any = "cpu",
    code: bool = False,
    mapped: bool = False,
    registry: Registry | None = None,
    progress: Progress = SILENT,
) -> Any:
    """The model that ``NAME@prod``, ``NAME@7`` or ``NAME`` (the newest) names, by its format. Any thread.

    ============  ====================================================================================================
    format        what is returned
    ============  ====================================================================================================
    safetensors   a dict of torch tensors by name, as `hr.safetensors.load`; NumPy arrays where torch is not installed
    state_dict    what `torch.load(weights_only=True)` reads, its tensors mapped: no code of the file runs
    torch-export  a `torch.export.ExportedProgram`; ``.module()`` runs: only with ``code=True``
    torchscript   a `torch.jit.ScriptModule`
    onnx          an `onnxruntime.InferenceSession`
    saved_model   what `tensorflow.saved_model.load` returns
    python        an instance of the model's class, whose ``load(folder)`` was called: only with ``code=True``
    others        a `LocalModel`: the files in a folder (Orbax and JAX read that), until it is closed
    ============  ====================================================================================================

    Files come to this node through its cache, each compared with the SHA-256 in ``model.json``; what is mapped stays
    when the cache evicts it. Without a cache, safetensors that record their own checksums are received straight into
    memory, and each tensor is compared with its own.

    Args:
        text: which version; or one that `resolve` found.
        device: where tensors should be: torch's devices; of ONNX, ``cpu``, ``cuda`` or ``cuda:1``.
        code: let a version run code of whoever published it in this process: a model that is Python, or an exported
            program, of which torch unpickles a part.
        mapped: of ONNX, open the weights mapped (`hr.models.open_mapped`): ready at once, slower a request.
        registry: where; None: that of the settings.
        progress: told files and bytes.

    Raises:
        NotFoundError: no such version. CorruptError: a file is not what was published, or cannot be loaded.
        UnsupportedError: what loads this format is not installed; the model would run code, and not `code`.
        NoRoomError, any store error.
    """
    registry = registry or Registry.load()
    version = text if isinstance(text, ModelVersion) else registry.resolve(text)
    format_ = version.card.format
    if format_ == "safetensors" and (found := _straight(registry, version, device)) is not None:
        return found
    if format_ in _RUN_CODE and not code:
        raise _refused(version, _RUN_CODE[format_])
    loader = partial(_onnx, mapped=mapped) if format_ == "onnx" else _LOADERS.get(format_, _held)
    local = registry.local(version, progress=progress)
    try:
        return loader(local, device)
    except BaseException:
        local.close()
        raise
    finally:
        if format_ in _TAKEN_UP:
            local.close()


def _refused(version: ModelVersion, why: tuple[str, str]) -> UnsupportedError:
    what, how = why
    hint = f"{how.format(runtime=version.card.runtime)} code of whoever published it: if you trust that, say code=True"
    return UnsupportedError(f"{version.id} is {what}", path=version.path, hint=hint)


def _straight(registry: Registry, version: ModelVersion, device: Any) -> dict[str, Any] | None:
    """Without a file, where no cache would keep one, and the tensors themselves tell whether they are whole."""
    if registry.home.store.local_root is not None or registry.namespace.fetcher.keeps(registry.home.store):
        return None
    path = _weights(version)
    namespace = registry.namespace
    if path is None:
        return None
    weights = open_weights(namespace, path)
    told = {name for file in weights.files for name in _checked(file)}
    if not all(name in told for name in weights.places) or not _is_published(registry, version, weights):
        return None
    return safetensors.loaded(weights, device=device, framework=_framework())


def _is_published(registry: Registry, version: ModelVersion, weights: Weights) -> bool:
    """Whether what was opened are the objects that were committed. A file put in the place of one of them has checksums
    of its own, which say nothing of this version.
    """
    found = {file.source.path: file.source for file in weights.files}
    if weights.path not in found:  # the index
        found[weights.path] = Source.find(registry.namespace, weights.path)
    committed = {f"{version.path}/{one.name}": one.etag for one in version.publication.members}
    return all(committed.get(path) == source.read.version for path, source in found.items())


def _checked(file: File) -> Mapping[str, str]:
    return recorded(file.header.metadata, file.source.path)


def _weights(version: ModelVersion) -> str | None:
    card = version.card
    if card.entry is not None:
        return f"{version.path}/{card.entry}"
    return version.path if any(one.path.endswith(".safetensors") for one in card.files) else None


def _framework() -> Any:
    return "torch" if importlib.util.find_spec("torch") is not None else "numpy"


def _safetensors(local: LocalModel, device: Any) -> Any:
    where = local.entry or local.folder
    return safetensors.load(f"file://{where}", device=device, framework=_framework())


def _state_dict(local: LocalModel, device: Any) -> Any:
    torch = _torch(local)

    def read(path: str) -> Any:
        return torch.load(path, map_location=device, weights_only=True, mmap=_maps(path))

    return _loaded(local, read)


def _maps(path: str) -> bool:
    with open(path, "rb") as file:  # files of torch before 1.6 are no archives, and cannot be mapped
        return file.read(2) == b"PK"


def _exported(local: LocalModel, device: Any) -> Any:
    torch = _torch(local)
    from torch.export import load as load_program  # which importing torch does not import

    program = _loaded(local, load_program)
    if torch.device(device).type == "cpu":
        return program
    from torch.export.passes import move_to_device_pass

    return move_to_device_pass(program, device)


def _torchscript(local: LocalModel, device: Any) -> Any:
    torch = _torch(local)

    def read(path: str) -> Any:
        return torch.jit.load(path, map_location=device)

    return _loaded(local, read)


def _onnx(local: LocalModel, device: Any, *, mapped: bool) -> Any:
    entry = _entry(local)
    kind, _, number = str(device).partition(":")
    if kind == "cpu":
        return open_mapped(entry) if mapped else open_prepacked(entry)
    if kind != "cuda":
        raise InputError(f"ONNX Runtime has no device {device!r} here", hint="cpu, cuda or cuda:1")
    return open_prepacked(entry, providers=(("CUDAExecutionProvider", {"device_id": number or "0"}),))


def _saved_model(local: LocalModel, device: Any) -> Any:
    try:
        import tensorflow as tf  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        hint = "pip install headrace[tf]"
        raise UnsupportedError("TensorFlow is not installed", path=str(local.folder), hint=hint) from error

    def read(path: str) -> Any:
        with tf.device(None if str(device) == "cpu" else str(device)):
            return tf.saved_model.load(os.path.dirname(path))

    return _loaded(local, read)


def _python(local: LocalModel, device: Any) -> Any:
    """The files stay as long as the object does."""
    if str(device) != "cpu":
        raise InputError("a model in Python finds its own device", hint="leave device out")
    made = _class(local)()
    made.load(str(local.folder))
    weakref.finalize(made, local.close)
    return made


def _class(local: LocalModel) -> Any:
    module_name, _, inside = (local.card.runtime or "").partition(":")
    module = _module(local, module_name)
    found = getattr(module, inside, None)
    if found is None:
        raise NotFoundError(f"the module {module_name} has no {inside!r}", path=str(local.folder))
    return found


def _module(local: LocalModel, name: str) -> ModuleType:
    """The model's own, under a name that no other version has; else what is installed."""
    root = local.folder.joinpath(*name.split("."))
    places = [one for one in (root.with_suffix(".py"), root / "__init__.py") if one.exists()]
    if not places:
        try:
            return importlib.import_module(name)
        except ImportError as error:
            hint = "publish it with the model, or install its package"
            raise NotFoundError(f"there is no module {name!r}: {error}", path=str(local.folder), hint=hint) from error
    unique = f"_headrace_{hashlib.sha256(f'{local.card.digest} {name}'.encode()).hexdigest()[:16]}"
    spec = importlib.util.spec_from_file_location(unique, places[0])
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[unique] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _held(local: LocalModel, device: Any) -> LocalModel:  # noqa: ARG001
    return local


def _torch(local: LocalModel) -> Any:
    try:
        import torch
    except ImportError as error:
        raise UnsupportedError("torch is not installed", path=str(local.folder), hint=_TORCH) from error
    return torch


def _entry(local: LocalModel) -> str:
    if local.entry is None:
        hint = "publish one file, or say which format it is in"
        raise InputError(
            f"does not say which of its files is the {local.card.format}", path=str(local.folder), hint=hint
        )
    return str(local.entry)


def _loaded(local: LocalModel, read: Callable[[str], Any]) -> Any:
    """Foreign loaders raise whatever they like of files that are not theirs."""
    path = _entry(local)
    try:
        return read(path)
    except Exception as error:
        hint = "model.json says which format it is in; state dicts with objects in them are never unpickled"
        reason = f"is not loaded as {local.card.format}: {type(error).__name__}: {str(error).partition(chr(10))[0]}"
        raise CorruptError(reason, path=str(Path(path)), hint=hint) from error


_LOADERS: Final[Mapping[str, Callable[[LocalModel, Any], Any]]] = {
    "safetensors": _safetensors,
    "state_dict": _state_dict,
    "torch-export": _exported,
    "torchscript": _torchscript,
    "saved_model": _saved_model,
    "python": _python,
}
_RUN_CODE: Final[Mapping[str, tuple[str, str]]] = {
    "python": ("a model in Python", "its class {runtime} runs"),
    "torch-export": ("a program of torch.export", "torch unpickles what such a file holds, and that runs"),
}
"""Loading these can run code that the files hold: what they are, and how."""
_TAKEN_UP: Final = ("safetensors", "state_dict", "torch-export", "torchscript", "onnx", "saved_model")
"""Of these nothing needs the folder once they are loaded: what is mapped stays mapped."""
