"""Models as the first version that had them wrote them. The fixture is never regenerated."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tests import models_kit

from headrace.models import Registry, Signature, Tensor, publish, rollback

FIXTURE = Path(__file__).parent / "model-1"


@pytest.fixture
def registry(tmp_path: Path) -> Registry:
    shutil.copytree(FIXTURE, tmp_path / "home")
    return Registry.load(models_kit.settings_of(f"file://{tmp_path}/home", tmp_path / "cache"))


def test_a_version_and_its_aliases(registry: Registry) -> None:
    assert [one.id for one in registry.versions("digits")] == ["digits@2", "digits@1"]
    version = registry.resolve("digits@prod")
    card = version.card
    assert (card.number, card.note, card.by, card.created) == (2, "second", "ann@node-9", "2026-11-28T09:00:00.000Z")
    signed = Signature((Tensor("x", "float32", (None, "n", 4)),), (Tensor("y", "string"),))
    assert card.signatures == {"serving_default": signed}
    with registry.local(version) as model:
        found = {name: path.read_bytes() for name, path in model.files.items()}
    assert found == {"sub/é.txt": b"x", "weights.bin": b"0123"}


def test_what_goes_on_from_there(registry: Registry, tmp_path: Path) -> None:
    assert rollback("digits@prod", registry=registry).number == 1
    made = publish(models_kit.folder(tmp_path / "m"), "digits", registry=registry)
    assert made.number == 4, "the third was deleted, and keeps its number"
