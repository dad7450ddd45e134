"""The documentation as a site: it builds without a warning, and the first page leads to every other."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MKDOCS = ROOT / ".tools/docs/bin/mkdocs"


@pytest.mark.skipif(not MKDOCS.exists(), reason="scripts/framework-tools docs")
def test_the_site_builds_and_its_links_and_anchors_hold(tmp_path: Path) -> None:
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    command = [MKDOCS, "build", "--strict", "--site-dir", tmp_path]
    made = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert made.returncode == 0, made.stdout + made.stderr
    page = (tmp_path / "reference/python/index.html").read_text()
    assert 'id="headrace.Dataset.shuffle"' in page, "made of the docstrings"
    assert "imagenet" in (tmp_path / "search/search_index.json").read_text()


def test_the_first_page_leads_to_every_other() -> None:
    first = ROOT / "docs/index.md"
    linked = {(first.parent / link).resolve() for link in re.findall(r"\]\(([^)#:]+)", first.read_text())}
    pages = {*(ROOT / "docs").rglob("*.md"), *(ROOT / "design").glob("*.md")} - {first}
    assert {str(page.relative_to(ROOT)) for page in pages if page.resolve() not in linked} == set()
