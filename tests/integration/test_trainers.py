"""Lightning, Hugging Face's Trainer and Accelerate train on a dataset, in one process and two. One child runs all."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.frameworks_kit import names, outcomes
from tests.integration import trainers_checks


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str | None]:
    folder: Path = tmp_path_factory.mktemp("trainers")
    data = folder / "rows"
    data.mkdir()
    for row in range(100):
        (data / f"{row:04d}.txt").write_text(str(row))
    variables = {"ROWS": f"file://{data}", "HEADRACE_CACHE_SIZE": "0", "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    return outcomes(trainers_checks.__name__, variables, folder, group="trainers")


@pytest.mark.parametrize("name", names(trainers_checks))
def test_trainers(found: dict[str, str | None], name: str) -> None:
    assert found[name] is None, found[name]
