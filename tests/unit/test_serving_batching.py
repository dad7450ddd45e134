"""Requests run together as they come; whose versions, shares and rows they are."""

from __future__ import annotations

import ctypes
import json
import math
import os
import platform
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from headrace.base.errors import (
    CorruptError,
    DeadlineError,
    DeniedError,
    HeadraceError,
    InputError,
    NotFoundError,
    SlowDownError,
    TryAgainError,
)
from headrace.serving.addresses import target_of
from headrace.serving.batching import Lane, Rules
from headrace.serving.calls import Call
from headrace.serving.control import Hub
from headrace.serving.counts import Counts
from headrace.serving.model import Model, Table, Version
from headrace.serving.options import Options, Route
from headrace.serving.swapping import Swapper
from headrace.serving.tensors import Array, Signature, Tensor
from headrace.serving.warming import warm
from tests.mount_rig import wait_for

DEFAULT = "serving_default"
SUM = Signature((Tensor("x", "float32", (-1, -1)),), (Tensor("y", "float32", (-1,)),))


class Adder:
    """A runtime that adds up rows, refuses negative numbers, and can be held back."""

    platform = "test"
    batched: bool | None = None

    def __init__(self, *, in_process: bool = True, signature: Signature = SUM) -> None:
        self.in_process = in_process
        self.signatures: Mapping[str, Signature] = {DEFAULT: signature}
        self.ran: list[int] = []
        self.go = threading.Event()
        self.begun = threading.Event()
        self.go.set()
        self.closed = False
        self.odd = False

    def run(self, signature: str, inputs: Mapping[str, Array], seconds: float | None = None) -> dict[str, Array]:
        self.begun.set()
        assert self.go.wait(30)
        x = inputs["x"]
        self.ran.append(len(x))
        if (x < 0).any():
            raise InputError("a negative number")
        made = x.reshape(len(x), -1).sum(1)
        return {"y": made[:1] if self.odd else made}

    def close(self) -> None:
        self.closed = True


class Waiting(Call):
    def __init__(self, rows: object, deadline: float = math.inf) -> None:
        super().__init__(DEFAULT, {"x": np.asarray(rows, np.float32)}, time.monotonic(), deadline)
        self.may_join()
        self.done = threading.Event()
        self.outputs: list[float] | None = None
        self.error: Exception | None = None
        self.left = False

    @property
    def gone(self) -> bool:
        return self.left

    def answer(self, outputs: Mapping[str, Array]) -> None:
        self.outputs = outputs["y"].tolist()
        self.done.set()

    def fail(self, error: Exception) -> None:
        self.error = error
        self.done.set()

    def result(self) -> list[float] | None:
        assert self.done.wait(30)
        return self.outputs


def lane(runtime: Adder, *, together: bool = True, quick: bool = True, **rules: float) -> Lane:
    made = Lane(runtime, {DEFAULT: together}, Rules(**rules), Counts())  # type: ignore[arg-type]
    made.measured(1e-9 if quick else 1.0)
    return made


def test_what_comes_together_is_run_together_and_each_gets_its_rows() -> None:
    runtime = Adder()
    calls = [Waiting([[1, 2]]), Waiting([[3, 4], [5, 6]]), Waiting([[7, 8]])]
    assert lane(runtime).offer(calls)
    assert runtime.ran == [4]
    assert [call.outputs for call in calls] == [[3], [7, 11], [15]]


def test_a_batch_has_at_most_so_many_rows_and_one_shape() -> None:
    runtime = Adder()
    calls = [
        Waiting([[1, 2]] * 2),
        Waiting([[1, 2]] * 2),
        Waiting([[1, 2, 3]]),
        Waiting([[1, 2]]),
        Waiting([[9, 9]] * 7),
    ]
    lane(runtime, rows=4).offer(calls)
    assert sorted(runtime.ran) == [1, 1, 4, 7]
    assert [len(call.outputs or ()) for call in calls] == [2, 2, 1, 1, 7]


