"""The wheel that `make dist` builds, and environments in which nothing of the checkout is seen."""

from __future__ import annotations

import os
import subprocess
import sysconfig
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
UV = Path(sysconfig.get_path("scripts"), "uv")


@dataclass(frozen=True)
class Built:
    """What `make dist` leaves in its folder, and prints."""

    wheel: Path
    source: Path
    said: str


@dataclass(frozen=True)
class Installed:
    """An environment with the wheel, and an empty folder to work in."""

    python: Path
    folder: Path

    def run(self, *command: str) -> str:
        """Standard output of the command, which must end well."""
        hidden = ("PYTHONPATH", "VIRTUAL_ENV", "HEADRACE_HOME")
        environment = {name: value for name, value in os.environ.items() if name not in hidden}
        environment["HEADRACE_CACHE_DIR"] = str(self.folder / "cache")
        ended = subprocess.run(command, cwd=self.folder, env=environment, capture_output=True, text=True)
        assert ended.returncode == 0, (command, ended.stdout, ended.stderr)
        assert "Traceback" not in ended.stderr, ended.stderr
        return ended.stdout

    def headrace(self, *arguments: str) -> str:
        """The installed command."""
        return self.run(str(self.python.with_name("headrace")), *arguments)


def build(folder: Path) -> Built:
    """Run `make dist` into a folder."""
    said = subprocess.run([ROOT / "scripts/dist", folder], capture_output=True, text=True)
    assert said.returncode == 0, said.stderr
    (wheel,), (source,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    return Built(wheel, source, said.stdout)


def install(wheel: Path, folder: Path, extra: str = "") -> Installed:
    """A new environment with the wheel and all that it says it needs, but PyTorch, which is this environment's."""
    python = folder / "environment/bin/python"
    subprocess.run([UV, "venv", "--quiet", folder / "environment"], check=True)
    wanted = [f"{wheel}[{extra}]" if extra else str(wheel), "--overrides", str(ROOT / "scripts/behind.txt")]
    command = [UV, "pip", "install", "--quiet", "--python", python, *wanted]
    if subprocess.run([*command, "--offline"], capture_output=True).returncode != 0:
        subprocess.run(command, check=True)
    place = Path(tempfile.mkdtemp(prefix="work-", dir=folder))
    return Installed(python, place)


def show_torch(installed: Installed) -> None:
    """Packages of this environment are seen behind its own: PyTorch alone would take a minute to install."""
    behind = sysconfig.get_path("purelib")
    (target,) = installed.python.parents[1].glob("lib/python*/site-packages")
    # A mere path: an editable headrace of this environment is not seen by it.
    (target / "behind.pth").write_text(f"{behind}\n")
