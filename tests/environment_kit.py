"""For the tests of environments: projects and wheels without a network, an index that can hang, a small real image."""

from __future__ import annotations

import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import threading
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import headrace
from headrace.jobs.environment import EnvironmentRequest, Node, Prepared, prepare


def wheel(
    folder: Path, name: str, version: str, files: Mapping[str, str], *, needs: str = "", script: str = ""
) -> Path:
    """A wheel, written by hand. `needs`: one requirement; `script`: ``name = module:function``.

    Format: https://packaging.python.org/en/latest/specifications/binary-distribution-format/
    """
    folder.mkdir(parents=True, exist_ok=True)
    path, about = folder / f"{name}-{version}-py3-none-any.whl", f"{name}-{version}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n" + (
        f"Requires-Dist: {needs}\n" if needs else ""
    )
    with zipfile.ZipFile(path, "w") as file:
        for inner, body in files.items():
            file.writestr(inner, body)
        file.writestr(f"{about}/METADATA", metadata)
        file.writestr(
            f"{about}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        if script:
            file.writestr(f"{about}/entry_points.txt", f"[console_scripts]\n{script}\n")
        file.writestr(f"{about}/RECORD", "")
    return path


def uv_program() -> str | None:
    return shutil.which("uv", path=os.pathsep.join([os.path.dirname(sys.executable), os.environ.get("PATH", "")]))


@dataclass
class Project:
    """A job's code folder with a lock file, and a node of its own to build on."""

    code: Path
    node: Node
    said: list[str]

    def locked(self, *needs: str, more: str = "") -> None:
        """Write pyproject.toml and let uv lock it, from the wheels in ``wheels/``."""
        listed = ", ".join(f'"{one}"' for one in needs)
        (self.code / "pyproject.toml").write_text(
            f'[project]\nname = "job"\nversion = "1"\nrequires-python = ">=3.9"\ndependencies = [{listed}]\n'
            f'[tool.uv]\nfind-links = ["wheels"]\n{more}'
        )
        program = uv_program()
        assert program is not None
        environ = {**self.node.inherited, "UV_OFFLINE": "1"}
        subprocess.run([program, "lock"], cwd=self.code, env=environ, check=True, capture_output=True, timeout=60)

    def requires(self, *lines: str) -> None:
        """Write requirements.txt, from the same wheels."""
        (self.code / "requirements.txt").write_text("\n".join(["--no-index", "--find-links wheels", *lines, ""]))

    def prepare(self, lock: str | None = "uv.lock", **asked: str) -> Prepared:
        return prepare(EnvironmentRequest(lock, **asked), str(self.code), self.node, run="r", tell=self.said.append)

    def built(self) -> int:
        """How often an environment was built."""
        return sum(line.startswith("building") for line in self.said)


def run(prepared: Prepared, *argv: str, folder: Path, **variables: str) -> str:
    """What a command in it says. It must end well."""
    made = prepared.command(argv, folder=str(folder), variables=variables)
    done = subprocess.run(
        made.argv,
        env=made.environment,
        cwd=made.folder,
        capture_output=True,
        text=True,
        timeout=60,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


DRIVER = """
import os, subprocess, sys
from headrace.jobs.environment import EnvironmentRequest, Node, prepare
lock, code, cache = sys.argv[1:4]
node = Node(cache, dict(os.environ))
print("ready", flush=True)
sys.stdin.readline()
with prepare(EnvironmentRequest(lock), code, node, run="r", tell=lambda line: print("said", line, flush=True)) as made:
    code = "import sys, headrace; print(sys.prefix, headrace.__version__)"
    ran = made.command(["python", "-c", code], folder="/", variables={})
    os.chdir(ran.folder)
    print("ran", subprocess.check_output(ran.argv, env=ran.environment, text=True).strip(), flush=True)
"""
"""Another process that prepares, once it reads a line: prints ``ready``, ``said …``, ``ran PREFIX VERSION``."""


@contextmanager
def driver(project: Project, lock: str, source: Path | None = None) -> Iterator[subprocess.Popen[str]]:
    """`DRIVER`, ready; with headrace from `source`."""
    environ = {**project.node.inherited, "PYTHONPATH": str(source or Path(headrace.__file__).parent.parent)}
    process = subprocess.Popen(
        [sys.executable, "-c", DRIVER, lock, str(project.code), project.node.cache],
        env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process
    finally:
        process.kill()
        process.communicate()


class Index:
    """A package index on loopback that answers only while it is `open`.

    Format: https://packaging.python.org/en/latest/specifications/simple-repository-api/
    """

    def __init__(self, wheels: Path) -> None:
        self.open = threading.Event()
        self.asked = threading.Event()
        self._over = threading.Event()
        index = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                index.asked.set()
                while not index.open.wait(0.1):
                    if index._over.is_set():
                        return
                found = re.fullmatch(r"/simple/([a-z]+)/", self.path)
                if found:
                    names = [path.name for path in wheels.glob(f"{found[1]}-*.whl")]
                    body, kind = "".join(f'<a href="/{name}">{name}</a>' for name in names).encode(), "text/html"
                else:
                    body, kind = (wheels / Path(self.path).name).read_bytes(), "application/octet-stream"
                self.send_response(200)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/simple"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()

    def close(self) -> None:
        self._over.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


# Images


@dataclass
class Podman:
    """podman with storage of its own below `root`: nothing of the machine's is seen or changed."""

    program: str
    root: Path
    environ: dict[str, str]

    @classmethod
    def alone(cls, program: str) -> Podman:
        # Not in pytest's folder: podman waits 10 s for each socket whose path is longer than a socket's may be.
        root = Path(tempfile.mkdtemp(prefix="headrace-podman-"))
        driver = "overlay" if "overlay" in Path("/proc/filesystems").read_text() and os.getuid() == 0 else "vfs"
        (root / "storage.conf").write_text(
            f'[storage]\ndriver = "{driver}"\ngraphroot = "{root}/graph"\nrunroot = "{root}/run"\n'
        )
        podman = cls(program, root, {**os.environ, "CONTAINERS_STORAGE_CONF": str(root / "storage.conf")})
        podman.environ["CONTAINERS_CONF"] = podman.configured("usual")
        return podman

    def configured(self, name: str, containers: str = "", engine: str = "") -> str:
        """A containers.conf. Locks are files, since podman leaves those in shared memory behind."""
        path = self.root / f"{name}.conf"
        path.write_text(
            f'[containers]\n{containers}\n[engine]\nlock_type = "file"\ntmp_dir = "{self.root}/tmp"\n'
            f'events_logger = "none"\ncgroup_manager = "cgroupfs"\n{engine}\n'
        )
        return str(path)

    def __call__(self, *words: str, given: bytes | None = None, check: bool = True) -> str:
        done = subprocess.run([self.program, *words], env=self.environ, input=given, capture_output=True, timeout=120)
        assert done.returncode == 0 or not check, done.stderr.decode()
        return done.stdout.decode().strip()

    def close(self) -> None:
        self("rm", "--force", "--all", check=False)
        self("rmi", "--force", "--all", check=False)
        for line in reversed(Path("/proc/self/mounts").read_text().splitlines()):
            where = line.split()[1]
            if where.startswith(f"{self.root}/"):
                subprocess.run(["umount", "--lazy", where], check=False)
        shutil.rmtree(self.root, ignore_errors=True)


OWN = {"ofimage.py": "HERE = 'image'\n", "sitecustomize.py": "import sys\nsys.own_site = True\n"}
"""What lies in an image's ``/own``, which its ``PYTHONPATH`` names."""


def image_tar(busybox: str) -> bytes:
    """A root file system: busybox, and the Python that runs the tests with the libraries it loads."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for folder in ("bin", "tmp", "usr/bin", "own", "etc"):
            made = tarfile.TarInfo(folder)
            made.type, made.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(made)
        tar.add(busybox, "bin/busybox")
        for name in ("sh", "id", "env", "cat", "sleep", "ls", "touch", "true", "false"):
            _link(tar, f"bin/{name}", "busybox")
        version = f"python{sys.version_info.major}.{sys.version_info.minor}"
        program = os.path.realpath(Path(sys.base_prefix, "bin", version))
        tar.add(program, program.lstrip("/"))
        _link(tar, "usr/bin/python3", program)
        for library in _libraries(program) | _libraries(getattr(zlib, "__file__", program)):
            tar.add(os.path.realpath(library), library.lstrip("/"))
        tar.add(_stdlib(version), _stdlib(version).lstrip("/"), filter=_needed)
        for name, text in OWN.items():
            _file(tar, f"own/{name}", text)
    return buffer.getvalue()


def _stdlib(version: str) -> str:
    return str(Path(sys.base_prefix, "lib", version))


def _libraries(program: str) -> set[str]:
    said = subprocess.run(["ldd", program], capture_output=True, text=True, check=False).stdout
    return set(re.findall(r"(?:=> |^\s)(/\S+) \(0x", said, re.MULTILINE))


_FOLDERS = ("encodings", "importlib", "collections", "re", "json", "logging", "tomllib", "urllib", "lib-dynload")


def _needed(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """Enough of the standard library to start, to import headrace and to log."""
    folder = re.search(r"/lib/python[^/]*/([^/]+)/", f"{entry.name}/" if entry.isdir() else entry.name)
    return entry if folder is None or folder[1] in _FOLDERS else None


def _link(tar: tarfile.TarFile, name: str, target: str) -> None:
    entry = tarfile.TarInfo(name)
    entry.type, entry.linkname = tarfile.SYMTYPE, target
    tar.addfile(entry)


def _file(tar: tarfile.TarFile, name: str, text: str) -> None:
    entry, body = tarfile.TarInfo(name), text.encode()
    entry.size, entry.mode = len(body), 0o644
    tar.addfile(entry, io.BytesIO(body))


def debian_tar() -> bytes:
    """A Debian with its own Python, made by debootstrap: needs Debian's mirror, and a minute or more."""
    program = shutil.which("debootstrap", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    assert program is not None, "apt install debootstrap"
    with tempfile.TemporaryDirectory() as folder:
        words = [program, "--variant=minbase", "--include=python3-minimal", "stable", folder]
        subprocess.run(words, check=True, capture_output=True, timeout=600)
        own = Path(folder, "own")
        own.mkdir()
        for name, text in OWN.items():
            (own / name).write_text(text)
        return subprocess.run(["tar", "-C", folder, "-c", "."], check=True, capture_output=True).stdout
