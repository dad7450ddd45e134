"""Mappings, descriptors and publications at random over a few files of one mount, for long.

``STRESS_STEPS=10000`` takes ten seeds of that many steps; without it there are fewer.
"""

from __future__ import annotations

import os
import random

import pytest

from headrace.testing.servers import EmbeddedS3
from tests.mapping_kit import SIZE, WAYS, Writer
from tests.mount_rig import rigged

pytestmark = [pytest.mark.server, pytest.mark.timeout(7200)]

STEPS = int(os.environ.get("STRESS_STEPS", "300"))
SEEDS = range(10) if STEPS > 1000 else range(2)
WEIGHTS = {
    "poke": 12, "write": 6, "open": 5, "map": 5, "close": 5, "unmap": 3, "sync": 3, "fsync": 2, "quiet": 1,
    "pause": 0.2,
}  # fmt: skip
MOST = 6


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("options", ["publish=300ms", "no_passthrough,publish=300ms"])
def test_none_differs(seaweedfs: EmbeddedS3, seed: int, options: str) -> None:
    draw = random.Random(seed)
    with rigged(seaweedfs, options=options) as mount:
        writers = [Writer(mount, f"file-{number}") for number in range(3)]
        for writer in writers:
            writer.path.write_bytes(bytes(SIZE))
        try:
            for _ in range(STEPS):
                writer = draw.choice(writers)
                (what,) = draw.choices(list(WEIGHTS), list(WEIGHTS.values()))
                number, offset = draw.randrange(MOST), draw.randrange(SIZE - 200)
                data = draw.randbytes(draw.randint(1, 200))
                if what == "open":
                    if len(writer.files) < MOST:
                        writer.open(draw.choice(list(WAYS)))
                elif what in ("poke", "write"):
                    getattr(writer, what)(number, offset, data)
                elif what != "map" or len(writer.mappings) < MOST:
                    getattr(writer, what)(number)
            for writer in writers:
                writer.quiet()
        finally:
            for writer in writers:
                writer.abandon()
