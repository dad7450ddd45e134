"""How long each file's tests take, as a whole run on two cores recorded it: the longest begin, so that no process is
left alone with one at the end.

``scripts/run-tests --record-times`` writes `times.json` anew: seconds by file, set-up included. Files that are not in
it begin, too: nobody knows.
"""

from __future__ import annotations

import json
import resource
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

RECORD = Path(__file__).with_suffix(".json")
_CPU = "cpu_s"


def file_of(nodeid: str) -> str:
    return nodeid.partition("::")[0]


def longest_first(items: list[pytest.Item]) -> None:
    """Sort in place; the tests of one file keep together and in their order."""
    known: dict[str, float] = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    items.sort(key=lambda item: -known.get(file_of(item.nodeid), float("inf")))


class Recorder:
    """A plugin of the process that hears of every test: keeps how long it took, and the processor's time for it."""

    def __init__(self, detail: Path | None) -> None:
        self._detail = detail
        self._tests: dict[str, dict[str, float]] = defaultdict(lambda: {"wall_s": 0.0, _CPU: 0.0})

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        kept = self._tests[report.nodeid]
        kept["wall_s"] += report.duration
        kept[_CPU] = float(dict(report.user_properties).get(_CPU, 0.0))  # pyright: ignore

    def pytest_sessionfinish(self) -> None:
        files: dict[str, float] = defaultdict(float)
        for name, kept in self._tests.items():
            files[file_of(name)] += kept["wall_s"]
        RECORD.write_text(json.dumps({name: round(files[name], 1) for name in sorted(files)}, indent=0) + "\n")
        if self._detail is not None:
            self._detail.write_text(json.dumps(self._tests, indent=1))


class Meter:
    """A plugin of the process that runs tests: the processor's time of this process and of the children that ended."""

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[bool]:
        self._before = _spent()
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[pytest.TestReport]:
        if call.when == "teardown":
            item.user_properties.append((_CPU, round(_spent() - self._before, 3)))
        return (yield)


def _spent() -> float:
    kinds = resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN
    return sum(used.ru_utime + used.ru_stime for used in map(resource.getrusage, kinds))
