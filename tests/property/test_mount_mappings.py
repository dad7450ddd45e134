"""Files of a mount that are written through shared mappings, at random, against bytes in memory."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import time
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace.testing.servers import EmbeddedS3
from tests.mapping_kit import SIZE, Writer
from tests.mount_rig import COMMAND, PLAIN, Rig, only_a_mount, rigged

pytestmark = [pytest.mark.server, pytest.mark.timeout(600)]


@pytest.fixture(scope="module", params=["", "publish=300ms", "no_passthrough"])
def mount(request: pytest.FixtureRequest, seaweedfs: EmbeddedS3) -> Iterator[Rig]:
    with rigged(seaweedfs, options=request.param) as rig:
        yield rig
        if not PLAIN:
            environment = {**os.environ, **rig.environment}
            ended = subprocess.run(
                [*COMMAND, "cache", "verify", "--json"], env=environment, capture_output=True, text=True, check=True
            )
            told = json.loads(ended.stdout)
            assert told["checked"] > 0
            assert not told["damaged"], "what was wrong is gone now"


NUMBERS = itertools.count()
NUMBER = st.integers(0, 5)
WAY = st.sampled_from(["both", "both", "write", "read"])
POKE = st.tuples(st.just("poke"), NUMBER, st.integers(0, SIZE - 200), st.binary(min_size=1, max_size=200))
STEP = st.one_of(
    POKE,
    st.tuples(st.just("write"), NUMBER, st.integers(0, SIZE - 200), st.binary(min_size=1, max_size=200)),
    st.tuples(st.just("open"), WAY),
    st.tuples(st.sampled_from(["map", "close", "close", "unmap", "sync", "fsync", "pause", "quiet"]), NUMBER),
)
OPENED = (st.tuples(st.just("open"), WAY), st.just(("open", "both")), st.just(("map", 0)))
MAPPED = st.tuples(*OPENED, POKE, st.just(("close", 0)), STEP, POKE)
STEPS = st.lists(st.one_of(MAPPED, st.lists(STEP, max_size=5)), min_size=1, max_size=8)


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(steps=STEPS, made=st.booleans())
def test_whatever_is_mapped_written_and_closed_in_whatever_order(
    mount: Rig, steps: list[list[tuple[object, ...]]], made: bool
) -> None:
    writer = Writer(mount, f"file-{next(NUMBERS)}")
    writer.path.write_bytes(bytes(SIZE) if made else b"")
    os.truncate(writer.path, SIZE)
    try:
        for what, *arguments in itertools.chain(*steps):
            getattr(writer, str(what))(*arguments)
        writer.quiet()
    finally:
        writer.abandon()


@pytest.mark.parametrize("first", ["both", "write"])
def test_what_is_written_after_the_close_is_not_lost(mount: Rig, first: str) -> None:
    """As `torch.from_file(shared=True)` does; `first`: who else has the file open before."""
    for number in range(4):
        writer = Writer(mount, f"after-{first}-{number}")
        writer.path.write_bytes(bytes(SIZE))
        writer.open(first)
        writer.open("both")
        writer.map(0)
        writer.poke(0, 0, b"A")
        writer.close(0)
        writer.close(0)
        time.sleep(0.05 * (number % 4))
        writer.poke(0, 0, b"Z")
        writer.poke(0, SIZE - 200, b"Z")
        writer.quiet()


def test_msync_publishes_as_fsync_does(mount: Rig) -> None:
    only_a_mount()
    writer = Writer(mount, "synced")
    writer.path.write_bytes(bytes(SIZE))
    writer.open("both")
    writer.map(0)
    for number in range(5):
        writer.poke(0, 1000 * number, b"x" * 1000)
        writer.sync(0)
        assert writer.published() == writer.content
    writer.quiet()
