"""The page in the launcher of any JupyterLab, by jupyter-server-proxy: started when it is first looked at.

Jupyter asks its own viewers for its own token, and gives the page's with each request: nobody pastes one. It is in the
page's environment and in Jupyter's memory, never in a command line. The page listens on a Unix socket that only this
user reaches, so that no other user of the node can stand where the page would.

Source: jupyter-server-proxy, "Server process options"
(https://jupyter-server-proxy.readthedocs.io/en/latest/server-process.html).
"""

from __future__ import annotations

import os
import secrets
import shutil
import sys
from pathlib import Path
from typing import Any, Final

from headrace.base.settings import environment
from headrace.web.extra import missing
from headrace.web.private_socket import folder_for_sockets

NAME: Final = "headrace"
"""Of the entry point, by which jupyter-server-proxy finds `server`; and where the page is, below Jupyter's base."""
FOLDER: Final = "HEADRACE_JUPYTER_FOLDER"
"""The variable by which `headrace jupyter` says where the socket goes, so that it is gone with all the rest."""
_ICON: Final = Path(__file__).parents[1] / "static/icon.svg"
_START_S: Final = 30.0  # seconds for the page to start


def server() -> dict[str, Any]:
    """Options of one server process, for one Jupyter. Where the page cannot be had, the launcher does not show it."""
    token = secrets.token_urlsafe(24)
    above = environment(FOLDER) or folder_for_sockets()
    python = sys.executable.replace("{", "{{").replace("}", "}}")
    return {
        "command": [
            *_with_jupyter(), python, "-m", "headrace.cli", "web",
            "--socket", "{unix_socket}", "--base", "{base_url}" + NAME,
        ],
        "environment": {"HEADRACE_WEB_TOKEN": token},
        "unix_socket": os.path.join(above, f"headrace-web-{secrets.token_hex(6)}", "page"),
        "request_headers_override": {"Authorization": f"Bearer {token}"},
        "mappath": {"/": "/runs"},
        "timeout": _START_S,
        "launcher_entry": {
            "title": NAME, "icon_path": str(_ICON), "path_info": f"{NAME}/runs", "enabled": not missing("web"),
        },
    }  # fmt: skip


def _with_jupyter() -> list[str]:
    """What has the page end when Jupyter is killed: of util-linux, on every Debian and Ubuntu."""
    setpriv = shutil.which("setpriv")
    return [] if setpriv is None else [setpriv, "--pdeathsig", "TERM", "--"]
