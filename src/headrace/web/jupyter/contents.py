# pyright: reportMissingImports=false, reportUntypedBaseClass=false, reportUntypedFunctionDecorator=false
"""The namespace as Jupyter's contents, for jupyter-fs: read-only unless told, and no store is called on Jupyter's loop.

jupyter-fs has contents for any fsspec file system. They are not used, since they ask for each name of a folder singly,
take every drive for writable, and wait for the store where kernels and terminals wait too.

Source: Jupyter Server, "Contents API" (https://jupyter-server.readthedocs.io/en/latest/developers/contents.html).
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import mimetypes
from collections.abc import Callable, Generator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, Final

import nbformat
from jupyter_core.utils import ensure_async
from jupyter_server.services.contents.checkpoints import AsyncCheckpoints
from jupyter_server.services.contents.manager import AsyncContentsManager
from jupyterfs.metamanager import MetaManager
from tornado.web import HTTPError
from traitlets import Bool

from headrace.base.errors import HeadraceError, NotFoundError
from headrace.base.units import format_bytes
from headrace.namespace import Entry, Namespace, paths
from headrace.web.failures import failure_of

MOST: Final = 256 << 20
"""Bytes of the largest file that is given to a browser: Jupyter holds all of it, several times."""
_OURS: Final = "headrace://"
_READ_ONLY: Final = "is read-only here: headrace jupyter --allow-writes permits changes"
Model = dict[str, Any]


class _NoCheckpoints(AsyncCheckpoints):
    """A store keeps whole versions or none; Jupyter's own copies beside a file would be objects of the bucket."""

    async def create_checkpoint(self, contents_mgr: Any, path: str) -> Model:  # noqa: ARG002
        return {"id": "none", "last_modified": datetime.now(UTC)}

    async def list_checkpoints(self, path: str) -> list[Model]:  # noqa: ARG002
        return []

    async def restore_checkpoint(self, contents_mgr: Any, checkpoint_id: str, path: str) -> None:  # noqa: ARG002
        raise HTTPError(400, "there are no checkpoints here")

    async def delete_checkpoint(self, checkpoint_id: str, path: str) -> None: ...

    async def rename_checkpoint(self, checkpoint_id: str, old_path: str, new_path: str) -> None: ...


