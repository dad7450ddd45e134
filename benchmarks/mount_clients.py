"""What programs that write many small files are given: the same files of 4 KiB as a folder, a tar file, a wheel and a
git repository, made once below ``benchmarks/data/``. Nothing comes from a network.
"""

from __future__ import annotations

import base64
import hashlib
import os
import random
import shutil
import subprocess
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

EACH = 4096
"""Bytes of a file: what the store is asked for when it is looked whether all are there."""
PACKAGE = "headrace_bench_files"
_FORMAT = "1"
_PER_FOLDER = 100
_QUIET = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
_WHO = ("-c", "user.name=bench", "-c", "user.email=bench@localhost")


@dataclass(frozen=True)
class Files:
    """`count` files, and where each form of them lies."""

    count: int
    root: Path

    @property
    def tree(self) -> Path:
        """As a folder."""
        return self.root / "tree"

    @property
    def tar(self) -> Path:
        """As a tar file."""
        return self.root / "tree.tar"

    @property
    def wheels(self) -> Path:
        """A folder that holds them as a wheel."""
        return self.root / "wheels"

    @property
    def repository(self) -> Path:
        """As a git repository of one commit, packed."""
        return self.root / "repository"


def prepare(root: Path, count: int) -> Files:
    """Make all forms below `root` unless they are there."""
    files = Files(count, root)
    stamp, wanted = root / "complete", f"{_FORMAT} {count}"
    if stamp.exists() and stamp.read_text() == wanted:
        return files
    shutil.rmtree(root, ignore_errors=True)
    rng = random.Random(5)
    for number in range(count):
        target = files.tree / f"{number // _PER_FOLDER:02d}" / f"{number:06d}.bin"
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(rng.randbytes(EACH))
    subprocess.run(["tar", "cf", files.tar, "-C", files.tree, "."], check=True)
    _wheel(files)
    _repository(files)
    stamp.write_text(wanted)
    return files


def _wheel(files: Files) -> None:
    """The files as a package that installs as it is (PyPA, "Binary distribution format")."""
    files.wheels.mkdir()
    about = f"{PACKAGE}-1.dist-info"
    held = {f"{PACKAGE}/{path.relative_to(files.tree)}": path.read_bytes() for path in _all(files.tree)}
    held[f"{about}/METADATA"] = f"Metadata-Version: 2.1\nName: {PACKAGE}\nVersion: 1\n".encode()
    held[f"{about}/WHEEL"] = b"Wheel-Version: 1.0\nGenerator: bench\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    with zipfile.ZipFile(files.wheels / f"{PACKAGE}-1-py3-none-any.whl", "w") as wheel:
        for name, data in held.items():
            wheel.writestr(name, data)
        wheel.writestr(f"{about}/RECORD", _record(held) + f"{about}/RECORD,,\n")


def _record(held: Mapping[str, bytes]) -> str:
    def digest(data: bytes) -> str:
        return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()

    return "".join(f"{name},sha256={digest(data)},{len(data)}\n" for name, data in held.items())


def _repository(files: Files) -> None:
    shutil.copytree(files.tree, files.repository)
    for command in (("init", "-q"), ("add", "."), (*_WHO, "commit", "-qm", "files"), ("gc", "-q", "--force")):
        subprocess.run(["git", *command], cwd=files.repository, env={**os.environ, **_QUIET}, check=True)


def _all(folder: Path) -> Sequence[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())
