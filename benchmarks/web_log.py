"""Rows of the page's benchmark about logs: a line near the end of a long one, and one that goes on."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median

from web_bench import Bench, heap, json_of, wait_until
from web_records import put_log, put_run

FRAMES = """() => {
    let before = performance.now(); window.frames_ = [];
    const look = (now) => { window.frames_.push(now - before); before = now; requestAnimationFrame(look); };
    requestAnimationFrame(look);
}"""


def log(bench: Bench) -> None:
    lines = bench.options.lines
    put_run(bench.store, "talks")
    put_log(bench.store, "talks", lines)
    with bench.web("log") as (url, token, _):
        bench.seconds(f"{url}/runs/talks/log?token={token}", "#lines li")
        times: list[float] = []
        for at in range(bench.options.turns):
            line = lines * 9 // 10 + at * 1013
            path = f"/runs/talks/log?stream=stdout&start={line - 5}&token={token}#L{line}"
            times.append(bench.seconds(url + path, f"#L{line}"))
        bench.row(f"log of {lines:,} lines: to a line near its end", median(times) * 1e3, "ms", "asked: < 300")
    followed(bench)


@contextmanager
def working(bench: Bench, run: str, each_second: str) -> Iterator[None]:
    """A run that goes on until the end of the block: `each_second` is Python of one line that may use `at`."""
    code = (
        "import time, headrace as hr\nbegan = time.monotonic()\nat = 0\nwhile True:\n"
        f"    {each_second}\n    at += 1\n    time.sleep(max(0, began + at - time.monotonic()))\n"
    )
    work = bench.scratch / f"work-{run}"
    work.mkdir()
    environ = bench.environ(HEADRACE_RUN_STATE=str(bench.scratch / "state"), HEADRACE_CACHE_SIZE="0")
    command = [sys.executable, "-m", "headrace.cli", "run", "-q", "--id", run, "--", sys.executable, "-c", code]
    said = bench.scratch / f"{run}.log"
    with open(said, "wb") as out:
        job = subprocess.Popen(command, env=environ, cwd=work, stdout=subprocess.DEVNULL, stderr=out)
    try:
        yield
        if job.poll() is not None:
            raise SystemExit(f"the run {run} ended by itself: {said.read_text(errors='replace')[-2000:]}")
    finally:
        job.terminate()
        job.wait(60)


def followed(bench: Bench) -> None:
    """A run that writes 1,000 lines a second, looked at: its frames, and the heap."""
    seconds = bench.options.seconds
    print_them = "print('\\n'.join(f'{time.time():.3f} step {at * 1000 + n}' for n in range(1000)), flush=True)"
    with working(bench, "live", print_them), bench.web("live") as (url, token, _):
        wait_until("lines of the run", lambda: json_of(url, token, "/api/v1/runs/live/log").get("total", 0) > 0, 120)
        with bench.looking() as page:
            page.goto(f"{url}/runs/live/log?token={token}")
            bench.wait_for(page, "#lines li")
            page.evaluate(FRAMES)
            time.sleep(seconds)
            frames: list[float] = page.evaluate("window.frames_.slice(2)")
            shown = int(page.evaluate("document.querySelector('#lines li:last-child').dataset.number"))
            behind = json_of(url, token, "/api/v1/runs/live/log")["total"] - shown
            used = heap(page)
    slow = sum(one > 50 for one in frames)
    told = f"asked: ≤ 50, on an idle core; {slow} of {len(frames):,} frames over 50 ms, at 1,000 lines/s"
    bench.row(f"log followed for {seconds} s: longest frame", max(frames), "ms", told)
    bench.row("frames over 50 ms", slow, "frames", f"{100 * slow / len(frames):.3f} %")
    bench.row("lines that it is behind at the end", behind, "lines")
    bench.row("heap of the page", used / 1e6, "MB", "asked: < 40")
