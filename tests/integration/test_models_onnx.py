"""ONNX models with their weights beside them: the same outputs, mapped; PyTorch modules exported and compared."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper

from headrace.base.errors import CorruptError, InputError
from headrace.models.loading.export import export_onnx
from headrace.models.loading.onnx_external import externalize, open_mapped, open_prepacked

RNG = np.random.default_rng(0)
X = RNG.standard_normal((4, 256)).astype("f4")


def value(name: str, dtype: int = TensorProto.FLOAT, shape: Any = (None, 256)) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, dtype, shape)


def saved(path: Path, nodes: list[Any], weights: list[Any], **options: Any) -> Path:
    graph = helper.make_graph(nodes, "g", [value("x")], [value("y", shape=(None, None))], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save_model(model, str(path), **options)
    return path


def weight(name: str, array: np.ndarray) -> onnx.TensorProto:
    return numpy_helper.from_array(array, name)


def linear(path: Path, **options: Any) -> Path:
    """Weights as raw bytes, as floats, and small ones; of no whole pages."""
    w = RNG.standard_normal((256, 301)).astype("f4")
    typed = helper.make_tensor("v", TensorProto.FLOAT, (301, 64), RNG.standard_normal(301 * 64).tolist())
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"]),
        helper.make_node("MatMul", ["a", "v"], ["b"]),
        helper.make_node("Add", ["b", "small"], ["y"]),
    ]
    return saved(path, nodes, [weight("w", w), typed, weight("small", np.ones(64, "f4"))], **options)


def loop(path: Path) -> Path:
    """Weights in the graphs of a condition, and types that NumPy has not."""
    w = weight("w", RNG.standard_normal((256, 256)).astype("f4"))
    then = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["t"])], "t", [], [value("t", shape=(None, None))], [w]
    )
    other = helper.make_graph([helper.make_node("Neg", ["x"], ["e"])], "e", [], [value("e", shape=(None, None))])
    half = numpy_helper.from_array(RNG.standard_normal((256, 256)).astype("f2"), "half")
    nodes = [
        helper.make_node("ReduceSum", ["x"], ["s"], keepdims=0),
        helper.make_node("Greater", ["s", "zero"], ["c"]),
        helper.make_node("If", ["c"], ["i"], then_branch=then, else_branch=other),
        helper.make_node("Cast", ["half"], ["whole"], to=TensorProto.FLOAT),
        helper.make_node("MatMul", ["i", "whole"], ["y"]),
    ]
    return saved(path, nodes, [half, weight("zero", np.zeros((), "f4"))])


def quantized(path: Path) -> Path:
    """Weights of one byte."""
    w = weight("w", RNG.integers(-127, 127, (256, 256), "i1"))
    scale, zero = weight("scale", np.array(0.02, "f4")), weight("zero", np.array(0, "i1"))
    nodes = [
        helper.make_node("DequantizeLinear", ["w", "scale", "zero"], ["d"]),
        helper.make_node("MatMul", ["x", "d"], ["y"]),
    ]
    return saved(path, nodes, [w, scale, zero])


def exported(path: Path) -> Path:
    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = torch.nn.Sequential(torch.nn.Linear(256, 300), torch.nn.GELU(), torch.nn.LayerNorm(300))
            self.head = torch.nn.Linear(300, 10)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.head(self.body(x)).softmax(-1)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(Net().eval(), (torch.from_numpy(X),), str(path), dynamo=True, verbose=False)
    return path


MODELS: dict[str, Callable[[Path], Path]] = {
    "linear": linear,
    "conditions": loop,
    "quantized": quantized,
    "from torch": exported,
}


def outputs(session: onnxruntime.InferenceSession) -> np.ndarray:
    return np.asarray(session.run(None, {session.get_inputs()[0].name: X})[0])


@pytest.mark.parametrize("kind", MODELS)
def test_outputs_are_those_of_the_original(kind: str, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    path = MODELS[kind](tmp_path / "m.onnx")
    expected = outputs(onnxruntime.InferenceSession(str(path)))
    found = externalize(path, tmp_path / "out", name="model.onnx")
    onnx.checker.check_model(str(found.model))
    assert found.data == tmp_path / "out/model.onnx.data"
    assert np.array_equal(outputs(open_prepacked(found.model)), expected)
    off = np.abs(outputs(open_mapped(found.model, threads=1)) - expected).max() / np.abs(expected).max()
    assert off < (0.02 if kind == "quantized" else 1e-5), "prepacked, ORT rounds what it multiplies bytes with"


def test_weights_begin_at_pages_and_small_ones_stay(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    found = externalize(linear(tmp_path / "m.onnx"), tmp_path / "out")
    model = onnx.load_model(str(found.model), load_external_data=False)
    places = {one.name: {two.key: two.value for two in one.external_data} for one in model.graph.initializer}
    assert {name: bool(place) for name, place in places.items()} == {"w": True, "v": True, "small": False}
    assert all(int(places[name]["offset"]) % 4096 == 0 for name in "wv")
    assert found.model.stat().st_size < 2000


def test_the_weights_of_an_open_session_are_the_file(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    found = externalize(linear(tmp_path / "m.onnx"), tmp_path / "out")
    session = open_mapped(found.model)
    assert found.data is not None
    assert str(found.data) in Path("/proc/self/maps").read_text()
    expected = outputs(session)
    found.data.unlink()
    found.model.unlink()
    assert np.array_equal(outputs(session), expected)


def test_weights_that_lie_beside_it_already_are_laid_out_anew(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    path = linear(tmp_path / "m.onnx", save_as_external_data=True, location="weights.bin", size_threshold=0)
    expected = outputs(onnxruntime.InferenceSession(str(path)))
    assert np.array_equal(outputs(open_prepacked(externalize(path, tmp_path / "out").model)), expected)


def test_a_model_without_large_weights_has_no_file_beside_it(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    path = saved(tmp_path / "m.onnx", [helper.make_node("Neg", ["x"], ["y"])], [])
    assert externalize(path, tmp_path / "out").data is None
    assert [one.name for one in (tmp_path / "out").iterdir()] == ["m.onnx"]


@pytest.mark.parametrize(
    ("key", "wrong"),
    [("location", "../secret"), ("location", "/etc/passwd"), ("location", "gone.bin"), ("location", ""),
     ("offset", "-1"), ("offset", "x"), ("length", "99999999999")],
)  # fmt: skip
def test_weights_that_lie_elsewhere_are_refused(key: str, wrong: str, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "out").mkdir()
    (tmp_path / "secret").write_bytes(b"s" * 300_000)
    path = linear(tmp_path / "in/m.onnx", save_as_external_data=True, location="weights.bin", size_threshold=0)
    model = onnx.load_model(str(path), load_external_data=False)
    for place in model.graph.initializer[0].external_data:
        if place.key == key:
            place.value = wrong
    path.write_bytes(model.SerializeToString())
    with pytest.raises(CorruptError, match=r"'w'|not there"):
        externalize(path, tmp_path / "out")


def test_what_is_no_model_is_told_so(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    path = tmp_path / "m.onnx"
    for content in (b"", b"nonsense", b"\xff" * 100):
        path.write_bytes(content)
        with pytest.raises(CorruptError, match=r"m\.onnx.*no ONNX model"):
            externalize(path, tmp_path / "out")
        with pytest.raises(CorruptError, match="does not load"):
            open_mapped(path)
    linear(path)
    with pytest.raises(InputError, match="over itself"):
        externalize(path, tmp_path)


class Two(torch.nn.Module):
    """Two inputs, several outputs, and layers that behave otherwise in training."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(64, 128)
        self.norm = torch.nn.BatchNorm1d(128)
        self.drop = torch.nn.Dropout(0.5)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"both": self.drop(self.norm(self.layer(x))) - y, "y": y * 2}


