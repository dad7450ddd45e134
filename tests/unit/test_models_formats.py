"""Formats told by files, signatures read from them, conditions on metrics, and what names may be."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import IO, Any

import pytest

from headrace.base.errors import ConditionError, CorruptError, InputError, UnsupportedError
from headrace.models import gates
from headrace.models.aliases import Aliases
from headrace.models.card import ModelCard, ModelFile, Signature, Tensor
from headrace.models.formats import Detected, detect
from headrace.models.names import Reference, parse
from headrace.models.signatures import from_file, signatures
from tests import models_kit


@pytest.mark.parametrize(
    ("names", "found"),
    [
        (["net.onnx"], Detected("onnx", "net.onnx", "model.onnx")),
        (["model.onnx", "other.onnx", "w.data"], Detected("onnx", "model.onnx")),
        (["a.onnx", "b.onnx"], Detected("files")),
        (["saved_model.pb", "variables/variables.index", "assets/x.onnx"], Detected("saved_model", "saved_model.pb")),
        (["exported.pt2"], Detected("torch-export", "exported.pt2", "model.pt2")),
        (["model-1.safetensors", "model-2.safetensors", "model.safetensors.index.json"], Detected("safetensors")),
        (["m.safetensors", "config.json"], Detected("safetensors", "m.safetensors")),
        (["_CHECKPOINT_METADATA", "d/1"], Detected("orbax")),
        (["model.json.txt"], Detected("files", "model.json.txt")),
        (["deep/net.onnx", "x"], Detected("files")),
    ],
)
def test_formats_by_names(names: list[str], found: Detected) -> None:
    assert detect(names, lambda name: pytest.fail(f"{name} was read")) == found


def test_formats_of_torch(tmp_path: Path) -> None:
    import torch

    module = torch.nn.Linear(2, 1)
    torch.jit.trace(module, torch.zeros(1, 2)).save(str(tmp_path / "script.pt"))  # type: ignore[no-untyped-call]
    torch.save(module.state_dict(), tmp_path / "state.pth")
    torch.export.save(torch.export.export(module, (torch.zeros(1, 2),)), tmp_path / "program.pt")
    with zipfile.ZipFile(tmp_path / "zip.pt", "w") as archive:
        archive.writestr("a", "b")
    (tmp_path / "odd.bin").write_bytes(b"nothing")

    def read(name: str) -> IO[bytes]:
        return (tmp_path / name).open("rb")

    def told(name: str) -> Detected:
        return detect([name], read)

    assert told("script.pt") == Detected("torchscript", "script.pt", "model.pt")
    assert told("program.pt") == Detected("torch-export", "program.pt", "model.pt2")
    assert told("state.pth") == Detected("state_dict", "state.pth")
    assert told("zip.pt") == Detected("files", "zip.pt")
    assert told("odd.bin") == Detected("files", "odd.bin")
    assert detect(["script.pt"], read, "python") == Detected("python", "script.pt")
    with pytest.raises(InputError, match="no format"):
        detect(["script.pt"], read, "keras")


def test_the_signature_of_onnx(tmp_path: Path) -> None:
    data = models_kit.onnx_model(tmp_path / "m.onnx").read_bytes()
    rows = ("batch", 4)
    expected = Signature((Tensor("x", "float32", rows),), (Tensor("y", "float32", rows),))
    assert signatures("onnx", data) == {"serving_default": expected}


def test_a_model_that_cannot_be_read_has_no_signature(caplog: pytest.LogCaptureFixture) -> None:
    assert signatures("onnx", b"\xff\xff\xff") == {}
    assert signatures("saved_model", b"\xff\xff\xff") == {}
    assert signatures("files", b"") == {}
    assert caplog.text.count("the signature is not read") == 2


def test_a_signature_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "s.json"
    told = {
        "inputs": [{"name": "x", "dtype": "float32", "shape": [None, 4]}],
        "outputs": [{"name": "y", "dtype": "string"}],
    }
    expected = Signature((Tensor("x", "float32", (None, 4)),), (Tensor("y", "string"),))
    file.write_text(json.dumps(told))
    assert from_file(str(file)) == {"serving_default": expected}
    file.write_text(json.dumps({"classify": told}))
    assert from_file(str(file)) == {"classify": expected}
    for wrong in ("{}", "[1]", "{", '{"inputs": [], "outputs": 1}', '{"inputs": [{"name": 1}], "outputs": []}',
                  '{"inputs": [{"name": "x", "dtype": "f", "shape": [[]]}], "outputs": []}'):  # fmt: skip
        file.write_text(wrong)
        with pytest.raises(InputError, match="no signature"):
            from_file(str(file))
    with pytest.raises(InputError, match="cannot be read"):
        from_file(str(tmp_path / "none"))


METRICS: dict[str, dict[str, Any]] = {
    "accuracy": {"last": 0.98, "min": 0.1, "max": 0.99},
    "val/loss": {"last": 0.2, "min": 0.15, "max": 2.0},
    "odd name": {"last": 1.0, "min": 1.0, "max": 1.0},
    "broken": {"last": None, "min": None, "max": None},
}


@pytest.mark.parametrize(
    "text",
    [
        "accuracy >= 0.97",
        "max(accuracy) > 0.98 and min(accuracy) < 0.2 and last(accuracy) == 0.98",
        "val/loss < 0.3 and max(val/loss) > 1",
        "not val/loss > 0.3 or accuracy > 1",
        '0.9 < accuracy < 1 and field("odd name") == 1',
        'min(field("odd name")) == 1',
    ],
)
def test_gates_that_hold(text: str) -> None:
    gates.check(text, METRICS, "run")


def test_a_gate_that_does_not_hold_says_what_is() -> None:
    with pytest.raises(ConditionError, match=r"does not hold: accuracy is 0.98, max\(val/loss\) is 2") as caught:
        gates.check("accuracy > 0.99 or max(val/loss) < 1", METRICS, "run")
    assert caught.value.exit_code == 5
    with pytest.raises(ConditionError, match="broken is not finite"):
        gates.check("accuracy > 0.5 and not broken > 1", METRICS, "run")
    with pytest.raises(InputError, match="no 'precision'"):
        gates.check("precision > 0.5", METRICS, "run")


@pytest.mark.parametrize(
    "text", ["", "1 < 2", "accuracy >", "accuracy.max > 1", "__import__('os')", "accuracy + 1 > 2", "max(1) > 0",
             "accuracy / 2 > 0.1", "max(accuracy, val) > 1"]
)  # fmt: skip
def test_what_is_no_gate(text: str) -> None:
    with pytest.raises(InputError, match="--if"):
        gates.parse(text)


def test_names() -> None:
    assert parse("digits") == parse("digits@latest") == Reference("digits")
    assert parse("digits@7") == Reference("digits", 7)
    assert parse("a.b-c_1@prod") == Reference("a.b-c_1", alias="prod")
    for wrong in ("", "@prod", "a/b", "..", ".a", "a@", "a@v7", "a@07", "a@0", "a@-1", "a@x/y", "a@b@c", "a" * 101):
        with pytest.raises(InputError):
            parse(wrong)


def test_cards_and_aliases_survive_their_json() -> None:
    files = (ModelFile("model.onnx", 3, "00"),)
    signed = {"s": Signature((Tensor("x", "float32", (None, "n", 3)),))}
    card = ModelCard("a", 1, "t", "u@h", "0", "onnx", "model.onnx", files, signed, metrics=METRICS, note="é\udcff")
    assert ModelCard.from_json(card.as_json(), "here") == card
    newer = card.as_json().replace(b'"format_version": 1', b'"format_version": 2, "more": 1')
    with pytest.raises(UnsupportedError, match="here"):
        ModelCard.from_json(newer, "here")
    for wrong in (b"", b"[]", b"{}", b'{"format_version": 1}', b'{"format_version": 1, "files": [{}]}'):
        with pytest.raises(CorruptError, match="here"):
            ModelCard.from_json(wrong, "here")
    some = Aliases().pointing("prod", 1, "alias").pointing("prod", 2, "promote").pointing("next", 2, "alias")
    assert Aliases.from_json(some.as_json(), "here") == some
    for wrong in (b"", b"[]", b"{}", b'{"format_version": 1, "aliases": {"a": "x"}, "history": []}'):
        with pytest.raises(CorruptError, match="here"):
            Aliases.from_json(wrong, "here")


def test_aliases_remember_what_they_named_and_no_more_than_that() -> None:
    found = Aliases()
    for number in range(1, 131):
        found = found.pointing("prod", number, "alias")
    assert found.previous["prod"] == tuple(range(110, 130))
    assert len(found.history) == 100
    found = found.rolled_back("prod", 129).rolled_back("prod", 120)
    assert (found.aliases["prod"], found.previous["prod"]) == (120, tuple(range(110, 120)))
    assert found.pointing("prod", 120, "alias") is found
    assert found.without("prod").aliases == {}
