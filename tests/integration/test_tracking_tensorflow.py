"""Event files by TensorFlow's own writers, read as points. One child runs all checks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.frameworks_kit import names, outcomes
from tests.integration import tracking_tensorflow_checks


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder: Path = tmp_path_factory.mktemp("events")
    return outcomes(tracking_tensorflow_checks.__name__, {"TF_CPP_MIN_LOG_LEVEL": "3"}, folder)


@pytest.mark.parametrize("name", names(tracking_tensorflow_checks))
def test_tensorflow(found: dict[str, str | None], name: str) -> None:
    assert found[name] is None, found[name]