@pytest.mark.filterwarnings("ignore")
def test_a_module_is_exported_with_a_free_batch_and_compared(tmp_path: Path) -> None:
    module = Two()
    found = export_onnx(module, (torch.ones(1, 64), torch.ones(1, 128)), tmp_path)
    assert module.training
    assert module.drop.training
    assert found.data is not None
    assert 0 <= found.difference < 1e-4
    session = open_mapped(found.model)
    x, y = RNG.standard_normal((5, 64)).astype("f4"), RNG.standard_normal((5, 128)).astype("f4")
    names = [one.name for one in session.get_inputs()]
    both, twice = session.run(None, dict(zip(names, (x, y), strict=True)))
    module.eval()
    expected = module(torch.from_numpy(x), torch.from_numpy(y))
    assert np.allclose(both, expected["both"].detach().numpy(), 1e-3, 1e-4)
    assert np.array_equal(twice, y * 2)


class Counts(torch.nn.Module):
    """Answers otherwise each time."""

    calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return x + self.calls


@pytest.mark.filterwarnings("ignore")
def test_what_answers_otherwise_as_onnx_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CorruptError, match=r"differs from the module's: \d\.0"):
        export_onnx(Counts(), {"x": torch.ones(3, 2)}, tmp_path, batch=False)


@pytest.mark.filterwarnings("ignore")
def test_what_cannot_be_exported_is_told_in_torchs_words(tmp_path: Path) -> None:
    class Branches(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x if x.sum() > 0 else -x

    with pytest.raises(InputError, match=r"cannot be exported.*data-dependent"):
        export_onnx(Branches(), (torch.ones(3, 2),), tmp_path)
    with pytest.raises(InputError, match="does not take the example: TypeError"):
        export_onnx(Branches(), {"z": torch.ones(3, 2)}, tmp_path)
    for example in ((), torch.ones(3)):
        with pytest.raises(InputError, match="no sequence"):
            export_onnx(Branches(), example, tmp_path)
    with pytest.raises(InputError, match="batch"):
        export_onnx(Two(), (torch.ones(3, 64), torch.ones(4, 128)), tmp_path)
