from pathlib import Path

import pytest

from tests.unit.dataset_snapshot.kit import World


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)
