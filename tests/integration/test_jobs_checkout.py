"""A clean checkout of URL@REF: from files, and from git's own HTTP server, with credentials."""

from __future__ import annotations

import base64
import http.server
import json
import logging
import os
import re
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.base.errors import (
    AlreadyExistsError,
    CredentialsError,
    HeadraceError,
    InputError,
    NotFoundError,
    UnreachableError,
)
from headrace.jobs.checkout import Source, checkout
from headrace.jobs.restoring import restore
from tests.code_kit import Repo, own_settings, tree

SECRET = "s3cr:t/%"
QUOTED = "s3cr%3At%2F%25"


@pytest.fixture(autouse=True)
def gitconfig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return own_settings(monkeypatch, tmp_path / "home")


class Published:
    """A bare repository with two branches and two tags."""

    def __init__(self, top: Path) -> None:
        repo = Repo(top / "work")
        repo.write("train.py", "1")
        repo.write("run.sh", "1", executable=True)
        self.first = repo.commit()
        repo.git("tag", "-a", "v1", "-m", "annotated")
        repo.write("train.py", "2")
        self.second = repo.commit("two")
        repo.git("tag", "light@1.0")
        repo.git("checkout", "-q", "-b", "feature/x")
        repo.write("train.py", "3")
        self.third = repo.commit("three")
        repo.write("train.py", "4")
        self.last = repo.commit("four")
        repo.git("checkout", "-q", "main")
        self.path = top / "served/re@po.git"
        repo.git("clone", "-q", "--bare", str(repo.path), str(self.path))
        self.url = f"file://{self.path}"


@pytest.fixture
def published(tmp_path: Path) -> Published:
    return Published(tmp_path)


def test_branches_tags_and_commits(published: Published, tmp_path: Path):
    p = published
    wanted = {
        "main": (p.second, b"2"), "feature/x": (p.last, b"4"), "v1": (p.first, b"1"), "light@1.0": (p.second, b"2"),
        "HEAD": (p.second, b"2"), p.first: (p.first, b"1"), p.third: (p.third, b"3"), p.third[:9]: (p.third, b"3"),
    }  # fmt: skip
    for count, (ref, (commit, body)) in enumerate(wanted.items()):
        into, folder = tmp_path / f"into{count}", tmp_path / f"checkout{count}"
        code = checkout(f"{p.url}@{ref}", str(into), str(folder))
        assert (code.kind, code.commit, code.ref, code.remote) == ("checkout", commit, ref, p.url)
        assert (code.dirty, code.unpushed, code.untracked) == (False, 0, 0)
        assert tree(folder) == {"train.py": ("file", body), "run.sh": ("exec", b"1")}
        assert os.listdir(into) == ["tree.tar.zst"]
        git = ("git", "-C", str(folder), "rev-list", "--count", "HEAD")
        if ref != p.third[:9]:
            assert subprocess.check_output(git, timeout=30) == b"1\n", "one commit deep"
        restore(code, str(into), str(tmp_path / f"out{count}"))
        assert tree(tmp_path / f"out{count}") == tree(folder)
    code = checkout(str(p.path), str(tmp_path / "into"), str(tmp_path / "plain"))
    assert (code.commit, code.ref) == (p.second, "HEAD")


def test_what_is_not_there_leaves_nothing(published: Published, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    folder, into = str(tmp_path / "folder"), str(tmp_path / "into")
    for source in (f"{published.url}@nothing", f"{published.url}@deadbeef", f"{published.url}@{'0' * 39}1"):
        with pytest.raises(NotFoundError) as caught:
            checkout(source, into, folder)
        assert caught.value.path == source
        assert not os.path.exists(folder)
    for source in (f"file://{tmp_path}/nowhere.git@main", f"{tmp_path}/nowhere@main"):
        with pytest.raises(NotFoundError):
            checkout(source, into, folder)
    with pytest.raises(InputError, match=r"code\.limit"):
        checkout(f"{published.url}@main", into, folder, limit=1)
    assert not os.path.exists(folder)
    with pytest.raises(AlreadyExistsError):
        checkout(f"{published.url}@main", into, str(tmp_path / "work"))
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        with pytest.raises(UnreachableError):
            checkout(f"http://127.0.0.1:{taken.getsockname()[1]}/x.git@main", into, folder)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NotFoundError, match="no git"):
        checkout(f"{published.url}@main", into, folder)


