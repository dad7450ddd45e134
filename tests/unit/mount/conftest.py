"""Worlds to write in: see `tests.staging_kit`."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.staging_kit import World, bucket_of, world


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[World]:
    """Over ``memory://``."""
    with world(tmp_path, f"memory://{secrets.token_hex(8)}") as made:
        yield made


@pytest.fixture(params=["memory", "file", "s3"])
def any_world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    """Over each kind of store: one that keeps metadata, the disk, a real S3 server."""
    if request.param == "memory":
        yield request.getfixturevalue("memory")
        return
    if request.param == "s3":
        yield request.getfixturevalue("s3")
        return
    (tmp_path / "data").mkdir()
    with world(tmp_path, f"file://{tmp_path}/data") as made:
        yield made


@pytest.fixture
def s3(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    """Over SeaweedFS, in a bucket of its own."""
    url, options = bucket_of(request.getfixturevalue("seaweedfs"), f"staging-{secrets.token_hex(6)}")
    with world(tmp_path, url, options) as made:
        yield made
