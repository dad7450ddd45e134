"""``gs://`` and ``az://`` in a forked child: obstore's threads do not survive a fork, so a helper calls.

The helper (``python -m headrace.store.backends.relay``) is started at a child's first call, speaks pickles over its
standard input and output, and ends when they close. One call at a time: correct, not fast; workers started by spawn or
forkserver need no helper. A listing arrives whole.
"""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, BinaryIO

from headrace.base.errors import HeadraceError, InternalError, TryAgainError
from headrace.store.backends.objects import ObjectStore, open_azure, open_google
from headrace.store.backends.spool import SpoolAssembly
from headrace.store.protocol import (
    Assembly,
    Blob,
    Buffer,
    Capabilities,
    Described,
    Folder,
    ObjectInfo,
    Store,
    StoreOptions,
)
from headrace.store.url import StoreUrl
from headrace.store.wrappers import OnAccount


def open_here(url: StoreUrl, options: StoreOptions) -> ObjectStore:
    """The store, in this process."""
    return open_google(url, options) if url.scheme == "gs" else open_azure(url, options)


class ForkProof(OnAccount):
    """The store itself in the process that opened it, a relay to a helper in any process forked from that one."""

    def __init__(self, url: StoreUrl, options: StoreOptions) -> None:
        self._place = url
        self._options = options
        self._here = open_here(url, options)
        self._there: tuple[int, _Relay] | None = None
        self._pid = os.getpid()
        super().__init__(self._here)

    def __repr__(self) -> str:
        return repr(self._here)

    @property
    def inner(self) -> Store:
        """Whom this process calls."""
        pid = os.getpid()
        if pid == self._pid:
            return self._here
        if self._there is None or self._there[0] != pid:
            self._there = (pid, _Relay(self._place, self._options, self._here.capabilities))
        return self._there[1]

    @inner.setter
    def inner(self, store: Store) -> None:
        assert store is self._here


class _Relay(Store):
    """Calls in a helper process. Any thread of one process."""

    def __init__(self, url: StoreUrl, options: StoreOptions, seen: Capabilities) -> None:
        self.url = str(url)
        self._opening = (url, options)
        self._seen = seen
        self._lock = threading.Lock()
        self._helper: subprocess.Popen[bytes] | None = None

    @property
    def capabilities(self) -> Capabilities:
        return self._seen

    def record(self, seen: Capabilities) -> None:
        self._seen = seen

    def _call(self, name: str, *arguments: Any, **named: Any) -> Any:
        with self._lock:
            try:
                helper = self._helper or self._start()
                assert helper.stdin is not None
                assert helper.stdout is not None
                _send(helper.stdin, (name, arguments, named))
                answer = pickle.load(helper.stdout)  # noqa: S301 - our own child's pipe
            except (OSError, EOFError, pickle.UnpicklingError) as error:
                self._end()
                raise TryAgainError("the helper process ended", path=self.url) from error
            except BaseException:
                self._end()  # an answer may still be on its way: the next call must not take it for its own
                raise
        if isinstance(answer, HeadraceError):
            raise answer
        return answer

    def _start(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "headrace.store.backends.relay"]
        self._helper = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._helper.stdin is not None
        _send(self._helper.stdin, self._opening)
        return self._helper

    def _end(self) -> None:
        helper, self._helper = self._helper, None
        if helper is not None:
            helper.kill()
            helper.wait()
            for pipe in (helper.stdin, helper.stdout):
                if pipe is not None:
                    pipe.close()

    def check_key(self, key: str) -> None:
        self._call("check_key", key)

    def get(self, key: str, start: int = 0, stop: int | None = None, *, if_match: str | None = None) -> Blob:
        data, info = self._call("get", key, start, stop, if_match=if_match)
        return Blob(memoryview(data), info)

    def head(self, key: str) -> ObjectInfo:
        return self._call("head", key)

    def list(self, prefix: str = "", *, start_after: str | None = None) -> Iterator[Sequence[ObjectInfo]]:
        return iter(self._call("list", prefix, start_after=start_after))

    def list_folder(self, prefix: str = "") -> Folder:
        return self._call("list_folder", prefix)

    def put(
        self,
        key: str,
        data: Buffer,
        *,
        if_match: str | None = None,
        create: bool = False,
        metadata: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> ObjectInfo:
        given = {"if_match": if_match, "create": create, "metadata": metadata, "headers": headers}
        return self._call("put", key, bytes(data), **given)

    def describe(self, key: str) -> Described:
        return self._call("describe", key)

    def copy(
        self,
        source: str,
        target: str,
        *,
        metadata: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self._call("copy", source, target, metadata=metadata, headers=headers)

    def assemble(
        self,
        key: str,
        *,
        if_match: str | None = None,
        create: bool = False,
        metadata: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Assembly:
        """The whole object goes to the helper in one piece: its memory is that large for a moment."""
        def publish(file: BinaryIO, _: int) -> ObjectInfo:
            return self.put(
                key, file.read(), if_match=if_match, create=create, metadata=metadata, headers=headers
            )

        return SpoolAssembly(
            key,
            f"{self.url}/{key}",
            lambda source, start, stop, match: self.get(source, start, stop, if_match=match),
            publish,
        )

    def delete(self, keys: Sequence[str]) -> None:
        self._call("delete", list(keys))

    def close(self) -> None:
        with self._lock:
            self._end()


def _send(pipe: BinaryIO | Any, message: object) -> None:
    pickle.dump(message, pipe, protocol=5)
    pipe.flush()


def serve(source: BinaryIO, sink: BinaryIO) -> None:
    """The helper's whole life: open the store, then answer calls until the input ends."""
    store = open_here(*pickle.load(source))  # noqa: S301 - our own parent's pipe
    while True:
        try:
            name, arguments, named = pickle.load(source)  # noqa: S301
        except EOFError:
            return
        _send(sink, _answer(store, name, arguments, named))


def _answer(store: Store, name: str, arguments: tuple[Any, ...], named: dict[str, Any]) -> object:
    try:
        result = getattr(store, name)(*arguments, **named)
        if isinstance(result, Blob):
            return bytes(result.data), result.info
        return list(result) if name == "list" else result
    except HeadraceError as error:
        return error
    except Exception as error:
        return InternalError(f"{type(error).__name__}: {error}", path=store.url)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the caller decides; the pipe's end is the signal
    serve(sys.stdin.buffer, sys.stdout.buffer)
