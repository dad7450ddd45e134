"""How commands reach runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.tracking import Run, Runs


def open_runs() -> Runs:
    """The runs of the home of the settings."""
    from headrace.base.settings import Settings
    from headrace.cli.target import open_namespace
    from headrace.namespace import Home
    from headrace.tracking import Runs

    return Runs(Home.of(open_namespace(), Settings.load()))


def unfinished_run(title: str) -> Run | None:
    """The newest run of a job of this title, where there is one that has not finished well."""
    from headrace.tracking import as_name

    return open_runs().unfinished(as_name(title))


def find_run(text: str) -> Run:
    """The run that is meant: an id, its beginning or end, a name, or ``latest``."""
    return open_runs().find(text)