def test_rows_that_are_not_independent_are_run_alone() -> None:
    runtime = Adder()
    lane(runtime, together=False).offer([Waiting([[1, 2]]), Waiting([[3, 4]])])
    assert runtime.ran == [1, 1]


def test_a_slow_model_has_a_thread_and_what_comes_meanwhile_is_its_next_batch() -> None:
    runtime = Adder()
    slow = lane(runtime, quick=False)
    runtime.go.clear()
    first = Waiting([[1, 1]])
    slow.offer([first])
    assert runtime.begun.wait(30)
    later = [Waiting([[number, 0]]) for number in range(5)]
    for call in later:
        slow.offer([call])
    runtime.go.set()
    assert [call.result() for call in (first, *later)] == [[2], [0], [1], [2], [3], [4]]
    assert runtime.ran == [1, 5]


def test_a_window_waits_for_more() -> None:
    runtime = Adder()
    waiting = lane(runtime, window=30.0, rows=2)
    first, second = Waiting([[1, 1]]), Waiting([[2, 2]])
    waiting.offer([first])
    assert not first.done.is_set()
    waiting.offer([second])  # the batch is full
    assert (first.result(), second.result(), runtime.ran) == ([2], [4], [2])


def test_one_that_the_model_refuses_fails_alone() -> None:
    runtime = Adder()
    good, bad, other = Waiting([[1, 1]]), Waiting([[-1, 1]]), Waiting([[2, 2]])
    lane(runtime).offer([good, bad, other])
    assert (good.outputs, other.outputs) == ([2], [4])
    assert isinstance(bad.error, InputError)


def test_a_model_whose_outputs_are_no_rows_is_run_alone_from_then_on() -> None:
    runtime = Adder()
    runtime.odd = True
    found = lane(runtime)
    calls = [Waiting([[1, 1]]), Waiting([[2, 2]])]
    found.offer(calls)
    assert [call.outputs for call in calls] == [[2], [4]]
    runtime.ran.clear()
    found.offer([Waiting([[1, 1]]), Waiting([[2, 2]])])
    assert runtime.ran == [1, 1]


def test_more_than_may_wait_are_refused() -> None:
    runtime = Adder()
    small = lane(runtime, quick=False, queue=2)
    runtime.go.clear()
    calls = [Waiting([[number, 0]]) for number in range(4)]
    small.offer([calls[0]])
    assert runtime.begun.wait(30)
    small.offer(calls[1:])
    assert calls[3].done.is_set()
    assert isinstance(calls[3].error, SlowDownError)
    runtime.go.set()
    assert [call.result() for call in calls[:3]] == [[0], [1], [2]]


def test_what_nobody_waits_for_is_not_run() -> None:
    runtime = Adder()
    gone, late, good = Waiting([[1, 1]]), Waiting([[1, 1]], deadline=0.0), Waiting([[1, 2]])
    gone.left = True
    counts = Counts()
    found = Lane(runtime, {DEFAULT: True}, Rules(), counts)
    found.measured(1e-9)
    found.offer([gone, late, good])
    assert runtime.ran == [1]
    assert isinstance(late.error, DeadlineError)
    assert good.outputs == [3]
    told = counts.told()
    assert told["nv_inference_request_failure:CANCELED"] == told["nv_inference_request_failure:REJECTED"] == 1
    assert told["nv_inference_request_success"] == told["nv_inference_count"] == told["nv_inference_exec_count"] == 1


def test_a_version_on_its_way_out_finishes_what_it_has_and_takes_no_more() -> None:
    runtime = Adder()
    leaving = lane(runtime, quick=False)
    runtime.go.clear()
    under_way, waiting = Waiting([[1, 1]]), Waiting([[2, 2]])
    leaving.offer([under_way])
    assert runtime.begun.wait(30)
    leaving.offer([waiting])
    over = threading.Event()
    leaving.retire(over.set)
    assert not leaving.offer([Waiting([[3, 3]])])
    assert not over.is_set()
    runtime.go.set()
    assert (under_way.result(), waiting.result()) == ([2], [4])
    assert over.wait(30)


