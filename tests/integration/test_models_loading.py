"""`hr.models.load`: published in every format to a real bucket, and in memory again by its name."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch

import headrace as hr
from headrace.base.errors import CorruptError, InputError, NotFoundError, UnsupportedError
from headrace.base.settings import Settings
from headrace.fetch import Fetcher
from headrace.models import Registry
from headrace.namespace import Namespace
from headrace.testing.servers import EmbeddedS3
from tests.integration.cli_kit import Shell, s3_shell, shell  # noqa: F401
from tests.integration.test_models_onnx import X, outputs

pytestmark = pytest.mark.server
Open = Callable[..., Registry]


@pytest.fixture
def home(seaweedfs: EmbeddedS3) -> str:
    return f"{seaweedfs.create_bucket(f'models-{os.urandom(4).hex()}')}/home"


@pytest.fixture
def open_(seaweedfs: EmbeddedS3, home: str, tmp_path: Path) -> Iterator[Open]:
    """A process's registry: with the node's cache, or with none."""
    opened: list[Fetcher] = []

    def begin(cache: str = "1GB") -> Registry:
        environ = {"HEADRACE_CACHE_DIR": str(tmp_path / "cache"), "HEADRACE_CACHE_SIZE": cache, "HEADRACE_HOME": home}
        settings = Settings.load(environ=environ)
        fetcher = Fetcher.open(settings)
        opened.append(fetcher)
        ns = Namespace(settings, fetcher=lambda: fetcher)
        given = {name: value for name, value in asdict(seaweedfs.options()).items() if value and isinstance(value, str)}
        ns.attach("/home", home, **given)
        return Registry.load(settings, ns)

    yield begin
    for fetcher in opened:
        fetcher.close()


class Net(torch.nn.Module):
    """A little over a mebibyte."""

    def __init__(self) -> None:
        super().__init__()
        self.body = torch.nn.Linear(256, 1024)
        self.head = torch.nn.Linear(1024, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(torch.relu(self.body(x)))


@pytest.fixture(scope="module")
def net() -> Net:
    torch.manual_seed(0)
    return Net().eval()


def answer(net: Any) -> np.ndarray:
    with torch.no_grad():
        return net(torch.from_numpy(X)).numpy()


def same(found: dict[str, Any], net: Net) -> bool:
    return found.keys() == net.state_dict().keys() and all(
        torch.equal(found[k], v) for k, v in net.state_dict().items()
    )


@pytest.mark.parametrize("cache", ["0", "1GB"])
def test_safetensors_are_a_dict_of_tensors(open_: Open, net: Net, tmp_path: Path, cache: str) -> None:
    registry = open_(cache)
    hr.safetensors.save(net.state_dict(), tmp_path / "x.safetensors")
    hr.models.publish(tmp_path / "x.safetensors", "net", registry=registry)
    found = hr.models.load("net", registry=registry)
    assert same(found, net)
    assert (tmp_path / "cache").exists() == (cache != "0"), "with checksums of their own, they need no file"
    found["head.bias"].zero_()
    assert same(hr.models.load("net@1", registry=registry), net)


def test_safetensors_without_checksums_are_compared_as_a_file(open_: Open, net: Net, tmp_path: Path) -> None:
    registry = open_("0")
    hr.safetensors.save(net.state_dict(), tmp_path / "x.safetensors", checksums=False)
    version = hr.models.publish(tmp_path / "x.safetensors", "net", registry=registry)
    assert same(hr.models.load("net", registry=registry), net)
    key = registry.prefix("net", version.number) + "x.safetensors"
    data = bytearray(registry.home.store.get(key).data)
    data[-1] ^= 1
    registry.home.store.put(key, data)
    with pytest.raises(CorruptError, match="SHA-256"):
        hr.models.load("net", registry=open_("0"))


@pytest.mark.parametrize("put", ["a file", "an index"])
def test_another_file_in_the_place_of_one_is_no_part_of_the_version(
    open_: Open, net: Net, tmp_path: Path, put: str
) -> None:
    """Whole by its own checksums, and not what was published."""
    registry = open_("0")
    folder = tmp_path / "net"
    folder.mkdir()
    weights = net.state_dict()
    places = {name: f"model-{1 + name.startswith('head')}.safetensors" for name in weights}
    for shard in set(places.values()):
        hr.safetensors.save({name: weights[name] for name in weights if places[name] == shard}, folder / shard)
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": places}))
    hr.models.publish(folder, "net", registry=registry)
    assert same(hr.models.load("net", registry=registry), net)
    assert not (tmp_path / "cache").exists(), "with checksums of their own, they need no file"
    if put == "a file":
        changed = folder / "model-2.safetensors"
        hr.safetensors.save({name: one + 1 for name, one in weights.items() if name.startswith("head")}, changed)
    else:
        changed = index
        index.write_text(json.dumps({"weight_map": {"head.bias": places["head.bias"]}}))
    registry.home.store.put(registry.prefix("net", 1) + changed.name, changed.read_bytes())
    with pytest.raises(CorruptError, match=re.escape(changed.name)):
        hr.models.load("net", registry=open_("0"))


def test_shards_are_one_dict(open_: Open, net: Net, tmp_path: Path) -> None:
    registry = open_()
    folder = tmp_path / "big"
    folder.mkdir()
    places = {}
    for number, (name, tensor) in enumerate(net.state_dict().items()):
        shard = f"model-{number + 1:05}-of-00004.safetensors"
        hr.safetensors.save({name: tensor}, folder / shard)
        places[name] = shard
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))
    hr.models.publish(folder, "net", registry=registry)
    for one in (registry, open_("0")):
        assert same(hr.models.load("net", registry=one), net)


def test_state_dicts_are_read_without_running_code(open_: Open, net: Net, tmp_path: Path) -> None:
    registry = open_()
    torch.save(net.state_dict(), tmp_path / "weights.pt")
    hr.models.publish(tmp_path / "weights.pt", "net", registry=registry)
    assert same(hr.models.load("net", registry=registry), net)
    torch.save({"net": net}, tmp_path / "whole.pt")
    hr.models.publish(tmp_path / "whole.pt", "net", format="state_dict", registry=registry)
    with pytest.raises(CorruptError, match="never unpickled"):
        hr.models.load("net", registry=registry)
    assert same(hr.models.load("net@1", registry=registry), net)


@pytest.mark.filterwarnings("ignore")
def test_programs_and_scripts_of_torch_run(open_: Open, net: Net, tmp_path: Path) -> None:
    registry = open_()
    torch.export.save(torch.export.export(net, (torch.from_numpy(X),)), tmp_path / "net.pt2")
    torch.jit.script(net).save(str(tmp_path / "net.pt"))
    hr.models.publish(tmp_path / "net.pt2", "exported", registry=registry)
    hr.models.publish(tmp_path / "net.pt", "scripted", registry=registry)
    with pytest.raises(UnsupportedError, match=r"unpickles.*code=True"):
        hr.models.load("exported", registry=registry)
    found = hr.models.load("exported", code=True, registry=registry)
    assert np.allclose(answer(found.module()), answer(net), 1e-5, 1e-6)
    assert np.allclose(answer(hr.models.load("scripted", registry=registry)), answer(net), 1e-5, 1e-6)


def one_file(net: Net, path: Path) -> Path:
    """As ONNX with its weights inside."""
    beside = path.with_name("beside.onnx")
    torch.onnx.export(net, (torch.from_numpy(X),), str(beside), dynamo=True, verbose=False)
    onnx.save_model(onnx.load_model(str(beside)), str(path))
    return path


@pytest.mark.filterwarnings("ignore")
def test_onnx_is_published_with_its_weights_beside_it(open_: Open, net: Net, tmp_path: Path) -> None:
    registry = open_()
    folder = tmp_path / "in"
    folder.mkdir()
    path = one_file(net, tmp_path / "net.onnx")
    path.rename(folder / "net.onnx")
    (folder / "labels.txt").write_text("a\nb\n")
    expected = outputs(onnxruntime.InferenceSession(str(folder / "net.onnx")))
    registry.namespace.copy(folder / "net.onnx", "/home/elsewhere/net.onnx")
    registry.namespace.copy(folder / "labels.txt", "/home/elsewhere/labels.txt")
    for source in (folder, "/home/elsewhere"):
        version = hr.models.publish(source, "net", registry=registry)
        assert {one.path for one in version.card.files} == {"model.onnx", "model.onnx.data", "labels.txt"}
        assert version.card.source.endswith(("in", "in/", "elsewhere", "elsewhere/")), (
            "not the folder it was written in"
        )
        assert [one.name for one in version.card.signatures["serving_default"].inputs] == ["x"]
        for mapped in (True, False):
            session = hr.models.load(version, mapped=mapped, registry=registry)
            assert np.allclose(outputs(session), expected, 1e-5, 1e-6)
    with pytest.raises(InputError, match="device"):
        hr.models.load("net", device="tpu", registry=registry)


@pytest.mark.filterwarnings("ignore")
def test_a_module_is_published_as_onnx(open_: Open, net: Net) -> None:
    registry = open_()
    version = hr.models.publish(net, "net", example=(torch.from_numpy(X[:1]),), note="mine", registry=registry)
    assert (version.card.format, version.card.entry) == ("onnx", "model.onnx")
    assert version.card.source.endswith("test_models_loading:Net")
    (given,) = version.card.signatures["serving_default"].inputs
    assert given.shape == ("batch", 256)
    assert np.allclose(outputs(hr.models.load("net", registry=registry)), answer(net), 1e-4, 1e-5)
    for wrong in ({"source": net}, {"source": "folder", "example": (1,)}, {"source": 3, "example": (1,)}):
        with pytest.raises(InputError):
            hr.models.publish(name="net", registry=registry, **wrong)
    assert registry.numbers("net") == [1]


def test_a_module_is_published_from_the_command_line(s3_shell: Shell, home: str) -> None:  # noqa: F811
    module = "import torch\ndef make():\n    return torch.nn.Linear(4, 2)\nexample = (torch.ones(1, 4),)\n"
    s3_shell.file("made_here.py", module)
    command = ["models", "publish", "made_here:make", "tiny", "--export", "onnx", "--example", "made_here:example"]
    told = json.loads(s3_shell.run(*command, "--json", HEADRACE_HOME=home).out)
    assert (told["format"], told["entry"], told["number"]) == ("onnx", "model.onnx", 1)
    for wrong in (command[:-2], ["models", "publish", "nowhere:x", *command[3:]]):
        s3_shell.run(*wrong, code=2, HEADRACE_HOME=home)


CODE = """
import json
class Double:
    def load(self, folder):
        with open(folder + "/factor.json") as file:
            self.factor = json.load(file)
        self.folder = folder
    def predict(self, inputs):
        return {"y": inputs["x"] * self.factor}
