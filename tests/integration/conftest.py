"""What tests of the page share: one Chromium a process, a fresh context and page a test, a served page a module.

A module has a fixture `rig` of its own (a home to show). Where its `web` needs options it says
``SERVED = ("--allow", "write")``; where its pages say something against themselves that is meant,
``MEANT = (r"/picture/…",)``, or, in one test, ``console.mean(…)``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page

    from tests.runs_rig import RunsRig
    from tests.web_rig import Console, Served


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    """Debian's, one a process of tests."""
    from tests.web_rig import browser

    with browser() as made:
        yield made


@pytest.fixture(scope="module")
def web(rig: RunsRig, request: pytest.FixtureRequest) -> Iterator[Served]:
    """The module's home, served."""
    from tests.web_rig import served

    with served(rig, *getattr(request.module, "SERVED", ())) as made:
        yield made


@pytest.fixture
def console(request: pytest.FixtureRequest) -> Iterator[Console]:
    """What pages of the test say against themselves, which fails it."""
    from tests.web_rig import Console

    made = Console([*getattr(request.module, "MEANT", ())])
    yield made
    assert made.wrong == []


@pytest.fixture
def without_network() -> bool:
    """Whether the test's browser has no network."""
    return False


@pytest.fixture
def context(chromium: Browser, console: Console, without_network: bool) -> Iterator[BrowserContext]:
    """Without cookies, storage or cache of any other test's."""
    made = chromium.new_context(offline=without_network)
    console.listen(made)
    yield made
    made.close()


@pytest.fixture
def blank(context: BrowserContext, web: Served) -> Page:
    """A page that has its token already, and shows nothing yet: for tests that go somewhere else than to the list."""
    name, value = web.cookie
    context.add_cookies([{"name": name, "value": value, "url": web.url, "httpOnly": True, "sameSite": "Strict"}])
    return context.new_page()


@pytest.fixture
def page(context: BrowserContext, web: Served) -> Page:
    """One that has brought its token, at the list of runs."""
    made: Any = context.new_page()
    made.goto(web.entry)
    return made