def test_an_idle_version_goes_at_once() -> None:
    over = threading.Event()
    lane(Adder()).retire(over.set)
    assert over.is_set()


# Whether rows may be run together is found out by trying


class Running(Adder):
    """Its first length is time: each row adds to the one before."""

    def run(self, signature: str, inputs: Mapping[str, Array], seconds: float | None = None) -> dict[str, Array]:
        return {"y": np.cumsum(inputs["x"].sum(1))}


def test_rows_of_a_sequence_are_not_taken_for_a_batch() -> None:
    assert warm(Adder(), None).together == {DEFAULT: True}
    assert warm(Running(), None).together == {DEFAULT: False}


class Centred(Adder):
    """What it gives of a row depends on all rows; of numbers below 1 it takes none, or all."""

    low = True

    def run(self, signature: str, inputs: Mapping[str, Array], seconds: float | None = None) -> dict[str, Array]:
        x = inputs["x"]
        if not self.low and (x < 1).any():
            raise InputError("a number below 1")
        return {"y": (x - x.mean(0)).sum(1)}


def recorded(*rows: list[float]) -> bytes:
    told = {"name": "x", "datatype": "FP32", "shape": [len(rows), len(rows[0])], "data": rows}
    return json.dumps({"inputs": [told]}).encode() + b"\n"


@pytest.mark.parametrize("low", [True, False])
def test_what_a_model_takes_from_all_rows_is_seen_with_one_recorded_request(low: bool) -> None:
    centred = Centred()
    centred.low = low
    for rows in ([[1, 2], [3, 5]], [[1, 2], [3, 5], [9, 9]], [[3, 3], [3, 3]], [[3, 3]]):
        assert warm(centred, recorded(*rows)).together == {DEFAULT: False}
    assert warm(Adder(), recorded([1, 2], [3, 5])).together == {DEFAULT: True}


class Square(Adder):
    """A row of its answer is as long as there are rows."""

    def run(self, signature: str, inputs: Mapping[str, Array], seconds: float | None = None) -> dict[str, Array]:
        return {"y": inputs["x"] @ inputs["x"].T}


def test_an_answer_that_gets_longer_with_its_rows_is_no_batch() -> None:
    square = Signature(SUM.inputs, (Tensor("y", "float32", (-1, -1)),))
    assert warm(Square(signature=square), None).together == {DEFAULT: False}


def test_a_fixed_first_length_is_no_batch() -> None:
    fixed = Signature((Tensor("x", "float32", (1, 2)),), SUM.outputs)
    assert warm(Adder(signature=fixed), None).together == {DEFAULT: False}


def test_a_recorded_request_that_fails_is_named() -> None:
    good = b'{"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 2], "data": [1, 2]}]}\n'
    warm(Adder(), good)
    with pytest.raises(CorruptError, match="line 3"):
        warm(Adder(), good + b"\n" + good.replace(b"[1, 2]}", b"[-1, 2]}"))


# Versions that come and go


def test_a_version_that_cannot_be_improved_stays_and_the_next_one_comes() -> None:
    model = Model(Route.parse("m@prod"))
    tried: list[int] = []

    def opened(number: int) -> Version:
        def improve() -> bool:
            tried.append(number)
            raise ValueError(number)

        return replace(version(number), improve=improve)

    swapper = Swapper(model, opened)
    try:
        for number in (1, 2):
            assert swapper.settled(swapper.want({"prod": number}), 10)
            assert model.pick().number == number
    finally:
        swapper.close()
    assert 1 in tried