class Drive(AsyncContentsManager):
    """What lies below one folder of the namespace, or URL. On Jupyter's loop; threads wait for the store."""

    def __init__(self, namespace: Namespace, root: str, *, allow_writes: bool, parent: Any) -> None:
        super().__init__(parent=parent)
        self._namespace, self._root, self._writes = namespace, root, allow_writes
        self._made = datetime.now(UTC)
        self._pieces: dict[str, list[bytes]] = {}
        self.checkpoints = _NoCheckpoints(parent=self)

    # looking

    async def is_hidden(self, path: str) -> bool:
        """As on Unix: a part begins with a dot."""
        return any(part.startswith(".") for part in path.split("/"))

    async def file_exists(self, path: str = "") -> bool:
        found = await self._stat(path)
        return found is not None and found.is_file

    async def dir_exists(self, path: str) -> bool:
        return await self._stat(path, "directory") is not None

    async def get(self, path: str, content: bool = True, type: str | None = None, format: str | None = None) -> Model:  # noqa: A002
        """A model: of a folder with those of its names, of a file with its bytes as text or base64.

        Raises HTTPError: 404, 403, 413 (too large), 400 (not of that type or format), 503 (the store is away).
        """
        entry = await self._stat(path, type)
        if entry is None:
            raise HTTPError(404, f"there is no {path}")
        model = self._model(entry, path)
        if type == "directory" and entry.is_file:
            raise HTTPError(400, f"{path} is a file", reason="bad type")
        if not entry.is_file:
            if type not in (None, "directory"):
                raise HTTPError(400, f"{path} is a folder", reason="bad type")
            return await self._with_names(model, path) if content else model
        if type is not None:
            model["type"] = type
        if not content:
            return model
        if entry.size > MOST:
            size = f"{format_bytes(entry.size)} are more than the {format_bytes(MOST)} that a browser is given"
            raise HTTPError(413, f"{path}: {size}: headrace cp {self._at(path)} .")
        data = bytes(await self._aside(self._namespace.read, self._at(path)))
        return self._as_notebook(model, data) if model["type"] == "notebook" else _as_file(model, data, format)

    # changing

    async def save(self, model: Model, path: str = "") -> Model:
        """Write a whole file, or take a piece of one. Raises HTTPError."""
        self._check_writable(path)
        kind = model.get("type")
        if kind == "directory":
            raise HTTPError(400, f"{path}: a store keeps no empty folders; a folder is there once a file is in it")
        self.run_pre_save_hook(model=model, path=path)
        if kind == "notebook":
            notebook = nbformat.from_dict(model["content"])
            self.check_and_sign(notebook, path)
            data = nbformat.writes(notebook, version=nbformat.NO_CONVERT).encode()
        else:
            data = self._collected(model, path) if model.get("chunk") else _bytes(model, path)
        if data is None:
            return self._model(Entry(path.rpartition("/")[2], self._at(path), "file"), path)
        await self._aside(self._namespace.write, self._at(path), data)
        return await self.get(path, content=False)

    def _collected(self, model: Model, path: str) -> bytes | None:
        """What a browser sends in pieces, once the last (-1) has come: nothing is written before. Raises HTTPError."""
        number = int(model["chunk"])
        if number == 1:
            self._pieces[path] = []
        pieces = self._pieces.get(path)
        if pieces is None or number not in (-1, len(pieces) + 1):
            raise HTTPError(409, f"{path}: a piece of it did not come: send it again")
        pieces.append(_bytes(model, path))
        while sum(len(piece) for some in self._pieces.values() for piece in some) > MOST:
            given_up = next(iter(self._pieces))  # begun first: most likely by a browser that is gone
            del self._pieces[given_up]
            if given_up == path:
                raise HTTPError(413, f"{path}: more than {format_bytes(MOST)} do not go through a browser: headrace cp")
        return b"".join(self._pieces.pop(path)) if number == -1 else None

    async def delete_file(self, path: str) -> None:
        """One file; what is in a folder is more than a click should delete. Raises HTTPError."""
        self._check_writable(path)
        await self._check_file(path, "headrace rm -r")
        await self._aside(self._namespace.delete, self._at(path))

    async def rename_file(self, old_path: str, new_path: str) -> None:
        """One file, by a copy. Raises HTTPError."""
        self._check_writable(old_path)
        await self._check_file(old_path, "headrace cp -r")
        if await self._stat(new_path) is not None:
            raise HTTPError(409, f"{new_path} is there already")
        await self._aside(self._namespace.copy, self._at(old_path), self._at(new_path))
        await self._aside(self._namespace.delete, self._at(old_path))

    def _check_writable(self, path: str) -> None:
        if not self._writes:
            raise HTTPError(403, f"{self._at(path)} {_READ_ONLY}")

    async def _check_file(self, path: str, instead: str) -> None:
        entry = await self._stat(path)
        if entry is None:
            raise HTTPError(404, f"there is no {path}")
        if not entry.is_file:
            raise HTTPError(400, f"{path} is a folder, whose files go one by one here: {instead} {self._at(path)}")

    # the rest

    def _at(self, path: str) -> str:
        """The path or URL in the namespace."""
        key = path.strip("/")
        return paths.join(self._root, key) if key else self._root

    async def _stat(self, path: str, type: str | None = None) -> Entry | None:  # noqa: A002
        where = self._at(path)
        if type == "directory" and not where.endswith("/"):
            where += "/"  # where a file has this name too
        return await self._aside(lambda: _found(self._namespace, where))

    async def _aside(self, work: Callable[..., Any], *arguments: Any) -> Any:
        with _http_errors():
            return await asyncio.to_thread(work, *arguments)

    async def _with_names(self, model: Model, path: str) -> Model:
        entries = await self._aside(lambda: self._namespace.list(self._at(path), refresh=True))
        names = [entry for entry in entries if self.allow_hidden or not entry.name.startswith(".")]
        model["content"] = [self._model(entry, f"{path.strip('/')}/{entry.name}") for entry in names]
        model["format"] = "json"
        return model

    def _model(self, entry: Entry, path: str) -> Model:
        """What a store tells no time of, as of a folder, is as old as this drive."""
        known = datetime.fromtimestamp(entry.mtime_us / 1e6, UTC) if entry.mtime_us else self._made
        kind = "directory" if not entry.is_file else "notebook" if entry.name.endswith(".ipynb") else "file"
        return {
            "name": path.strip("/").rpartition("/")[2], "path": path.strip("/"), "type": kind, "created": known,
            "last_modified": known, "size": entry.size if entry.is_file else None, "writable": self._writes,
            "mimetype": mimetypes.guess_type(entry.name)[0] if kind == "file" else None, "content": None,
            "format": None,
        }  # fmt: skip

    def _as_notebook(self, model: Model, data: bytes) -> Model:
        try:
            notebook = nbformat.reads(data.decode(), as_version=4)
        except Exception as error:  # nbformat's own, and those of JSON
            raise HTTPError(400, f"{model['path']} is no notebook: {error}") from None
        self.mark_trusted_cells(notebook, model["path"])
        model |= {"content": notebook, "format": "json"}
        self.validate_notebook_model(model)
        return model


