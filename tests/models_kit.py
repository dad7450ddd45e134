"""A home with models: registries over a store, folders to publish, small models in real formats."""

from __future__ import annotations

import dataclasses
import secrets
from pathlib import Path

from headrace.base.settings import CacheSettings, Settings
from headrace.fetch import Fetcher
from headrace.models import Registry
from headrace.namespace import Namespace
from headrace.store.protocol import StoreOptions
from headrace.testing.servers import CephRGW, EmbeddedS3


def settings_of(home: str, cache: Path, *, size: int = 1 << 30) -> Settings:
    """Those of a node with this home and a cache of its own."""
    caching = CacheSettings(dir=str(cache), size=size, min_free=0)
    return dataclasses.replace(Settings(), home=home, cache=caching)


def node(
    server: EmbeddedS3 | CephRGW,
    home: str,
    cache: Path,
    *,
    endpoint: str | None = None,
    size: int = 1 << 30,
    timeout_s: float = 60.0,
) -> tuple[Registry, Fetcher]:
    """A registry as a node would have it. Close the fetcher."""
    settings = settings_of("/home", cache, size=size)
    fetcher = Fetcher.open(settings)
    options = dataclasses.replace(server.options(), timeout_s=timeout_s)
    if endpoint is not None:
        options = dataclasses.replace(options, endpoint=endpoint)
    namespace = Namespace(settings, fetcher=lambda: fetcher)
    namespace.attach("/home", home, **_given(options))
    return Registry.load(settings, namespace), fetcher


def _given(options: StoreOptions) -> dict[str, object]:
    default = StoreOptions()
    names = (field.name for field in dataclasses.fields(StoreOptions) if field.name != "extra")
    return {name: getattr(options, name) for name in names if getattr(options, name) != getattr(default, name)}


def folder(path: Path, *, size: int = 100, **files: bytes) -> str:
    """A folder to publish: ``weights.bin`` of random bytes, ``sub/more.bin``, and others."""
    (path / "sub").mkdir(parents=True, exist_ok=True)
    (path / "weights.bin").write_bytes(secrets.token_bytes(size))
    (path / "sub" / "more.bin").write_bytes(secrets.token_bytes(20))
    for name, data in files.items():
        (path / name).write_bytes(data)
    return str(path)


def onnx_model(path: Path, width: int = 4) -> Path:
    """``y = x + 1`` over a batch of rows."""
    import onnx
    from onnx import TensorProto, helper

    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", width])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", width])
    one = helper.make_tensor("one", TensorProto.FLOAT, [1], [1.0])
    graph = helper.make_graph([helper.make_node("Add", ["x", "one"], ["y"])], "plus", [x], [y], [one])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    onnx.save(model, str(path))
    return path
