"""One shard or table opened by itself: from a folder here, and from a web server that lists nothing."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import headrace as hr
from headrace.base.errors import HeadraceError, InputError, NotFoundError
from headrace.testing.servers import Nginx

pytestmark = pytest.mark.server

_ROWS = 5


def tar() -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for number in range(_ROWS):
            member = tarfile.TarInfo(f"{number}.x")
            member.size = 1
            archive.addfile(member, io.BytesIO(str(number).encode()))
    return out.getvalue()


def written(folder: Path) -> Path:
    """One object of each kind, some under names that say nothing."""
    folder.mkdir()
    table = pa.table({"x": range(_ROWS)})
    lines = "".join(json.dumps({"x": number}) + "\n" for number in range(_ROWS)).encode()
    numbers = io.BytesIO()
    np.save(numbers, np.arange(_ROWS))
    for name, data in {
        "a.tar": tar(),
        "a.tar.gz": gzip.compress(tar()),
        "a.jsonl": lines,
        "a.jsonl.gz": gzip.compress(lines),
        "a.npy": numbers.getvalue(),
        "tarred": tar(),
        "a b.tar": tar(),
        "note.txt": b"nothing that anybody knows",
    }.items():
        (folder / name).write_bytes(data)
    for name in ("a.parquet", "parqueted"):
        pq.write_table(table, folder / name)
    for name in ("a.arrow", "arrowed"):
        with pa.OSFile(str(folder / name), "wb") as file, pa.ipc.new_file(file, table.schema) as out:
            out.write_table(table)
    return folder


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """URLs of the folder, by where it is read from."""
    root = tmp_path_factory.mktemp("served")
    written(root / "s")
    with Nginx(root) as nginx:
        yield {"file": f"file://{root}/s", "http": f"{nginx.endpoint}/s"}


@pytest.mark.parametrize("by", ["file", "http"])
@pytest.mark.parametrize(
    ("name", "format_"),
    [
        *((name, None) for name in ("a.tar", "a.tar.gz", "a.jsonl", "a.jsonl.gz", "a.npy", "a.parquet", "a.arrow")),
        *((name, None) for name in ("tarred", "parqueted", "arrowed", "a b.tar")),
        *(("tarred", "tar"), ("a.jsonl", "jsonl"), ("parqueted", "parquet"), ("arrowed", "arrow")),
    ],
)
def test_it_opens(served: dict[str, str], by: str, name: str, format_: str | None) -> None:
    dataset = hr.Dataset.open(f"{served[by]}/{name}", format=format_)
    assert len(dataset) == _ROWS
    keys = [sample["__key__"] for sample in dataset.loader()]
    assert len(set(keys)) == _ROWS
    [values] = {tuple(int(bytes(s["x"]) if "tar" in name else s.get("x", s.get("data"))) for s in dataset.loader())}
    assert sorted(values) == list(range(_ROWS))


@pytest.mark.parametrize("by", ["file", "http"])
def test_what_nothing_tells_is_said_to_be_one_object(served: dict[str, str], by: str) -> None:
    for format_ in (None, "objects"):
        with pytest.raises(InputError, match="is one object") as refused:
            hr.Dataset.open(f"{served[by]}/note.txt", format=format_)
        assert "format=" in (refused.value.hint or "")


def test_what_is_not_there_or_is_a_folder_is_said_as_before(served: dict[str, str]) -> None:
    for name in ("none.tar", "none"):
        with pytest.raises(NotFoundError, match="holds no objects"):
            hr.Dataset.open(f"{served['file']}/{name}")
    for url in (f"{served['http']}/", served["http"], f"{served['http']}/none.tar"):
        with pytest.raises(HeadraceError, match="does not do that") as refused:
            hr.Dataset.open(url)
        assert "WebDAV" in (refused.value.hint or "")
