"""What tests of uploading share."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.store import Store, open_store


@pytest.fixture(params=["file", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return open_store(f"file://{tmp_path}/store" if request.param == "file" else f"memory://{tmp_path.name}")
