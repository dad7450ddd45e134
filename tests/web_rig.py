"""``headrace web`` in a process of its own, and a browser that looks at it."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, sync_playwright

from tests.children import running
from tests.runs_rig import COMMAND, RunsRig

AXE = Path(__file__).parents[1] / ".tools/node_modules/axe-core/axe.min.js"
CHROMIUM = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
"""The first that is there: the shell is the same engine without the window, for a third of the processor's time."""


@dataclass(frozen=True)
class Served:
    """`url`: without the token; `entry`: with it."""

    url: str
    entry: str
    process: subprocess.Popen[str]

    @property
    def token(self) -> str:
        return self.entry.rpartition("token=")[2]

    @cached_property
    def cookie(self) -> tuple[str, str]:
        """What the token becomes in a browser: name and value."""
        ((name, value),) = httpx.get(self.entry, timeout=30).cookies.items()
        return name, value

    def get(self, path: str, **headers: str) -> httpx.Response:
        """With the token, as a script asks."""
        told = {"authorization": f"Bearer {self.token}", **headers}
        return httpx.get(self.url + path, headers=told, timeout=30)

    def twin(self, path: str) -> dict[str, object]:
        answer = self.get(f"/api/v1{path}")
        assert answer.status_code == 200, answer.text
        return answer.json()


@contextmanager
def served(rig: RunsRig, *options: str) -> Iterator[Served]:
    command = [*COMMAND, "web", "--json", *options]
    with running(command, env=rig.environment, cwd=rig.work, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        lines: list[str] = []
        for line in process.stdout:
            lines.append(line)
            if line == "}\n":
                break
        told = json.loads("".join(lines))
        yield Served(told["id"], told["url"], process)
        process.send_signal(signal.SIGINT)
        process.wait(20)


@dataclass
class Console:
    """What all pages of a context say against themselves: errors, warnings, and what their policy refused.

    `meant`: patterns of what a test provokes, by its text or the URL that it is about.
    """

    meant: list[str]
    wrong: list[str] = field(default_factory=list)

    def mean(self, *patterns: str) -> None:
        self.meant += patterns

    def listen(self, context: BrowserContext) -> None:
        context.on("console", self._said)
        context.on("weberror", lambda one: self._take(str(one.error)))

    def _said(self, said: ConsoleMessage) -> None:
        if said.type in ("error", "warning"):
            self._take(f"{said.text} {said.location['url']}")

    def _take(self, text: str) -> None:
        if not any(re.search(one, text) for one in self.meant):
            self.wrong.append(text)


LOOKS = [(1280, "light"), (320, "dark")]
"""How pages are looked at: pixels, colours."""


def look(page: Page, width: int, colours: str) -> None:
    page.emulate_media(color_scheme="dark" if colours == "dark" else "light")
    page.set_viewport_size({"width": width, "height": 800})


def check(page: Page) -> None:
    """It is accessible, as wide as the window, and nothing of what it shows has run."""
    assert axe_findings(page) == []
    size = page.viewport_size
    assert size is not None
    assert page.evaluate("document.documentElement.scrollWidth") <= size["width"]
    assert page.evaluate("window.hacked") is None


def axe_findings(page: Page) -> list[list[str]]:
    """What axe has against a page: its rule, and the first element."""
    page.evaluate(_axe())
    return page.evaluate("async () => (await axe.run()).violations.map(v => [v.id, v.nodes[0].html])")


@cache
def _axe() -> str:
    return AXE.read_text()


@contextmanager
def browser() -> Iterator[Browser]:
    """Debian's Chromium."""
    path = next((found for name in CHROMIUM if (found := shutil.which(name))), None)
    if path is None:
        pytest.skip("Chromium is not installed: Debian package chromium-headless-shell, or chromium")
    with sync_playwright() as playwright:
        made = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-dev-shm-usage"])
        try:
            yield made
        finally:
            made.close()
