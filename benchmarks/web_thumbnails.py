"""Row of the page's benchmark about samples: sixty thumbnails out of a snapshot of ten million objects.

The static server answers each of its keys with one and the same photograph of 110 kB; to the page they are different
objects, and each is read, decoded and made small once. The index is on the node already: it is built before.
"""

from __future__ import annotations

import io
import time
from pathlib import Path
from statistics import median

import numpy as np
from PIL import Image, ImageFilter
from playwright.sync_api import Error as BrowserError

import flat
from job import BUCKET
from servers import StaticServer
from web_bench import DATA, Bench, json_of, wait_until

COUNT = 60
SHOWN = f"""() => {{
    const all = [...document.querySelectorAll('.grid img')];
    return all.length === {COUNT} && all.every((one) => one.complete && one.naturalWidth > 0);
}}"""


def thumbnails(bench: Bench) -> None:
    rows = bench.options.objects
    root = DATA / "pictures"
    photograph(root / BUCKET / flat.TEMPLATE)
    (root / "index.tsv").touch()
    place = DATA / "pictures-home"
    name, _, version = flat.snapshot(place, root, rows).partition("@")
    with StaticServer(root, bench.scratch / "pictures") as server:
        more = {"AWS_ENDPOINT_URL_S3": server.plain, "HEADRACE_HOME": place.as_uri()}
        path = f"/data/{name}/{version}/samples"
        with bench.web("pictures", **more) as (url, token, _):
            began = time.perf_counter()
            opened = lambda: json_of(url, token, f"/api/v1{path}?count=1")["underway"] is None  # noqa: E731
            wait_until("the snapshot's index", opened)
            bench.row(f"snapshot of {rows:,} objects, its index built", time.perf_counter() - began, "s", "once a node")
            # whatever the server's first page needs once: templates, Pillow
            _seconds(bench, f"{url}{path}?start={rows // 3}&token={token}")
            cold: list[float] = []
            warm: list[float] = []
            for turn in range(bench.options.turns):
                address = f"{url}{path}?start={rows // 2 + turn * 1_013}&token={token}"
                cold.append(_seconds(bench, address))
                warm.append(_seconds(bench, address))
            bench.row(
                f"{COUNT} thumbnails out of {rows:,} objects, cold", median(cold), "s", "none of them made before"
            )
            told = "asked: < 1; made before, a browser that has seen none"
            bench.row("the same, warm", median(warm), "s", told)
        with bench.web("pictures", **more) as (url, token, _):
            again = _seconds(bench, f"{url}{path}?start={rows // 2}&token={token}")
            bench.row("the same, the page's server started anew", again, "s")


def _seconds(bench: Bench, address: str) -> float:
    """To all of them, in a window in which all can be seen."""
    with bench.looking(height=5000) as page:
        began = time.perf_counter()
        page.goto(address, wait_until="commit", timeout=bench.options.limit * 1000)
        try:
            page.wait_for_function(SHOWN, timeout=bench.options.limit * 1000)
        except BrowserError as error:
            there = page.evaluate("[...document.querySelectorAll('.grid img')].map((one) => one.naturalWidth)")
            raise TimeoutError(f"{COUNT} thumbnails after {bench.options.limit} s: {there}") from error
        return time.perf_counter() - began


def photograph(path: Path, size: int = 110_000) -> None:
    """A JPEG of about `size` bytes: soft areas and grain, as photographs have. Made once, as its ETag is its time."""
    if path.exists():
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(1)
    coarse = Image.fromarray(rng.integers(0, 256, (12, 16, 3), np.uint8)).resize((800, 600), Image.Resampling.BICUBIC)
    grain = Image.fromarray(rng.integers(0, 256, (600, 800, 3), np.uint8)).filter(ImageFilter.GaussianBlur(1))
    picture = Image.blend(coarse, grain, 0.3)
    for quality in range(95, 30, -5):
        out = io.BytesIO()
        picture.save(out, "JPEG", quality=quality)
        if out.tell() <= size:
            break
    path.write_bytes(out.getvalue())
