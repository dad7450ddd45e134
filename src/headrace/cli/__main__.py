"""``python -m headrace.cli``: the same command line, without its script."""

from __future__ import annotations

from headrace.cli import run

run()
