"""The Open Inference Protocol v2 over gRPC, on a port of its own. Needs the extra ``grpc``."""

from __future__ import annotations

import hmac
import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import grpc

from headrace import __version__
from headrace.base.errors import DeniedError, HeadraceError, InputError
from headrace.serving.calls import Call
from headrace.serving.failures import message_of, status_of
from headrace.serving.options import Options
from headrace.serving.protocols import v2_grpc
from headrace.serving.protocols.v2_messages import METHODS, SERVICE, messages
from headrace.serving.protocols.v2_rest import EXTENSIONS, Infer
from headrace.serving.station import Station
from headrace.serving.tensors import TO_V2, Array

_THREADS: Final = 32
"""Requests and streams at once in one process; more wait, as many as may wait for one version."""
_STREAMS: Final = 16
"""Of them: a stream has its thread also while it says nothing."""
_CONNECTIONS: Final = (
    ("grpc.max_connection_idle_ms", 300_000),  # without a request
    ("grpc.keepalive_time_ms", 60_000),  # a client that has gone without a word is noticed
    ("grpc.keepalive_timeout_ms", 20_000),
)
_OPEN: Final = frozenset({"ServerLive", "ServerReady"})
_ADMIN: Final = frozenset({"RepositoryModelLoad", "RepositoryModelUnload"})


class GrpcServer:
    """Answers from the moment it is made until `close`."""

    def __init__(self, station: Station, options: Options, port: int) -> None:
        """Raises InputError: the port cannot be listened on."""
        self._station, self._options = station, options
        self._messages = messages()
        self._closing = False
        limits = [("grpc.max_receive_message_length", options.body), ("grpc.max_send_message_length", -1),
                  ("grpc.so_reuseport", 1), *_CONNECTIONS]  # fmt: skip
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="serving-grpc")
        self._streams = threading.Semaphore(_STREAMS)
        self._silent: set[Any] = set()
        """Streams that wait for their client."""
        most = _THREADS + options.rules.queue
        self._server = grpc.server(self._pool, options=limits, maximum_concurrent_rpcs=most)
        self._server.add_generic_rpc_handlers((self._handlers(),))
        host = f"[{options.host}]" if ":" in options.host else options.host
        try:
            found = self._server.add_insecure_port(f"{host}:{port}")
        except RuntimeError as error:
            raise InputError(f"cannot listen for gRPC: {error}", path=f"{host}:{port}") from None
        self.address = f"{host}:{found}"
        self._server.start()

    def leave(self, seconds: float) -> threading.Event:
        """Take no more; what is under way may take so long, and streams between two requests end at once. Does not
        wait; the event is set when all is over.
        """
        stopped = self._server.stop(seconds)
        self._closing = True
        for context in list(self._silent):
            context.cancel()
        return stopped

    def close(self, seconds: float = 0.0) -> None:
        """The same, and wait for it."""
        self.leave(seconds).wait()
        self._pool.shutdown(wait=False)

    def _handlers(self) -> Any:
        handlers: dict[str, Any] = {}
        for name in METHODS:
            handlers[name] = grpc.unary_unary_rpc_method_handler(
                self._guarded(name, getattr(self, f"_{_snake(name)}")),
                request_deserializer=self._messages[f"{name}Request"].FromString,
                response_serializer=_serialized,
            )
        handlers["ModelStreamInfer"] = grpc.stream_stream_rpc_method_handler(
            self._stream,
            request_deserializer=self._messages["ModelInferRequest"].FromString,
            response_serializer=_serialized,
        )
        return grpc.method_handlers_generic_handler(SERVICE, handlers)

    def _guarded(self, name: str, work: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
        def answer(request: Any, context: Any) -> Any:
            try:
                self._admit(name, context)
                return work(request, context)
            except Exception as error:
                context.abort(_code(error), message_of(error))

        return answer

    def _admit(self, name: str, context: Any) -> None:
        """Raises DeniedError."""
        token = self._options.token
        if name in _OPEN:
            return
        if name in _ADMIN:
            if not self._options.admin:
                raise DeniedError(
                    "models are not loaded or unloaded over the network here", hint="headrace serve --admin"
                )
            token = self._options.admin_token
        if token is None:
            return
        given = dict(context.invocation_metadata()).get("authorization", "")
        scheme, _, text = str(given).partition(" ")
        if scheme.lower() != "bearer" or not hmac.compare_digest(text.strip().encode(), token.encode()):
            raise DeniedError("this wants its token: authorization: Bearer …")

    # One method each

    def _server_live(self, request: Any, context: Any) -> Any:  # noqa: ARG002
        return self._messages["ServerLiveResponse"](live=True)

    def _server_ready(self, request: Any, context: Any) -> Any:  # noqa: ARG002
        return self._messages["ServerReadyResponse"](ready=self._station.ready)

    def _model_ready(self, request: Any, context: Any) -> Any:  # noqa: ARG002
        try:
            self._station.model(request.name).pick(_number(request.version))
        except HeadraceError:
            return self._messages["ModelReadyResponse"](ready=False)
        return self._messages["ModelReadyResponse"](ready=True)

    def _server_metadata(self, request: Any, context: Any) -> Any:  # noqa: ARG002
        return self._messages["ServerMetadataResponse"](name="headrace", version=__version__, extensions=EXTENSIONS)

    def _model_metadata(self, request: Any, context: Any) -> Any:  # noqa: ARG002
        model = self._station.model(request.name)
        version = model.pick(_number(request.version))
        signature = version.signatures[version.default]
        made = self._messages["ModelMetadataResponse"](name=model.name, platform=version.platform)
        made.versions.extend(str(one) for one in sorted(model.table.versions))
        for tensors, into in ((signature.inputs, made.inputs), (signature.outputs, made.outputs)):
            for one in tensors:
                shape = (-1,) if one.shape is None else one.shape
                into.add(name=one.name, datatype=TO_V2[one.kind], shape=shape)
        return made

    def _model_infer(self, request: Any, context: Any) -> Any:
        number = _number(request.model_version)
        version = self._station.model(request.model_name).pick(number)
        asked = v2_grpc.read(request, version.signatures[version.default])
        call = _GrpcCall(version.default, asked, self._until(context, asked), context)
        call.wanted, call.number = (number, None), version.number
        version.check(call)
        call.may_join()
        self._station.submit(version, [call])
        outputs = call.wait()
        return v2_grpc.write(self._messages["ModelInferResponse"](), version.model, call.number, asked, outputs)

    def _until(self, context: Any, asked: Infer) -> float:
        seconds = [self._options.deadline or math.inf, asked.seconds or math.inf]
        left = context.time_remaining()
        if left is not None:
            seconds.append(left)
        return time.monotonic() + min(seconds)

    def _stream(self, requests: Iterator[Any], context: Any) -> Iterator[Any]:
        made = self._messages["ModelStreamInferResponse"]
        try:
            self._admit("ModelStreamInfer", context)
        except DeniedError as error:
            context.abort(_code(error), message_of(error))
        if not self._streams.acquire(blocking=False):
            told = f"{_STREAMS} streams are open already (ask again later, or without a stream)"
            context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, told)
        try:
            for request in self._said(requests, context):
                try:
                    yield made(infer_response=self._model_infer(request, context))
                except Exception as error:
                    yield made(error_message=message_of(error))
        finally:
            self._streams.release()

    def _said(self, requests: Iterator[Any], context: Any) -> Iterator[Any]:
        """The requests of a stream, until its client or this server ends it."""
        while True:
            self._silent.add(context)
            try:
                if self._closing:
                    return
                request = next(requests, None)
            finally:
                self._silent.discard(context)
            if request is None:
                return
            yield request

    def _model_statistics(self, request: Any, context: Any) -> Any:  # noqa: ARG002
        made = self._messages["ModelStatisticsResponse"]()
        for told in self._station.statistics(request.name, _number(request.version))["model_stats"]:
            one = made.model_stats.add(
                name=told["name"], version=told["version"], inference_count=told["inference_count"],
                execution_count=told["execution_count"],
            )  # fmt: skip
            for name, spent in told["inference_stats"].items():
                into = getattr(one.inference_stats, name)
                into.count, into.ns = spent["count"], spent["ns"]
        return made

    def _repository_index(self, request: Any, context: Any) -> Any:  # noqa: ARG002
        made = self._messages["RepositoryIndexResponse"]()
        for row in self._station.index(b'{"ready":true}' if request.ready else b""):
            made.models.add(**row)
        return made

    def _repository_model_load(self, request: Any, context: Any) -> Any:  # noqa: ARG002
        self._station.order("load", request.model_name)
        return self._messages["RepositoryModelLoadResponse"]()

    def _repository_model_unload(self, request: Any, context: Any) -> Any:  # noqa: ARG002
        self._station.order("unload", request.model_name)
        return self._messages["RepositoryModelUnloadResponse"]()


