"""Copies the tables of ``benchmarks/results/`` into ``docs/performance.md``: ``python benchmarks/publish.py``.

What is written around them there stays. ``--check`` only says whether they are the same: exit status 1 if not.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

HERE = Path(__file__).resolve().parent
PAGE = HERE.parent / "docs" / "performance.md"
_PLACES = (
    ("loader.md", "The loader: what was to be reached, and what was", "The loader's rows"),
    ("mount.md", "The mount: what was to be reached, and what was", "The mount: what was to be reached, and what was"),
    ("shards/loader.md", "Shards", "The shards' rows"),
)
"""Results; the chapter of the page in which the table of requirements stands; the one with the rows."""


def published(page: str) -> str:
    """`page` with the tables of all results.

    Raises:
        SystemExit: a chapter or a table is missing.
    """
    for name, asked, rows in _PLACES:
        results = _sections((HERE / "results" / name).read_text())
        reached = _table(_found(results, "What must be reached"))
        page = _in_chapter(page, asked, lambda text, reached=reached: text.replace(_table(text), reached, 1))
        page = _in_chapter(page, rows, lambda text, results=results: _rows(text, results))
    return page


def _rows(chapter: str, results: dict[str, str]) -> str:
    numbered = {title.split(".")[0]: (title, text) for title, text in results.items() if re.match(r"\d+\. ", title)}

    def again(found: re.Match[str]) -> str:
        title, text = numbered[found[1]]
        return f"### {title}\n\n{text.strip()}\n"

    return re.sub(
        r"^### (\d+)\. .*?(?=^#|\Z)", lambda found: again(found) + "\n", chapter, flags=re.MULTILINE | re.DOTALL
    )


def _in_chapter(page: str, title: str, change: Callable[[str], str]) -> str:
    found = re.search(rf"^## {re.escape(title)}\n.*?(?=^## |\Z)", page, flags=re.MULTILINE | re.DOTALL)
    if found is None:
        raise SystemExit(f"{PAGE.name} has no chapter {title!r}")
    return page[: found.start()] + change(found[0]) + page[found.end() :]


def _sections(text: str) -> dict[str, str]:
    parts = re.split(r"^## (.+)\n", text, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def _found(sections: dict[str, str], title: str) -> str:
    if title not in sections:
        raise SystemExit(f"no section {title!r} in the results")
    return sections[title]


def _table(text: str) -> str:
    """The first table of requirements."""
    found = re.search(r"^\| row \|.*\n(?:\|.*\n)+", text, flags=re.MULTILINE)
    if found is None:
        raise SystemExit("no table of requirements")
    return found[0]


def main(given: Sequence[str]) -> int:
    page = PAGE.read_text()
    made = published(page)
    if "--check" in given:
        return int(made != page)
    PAGE.write_text(made)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
