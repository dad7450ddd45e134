"""One process's models: which there are, what they are told to be, what is told of them."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, Protocol, cast

from headrace.base.errors import HeadraceError, InputError, NotFoundError, TryAgainError
from headrace.serving.calls import Call
from headrace.serving.metrics_text import Row, merged, text
from headrace.serving.model import Model, Version
from headrace.serving.options import Options
from headrace.serving.protocols.json_text import decoded
from headrace.serving.swapping import Open, Swapper
from headrace.serving.telling import of_process

_log = logging.getLogger("headrace.serving")
_LOAD_S: Final = 600.0
"""An order to load a model is waited for so long."""
_TRIES: Final = 8
"""Versions that may be swapped away under one request, one after the other."""


class Fleet(Protocol):
    """All processes of a server, this one among them. May wait."""

    def ask(self, what: str, model: str) -> list[Any]:
        """What each of them answers to `Station.told`."""
        ...


class Station:
    """Any thread. `fleet` is set by who makes it, before requests come."""

    def __init__(self, options: Options, opener: Callable[[str], Open]) -> None:
        """`opener`: for a model, what opens a version of it by its number."""
        self.options = options
        self.fleet: Fleet = _Alone(self)
        self.leaving = False
        self._models = {route.model: Model(route) for route in options.routes}
        self._swappers = {name: Swapper(model, opener(name)) for name, model in self._models.items()}
        self._wanted: dict[str, Mapping[str, int]] = {}
        self._unloaded: set[str] = set()
        self._lock = threading.Lock()
        """Of what is wanted: orders and what is heard reach a swapper in the order in which they are noted here."""
        self._pool = ThreadPoolExecutor(4, thread_name_prefix="serving-behind")
        self.asked_pointers: Callable[[], float] = lambda: 0.0

    def close(self) -> None:
        """Let all models go. Waits for what is being loaded."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        for swapper in self._swappers.values():
            swapper.close()

    def model(self, name: str) -> Model:
        """Raises NotFoundError."""
        found = self._models.get(name)
        if found is None:
            raise NotFoundError(f"the model {name!r} is not served here", hint=f"served: {', '.join(self._models)}")
        return found

    @property
    def ready(self) -> bool:
        """Whether every model answers in every process, and the server is not on its way out. May wait."""
        return all(self.fleet.ask("ready", ""))

    @property
    def ready_here(self) -> bool:
        """The same of this process."""
        return not self.leaving and all(model.ready or model.unloaded for model in self._models.values())

    def submit(self, version: Version, calls: Sequence[Call]) -> None:
        """Give requests to a version; if it has just been swapped away, to the one that took its place."""
        if version.lane.offer(calls):
            return
        for call in calls:
            self._resubmit(version.model, call)

    def _resubmit(self, name: str, call: Call) -> None:
        try:
            for _ in range(_TRIES):
                version = self.model(name).pick(*call.wanted)
                version.check(call)
                call.number = version.number
                if version.lane.offer([call]):
                    return
            raise TryAgainError("the model is being swapped", hint="ask again")
        except HeadraceError as error:
            call.fail(error)

    def behind(self, work: Callable[[], None]) -> None:
        """Run what waits on a thread."""
        self._pool.submit(work)

    def heard(self, name: str, labels: Mapping[str, int], problem: str) -> None:
        """What a model's aliases mean now; empty: nothing that is known. `problem`: why it is not known, or not new."""
        model = self._models[name]
        model.problem = problem
        with self._lock:
            if labels and labels != self._wanted.get(name):
                self._wanted[name] = dict(labels)
                if name not in self._unloaded:
                    self._swappers[name].want(labels)

    def settled(self, seconds: float) -> bool:
        """Wait until all that was heard is loaded, or has failed; whether it was in time."""
        until = time.monotonic() + seconds
        return all(self._swappers[name].settled(1, until - time.monotonic()) for name in list(self._wanted))

    # What is told, and orders

    def order(self, what: str, name: str) -> None:
        """Have all processes load a model, anew where it failed, or unload it.

        Raises NotFoundError. TryAgainError: in one of them it did not load.
        """
        self.model(name)
        reasons = [str(one) for one in self.fleet.ask(what, name) if one]
        if reasons:
            raise InputError(f"{name!r} did not {what}: {reasons[0]}")

    def told(self, what: str, name: str) -> Any:
        """What this process answers another one of the same server."""
        if what == "ready":
            return self.ready_here
        if what == "counts":
            return [list(row) for row in self._rows()]
        if what == "served":
            with self._lock:
                wanted = dict(self._wanted)
            return of_process(self._models.values(), wanted, ready=self.ready_here)
        if what == "load":
            return self._load(name)
        if what == "unload":
            return self._unload(name)
        return None

    def metrics(self) -> bytes:
        """Of all processes, as Prometheus reads them."""
        return text(self._all_rows())

    def statistics(self, name: str, number: int | None) -> dict[str, Any]:
        """As Triton's statistics extension has it; of all models without a name."""
        if name:
            self.model(name)
        rows = self._all_rows()
        found: list[dict[str, Any]] = []
        for model in self._models.values():
            numbers = [one for one in model.table.versions if number in (None, one)]
            if not name or name == model.name:
                found += [_statistics(model.name, one, rows) for one in numbers]
        return {"model_stats": found}

    def index(self, body: bytes) -> list[dict[str, str]]:
        """As the repository extension has it. Raises InputError."""
        asked = decoded(body) if body else {}
        if not isinstance(asked, dict):
            raise InputError("the body is no JSON object")
        only = bool(cast("dict[str, Any]", asked).get("ready"))
        found: list[dict[str, str]] = []
        for model in self._models.values():
            for one in model.told() or []:
                state = "READY" if one.state == "AVAILABLE" else one.state if one.state != "END" else "UNAVAILABLE"
                if state == "READY" or not only:
                    row = {"name": model.name, "version": str(one.version), "state": state, "reason": one.reason}
                    found.append(row)
        return found

    def _load(self, name: str) -> str:
        model, swapper = self._models[name], self._swappers[name]
        with self._lock:
            wanted = self._wanted.get(name)
            if not wanted:
                return model.problem or "its aliases are not known yet"
            self._unloaded.discard(name)
            model.unloaded = False
            number = swapper.want(wanted, again=True)
        if not swapper.settled(number, _LOAD_S):
            return "it takes too long"
        missing = [number for number in wanted.values() if number not in model.table.versions]
        reasons = [one.reason for one in model.told() if one.version in missing and one.reason]
        return (reasons or ["it is not loaded"])[0] if missing else ""

    def _unload(self, name: str) -> str:
        swapper = self._swappers[name]
        with self._lock:
            self._unloaded.add(name)
            number = swapper.want({})
        return "" if swapper.settled(number, _LOAD_S) else "it takes too long"

    def _all_rows(self) -> list[Row]:
        answers = self.fleet.ask("counts", "")
        rows = [(str(name), dict(labels), float(value)) for answer in answers for name, labels, value in answer]
        return merged(rows)

    def _rows(self) -> list[Row]:
        rows: list[Row] = [("headrace_serving_processes", {}, 1.0)]
        rows.append(("headrace_serving_pointer_requests_total", {}, self.asked_pointers()))
        for model in self._models.values():
            own = {"model": model.name}
            rows.append(("headrace_serving_swaps_total", own, model.swaps))
            rows.append(("headrace_serving_refused_versions_total", own, model.refused))
            rows.append(("headrace_serving_store_away", own, float(bool(model.problem))))
            table = model.table
            rows += [
                ("headrace_serving_version_info", {**own, "alias": label, "version": str(number)}, 1.0)
                for label, number in table.labels.items()
            ]
            for version in table.versions.values():
                rows += _version_rows(version)
        return rows