class _GrpcCall(Call):
    """A request whose thread waits for its answer."""

    __slots__ = ("_context", "_done", "_error", "_outputs")

    def __init__(self, signature: str, asked: Infer, deadline: float, context: Any) -> None:
        super().__init__(signature, asked.inputs, time.monotonic(), deadline)
        self._context = context
        self._done = threading.Event()
        self._outputs: Mapping[str, Array] = {}
        self._error: Exception | None = None

    @property
    def gone(self) -> bool:
        """See `Call`."""
        return not self._context.is_active()

    def answer(self, outputs: Mapping[str, Array]) -> None:
        """See `Call`."""
        self._outputs = outputs
        self._done.set()

    def fail(self, error: Exception) -> None:
        """See `Call`."""
        self._error = error
        self._done.set()

    def wait(self) -> Mapping[str, Array]:
        """The outputs. Raises what it failed with."""
        while not self._done.wait(1.0):
            if self.gone:
                return {}
        if self._error is not None:
            raise self._error
        return self._outputs


def _serialized(message: Any) -> bytes:
    return message.SerializeToString()


def _code(error: Exception) -> Any:
    if isinstance(error, DeniedError) and not error.hint:
        return grpc.StatusCode.UNAUTHENTICATED
    return getattr(grpc.StatusCode, status_of(error)[1])


def _number(text: str) -> int | None:
    """Raises InputError."""
    if not text:
        return None
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise InputError(f"version: {text!r} is no number")
    return int(text)


def _snake(name: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name).lstrip("_")
