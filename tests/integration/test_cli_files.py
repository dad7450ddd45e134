"""ls, stat, cat, cp, rm, du, attach, detach, mounts: on this machine's files, and on a real S3 server."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from tests.integration.cli_kit import Shell, s3_shell, shell  # noqa: F401


@pytest.fixture
def tree(shell: Shell) -> Shell:  # noqa: F811
    _grow(shell)
    return shell


def _grow(shell: Shell) -> None:  # noqa: F811
    for name, text in (("a/x.txt", "hello"), ("a/b/y ü.txt", "world!"), ("c/z.bin", "0123456789")):
        shell.file(f"tree/{name}", text)


def test_ls_shows_folders_and_files(tree: Shell) -> None:
    assert tree.run("ls", "tree").out.splitlines() == ["a/", "c/"]
    assert tree.run("ls", "tree/a").out.splitlines() == ["b/", "x.txt"]
    assert "10 B" in tree.run("ls", "-l", "./tree/c").out
    assert len(tree.run("ls", "-r", "tree").out.splitlines()) == 3


def test_json_lists_carry_path_size_in_bytes_and_rfc3339_times(tree: Shell) -> None:
    (entry,) = tree.json("ls", "tree/c")
    assert entry["path"].endswith("/tree/c/z.bin")
    assert (entry["name"], entry["kind"], entry["size"]) == ("z.bin", "file", 10)
    assert entry["mtime"].endswith("Z")
    assert tree.json("mounts") == []


def test_cat_writes_bytes_and_ranges(tree: Shell) -> None:
    assert tree.run("cat", "tree/a/x.txt", "tree/a/b/y ü.txt").out == "helloworld!"
    assert tree.run("cat", "--range", "2:5", "tree/c/z.bin").out == "234"
    assert tree.run("cat", "--range", "7:", "tree/c/z.bin").out == "789"
    assert tree.run("cat", "--range", ":3", "tree/c/z.bin").out == "012"
    tree.fails("cat", "--range", "5:2", "tree/c/z.bin", code=2, says="is not a range")


def test_du_adds_up_each_folder(tree: Shell) -> None:
    sums = {Path(row["path"]).name: (row["files"], row["size"]) for row in tree.json("du", "-d", "2", "tree")}
    assert sums == {"a": (2, 11), "b": (1, 6), "c": (1, 10), "tree": (3, 21)}


def test_cp_places_files_and_trees_as_its_help_says(tree: Shell) -> None:
    tree.run("cp", "tree/c/z.bin", "copy.bin")
    assert (tree.folder / "copy.bin").read_text() == "0123456789"
    tree.run("cp", "tree/c/z.bin", "tree/a")
    assert (tree.folder / "tree/a/z.bin").exists()
    tree.run("cp", "-r", "tree", "one")
    assert (tree.folder / "one/a/b/y ü.txt").read_text() == "world!"
    tree.run("cp", "-r", "tree/a", "tree/c", "several")
    assert (tree.folder / "several/c/z.bin").exists()
    assert (tree.folder / "several/a/b/y ü.txt").exists()
    tree.fails("cp", "tree", "two", code=2, says="is a folder", hint="cp -r")


@pytest.mark.parametrize("follow", [False, True])
def test_cp_of_a_tree_names_what_it_leaves_out(tree: Shell, follow: bool) -> None:
    tree.file("outside/secret", "secret")
    top = tree.folder / "tree"
    (top / "within").symlink_to("c/z.bin")
    (top / "folder within").symlink_to("a")
    (top / "out").symlink_to("../outside/secret")
    (top / "a/folder out").symlink_to(tree.folder / "outside")
    (top / "dangling").symlink_to("nowhere")
    (top / "loop").symlink_to("loop")
    os.mkfifo(top / "pipe")
    (top / "to a pipe").symlink_to("pipe")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(top / "socket"))
    done = tree.run("cp", "-r", *(["--follow"] if follow else []), "tree", "copied")
    copied = {
        str(path.relative_to(tree.folder / "copied")) for path in (tree.folder / "copied").rglob("*") if path.is_file()
    }
    always = {"a/x.txt", "a/b/y ü.txt", "c/z.bin", "within", "folder within/x.txt", "folder within/b/y ü.txt"}
    out = {"out", "a/folder out/secret", "folder within/folder out/secret"}
    assert copied == (always | out if follow else always)
    named = {line.removeprefix("left out: ").split(": is ")[0] for line in done.err.splitlines() if "left out" in line}
    lost = {"dangling", "loop", "pipe", "to a pipe", "socket"}
    assert named == {f"{top}/{name}" for name in (lost if follow else lost | {"out", "a/folder out"})}
    assert not (tree.folder / "copied/within").is_symlink()
    if not follow:
        assert "--follow" in done.err


def test_no_clobber_keeps_what_is_there(tree: Shell) -> None:
    tree.file("kept", "old")
    tree.run("cp", "-n", "tree/c/z.bin", "kept")
    assert (tree.folder / "kept").read_text() == "old"


def test_rm_deletes_files_and_with_r_trees(tree: Shell) -> None:
    tree.fails("rm", "tree", code=2, says="is a folder", hint="rm -r")
    assert len(tree.run("rm", "-r", "-n", "tree").out.splitlines()) == 3
    assert (tree.folder / "tree/c/z.bin").exists()
    tree.run("rm", "tree/c/z.bin")
    assert not (tree.folder / "tree/c/z.bin").exists()
    tree.run("rm", "-r", "tree")
    tree.fails("ls", "tree", code=3, says="tree", hint="headrace ls ")
    tree.fails("rm", "tree/c/z.bin", code=3, says="z.bin")


def test_cat_of_what_is_not_there_says_where_to_look(tree: Shell) -> None:
    tree.fails("cat", "tree/c/none", code=3, says="tree/c/none", hint="headrace ls ")
    tree.fails("cat", "--range", "1:2", "tree/c/none", code=3, says="tree/c/none", hint="headrace ls ")


def test_attach_keeps_the_file_and_its_comments(tree: Shell) -> None:
    tree.file("headrace.toml", "# ours\n[cache]\nsize = '1GB'  # small\n")
    tree.run("attach", "/data", f"file://{tree.folder}/tree", "--read-only")
    text = (tree.folder / "headrace.toml").read_text()
    assert "# ours" in text
    assert "# small" in text
    assert tree.json("mounts") == [{"path": "/data", "url": f"file://{tree.folder}/tree", "read_only": True}]
    assert tree.run("ls", "/data/a").out.splitlines() == ["b/", "x.txt"]
    tree.fails("rm", "/data/a/x.txt", code=4, says="/data/a/x.txt")
    tree.fails("attach", "/data", "file:///elsewhere", "--no-check", code=5, says="/data")
    tree.run("detach", "/data")
    assert tree.json("mounts") == []
    tree.fails("detach", "/data", code=3, says="/data")


def test_attach_keeps_how_a_bucket_is_written_in_urls(shell: Shell) -> None:  # noqa: F811
    words = ("attach", "/data", "s3://bucket", "--no-check", "--endpoint", "https://s3.example.com", "--file")
    shell.run(*words, "host.toml", "--virtual-host-style")
    assert "path_style = false" in (shell.folder / "host.toml").read_text()
    shell.run(*words, "path.toml", "--path-style")
    assert "path_style = true" in (shell.folder / "path.toml").read_text()
    shell.run(*words, "neither.toml")
    assert [line.split()[0] for line in (shell.folder / "neither.toml").read_text().splitlines()[1:]] == [
        "url", "endpoint"
    ]  # fmt: skip


def test_attach_looks_whether_the_store_is_there(s3_shell: Shell) -> None:  # noqa: F811
    s3_shell.fails("attach", "/data", "s3://no-such-bucket-here", code=3, says="no such bucket")
    assert s3_shell.json("mounts") == []
    assert "nothing yet" in s3_shell.run("attach", "/new", s3_shell.variables["BUCKET"] + "/new").out
    s3_shell.fails("attach", "data", "file:///tmp", code=2, says="data")
    s3_shell.fails("attach", "/data", "s4://bucket", "--no-check", code=2, says="s4://bucket")


def test_files_travel_to_s3_and_back(s3_shell: Shell) -> None:  # noqa: F811
    _grow(s3_shell)
    bucket = s3_shell.variables["BUCKET"]
    s3_shell.run("cp", "-r", "tree", f"{bucket}/up")
    assert s3_shell.run("cat", f"{bucket}/up/a/b/y ü.txt").out == "world!"
    s3_shell.run("attach", "/data", f"{bucket}/up")
    s3_shell.run("cp", "-r", "/data", "down")
    assert (s3_shell.folder / "down/a/x.txt").read_text() == "hello"
    assert s3_shell.json("stat", "/data/c/z.bin")["url"] == f"{bucket}/up/c/z.bin"
    s3_shell.run("rm", "-r", "/data/a")
    assert s3_shell.run("ls", "-r", "/data").out.splitlines() == ["/data/c/z.bin"]


@pytest.mark.parametrize(
    ("variables", "url", "code", "says"),
    [
        ({}, "s3://no-such-bucket-here/x", 3, "no such bucket"),
        ({"AWS_SECRET_ACCESS_KEY": "wrong"}, "s3://data", 4, "s3://data"),
        ({"AWS_ACCESS_KEY_ID": "nobody"}, "s3://data", 4, "s3://data"),
        ({"AWS_ENDPOINT_URL_S3": "http://127.0.0.1:9"}, "s3://data", 6, "127.0.0.1:9"),
        ({"AWS_ENDPOINT_URL_S3": "nonsense"}, "s3://data", 2, "endpoint"),
        ({}, "s3:///x", 2, "no bucket"),
        ({}, "s3:/data/x", 2, "two slashes"),
        ({}, "warp://x/y", 2, "warp://x"),
    ],
)
def test_a_users_mistake_is_one_message(
    s3_shell: Shell,  # noqa: F811
    variables: dict[str, str],
    url: str,
    code: int,
    says: str,
) -> None:
    s3_shell.file("headrace.toml", '[stores."s3://data"]\nretries = 1\n')  # of a server that is not there
    s3_shell.fails("ls", url, code=code, says=says, **variables)
