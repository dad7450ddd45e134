"""Requests that came over HTTP, with the form that their answers have."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import Final

from headrace.base.errors import InputError, UnsupportedError
from headrace.http_server import Exchange, Response
from headrace.serving.calls import Call
from headrace.serving.failures import message_of, status_of
from headrace.serving.protocols import tensorflow_rest, v2_rest
from headrace.serving.protocols.json_text import encoded
from headrace.serving.tensors import Array

JSON: Final = (("Content-Type", "application/json"),)
_RETRY: Final = (*JSON, ("Retry-After", "1"))


def refusal(error: Exception) -> Response:
    """An error as both protocols have it: ``{"error": …}``."""
    status, _ = status_of(error)
    body = encoded({"error": message_of(error)})
    return Response(status, _RETRY if status == 503 else JSON, body)


class TensorflowCall(Call):
    """``:predict``."""

    __slots__ = ("_exchange", "_form")

    def __init__(self, exchange: Exchange, asked: tensorflow_rest.Predict, deadline: float) -> None:
        super().__init__(asked.signature, asked.inputs, exchange.arrived, deadline)
        self._exchange = exchange
        self._form: tensorflow_rest.Form = asked.form

    @property
    def gone(self) -> bool:
        """See `Call`."""
        return self._exchange.gone

    def answer(self, outputs: Mapping[str, Array]) -> None:
        """See `Call`."""
        body = tensorflow_rest.write(self._form, outputs, self.rows)
        self._exchange.answer(Response(200, JSON, body))

    def fail(self, error: Exception) -> None:
        """See `Call`."""
        self._exchange.answer(refusal(error))


class V2Call(Call):
    """``/infer``."""

    __slots__ = ("_asked", "_exchange", "_model")

    def __init__(
        self, exchange: Exchange, asked: v2_rest.Infer, deadline: float, *, signature: str, model: str
    ) -> None:
        super().__init__(signature, asked.inputs, exchange.arrived, deadline)
        self._exchange, self._asked, self._model = exchange, asked, model

    @property
    def gone(self) -> bool:
        """See `Call`."""
        return self._exchange.gone

    def answer(self, outputs: Mapping[str, Array]) -> None:
        """See `Call`."""
        made = v2_rest.write(self._model, self.number, self._asked, outputs)
        if made.json_size is None:
            self._exchange.answer(Response(200, JSON, made.parts[0]))
            return
        headers = (("Content-Type", "application/octet-stream"), (v2_rest.LENGTH_HEADER, str(made.json_size)))
        self._exchange.answer(Response(200, headers, made.parts))

    def fail(self, error: Exception) -> None:
        """See `Call`."""
        self._exchange.answer(refusal(error))


class Shadowed(Call):
    """The same request for another version, whose answer nobody gets."""

    __slots__ = ()

    @classmethod
    def of(cls, call: Call) -> Shadowed:
        """With the same inputs."""
        made = cls(call.signature, call.inputs, call.arrived, call.deadline)
        made.key, made.rows = call.key, call.rows
        return made

    def answer(self, outputs: Mapping[str, Array]) -> None:
        """See `Call`."""

    def fail(self, error: Exception) -> None:
        """See `Call`."""


def body_of(exchange: Exchange, limit: int) -> bytes | memoryview:
    """The body, unpacked where it came packed. Raises InputError, UnsupportedError."""
    packing = exchange.headers.get("content-encoding").strip().lower()
    if packing in ("", "identity"):
        return exchange.body
    if packing not in ("gzip", "deflate"):
        raise UnsupportedError(f"Content-Encoding: {packing!r} is not known", hint="gzip and deflate are")
    unpack = zlib.decompressobj(zlib.MAX_WBITS | 32)  # gzip's head or zlib's
    try:
        body = unpack.decompress(exchange.body, limit + 1)
    except zlib.error as error:
        raise InputError(f"the body is no {packing}: {error}") from None
    if len(body) > limit:
        raise InputError(f"the body has more than {limit} bytes when it is unpacked")
    if not unpack.eof:
        raise InputError(f"the body is no {packing}: it breaks off")
    return body