"""


def test_a_class_runs_only_when_it_may(open_: Open, tmp_path: Path) -> None:
    registry = open_()
    folder = tmp_path / "double"
    folder.mkdir()
    for factor in (2, 3):
        (folder / "double.py").write_text(CODE.replace('"y"', f'"y{factor}"'))
        (folder / "factor.json").write_text(str(factor))
        hr.models.publish(folder, "double", runtime="double:Double", registry=registry)
    with pytest.raises(UnsupportedError, match="code=True"):
        hr.models.load("double", registry=registry)
    both = [hr.models.load(f"double@{number}", code=True, registry=registry) for number in (1, 2)]
    assert [one.predict({"x": 5}) for one in both] == [{"y2": 10}, {"y3": 15}], "each version its own code"
    assert os.path.exists(both[0].folder), "for as long as the object lives"
    hr.models.publish(folder, "double", runtime="double:Gone", registry=registry)
    hr.models.publish(folder, "double", runtime="gone:Double", registry=registry)
    for number in (3, 4):
        with pytest.raises(NotFoundError, match=r"gone|Gone"):
            hr.models.load(f"double@{number}", code=True, registry=registry)


def test_any_other_files_are_a_folder_that_is_held(open_: Open, tmp_path: Path) -> None:
    registry = open_()
    folder = tmp_path / "orbax"
    (folder / "d").mkdir(parents=True)
    (folder / "_METADATA").write_text("{}")
    (folder / "d/part").write_bytes(b"12345")
    hr.models.publish(folder, "net", registry=registry)
    with hr.models.load("net", registry=registry) as held:
        assert held.card.format == "orbax"
        assert (held.folder / "d/part").read_bytes() == b"12345"
    assert not held.folder.exists()


def test_what_is_damaged_or_not_there_is_told(open_: Open, tmp_path: Path) -> None:
    registry = open_()
    with pytest.raises(NotFoundError):
        hr.models.load("net@prod", registry=registry)
    (tmp_path / "x.safetensors").write_bytes(b"nonsense, and more of it")
    hr.models.publish(tmp_path / "x.safetensors", "net", registry=registry)
    with pytest.raises(CorruptError):
        hr.models.load("net", registry=registry)
