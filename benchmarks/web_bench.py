"""What the rows of the page's benchmark stand on: a browser, a page over the home, waits that end and say what for."""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import psutil
from playwright.sync_api import Browser, Page
from playwright.sync_api import Error as BrowserError

from headrace.store import Store
from headrace.store.embedded import EmbeddedS3

HOME = "home"
DATA = Path(__file__).parent / "data" / "web"
"""What is made once: snapshots, databases of peers, and what a browser showed when a wait expired."""


@dataclass
class Row:
    """`value` in `unit`; `told`: what it is measured against, and how far from there."""

    name: str
    value: float
    unit: str
    told: str = ""


@dataclass
class Bench:
    store: Store
    server: EmbeddedS3
    scratch: Path
    browser: Browser
    options: argparse.Namespace
    rows: list[Row] = field(default_factory=list)

    def row(self, name: str, value: float, unit: str, told: str = "") -> None:
        self.rows.append(Row(name, value, unit, told))
        print(f"{name:70} {value:10.3f} {unit} {told}", flush=True)

    def environ(self, **more: str) -> dict[str, str]:
        """Of a process that works with the home."""
        return {**os.environ, **self.server.variables(), "HEADRACE_HOME": f"{self.store.url}/{HOME}", **more}

    @contextmanager
    def web(self, cache: str, **more: str) -> Iterator[tuple[str, str, psutil.Process]]:
        """URL, token and process of a page over the home, with a cache folder of its own; `more` into its environment.

        Raises:
            SystemExit: the page did not start.
        """
        environ = self.environ(HEADRACE_CACHE_DIR=str(self.scratch / cache), HEADRACE_CACHE_SIZE="4GB")
        command = [sys.executable, "-m", "headrace.cli", "web", "--json"]
        with subprocess.Popen(command, env={**environ, **more}, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            try:
                lines = iter(process.stdout.readline, "")
                text = ""
                for line in lines:
                    text += line
                    if line == "}\n":
                        break
                else:
                    raise SystemExit(f"headrace web ended with {process.wait()} before it told its URL")
                told = json.loads(text)
                yield told["id"], told["url"].rpartition("token=")[2], psutil.Process(process.pid)
            finally:
                process.terminate()

    def seconds(self, url: str, wanted: str, *, turns: int = 1) -> float:
        """Median, from going there with nothing in the browser's cache to an element that is `wanted`."""
        return median(self._once(url, wanted) for _ in range(turns))

    def _once(self, url: str, wanted: str) -> float:
        with self.looking() as page:
            began = time.perf_counter()
            page.goto(url, wait_until="commit", timeout=self.options.limit * 1000)
            self.wait_for(page, wanted)
            return time.perf_counter() - began

    @contextmanager
    def looking(self, height: int = 800) -> Iterator[Page]:
        """A page with nothing in its cache; whatever goes wrong there shows its console and a picture of it."""
        context = self.browser.new_context(viewport={"width": 1280, "height": height})
        page = context.new_page()
        console: list[str] = []
        page.on("console", lambda one: console.append(f"{one.type}: {one.text[:300]}"))
        page.on("pageerror", lambda one: console.append(f"error: {str(one)[:300]}"))
        try:
            yield page
        except (BrowserError, TimeoutError) as error:
            raise TimeoutError(f"{error}\n{shown(page, console)}") from error
        finally:
            context.close()

    def wait_for(self, page: Page, wanted: str) -> None:
        """Until the page has such an element. Raises TimeoutError after `--limit` seconds."""
        try:
            page.wait_for_selector(wanted, timeout=self.options.limit * 1000, state="attached")
        except BrowserError as error:
            raise TimeoutError(f"waited {self.options.limit} s for {wanted!r}") from error


def shown(page: Page, console: list[str]) -> str:
    """Where the page is, what it says in its console, and where a picture of it lies now."""
    DATA.mkdir(parents=True, exist_ok=True)
    picture = DATA / "expired.png"
    with suppress(BrowserError):
        page.screenshot(path=picture, timeout=10_000)
    place = re.sub(r"token=[^&#]*", "token=…", page.url)
    return "\n".join([f"at {place}; what it showed: {picture}", *console[-20:]])


def heap(page: Page) -> float:
    """Bytes of JavaScript's objects, after a collection."""
    client = page.context.new_cdp_session(page)
    client.send("HeapProfiler.collectGarbage")
    return client.send("Runtime.getHeapUsage")["usedSize"]


def pss(process: psutil.Process) -> float:
    """MB of a process, of what it shares its share."""
    return process.memory_full_info().pss / 1e6


def cpu_ms(process: psutil.Process, turns: int, work: Callable[[int], object]) -> float:
    """Milliseconds of the process's CPU for one of `turns`."""
    before = sum(process.cpu_times()[:2])
    for turn in range(turns):
        work(turn)
    return (sum(process.cpu_times()[:2]) - before) / turns * 1e3


def get(url: str, token: str = "", *, seconds: float = 120, body: bytes | None = None) -> bytes:
    """With `body`, of JSON: a POST."""
    headers = {"authorization": f"Bearer {token}"} if token else {}
    if body is not None:
        headers["content-type"] = "application/json"
    request = urllib.request.Request(url, body, headers)
    with urllib.request.urlopen(request, timeout=seconds) as answer:
        return answer.read()


def json_of(url: str, token: str, path: str) -> dict[str, Any]:
    """Empty where the page refuses."""
    try:
        return json.loads(get(url + path, token))
    except urllib.error.HTTPError:
        return {}


def wait_until(what: str, true: Callable[[], bool], seconds: float = 600) -> None:
    """Raises TimeoutError: `what` was not so in time; says why the last look failed."""
    until = time.monotonic() + seconds
    problem = ""
    while time.monotonic() < until:
        try:
            if true():
                return
        except (OSError, KeyError, IndexError, json.JSONDecodeError) as error:
            problem = f" ({error!r})"
        time.sleep(0.1)
    raise TimeoutError(f"waited {seconds:.0f} s for {what}{problem}")
