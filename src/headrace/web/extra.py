"""The libraries of the extras ``web`` and ``jupyter``, looked for before anything of this room that needs them is
imported.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Final, Literal

from headrace.base.errors import UnsupportedError

Extra = Literal["web", "jupyter"]
_PAGE: Final = ("jinja2", "msgspec", "starlette", "uvicorn")
_LIBRARIES: Final[dict[Extra, tuple[str, ...]]] = {
    "web": _PAGE,
    "jupyter": (*_PAGE, "jupyterfs", "jupyterlab", "jupyter_server_proxy"),
}
_NEEDS: Final[dict[Extra, str]] = {"web": "the page", "jupyter": "JupyterLab over the namespace"}


def missing(extra: Extra) -> list[str]:
    """Those that are not installed here."""
    return [name for name in _LIBRARIES[extra] if find_spec(name) is None]


def needed(extra: Extra = "web") -> None:
    """Raises UnsupportedError: one is missing."""
    if found := missing(extra):
        raise UnsupportedError(f"{_NEEDS[extra]} needs {', '.join(found)}", hint=f"pip install 'headrace[{extra}]'")
