"""MkDocs' hook: pages that lie beside ``docs/`` are in the site, too, and links to them hold.

A link in a page is a path in the repository, so that it works where the repository is read. Here it becomes a path in
the site: `docs/guides/a.md` is `guides/a.md`, any other file keeps its path. A link to a file that the site does
not have becomes its text.
"""

from __future__ import annotations

import os
import posixpath
import re
from pathlib import Path
from typing import TYPE_CHECKING

from mkdocs.structure.files import File, InclusionLevel

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
BESIDE = (
    "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "LICENSE", "benchmarks/README.md", "benchmarks/results/**/*.md",
    "benchmarks/results/**/*.png", "deploy/*", "design/*.md", "examples/**/*", "src/headrace/*/README.md",
    "src/headrace/*/*/README.md",
)  # fmt: skip
"""What the site has of the repository beside ``docs/``."""
_LINK = re.compile(r"(?<=\]\()(?!\w+:|#)(?P<path>[^)#\s]+)(?P<anchor>#[^)\s]*)?(?=\))")
_TESTED = re.compile(r"^```python \w+$", re.MULTILINE)
_LEFT_OUT = re.compile(r"\[`?([^\]\[`]*)`?\]\(\)")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Design notes, and the rooms' own pages, stand at the end of the navigation."""
    for title, pattern in (("Design notes", "design/*.md"), ("Rooms", "src/headrace/*/README.md")):
        assert config.nav is not None
        config.nav.append({title: [str(path.relative_to(ROOT)) for path in sorted(ROOT.glob(pattern))]})
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add what lies beside. Only pages of ``docs/`` must be in the navigation."""
    for pattern in BESIDE:
        for path in sorted(ROOT.glob(pattern)):
            if path.is_file() and "__pycache__" not in path.parts:
                name = str(path.relative_to(ROOT))
                files.append(File.generated(config, name, abs_src_path=str(path), inclusion=InclusionLevel.NOT_IN_NAV))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:  # noqa: ARG001
    """Links as the site needs them; blocks that the tests run are Python like any other."""
    source = page.file.abs_src_path
    assert source is not None
    here = os.path.relpath(source, ROOT)
    moved = _LINK.sub(lambda link: _there(link, here, page.file.src_uri, files), markdown)
    return _TESTED.sub("```python", _LEFT_OUT.sub(r"`\1`", moved))


def _there(link: re.Match[str], here: str, page: str, files: Files) -> str:
    """The path in the site; nothing for a file of the repository that is not in the site."""
    target = posixpath.normpath(posixpath.join(posixpath.dirname(here), link["path"]))
    if (ROOT / target).is_dir() and (ROOT / target / "README.md").exists():
        target = posixpath.join(target, "README.md")
    inside = "index.md" if target == "README.md" else target.removeprefix("docs/")
    if files.get_file_from_path(inside) is None and (ROOT / target).exists():
        return ""
    return posixpath.relpath(inside, posixpath.dirname(page) or ".") + (link["anchor"] or "")
