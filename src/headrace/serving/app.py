"""What the HTTP server asks: requests of both protocols to calls, and all that is not a prediction."""

from __future__ import annotations

import hmac
import logging
import math
from collections.abc import Callable, Sequence
from typing import Final

from headrace import __version__
from headrace.base.errors import DeniedError, InputError, NotFoundError, UnsupportedError
from headrace.http_server import Exchange, Response, Whole
from headrace.serving.addresses import ADMIN, OPEN, Target, target_of
from headrace.serving.calls import Call
from headrace.serving.http_calls import JSON, Shadowed, TensorflowCall, V2Call, body_of, refusal
from headrace.serving.model import Model, Version
from headrace.serving.openapi import document
from headrace.serving.options import Options
from headrace.serving.protocols import tensorflow_rest, v2_rest
from headrace.serving.protocols.json_text import encoded
from headrace.serving.station import Station

_log = logging.getLogger("headrace.serving")
_KEPT: Final = 4096
"""Targets whose meaning is remembered."""
_PREDICTIONS: Final = frozenset({"predict", "infer"})
_TEXT: Final = (("Content-Type", "text/plain; charset=utf-8"),)


class App:
    """An `http_server.Application`. Both calls on the loop; what waits is handed to the station's thread."""

    def __init__(self, station: Station, options: Options) -> None:
        self._station, self._options = station, options
        self._targets: dict[bytes, Target | None] = {}

    def close(self) -> None:
        """When the server has ended."""
        self._station.close()

    def head(self, exchange: Exchange) -> Whole | Response:
        """Refuse before the body comes, or gather it."""
        target = self._target(exchange)
        if target is None:
            return refusal(
                NotFoundError("there is no such URL", hint="GET /v2/openapi.json tells those that there are")
            )
        if exchange.method != target.method and (exchange.method, target.method) != ("HEAD", "GET"):
            body = encoded({"error": f"{target.method} is wanted here"})
            return Response(405, (*JSON, ("Allow", target.method)), body)
        if target.kind not in OPEN:
            try:
                self._admit(exchange, target)
            except DeniedError as error:
                status = 403 if error.hint else 401
                headers = JSON if status == 403 else (*JSON, ("WWW-Authenticate", "Bearer"))
                return Response(status, headers, encoded({"error": str(error)}))
        return Whole(self._options.body if target.method == "POST" else 0)

    def arrived(self, exchanges: Sequence[Exchange]) -> None:
        """All that came with one poll: what goes to one version goes there together."""
        batches: dict[int, tuple[Version, list[Call]]] = {}
        for exchange in exchanges:
            target = self._target(exchange)
            assert target is not None
            try:
                if target.kind in _PREDICTIONS:
                    version = self._model(target).pick(target.number, target.label)
                    call = self._call(exchange, target, version)
                    batches.setdefault(id(version), (version, []))[1].append(call)
                else:
                    self._other(exchange, target)
            except Exception as error:
                exchange.answer(refusal(error))
        for version, calls in batches.values():
            self._station.submit(version, calls)
            self._copy_to_shadow(version, calls)

    # Inside

    def _target(self, exchange: Exchange) -> Target | None:
        try:
            return self._targets[exchange.target]
        except KeyError:
            if len(self._targets) >= _KEPT:
                self._targets.clear()
            found = self._targets[exchange.target] = target_of(exchange.path)
            return found

    def _admit(self, exchange: Exchange, target: Target) -> None:
        """Raises DeniedError; with a hint where a token would not help."""
        token = self._options.token
        if target.kind in ADMIN:
            if not self._options.admin:
                raise DeniedError(
                    "models are not loaded or unloaded over the network here", hint="headrace serve --admin"
                )
            if exchange.headers.get("origin"):
                raise DeniedError("a page of another site asks for this", hint="ask without a browser")
            token = self._options.admin_token
        if token is None:
            return
        scheme, _, given = exchange.headers.get("authorization").partition(" ")
        if scheme.lower() != "bearer" or not hmac.compare_digest(given.strip().encode("latin-1"), token.encode()):
            raise DeniedError("this wants its token: Authorization: Bearer …")

    def _model(self, target: Target) -> Model:
        return self._station.model(target.model)

    def _call(self, exchange: Exchange, target: Target, version: Version) -> Call:
        body = body_of(exchange, self._options.body)
        call: Call
        if target.kind == "predict":
            asked = tensorflow_rest.read(body, version.signatures)
            call = TensorflowCall(exchange, asked, self._deadline(exchange, None))
        else:
            length = exchange.headers.get("inference-header-content-length") or None
            infer = v2_rest.read(body, length, version.signatures[version.default])
            until = self._deadline(exchange, infer.seconds)
            call = V2Call(exchange, infer, until, signature=version.default, model=version.model)
        call.wanted, call.number = (target.number, target.label), version.number
        version.check(call)
        call.may_join()
        return call

    def _deadline(self, exchange: Exchange, seconds: float | None) -> float:
        own = self._options.deadline or math.inf
        return exchange.arrived + (own if seconds is None else min(own, seconds))

    def _copy_to_shadow(self, version: Version, calls: Sequence[Call]) -> None:
        shadow = self._station.model(version.model).shadow()
        if shadow is None or shadow is version:
            return
        fitting = [Shadowed.of(call) for call in calls if _fits(call, shadow)]
        shadow.lane.offer(fitting)

    # What is no prediction

    def _other(self, exchange: Exchange, target: Target) -> None:
        if target.kind in ("metrics", "load", "unload", "index", "stats", "ready"):
            self._behind(exchange, target)
            return
        exchange.answer(self._told(target))

    def _told(self, target: Target) -> Response:
        match target.kind:
            case "live":
                return Response(200, _TEXT, b"ok\n")
            case "server":
                return Response(200, JSON, v2_rest.server(__version__))
            case "openapi":
                return Response(200, JSON, encoded(document()))
            case "status":
                return self._status(target)
            case "metadata":
                version = self._model(target).pick(target.number, target.label)
                body = tensorflow_rest.metadata(version.model, version.number, version.signatures)
                return Response(200, JSON, body)
            case "model":
                model = self._model(target)
                version = model.pick(target.number)
                numbers = sorted(model.table.versions)
                signature = version.signatures[version.default]
                return Response(200, JSON, v2_rest.metadata(model.name, numbers, version.platform, signature))
            case "model_ready":
                self._model(target).pick(target.number)
                return Response(200)
            case _:
                raise UnsupportedError(f"{target.kind} cannot be had here", hint="ask with predict, or with infer")

    def _status(self, target: Target) -> Response:
        model = self._model(target)
        states = model.told()
        number = target.number
        if target.label is not None:
            number = model.pick(label=target.label).number
        if number is not None:
            states = [one for one in states if one.version == number]
            if not states:
                raise NotFoundError(f"the model {model.name!r} has no version {number} here")
        return Response(200, JSON, tensorflow_rest.status(states))

    def _behind(self, exchange: Exchange, target: Target) -> None:
        """What waits for other processes, or for a model to load."""

        def work() -> None:
            try:
                response = self._asked(exchange, target)
            except Exception as error:
                response = refusal(error)
            exchange.answer(response)

        self._station.behind(work)

    def _asked(self, exchange: Exchange, target: Target) -> Response:
        station = self._station
        if target.kind == "ready":
            ready = station.ready
            return Response(200 if ready else 503, _TEXT, b"ready\n" if ready else b"not ready\n")
        answers: dict[str, Callable[[], Response]] = {
            "metrics": lambda: Response(200, _METRICS, station.metrics()),
            "stats": lambda: Response(200, JSON, encoded(station.statistics(target.model, target.number))),
            "index": lambda: Response(200, JSON, encoded(station.index(exchange.body))),
        }
        if target.kind in answers:
            return answers[target.kind]()
        station.order(target.kind, target.model)
        return Response(200, JSON, b"")


_METRICS: Final = (("Content-Type", "text/plain; version=0.0.4; charset=utf-8"),)


def _fits(call: Call, version: Version) -> bool:
    try:
        version.check(call)
    except InputError:
        return False
    return True