def test_submodules_come_and_hooks_do_not_run(published: Published, gitconfig: Path, tmp_path: Path):
    ran, templates = tmp_path / "ran", tmp_path / "templates/hooks"
    templates.mkdir(parents=True)
    for name in ("post-checkout", "reference-transaction"):
        templates.joinpath(name).write_text(f"#!/bin/sh\necho {name} >> {ran}\n")
        templates.joinpath(name).chmod(0o755)
    whole = Repo(tmp_path / "whole")
    whole.write("main.py", "1")
    with open(gitconfig, "a") as file:
        file.write('[protocol "file"]\nallow = always\n')
    whole.git("submodule", "--quiet", "add", published.url, "mod")
    whole.commit()
    with open(gitconfig, "a") as file:
        file.write(f"[core]\nhooksPath = {templates}\n[init]\ntemplateDir = {templates.parent}\n")
    code = checkout(f"{whole.path}@main", str(tmp_path / "into"), str(tmp_path / "folder"))
    assert set(tree(tmp_path / "folder")) == {"main.py", ".gitmodules", "mod/train.py", "mod/run.sh"}
    restore(code, str(tmp_path / "into"), str(tmp_path / "out"))
    assert tree(tmp_path / "out") == tree(tmp_path / "folder")
    assert not ran.exists()


# Over HTTP


