"""What the kernel tells of changes, by whatever name it tells them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from headrace.sync.watch import Watcher
from tests.sync_rig import wait_for


@contextmanager
def watching(folder: Path) -> Iterator[Watcher]:
    watcher = Watcher(str(folder), lambda: None)
    watcher.start()
    try:
        assert watcher.began.wait(10)
        watcher.take()
        yield watcher
    finally:
        watcher.close()


@pytest.mark.parametrize("through", ["itself", "a link"])
def test_a_folder_that_links_lead_to_is_told_by_where_it_lies(tmp_path: Path, through: str) -> None:
    """The kernel watches it once, and tells it by the name that was seen last: any of them."""
    root = tmp_path / "root"
    (root / "real").mkdir(parents=True)
    for name in "abcdefgh":  # in whatever order folders are read
        (root / name).mkdir()
        (root / name / "link").symlink_to("../real")
    if through == "a link":
        (tmp_path / "way").symlink_to(root)
        root = tmp_path / "way"
    told: set[str] = set()
    with watching(root) as watcher:
        (root / "c/link/new").mkdir()
        (root / "c/link/new/file").write_text("x")
        (root / "a/other").write_text("x")
        assert wait_for(lambda: told.update(watcher.take()) or {"real/new", "a/other"} <= told, 10), told
    assert not any("link" in name for name in told)
    assert not [one for one in threading.enumerate() if one.name == "headrace-sync-watch" and one.is_alive()]


def test_what_a_link_leads_out_to_is_none_of_it(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    root = tmp_path / "root"
    root.mkdir()
    (root / "link").symlink_to("../outside")
    told: set[str] = set()
    with watching(root) as watcher:
        (tmp_path / "outside/file").write_text("x")
        (root / "inside").write_text("x")
        assert wait_for(lambda: told.update(watcher.take()) or "inside" in told, 10)
    assert told == {"inside"}
