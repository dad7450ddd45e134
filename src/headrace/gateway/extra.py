"""The libraries of the extra ``gateway``, looked for before anything of this room that needs them is imported."""

from __future__ import annotations

from importlib.util import find_spec

from headrace.base.errors import UnsupportedError


def needed() -> None:
    """Raises UnsupportedError: one is missing."""
    if find_spec("httptools") is None or find_spec("awscrt") is None:
        raise UnsupportedError("the gateway needs httptools and awscrt", hint="pip install 'headrace[gateway]'")