class _Handler(http.server.BaseHTTPRequestHandler):
    """git-http-backend(1), for who knows the password."""

    root = ""
    smart = True

    def do_GET(self) -> None:
        known = base64.b64encode(f"us er:{SECRET}".encode()).decode()
        if self.headers.get("Authorization") != f"Basic {known}":
            self.send_response(401)
            self.send_header("WWW-Authenticate", 'Basic realm="x"')
            self.end_headers()
            return
        path, _, query = self.path.partition("?")
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        variables = {
            "GIT_PROJECT_ROOT": self.root, "GIT_HTTP_EXPORT_ALL": "1", "PATH_INFO": path.replace("%40", "@"),
            "QUERY_STRING": query if self.smart else "", "REQUEST_METHOD": self.command, "REMOTE_USER": "x",
            "CONTENT_TYPE": self.headers.get("Content-Type", ""), "CONTENT_LENGTH": str(len(body)),
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""), "PATH": os.environ["PATH"],
            "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""), "GIT_CONFIG_GLOBAL": os.environ["GIT_CONFIG_GLOBAL"],
        }  # fmt: skip
        done = subprocess.run(["git", "http-backend"], input=body, env=variables, capture_output=True, timeout=60)
        head, _, content = done.stdout.partition(b"\r\n\r\n")
        fields = dict(line.split(": ", 1) for line in head.decode().split("\r\n"))
        self.send_response(int(fields.pop("Status", "200").split()[0]))
        for name, value in fields.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_POST = do_GET

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture(params=[True, False], ids=["smart", "dumb"])
def server(request: pytest.FixtureRequest, published: Published) -> Iterator[str]:
    """``host:port``."""
    subprocess.run(["git", "update-server-info"], cwd=published.path, check=True, timeout=30)
    handler = type("Handler", (_Handler,), {"root": str(published.path.parent), "smart": request.param})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as serving:
        thread = threading.Thread(target=serving.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield f"127.0.0.1:{serving.server_address[1]}"
        finally:
            serving.shutdown()
            thread.join()


def arguments_seen(over: threading.Event, seen: set[bytes]) -> None:
    """What any program on this machine was started with."""
    while not over.wait(0.002):
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                seen.add(Path("/proc", pid, "cmdline").read_bytes())
            except OSError:
                continue


def test_credentials_are_used_and_kept_nowhere(
    server: str, published: Published, tmp_path: Path, gitconfig: Path, caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.DEBUG)
    with open(gitconfig, "a") as file:  # whom the user asks otherwise: not asked, not told
        file.write(f"[credential]\nhelper = store --file={tmp_path}/stored\n")
    over, seen = threading.Event(), set[bytes]()
    looking = threading.Thread(target=arguments_seen, args=(over, seen))
    looking.start()
    try:
        source = f"http://us%20er:{QUOTED}@{server}/re@po.git@feature/x"
        code = checkout(source, str(tmp_path / "into"), str(tmp_path / "folder"))
    finally:
        over.set()
        looking.join()
    assert (code.commit, code.remote) == (published.last, f"http://{server}/re@po.git")
    assert any(b"fetch" in one and server.encode() in one for one in seen), "git was not seen: this proves nothing"
    held = [json.dumps(code.as_json()).encode(), repr(Source.parse(source)).encode(), caplog.text.encode(), *seen]
    held += [path.read_bytes() for path in tmp_path.glob("folder/**/*") if path.is_file()]
    held += [path.read_bytes() for path in tmp_path.glob("into/*")]
    pattern = re.compile(b"|".join(map(re.escape, (SECRET.encode(), QUOTED.encode(), b"us%20er"))))
    assert not any(map(pattern.search, held))
    assert not tmp_path.joinpath("stored").exists()


def test_wrong_credentials_are_told_without_them(server: str, tmp_path: Path):
    for userinfo in ("us%20er:wr0ng@", "wr0ng@", ""):
        with pytest.raises(CredentialsError) as caught:
            checkout(f"http://{userinfo}{server}/re@po.git@main", str(tmp_path / "into"), str(tmp_path / "folder"))
        assert "wr0ng" not in f"{caught.value!s} {caught.value!r} {caught.value.path}"
        assert not tmp_path.joinpath("folder").exists()


def test_the_users_own_credentials_are_used(server: str, published: Published, tmp_path: Path, gitconfig: Path):
    tmp_path.joinpath("stored").write_text(f"http://us%20er:{QUOTED}@{server}\n")
    with open(gitconfig, "a") as file:
        file.write(f"[credential]\nhelper = store --file={tmp_path}/stored\n")
    code = checkout(f"http://{server}/re@po.git@v1", str(tmp_path / "into"), str(tmp_path / "folder"))
    assert code.commit == published.first


# What is written before and behind the @


@pytest.mark.parametrize(
    ("source", "url", "ref"),
    [
        ("https://h/x.git@main", "https://h/x.git", "main"),
        ("https://h/x", "https://h/x", "HEAD"),
        ("https://u:p@h/x", "https://h/x", "HEAD"),
        ("https://u:p@h:1/x@feature/y@2", "https://h:1/x@feature/y", "2"),
        ("https://u:p@h:1/x.git@feature/y@2", "https://h:1/x.git", "feature/y@2"),
        ("git@h:o/x.git", "git@h:o/x.git", "HEAD"),
        ("git@h:o/x.git@v1", "git@h:o/x.git", "v1"),
        ("h:o/x@v1", "h:o/x", "v1"),
        ("ssh://git:p@h/o/x@v1", "ssh://git@h/o/x", "v1"),
        ("/local/x@v1", "/local/x", "v1"),
        ("file:///a@b/x.git@v1", "file:///a@b/x.git", "v1"),
    ],
)
def test_a_source_is_taken_apart(source: str, url: str, ref: str):
    found = Source.parse(source)
    assert (found.url, found.ref) == (url, ref)


@pytest.mark.parametrize(
    "source",
    ["", "@main", "https://h/x@", "--upload-pack=touch x@main", "https://h/x.git@--force", "https://h/x.git@+a:b",
     "ext::sh -c x@main", "https://h/x.git@a b", "https://h/x.git@a\nb", "https://u:%0Ax@h/x@main"],
)  # fmt: skip
def test_what_is_no_source_is_refused(source: str, tmp_path: Path):
    with pytest.raises(HeadraceError) as caught:
        checkout(source, str(tmp_path / "into"), str(tmp_path / "folder"))
    assert isinstance(caught.value, InputError)
    assert not tmp_path.joinpath("folder").exists()
