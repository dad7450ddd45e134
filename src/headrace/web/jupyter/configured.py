"""What JupyterLab is told, so that its file browser shows the namespace: by jupyter-fs, through contents of ours.

Sources: Jupyter Server, "Config file and command line options"
(https://jupyter-server.readthedocs.io/en/latest/other/full-config.html); jupyter-fs, "Server-side configuration".
"""

from __future__ import annotations

import importlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from headrace.base.errors import InputError
from headrace.base.places import refused
from headrace.base.user_files import replace_file
from headrace.namespace import Namespace

FILE: Final = "jupyter_server_config.json"


@dataclass(frozen=True, slots=True)
class Shown:
    """`path`: the folder of the namespace, or URL, that is the root of what the file browser shows. `allow_writes`:
    whether files may be saved, renamed and deleted there.
    """

    path: str = "/"
    allow_writes: bool = False

    @staticmethod
    def of(namespace: Namespace, name: str, *, allow_writes: bool = False) -> Shown:
        """What `name` stands for. Raises NotFoundError, and any store error; InputError: it is a file."""
        path = namespace.named(name)
        if namespace.stat(path).is_file:
            raise InputError("is a file", path=path, hint="name the folder to show")
        return Shown(path.rstrip("/") or "/", allow_writes)

    def config(self) -> dict[str, Any]:
        """For Jupyter's configuration. It names the path and nothing else: keys come from where headrace finds them."""
        resource = {
            "name": "headrace" if self.path == "/" else f"headrace {self.path}",
            "url": f"headrace://{self.path}",
            "type": "fsspec",
            "auth": "none",
            "defaultWritable": self.allow_writes,
        }
        return {
            "ServerApp": {
                "contents_manager_class": "headrace.web.jupyter.contents.HeadraceContents",
                "jpserver_extensions": {"jupyterfs.extension": True},
            },
            "HeadraceContents": {"allow_writes": self.allow_writes},
            "JupyterFs": {"resources": [resource]},
        }


def write(shown: Shown, folder: str, more: Mapping[str, Any] | None = None) -> str:
    """Put it, and `more`, into Jupyter's configuration in `folder`, beside what is set there; returns the file's path.

    Raises:
        InputError: the file that is there is none of Jupyter's. DeniedError: it cannot be read, or written.
    """
    path = os.path.join(folder, FILE)
    config = _merged(_merged(_read(path), shown.config()), more or {})
    replace_file(path, json.dumps(config, indent=2) + "\n")
    return path


def user_folder() -> str:
    """Where Jupyter looks for this user's configuration."""
    return str(importlib.import_module("jupyter_core.paths").jupyter_config_dir())


def _read(path: str) -> dict[str, Any]:
    try:
        with open(path, encoding="utf-8") as file:
            found = json.load(file)
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise refused(path, "JUPYTER_CONFIG_DIR", error, "Jupyter's configuration") from error
    except ValueError as error:
        raise InputError(f"is no JSON: {error}", path=path, hint="mend or move it") from None
    if not isinstance(found, dict):
        raise InputError("is no configuration of Jupyter's", path=path, hint="mend or move it")
    return found


def _merged(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """What is set in both is as in `new`; of jupyter-fs's resources, those that are not ours stay."""
    merged = dict(old)
    for name, value in new.items():
        before = merged.get(name)
        if isinstance(value, Mapping) and isinstance(before, Mapping):
            merged[name] = _merged(before, value)
        elif name == "resources" and isinstance(before, list):
            theirs = [one for one in before if not str(one.get("url", "")).startswith("headrace:")]
            merged[name] = [*theirs, *value]
        else:
            merged[name] = value
    return merged
