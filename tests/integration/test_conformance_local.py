"""The conformance suite on stores without a server."""

from __future__ import annotations

import pytest

from headrace.store import open_store
from headrace.testing.conformance import StoreConformance

# obstore's paths have no empty, "." or ".." parts and no control characters: refused, never changed.
OBSTORE = frozenset({"single-dot", "double-dot", "double-slash", "trailing-slash", "newline"})
# A file system has no empty, "." or ".." names, and no name that is a file and a folder.
FILES = frozenset({"single-dot", "double-dot", "double-slash", "trailing-slash", "key-and-prefix"})


class TestMemory(StoreConformance):
    unsupported = OBSTORE
    outside = False

    @pytest.fixture
    def store(self):
        return open_store("memory://conformance")


class TestFile(StoreConformance):
    unsupported = FILES

    @pytest.fixture
    def store(self, tmp_path):
        return open_store(f"file://{tmp_path}/store")
