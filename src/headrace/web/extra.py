"""The libraries of the extra ``web``, looked for before anything of this room that needs them is imported."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Final

from headrace.base.errors import UnsupportedError

_LIBRARIES: Final = ("jinja2", "msgspec", "starlette", "uvicorn")


def needed() -> None:
    """Raises UnsupportedError: one is missing."""
    missing = [name for name in _LIBRARIES if find_spec(name) is None]
    if missing:
        raise UnsupportedError(f"the page needs {', '.join(missing)}", hint="pip install 'headrace[web]'")
