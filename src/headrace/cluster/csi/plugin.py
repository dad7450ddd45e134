"""The plugin's services over gRPC, on a unix socket: identity and node."""

from __future__ import annotations

import logging
import os
import socket
import stat
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Final

import grpc

from headrace import __version__
from headrace.base import errors
from headrace.base.errors import HeadraceError, InputError
from headrace.base.settings import Settings
from headrace.cluster.csi.asked import credentials, volume_of, where
from headrace.cluster.csi.messages import METHODS, PACKAGE, messages
from headrace.cluster.csi.volumes import DRIVER, BusyError, Volumes

_log = logging.getLogger("headrace.cluster")
_THREADS: Final = 16  # calls side by side: each waits for a mount
_MOST_ID: Final = 256  # bytes: CSI allows as many
_CODES: Final = (
    (errors.UnsupportedError, "FAILED_PRECONDITION"),
    (errors.SettingError, "FAILED_PRECONDITION"),
    (errors.InputError, "INVALID_ARGUMENT"),
    (errors.NotFoundError, "NOT_FOUND"),
    (errors.DeniedError, "PERMISSION_DENIED"),
    (errors.AlreadyExistsError, "ALREADY_EXISTS"),
    (errors.ChangedError, "FAILED_PRECONDITION"),
    (BusyError, "ABORTED"),
    (errors.TryAgainError, "UNAVAILABLE"),
    (errors.NoRoomError, "RESOURCE_EXHAUSTED"),
)


class Plugin:
    """Answers from the moment it is made until `close`.

    Args:
        endpoint: ``unix:///path`` of the socket; one that a plugin before has left is taken away.
        node: what Kubernetes calls this node.
        volumes: what is published here.

    Raises:
        InputError: the endpoint cannot be listened on, or is no unix socket; the node's name is missing or too long.
    """

    def __init__(self, endpoint: str, node: str, volumes: Volumes) -> None:
        if not 0 < len(node.encode()) <= _MOST_ID:
            raise InputError(f"{node!r} is no name of a node", hint=f"1 to {_MOST_ID} bytes")
        self._path = _socket_path(endpoint)
        self._node = node
        self._volumes = volumes
        self._messages = messages()
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="csi")
        self._server = grpc.server(self._pool)
        self._server.add_generic_rpc_handlers(tuple(self._handlers(service) for service in METHODS))
        _clear(self._path)
        try:
            self._server.add_insecure_port(f"unix:{self._path}")
        except RuntimeError as error:
            raise InputError(f"cannot listen: {error}", path=endpoint) from None
        self._server.start()

    def close(self, within_s: float) -> None:
        """Take no more requests; those under way may take so long. The volumes stay."""
        self._server.stop(within_s).wait()
        self._pool.shutdown(wait=False)
        with suppress(OSError):
            os.unlink(self._path)

    def _handlers(self, service: str) -> Any:
        return grpc.method_handlers_generic_handler(f"{PACKAGE}.{service}", {
            name: grpc.unary_unary_rpc_method_handler(
                self._guarded(name, getattr(self, f"_{name}")),
                request_deserializer=self._messages[f"{name}Request"].FromString,
                response_serializer=_serialized,
            )
            for name in METHODS[service]
        })  # fmt: skip

    def _guarded(self, name: str, work: Callable[[Any], Any]) -> Callable[[Any, Any], Any]:
        def answer(request: Any, context: Any) -> Any:
            try:
                return self._messages[f"{name}Response"](**(work(request) or {}))
            except Exception as error:
                text = str(error) if isinstance(error, HeadraceError) else "the plugin failed; its log says more"
                _log.error("%s: %s", name, text, exc_info=None if isinstance(error, HeadraceError) else error)
                context.abort(getattr(grpc.StatusCode, code_of(error)), text)

        return answer

    def _GetPluginInfo(self, _: Any) -> dict[str, Any]:  # noqa: N802
        return {"name": DRIVER, "vendor_version": __version__}

    def _GetPluginCapabilities(self, _: Any) -> None:  # noqa: N802
        """None: there is no controller service, as nothing is made or attached."""

    def _Probe(self, _: Any) -> dict[str, Any]:  # noqa: N802
        if not os.path.exists("/dev/fuse"):
            raise errors.UnsupportedError("there is no /dev/fuse", hint="modprobe fuse; the container is privileged")
        return {"ready": {"value": True}}

    def _NodeGetInfo(self, _: Any) -> dict[str, Any]:  # noqa: N802
        return {"node_id": self._node}

    def _NodeGetCapabilities(self, _: Any) -> None:  # noqa: N802
        """None: nothing is staged, and a bucket has no size."""

    def _NodePublishVolume(self, request: Any) -> None:  # noqa: N802
        volume = volume_of(request, Settings.load())
        self._volumes.publish(volume, credentials(request))

    def _NodeUnpublishVolume(self, request: Any) -> None:  # noqa: N802
        self._volumes.unpublish(*where(request))


def code_of(error: Exception) -> str:
    """The code of gRPC for an error."""
    return next((code for kind, code in _CODES if isinstance(error, kind)), "INTERNAL")


def _serialized(message: Any) -> bytes:
    return message.SerializeToString()


def _socket_path(endpoint: str) -> str:
    path = endpoint.removeprefix("unix://")
    if path == endpoint or not path.startswith("/"):
        raise InputError("is no unix socket", path=endpoint, hint="--endpoint unix:///csi/csi.sock")
    return path


def _clear(path: str) -> None:
    """Take away the socket of a plugin that is gone. Raises InputError: somebody answers there, or it is no socket."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    try:
        if not stat.S_ISSOCK(os.stat(path).st_mode):
            raise InputError("is no socket", path=path)
    except FileNotFoundError:
        return
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(path)
        except OSError:
            os.unlink(path)
            return
    raise InputError("another plugin answers there", path=path)