class HeadraceContents(MetaManager):
    """jupyter-fs's drives, of which those at ``headrace://`` are `Drive`."""

    allow_writes: bool = Bool(
        default_value=False, config=True, help="whether files at headrace:// may be saved, renamed and deleted"
    )

    def initResource(self, *resources: Any, options: Any = None) -> Any:  # noqa: N802 - jupyter-fs's name
        """As jupyter-fs's."""
        told = super().initResource(*resources, options=options or {})
        for one in told:
            drive, url = one["drive"], str(one["url"])
            if url.startswith(_OURS) and drive in self._managers and not isinstance(self._managers[drive], Drive):
                root = url.removeprefix(_OURS).rstrip("/") or "/"
                namespace = Namespace.load(local=False, read_only=not self.allow_writes)
                self._managers[drive] = Drive(namespace, root, allow_writes=self.allow_writes, parent=self)
        return told


def _awaited(name: str) -> Any:
    """jupyter-fs hands on what a drive answers; what is still to be waited for, is here."""

    async def call(self: Any, *arguments: Any, **options: Any) -> Any:
        return await ensure_async(await getattr(super(HeadraceContents, self), name)(*arguments, **options))

    return call


for _name in ("is_hidden", "file_exists", "dir_exists", "exists", "get", "save", "delete", "rename",
              "create_checkpoint", "list_checkpoints", "restore_checkpoint", "delete_checkpoint"):  # fmt: skip
    setattr(HeadraceContents, _name, _awaited(_name))


def _found(namespace: Namespace, where: str) -> Entry | None:
    try:
        return namespace.stat(where, refresh=True)
    except NotFoundError:
        return None


def _as_file(model: Model, data: bytes, format: str | None) -> Model:  # noqa: A002
    """As text where it is UTF-8, unless base64 is asked for."""
    try:
        text = None if format == "base64" else data.decode()
    except UnicodeDecodeError:
        if format == "text":
            raise HTTPError(400, f"{model['path']} is not UTF-8", reason="bad format") from None
        text = None
    if text is None:
        bytes_as_text = base64.encodebytes(data).decode("ascii")
        told = {"content": bytes_as_text, "format": "base64", "mimetype": "application/octet-stream"}
    else:
        told = {"content": text, "format": "text", "mimetype": "text/plain"}
    return {**model, **told, "mimetype": model["mimetype"] or told["mimetype"]}


def _bytes(model: Model, path: str) -> bytes:
    try:
        content = str(model["content"])
        return base64.b64decode(content) if model.get("format") == "base64" else content.encode()
    except (KeyError, binascii.Error, UnicodeError) as error:
        raise HTTPError(400, f"{path}: what came cannot be saved: {error}") from None


@contextmanager
def _http_errors() -> Generator[None]:
    """Ours, as answers with the hint."""
    try:
        yield
    except HeadraceError as error:
        told = failure_of(error)
        where = f"{told.path}: " if told.path else ""
        raise HTTPError(told.status, where + told.message + (f" ({told.hint})" if told.hint else "")) from error