def _version_rows(version: Version) -> list[Row]:
    own = {"model": version.model, "version": str(version.number)}
    rows: list[Row] = [("nv_inference_pending_request_count", own, version.lane.pending)]
    rows.append(("headrace_serving_runtime_restarts_total", own, getattr(version.lane.runtime, "restarts", 0)))
    for name, value in version.counts.told().items():
        name, _, reason = name.partition(":")
        rows.append((name, {**own, "reason": reason} if reason else own, value))
    return rows


def _statistics(name: str, number: int, rows: Sequence[Row]) -> dict[str, Any]:
    mine = {
        one: value
        for one, labels, value in rows
        if labels.get("model") == name and labels.get("version") == str(number) and "reason" not in labels
    }
    failed = sum(
        value
        for one, labels, value in rows
        if one == "nv_inference_request_failure" and labels.get("model") == name and labels["version"] == str(number)
    )

    def spent(count: float, metric: str) -> dict[str, int]:
        return {"count": int(count), "ns": int(mine.get(metric, 0.0) * 1e3)}

    success = mine.get("nv_inference_request_success", 0.0)
    return {
        "name": name, "version": str(number), "inference_count": int(mine.get("nv_inference_count", 0)),
        "execution_count": int(mine.get("nv_inference_exec_count", 0)),
        "inference_stats": {
            "success": spent(success, "nv_inference_request_duration_us"),
            "fail": {"count": int(failed), "ns": 0},
            "queue": spent(success, "nv_inference_queue_duration_us"),
            "compute_input": spent(success, "nv_inference_compute_input_duration_us"),
            "compute_infer": spent(success, "nv_inference_compute_infer_duration_us"),
            "compute_output": spent(success, "nv_inference_compute_output_duration_us"),
        },
    }  # fmt: skip


class _Alone:
    """A server of one process."""

    def __init__(self, station: Station) -> None:
        self._station = station

    def ask(self, what: str, model: str) -> list[Any]:
        """See `Fleet`."""
        return [self._station.told(what, model)]