@pytest.mark.parametrize("error", [DeniedError("not you"), OSError("no more files"), TryAgainError("killed")])
def test_what_may_be_over_later_is_tried_again(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.serving.swapping._FIRST_S", 0.01)
    model = Model(Route.parse("m@prod"))
    left = [error]

    def opened(number: int) -> Version:
        if left:
            raise left.pop()
        return version(number)

    swapper = Swapper(model, opened)
    try:
        swapper.want({"prod": 1})
        assert wait_for(lambda: model.ready, 10)
    finally:
        swapper.close()


# Several processes


@pytest.fixture
def hub() -> Iterator[Hub]:
    made = Hub()
    yield made
    made.close()


def child(hub: Hub) -> socket.socket:
    """One that has heard all there is, and answers nothing."""
    made = socket.socket(socket.AF_UNIX)
    made.settimeout(30)
    made.connect(hub.path)
    return made


def heard(made: socket.socket) -> Iterator[dict[str, Any]]:
    return map(json.loads, made.makefile("rb"))


def test_an_order_waits_for_no_process_that_has_ended(hub: Hub) -> None:
    answers: list[Any] = []
    with child(hub) as made:
        told = heard(made)
        assert next(told) == {"known": True}
        asking = threading.Thread(target=lambda: answers.extend(hub.ask_all("load", "m")), daemon=True)
        asking.start()
        assert next(told)["what"] == "load"
        made.shutdown(socket.SHUT_RDWR)
    asking.join(10)
    assert answers == ["a process of the server has ended"]


def _become(user: int) -> None:
    """This thread alone: `os.seteuid` makes somebody else of all, and then the hub's may not read what it imports."""
    number = {"x86_64": 117, "aarch64": 147}[platform.machine()]  # setresuid(2), by the kernel's tables
    assert ctypes.CDLL(None).syscall(number, -1, user, -1) == 0


@pytest.mark.skipif(os.getuid() != 0, reason="only root can be somebody else for a moment")
def test_processes_of_others_are_turned_away(hub: Hub) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        made.settimeout(30)
        _become(65534)
        try:
            made.connect(hub.path)
        finally:
            _become(0)
        assert made.recv(1) == b""


def test_a_process_that_hangs_is_not_ready(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.serving.control._WAIT_S", 0.05)
    with child(hub) as made:
        assert next(heard(made)) == {"known": True}
        assert hub.ask_all("ready", "") == [False]


class Held(dict[str, int]):
    """Labels that can be read only later."""

    def __init__(self, **labels: int) -> None:
        super().__init__(labels)
        self.begun, self.go = threading.Event(), threading.Event()

    def keys(self) -> Any:
        self.begun.set()
        assert self.go.wait(30)
        return super().keys()

    __iter__ = None  # type: ignore[assignment]


def test_a_new_process_hears_last_what_is_newest(hub: Hub) -> None:
    held = Held(prod=1)
    hub.heard("m", held, "")
    with child(hub) as made:
        assert held.begun.wait(30)
        newer = threading.Thread(target=hub.heard, args=("m", {"prod": 2}, ""))
        newer.start()
        newer.join(0.2)  # it would get ahead
        held.go.set()
        newer.join()
        told = [next(one) for one in [heard(made)] for _ in range(3)]
    assert [one["heard"][1]["prod"] for one in told if "heard" in one] == [1, 2]


# Routes, shares, addresses


def version(number: int) -> Version:
    runtime = Adder()
    return Version("m", number, lane(runtime), Counts(), runtime.signatures, DEFAULT, "test", runtime.close)


def routed(text: str, **labels: int) -> Model:
    model = Model(Route.parse(text))
    model.table = Table({number: version(number) for number in labels.values()}, labels)
    return model


def test_shares_are_kept_exactly() -> None:
    model = routed("m@prod=90,m@next=10", prod=1, next=2)
    assert Counter(model.pick().number for _ in range(200)) == {1: 180, 2: 20}


def test_a_share_without_a_version_goes_to_the_others() -> None:
    model = routed("m@prod=90,m@next=10", prod=1)
    assert {model.pick().number for _ in range(20)} == {1}


def test_a_shadow_gets_no_requests_of_its_own() -> None:
    model = routed("m@prod,m@next=shadow", prod=1, next=2)
    assert {model.pick().number for _ in range(20)} == {1}
    shadow = model.shadow()
    assert shadow is not None
    assert shadow.number == 2


def test_a_model_whose_shadow_alone_is_loaded_is_not_ready() -> None:
    for text in ("m@prod,m@next=shadow", "m@prod,m@next=0"):
        assert not routed(text, next=2).ready
        assert routed(text, prod=1).ready
    assert routed("m", latest=1).ready


def test_a_batch_may_take_as_long_as_a_request() -> None:
    one = (Route.parse("m@prod"),)
    limits = [Options(one, **how).limit for how in ({}, {"deadline": 300.0}, {"deadline": 0.0})]  # type: ignore[arg-type]
    assert limits == [60.0, 300.0, None]
    assert Options(one, rules=Rules(limit=1.0), deadline=300.0).limit == 1.0


def test_versions_and_aliases_can_be_named() -> None:
    model = routed("m@prod,m@next=0", prod=1, next=2)
    assert (model.pick(number=2).number, model.pick(label="next").number, model.pick().number) == (2, 2, 1)
    for how in ({"number": 3}, {"label": "other"}):
        with pytest.raises(NotFoundError):
            model.pick(**how)  # type: ignore[arg-type]


def test_before_a_model_is_loaded_it_is_to_be_asked_again() -> None:
    model = Model(Route.parse("m@prod"))
    model.problem = "the store is away"
    for how in ({}, {"number": 3}):
        with pytest.raises(TryAgainError, match="the store is away"):
            model.pick(**how)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "text", ["", "@prod", "m@", "m@a,n@b", "m@a=x", "m@a=-1", "m@a=0", "m@a,m@a", "m,m", "m@a=nan"]
)
def test_routes_that_mean_nothing_are_refused(text: str) -> None:
    with pytest.raises(InputError):
        Route.parse(text)


def test_options_refuse_what_cannot_be() -> None:
    one = Route.parse("m@prod")
    for how in ({"routes": ()}, {"routes": (one, one)}, {"processes": 0}, {"token": "short"}):
        with pytest.raises(HeadraceError):
            Options(**{"routes": (one,), **how})  # type: ignore[arg-type]


def test_another_address_than_loopback_has_a_token() -> None:
    one = Route.parse("m@prod")
    assert Options((one,)).token is None
    open_to_all = Options((one,), host="0.0.0.0", admin=True)
    assert open_to_all.token
    assert open_to_all.admin_token not in (None, open_to_all.token)
    assert open_to_all.token not in repr(open_to_all)
    here = Options((one,), admin=True)
    assert here.token is None
    assert here.admin_token, "who may ask a model may not take it away"


@pytest.mark.parametrize(
    ("path", "kind", "number", "label"),
    [
        ("/v1/models/m", "status", None, None),
        ("/v1/models/m/versions/7", "status", 7, None),
        ("/v1/models/m/labels/prod/metadata", "metadata", None, "prod"),
        ("/v1/models/m/labels/prod:predict", "predict", None, "prod"),
        ("/v1/models/m/versions/7:classify", "classify", 7, None),
        ("/v2/models/m", "model", None, None),
        ("/v2/models/m/versions/7/infer", "infer", 7, None),
        ("/v2/models/m/ready", "model_ready", None, None),
        ("/v2/repository/models/m/load", "load", None, None),
    ],
)
def test_urls_mean_what_the_protocols_say(path: str, kind: str, number: int | None, label: str | None) -> None:
    target = target_of(path)
    assert target is not None
    assert (target.kind, target.model, target.number, target.label) == (kind, "m", number, label)


@pytest.mark.parametrize("path", ["/", "/v1", "/v1/models", "/v1/models/m/versions/x", "/v2/models/m/other", "/v3"])
def test_other_urls_mean_nothing(path: str) -> None:
    assert target_of(path) is None
