"""A store of obstore's in forked children: by a helper process that leaves with its child."""

from __future__ import annotations

import multiprocessing
import multiprocessing.connection
import time
from pathlib import Path

import psutil
import pytest

from headrace.base.errors import NotFoundError
from headrace.store import Store, open_store
from headrace.testing.servers import FakeGCS

pytestmark = pytest.mark.server


def _work(store: Store, pipe: multiprocessing.connection.Connection) -> None:
    store.put("child/x", b"from the child")
    found = [one.key for page in store.list("child/") for one in page]
    try:
        store.get("none")
    except NotFoundError as error:
        pipe.send((bytes(store.get("child/x", 5).data), found, error.code))
    helpers = [one.pid for one in psutil.Process().children()]
    pipe.send(helpers)


def test_a_forked_child_has_a_helper_that_ends_with_it(gcs: FakeGCS) -> None:
    store = open_store(gcs.create_bucket("relay") + "/below", gcs.options())
    store.put("parent", b"1")
    ours, theirs = multiprocessing.Pipe()
    child = multiprocessing.get_context("fork").Process(target=_work, args=(store, theirs))
    child.start()
    assert ours.poll(30)
    assert ours.recv() == (b"the child", ["child/x"], "not-found")
    helpers = ours.recv()
    assert len(helpers) == 1
    child.join(10)
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline and Path(f"/proc/{helpers[0]}").exists():
        time.sleep(0.02)
    assert not psutil.pid_exists(helpers[0]) or psutil.Process(helpers[0]).status() == psutil.STATUS_ZOMBIE
    assert bytes(store.get("child/x").data) == b"from the child"
