"""Brings uPlot (MIT), which draws the page's charts, into the package: by name, version and digest, from npm.

Where it cannot be had nothing fails: the same charts come from the server as SVG. Called by hatchling, for wheels and
for editable installs; `python hatch_build.py` does only this.
"""

from __future__ import annotations

import base64
import hashlib
import io
import os
import sys
import tarfile
import urllib.request
from pathlib import Path
from typing import Any

VERSION = "1.6.32"
DIGEST = "KIMVnG68zvu5XXUbC4LQEPnhwOxBuLyW1AHtpm6IKTXImkbLgkMy+jabjLgSLMasNuGGzQm/ep3tOkyTxpiQIw=="
"""SHA-512 of the package, base64, as the registry says it."""
FILES = {"dist/uPlot.iife.min.js": "uPlot.js", "dist/uPlot.min.css": "uPlot.css", "LICENSE": "LICENSE"}
INTO = Path(__file__).parent / "src" / "headrace" / "web" / "static" / "uplot"


def bring() -> str:
    """What happened, in words."""
    told = INTO / "VERSION"
    if told.is_file() and told.read_text() == VERSION:
        return f"uPlot {VERSION} is there"
    registry = os.environ.get("NPM_CONFIG_REGISTRY", "https://registry.npmjs.org").rstrip("/")
    try:
        with urllib.request.urlopen(f"{registry}/uplot/-/uplot-{VERSION}.tgz", timeout=20) as answer:  # noqa: S310
            data = answer.read(8 << 20)
    except OSError as error:
        return f"uPlot cannot be had, so charts will be the server's: {error}"
    if base64.b64encode(hashlib.sha512(data).digest()).decode() != DIGEST:
        return "what the registry gives is not uPlot as it is known, so charts will be the server's"
    INTO.mkdir(parents=True, exist_ok=True)
    with tarfile.open(fileobj=io.BytesIO(data), mode="r:gz") as package:
        for name, ours in FILES.items():
            file = package.extractfile(f"package/{name}")
            assert file is not None, name
            (INTO / ours).write_bytes(file.read())
    told.write_text(VERSION)
    return f"uPlot {VERSION} was brought"


try:
    from hatchling.builders.hooks.plugin.interface import BuildHookInterface
except ImportError:
    pass
else:

    class Hook(BuildHookInterface[Any]):
        """Before the files of a wheel are gathered."""

        def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002
            """As hatchling asks."""
            self.app.display_info(bring())


if __name__ == "__main__":
    print(bring(), file=sys.stderr)
