"""The page's scripts have sound types, and nothing of theirs comes from elsewhere."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
WEB = ROOT / "src/headrace/web"
TSC = ROOT / ".tools/node_modules/typescript/bin/tsc"
OPTIONS = ["--noEmit", "--allowJs", "--checkJs", "--strict", "--target", "es2022", "--module", "es2022",
           "--moduleResolution", "bundler", "--lib", "es2022,dom,dom.iterable"]  # fmt: skip


def test_types() -> None:
    node = shutil.which("node")
    if node is None or not TSC.exists():
        pytest.skip("TypeScript is not installed: make test does that, where there is npm")
    scripts = [str(path) for path in (WEB / "static").glob("*.js")]
    ended = subprocess.run([node, str(TSC), *OPTIONS, *scripts], capture_output=True, text=True, check=False)
    assert ended.stdout == ""
    assert ended.returncode == 0


@pytest.mark.parametrize("path", sorted(WEB.rglob("*.html")), ids=lambda path: path.stem)
def test_templates_hold_no_script_no_style_and_name_no_other_host(path: Path) -> None:
    text = path.read_text()
    assert not re.search(r"<script(?![^>]*\bsrc=)", text)
    assert not re.search(r"<style|\sstyle=|\son[a-z]+=|javascript:|https?://", text)
    assert "|safe" not in text


def test_the_first_load_is_light() -> None:
    assert sum(path.stat().st_size for path in (WEB / "static").iterdir()) < 60_000
