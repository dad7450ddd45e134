"""`headrace.tf` in real TensorFlow: digits in SeaweedFS, TFRecords through a mount. One child runs all checks."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace.base.errors import UnsupportedError
from headrace.store.embedded import EmbeddedS3
from tests.frameworks_kit import digits, names, outcomes
from tests.integration import tensorflow_checks
from tests.mount_rig import Rig, rigged

pytestmark = pytest.mark.server


def _fill(rig: Rig) -> None:
    store = rig.store()
    for row, (image, label) in enumerate(zip(*digits(tensorflow_checks.COUNT), strict=True)):
        store.put(f"digits/{row:04d}.image", image.tobytes())
        store.put(f"digits/{row:04d}.label", str(label).encode())


@pytest.fixture(scope="module")
def found(seaweedfs: EmbeddedS3, tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder: Path = tmp_path_factory.mktemp("tensorflow")
    with rigged(seaweedfs, before=_fill) as rig:
        variables = {
            **rig.environment,
            "BUCKET_URL": f"s3://{rig.bucket}",
            "MOUNTED": rig.folder,
            "TF_CPP_MIN_LOG_LEVEL": "3",
        }
        yield outcomes(tensorflow_checks.__name__, variables, folder)


@pytest.mark.parametrize("name", names(tensorflow_checks))
def test_tensorflow(found: dict[str, str | None], name: str) -> None:
    assert found[name] is None, found[name]


def test_without_tensorflow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tensorflow", None)  # as Python says: not to be imported
    monkeypatch.setenv("HEADRACE_CACHE_SIZE", "0")
    (tmp_path / "1.x").write_bytes(b"1")
    with pytest.raises(UnsupportedError, match=r"pip install 'headrace\[tf\]'"):
        hr.tf.dataset(hr.Dataset.open(tmp_path.as_uri()))
