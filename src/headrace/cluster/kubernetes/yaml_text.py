"""YAML: the one place that writes it, and reads the manifests of others.

Parsers differ in what they take a bare ``1e3``, ``0o7`` or ``y`` for, so such texts are quoted.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterable
from typing import Any, Final

from headrace.base.errors import InputError, NotFoundError, UnsupportedError

_NOT_BARE: Final = re.compile(r"[-+.]?\d|[-+.~]|\.?(inf|nan)|[yn]\Z", re.IGNORECASE)


def one(document: object) -> str:
    """The YAML of one document."""
    yaml = _yaml()
    return yaml.dump(document, Dumper=_dumper(yaml), sort_keys=False, width=1 << 20, allow_unicode=True)


def stream(documents: Iterable[object]) -> str:
    """Documents, one after the other."""
    return "".join(f"---\n{one(document)}" for document in documents)


def read(path: str) -> list[dict[str, Any]]:
    """The documents of a file. Raises NotFoundError, InputError: it cannot be read, or is none."""
    yaml = _yaml()
    try:
        with open(path, encoding="utf-8") as file:
            found = [one for one in yaml.safe_load_all(file) if one is not None]
    except FileNotFoundError:
        raise NotFoundError("there is no such file", path=path) from None
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise InputError(f"is no YAML that can be read: {error}", path=path) from error
    if not found or not all(isinstance(one, dict) and "kind" in one for one in found):
        raise InputError("holds something that is no manifest", path=path, hint="each document has its kind")
    return found


def _yaml() -> Any:
    try:
        return importlib.import_module("yaml")
    except ImportError as error:
        raise UnsupportedError("PyYAML is not installed", hint="pip install 'headrace[k8s]'") from error


def _dumper(yaml: Any) -> Any:
    """Items of lists below their key are moved in, texts of several lines are blocks, nothing is an alias."""

    class Dumper(yaml.SafeDumper):
        def increase_indent(self, flow: bool = False, indentless: bool = False) -> Any:  # noqa: ARG002
            return super().increase_indent(flow, False)

        def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002
            return True

    def text(dumper: Any, data: str) -> Any:
        style = "|" if "\n" in data else '"' if _NOT_BARE.match(data) else None
        return dumper.represent_scalar("tag:yaml.org,2002:str", data, style=style)

    Dumper.add_representer(str, text)
    return Dumper
