"""SavedModels, in `.tools/frameworks`."""

from __future__ import annotations

from pathlib import Path

from tests.frameworks_kit import outcomes


def test_a_saved_model_answers_by_each_of_its_signatures(tmp_path: Path) -> None:
    found = outcomes("tests.integration.serving_tensorflow_checks", {}, tmp_path)
    assert found == {"check_a_saved_model_answers_by_each_of_its_signatures": None}
