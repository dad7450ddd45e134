"""Models behind HTTP and gRPC, asked by Triton's clients, in TensorFlow Serving's forms, and wrongly."""

from __future__ import annotations

import gzip
import json
import shutil
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import msgspec
import numpy as np
import pytest
import schemathesis
import torch
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton_http
from hypothesis import HealthCheck, given, settings
from onnx import TensorProto, helper, numpy_helper
from schemathesis.specs.openapi.checks import positive_data_acceptance
from tritonclient.utils import InferenceServerException

from headrace.base.errors import CorruptError, InputError, TryAgainError
from headrace.models import Signature, Tensor
from headrace.serving import Rules, tensors
from headrace.serving.runtimes.apart import Apart
from headrace.serving.runtimes.frames import Load
from tests.serving_rig import WIDTH, Asked, Asking, ServingRig, linear, request, saved, until

ROW = [1.0] * WIDTH


@pytest.fixture
def rig(tmp_path: Path) -> ServingRig:
    return ServingRig(tmp_path)


@pytest.fixture(scope="module")
def lin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asked]:
    """One version of one model, whose row of ones gives 8, over both protocols."""
    rig = ServingRig(tmp_path_factory.mktemp("serving"))
    rig.point("lin@prod", rig.linear(2.0))
    rig.publish(texts(rig.folder / "texts"), "texts")
    with rig.serving("lin@prod", "texts@1", grpc_port=0) as asked:
        yield asked


def texts(folder: Path) -> Path:
    """A model of two inputs, numbers and strings, that gives both back."""
    graph = helper.make_graph(
        [helper.make_node("Identity", ["n"], ["n_out"]), helper.make_node("Identity", ["s"], ["s_out"])], "texts",
        [helper.make_tensor_value_info("n", TensorProto.INT64, ["N"]),
         helper.make_tensor_value_info("s", TensorProto.STRING, ["N"])],
        [helper.make_tensor_value_info("n_out", TensorProto.INT64, ["N"]),
         helper.make_tensor_value_info("s_out", TensorProto.STRING, ["N"])],
    )  # fmt: skip
    return saved(folder, graph)


# TensorFlow Serving's REST


def test_predictions_in_rows_and_columns(lin: Asked) -> None:
    assert lin.predict([ROW, [0] * WIDTH]) == [[8, 8], [0, 0]]
    columns = lin.post(
        "/v1/models/lin/versions/1:predict", {"inputs": {"x": [ROW]}, "signature_name": "serving_default"}
    )
    assert columns.json() == {"outputs": [[8, 8]]}
    two = {"instances": [{"n": 7, "s": "a"}, {"n": 8, "s": {"b64": "Yg=="}}]}
    assert lin.predict(two["instances"], "texts") == [{"n_out": 7, "s_out": "a"}, {"n_out": 8, "s_out": "b"}]


def test_status_and_metadata(lin: Asked) -> None:
    available = {"version": "1", "state": "AVAILABLE", "status": {"error_code": "OK", "error_message": ""}}
    for path in ("", "/versions/1", "/labels/prod"):
        assert lin.get(f"/v1/models/lin{path}").json() == {"model_version_status": [available]}
    told = lin.get("/v1/models/lin/labels/prod/metadata").json()
    assert told["model_spec"] == {"name": "lin", "signature_name": "", "version": "1"}
    signature = told["metadata"]["signature_def"]["signature_def"]["serving_default"]
    assert signature["method_name"] == "tensorflow/serving/predict"
    dims = [{"size": "-1", "name": ""}, {"size": "4", "name": ""}]
    shape = {"dim": dims, "unknown_rank": False}
    assert signature["inputs"] == {"x": {"dtype": "DT_FLOAT", "tensor_shape": shape, "name": "x:0"}}


@pytest.mark.parametrize(
    ("path", "status", "told"),
    [
        ("/v1/models/none:predict", 404, "none"),
        ("/v1/models/lin/versions/9:predict", 404, "version 9"),
        ("/v1/models/lin/labels/next:predict", 404, "next"),
        ("/v1/models/lin:classify", 400, "classify"),
        ("/v1/models/lin:regress", 400, "regress"),
        ("/v1/models/lin:other", 404, "URL"),
    ],
)
def test_what_is_not_there_is_named(lin: Asked, path: str, status: int, told: str) -> None:
    answer = lin.post(path, {"instances": [ROW]})
    assert answer.status_code == status, answer.text
    assert told in answer.json()["error"]


# The Open Inference Protocol, by Triton's own clients


def triton_inputs(kind: Any, array: np.ndarray, **how: Any) -> list[Any]:
    made = kind.InferInput("x", list(array.shape), "FP32")
    made.set_data_from_numpy(array, **how)
    return [made]


@pytest.mark.parametrize("binary", [True, False])
def test_tritons_http_client(lin: Asked, binary: bool) -> None:
    client = triton_http.InferenceServerClient(lin.url.removeprefix("http://"))
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("lin", "1")
    assert not client.is_model_ready("lin", "2")
    assert client.get_server_metadata()["name"] == "headrace"
    assert client.get_model_metadata("lin")["inputs"] == [{"name": "x", "datatype": "FP32", "shape": [-1, WIDTH]}]
    inputs = triton_inputs(triton_http, np.ones((3, WIDTH), np.float32), binary_data=binary)
    outputs = [triton_http.InferRequestedOutput("y", binary_data=binary)]
    for packing in (None, "gzip", "deflate"):
        found = client.infer("lin", inputs, outputs=outputs, request_id="7", request_compression_algorithm=packing)
        assert found.as_numpy("y").tolist() == [[8, 8]] * 3
        assert found.get_response()["id"] == "7"
    assert [one["name"] for one in client.get_model_repository_index()] == ["lin", "texts"]
    (told,) = client.get_inference_statistics("lin")["model_stats"]
    assert told["inference_stats"]["success"]["count"] >= 3
    client.close()


def test_tritons_http_client_and_strings(lin: Asked) -> None:
    client = triton_http.InferenceServerClient(lin.url.removeprefix("http://"))
    numbers, strings = triton_http.InferInput("n", [2], "INT64"), triton_http.InferInput("s", [2], "BYTES")
    numbers.set_data_from_numpy(np.array([7, 8]))
    strings.set_data_from_numpy(np.array(["a", "\u00e9"], object))
    found = client.infer("texts", [numbers, strings])
    assert (found.as_numpy("n_out").tolist(), found.as_numpy("s_out").tolist()) == ([7, 8], [b"a", "\u00e9".encode()])
    strings.set_data_from_numpy(np.array([b"a", b"\xff"], object))
    with pytest.raises(InferenceServerException, match="UTF-8"):
        client.infer("texts", [numbers, strings])
    client.close()


def test_tritons_grpc_client(lin: Asked) -> None:
    assert lin.server is not None
    with triton_grpc.InferenceServerClient(lin.server.grpc) as client:
        assert client.is_server_live()
        assert client.is_server_ready()
        assert client.is_model_ready("lin")
        assert not client.is_model_ready("lin", "9")
        assert client.get_model_metadata("lin").inputs[0].shape == [-1, WIDTH]
        assert client.get_server_metadata().name == "headrace"
        found = client.infer("lin", triton_inputs(triton_grpc, np.ones((2, WIDTH), np.float32)), request_id="9")
        assert found.as_numpy("y").tolist() == [[8, 8]] * 2
        assert (found.get_response().id, found.get_response().model_version) == ("9", "1")
        assert [one.name for one in client.get_model_repository_index().models] == ["lin", "texts"]
        assert client.get_inference_statistics("lin").model_stats[0].inference_count >= 2
        for wrong, code in (
            (np.ones((2, 3), np.float32), "INVALID_ARGUMENT"),
            (np.ones((2, WIDTH), np.float32), "NOT_FOUND"),
        ):
            with pytest.raises(InferenceServerException) as caught:
                client.infer("lin", triton_inputs(triton_grpc, wrong), model_version="9" if code == "NOT_FOUND" else "")
            assert code in str(caught.value.status())
        answers: list[Any] = []
        client.start_stream(lambda result, error: answers.append((result, error)))
        client.async_stream_infer("lin", triton_inputs(triton_grpc, np.ones((1, WIDTH), np.float32)))
        until(lambda: bool(answers))
        client.stop_stream()
        assert answers[0][0].as_numpy("y").tolist() == [[8, 8]]


def test_the_v2_schema_holds(lin: Asked) -> None:
    """Whatever is made up by it: answered as it says, and never a 500."""
    schema = schemathesis.openapi.from_url(f"{lin.url}/v2/openapi.json")
    for found in schema.get_all_operations():
        operation = found.ok()

        @settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
        @given(case=operation.as_strategy())
        def ask(case: Any) -> None:
            if "model" in case.path_parameters and case.body is not None:  # nobody's model answers 404 to anything
                case.path_parameters["model"] = "lin"
            case.call_and_validate(timeout=20, excluded_checks=[positive_data_acceptance])  # tensors say more

        ask()


# Asked wrongly


@pytest.mark.parametrize(
    ("body", "headers", "status", "told"),
    [
        (b"", {}, 400, "JSON"),
        (b'{"inputs":[{"name":"x","datatype":"FP32","shape":[1,4],"data":[1,2,3,NaN]}]}', {}, 400, "inputs[0].data[3]"),
        (request([1.0] * 3), {}, 400, "'x'"),
        (request(ROW, "z"), {}, 400, "'z'"),
        ({"inputs": []}, {}, 400, "'x'"),
        (b"{}" + b" " * 200_000, {}, 413, "long"),
        (request(ROW), {"content_encoding": "br"}, 400, "br"),
        (b"no", {"content_encoding": "gzip"}, 400, "gzip"),
        (gzip.compress(b" " * 200_000, mtime=0), {"content_encoding": "gzip"}, 400, "unpacked"),
        (gzip.compress(b"{}", mtime=0)[:-9], {"content_encoding": "gzip"}, 400, "breaks off"),
        (request(ROW), {"inference_header_content_length": "100000"}, 400, "Inference-Header-Content-Length"),
    ],
)  # fmt: skip
def test_a_wrong_request_is_refused_with_its_field(
    strict: Asked, body: Any, headers: dict[str, str], status: int, told: str
) -> None:
    answer = strict.post("/v2/models/lin/infer", body, **headers)
    assert (answer.status_code, told in answer.text) == (status, True), answer.text
    assert strict.version() == "1"


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asked]:
    """Bodies of 100 kB at most."""
    rig = ServingRig(tmp_path_factory.mktemp("strict"))
    rig.point("lin@prod", rig.linear(2.0))
    with rig.serving("lin@prod", body=100_000) as asked:
        yield asked


def test_a_method_that_is_not_meant_is_refused(lin: Asked) -> None:
    answer = lin.get("/v1/models/lin:predict")
    assert (answer.status_code, answer.headers["allow"]) == (405, "POST")


def test_without_the_token_only_health_is_told(rig: ServingRig) -> None:
    rig.point("lin@prod", rig.linear(2.0))
    with rig.serving("lin@prod", token="t" * 20, grpc_port=0) as asked:
        token, asked.token = asked.token, None
        for path in ("/healthz", "/v2/health/live", "/v2/health/ready"):
            assert asked.get(path).status_code == 200
        for path in ("/metrics", "/v2/models/lin", "/v1/models/lin", "/v2"):
            assert asked.get(path).status_code == 401
        assert asked.post("/v1/models/lin:predict", {"instances": [ROW]}).status_code == 401
        asked.token = "x" * 20
        assert asked.get("/v2").status_code == 401
        asked.token = token
        assert asked.get("/v2").status_code == 200
        assert asked.server is not None
        with triton_grpc.InferenceServerClient(asked.server.grpc) as client:
            assert client.is_server_live()
            with pytest.raises(InferenceServerException, match="token"):
                client.get_server_metadata()
            assert client.get_server_metadata(headers={"authorization": f"Bearer {token}"}).name == "headrace"


def test_models_are_loaded_and_unloaded_where_that_is_allowed(rig: ServingRig, lin: Asked) -> None:
    assert lin.post("/v2/repository/models/lin/unload").status_code == 403
    rig.point("lin@prod", rig.linear(2.0))
    with rig.serving("lin@prod", token="t" * 20, admin=True, admin_token="a" * 20) as asked:
        assert asked.post("/v2/repository/models/lin/unload").status_code == 401
        admin = {"authorization": "Bearer " + "a" * 20}
        assert asked.post("/v2/repository/models/lin/unload", origin="http://else", **admin).status_code == 403
        assert asked.post("/v2/repository/models/none/load", **admin).status_code == 404
        assert asked.post("/v2/repository/models/lin/unload", **admin).status_code == 200
        assert asked.post("/v1/models/lin:predict", {"instances": [ROW]}).status_code == 404
        assert asked.post("/v2/repository/index", {"ready": True}).json() == []
        assert asked.post("/v2/repository/models/lin/load", **admin).status_code == 200
        assert asked.version() == "1"


def test_a_command_on_all_addresses_wants_its_token_and_orders_want_another(rig: ServingRig) -> None:
    rig.point("lin@prod", rig.linear(2.0))
    with rig.command("lin@prod", "--host", "0.0.0.0", "--admin") as asked:
        token, admin = asked.told["token"], {"authorization": f"Bearer {asked.told['admin_token']}"}
        orders = ["/v2/repository/models/lin/unload", "/v2/repository/models/lin/load"]
        asked.token = None
        for path, status in (("/healthz", 200), ("/v2/health/live", 200), ("/v2/health/ready", 200),
                             ("/v1/models/lin", 401), ("/v2", 401), ("/metrics", 401)):  # fmt: skip
            assert asked.get(path).status_code == status, path
        assert asked.post("/v1/models/lin:predict", {"instances": [ROW]}).status_code == 401
        assert [asked.post(path).status_code for path in orders] == [401, 401]
        asked.token = token
        assert asked.predict([ROW]) == [[8, 8]]
        assert [asked.post(path).status_code for path in orders] == [401, 401], "asking is not ordering"
        assert asked.post("/v1/models/lin:predict", {"instances": [ROW]}, **admin).status_code == 401
        for path, status in zip(orders, (404, 200), strict=True):
            assert asked.post(path, **admin).status_code == 200
            assert asked.post("/v1/models/lin:predict", {"instances": [ROW]}).status_code == status


def test_a_command_does_not_print_tokens_that_were_chosen_and_takes_no_orders_unless_told(tmp_path: Path) -> None:
    token, admin = "t" * 20, "a" * 20
    chosen = {"HEADRACE_SERVE_TOKEN": token, "HEADRACE_SERVE_ADMIN_TOKEN": admin}
    rig = ServingRig(tmp_path, variables=chosen)
    rig.point("lin@prod", rig.linear(2.0))
    with rig.command("lin@prod") as asked:
        assert not {"token", "admin_token"} & asked.told.keys()
        for what in ("load", "unload"):
            for given in (token, admin):
                headers = {"authorization": f"Bearer {given}"}
                assert asked.post(f"/v2/repository/models/lin/{what}", **headers).status_code == 403
        assert asked.predict([ROW]) == [[8, 8]]
        asked.token = None
        assert asked.post("/v1/models/lin:predict", {"instances": [ROW]}).status_code == 401


# Versions


def test_a_moved_alias_is_swapped_under_load_and_back_without_a_failure(rig: ServingRig) -> None:
    one, two = rig.linear(1.0), rig.linear(2.0)
    rig.point("lin@prod", one)
    with rig.serving("lin@prod") as asked, Asking(asked.port, json.dumps(request(ROW)).encode()) as asking:
        for number in (two, one, two):
            rig.point("lin@prod", number)
            assert asked.serves(number)
            asking.more()
        assert asked.metric("headrace_serving_swaps_total") == 3
    assert not asking.failed
    assert not asking.broken
    told = {
        (json.loads(body)["model_version"], json.loads(body)["outputs"][0]["data"][0]) for _, body in asking.answers
    }
    assert told == {("1", 4.0), ("2", 8.0)}


def held(rig: ServingRig, folder: str, go: Path) -> int:
    """A model that gives back what it is given: a 7 once the file `go` is there."""
    text = ECHO.replace(
        "pass  # here",
        f"""
        while inputs["x"].flat[0] == 7 and not os.path.exists({str(go)!r}):
            time.sleep(0.02)""",
    )
    return rig.publish(python_model(rig.folder / folder, text), "held", runtime="model:Echo")


def test_a_request_in_flight_finishes_on_the_version_that_took_it(rig: ServingRig) -> None:
    go = rig.folder / "go"
    for number in (1, 2):
        held(rig, f"held-{number}", go)
    rig.point("held@prod", 1)
    with rig.serving("held@prod") as asked:
        body = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 1], "data": [7]}]}
        answers: list[Any] = []
        first = threading.Thread(target=lambda: answers.append(asked.post("/v2/models/held/infer", body)))
        first.start()
        until(lambda: asked.metric("nv_inference_pending_request_count") == 1)
        rig.point("held@prod", 2)
        assert asked.serves(2, "held")
        assert asked.post("/v1/models/held/versions/1:predict", {"instances": [[1.0]]}).status_code == 404
        assert asked.states("held")[1][0] == "UNLOADING"
        go.touch()
        first.join()
        assert (answers[0].status_code, answers[0].json()["model_version"]) == (200, "1")
        until(lambda: asked.states("held")[1][0] == "END")


def test_a_version_that_fails_its_recorded_requests_never_serves(rig: ServingRig) -> None:
    good = rig.linear(1.0)
    bad = rig.linear(3.0, warmup=[request(ROW), request([1.0, 2.0])])
    rig.point("lin@prod", good)
    with rig.serving("lin@prod") as asked:
        rig.point("lin@prod", bad)
        until(lambda: bad in asked.states())
        until(lambda: asked.states()[bad][0] == "END")
        assert "warmup.jsonl, line 2" in asked.states()[bad][1]
        assert asked.version() == str(good)
        assert asked.ready()
        assert asked.metric("headrace_serving_refused_versions_total") == 1
        rig.point("lin@prod", rig.linear(4.0))
        assert asked.serves(3)


def test_shares_and_a_shadow(rig: ServingRig) -> None:
    one, two = rig.linear(1.0), rig.linear(2.0)
    rig.point("lin@prod", one)
    rig.point("lin@next", two)
    with rig.serving("lin@prod=3,lin@next=1") as asked:
        found = [asked.version() for _ in range(20)]
        assert (found.count("1"), found.count("2")) == (15, 5)
        assert asked.post("/v1/models/lin/labels/next:predict", {"instances": [ROW]}).json() == {
            "predictions": [[8, 8]]
        }
    with rig.serving("lin@prod,lin@next=shadow") as asked:
        assert {asked.version() for _ in range(5)} == {"1"}
        until(lambda: asked.metric("nv_inference_request_success", version="2") == 5)


def test_a_model_that_is_not_loaded_yet_is_to_be_asked_again(rig: ServingRig) -> None:
    with rig.serving("lin@prod", ready=False) as asked:
        answer = asked.post("/v1/models/lin:predict", {"instances": [ROW]})
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
        assert asked.get("/v2/health/ready").status_code == 503
        rig.point("lin@prod", rig.linear(1.0))
        until(asked.ready)
        assert asked.predict([ROW]) == [[4, 4]]


def test_many_models_and_what_is_counted(rig: ServingRig) -> None:
    rig.point("a@prod", rig.linear(1.0, "a"))
    rig.point("b@prod", rig.linear(2.0, "b"))
    with rig.serving("a@prod", "b@prod") as asked:
        assert (asked.predict([ROW], "a"), asked.predict([ROW] * 3, "b")) == ([[4, 4]], [[8, 8]] * 3)
        asked.post("/v1/models/a:predict", {"instances": [[1]]})
        assert asked.metric("nv_inference_request_success", model="b") == 1
        assert asked.metric("nv_inference_count", model="b") == 3
        assert asked.metric("headrace_serving_version_info", model="a", alias="prod", version="1") == 1
        before = asked.metric("headrace_serving_pointer_requests_total")
        until(lambda: asked.metric("headrace_serving_pointer_requests_total") > before + 3)


@contextmanager
def at_work(rig: ServingRig, **how: Any) -> Iterator[tuple[Asked, Path]]:
    """A server whose model works at one request until the file is there."""
    go = rig.folder / "go"
    rig.point("held@prod", held(rig, "held", go))
    with rig.serving("held@prod", **how) as asked:
        first = threading.Thread(target=lambda: asked.predict([[7.0]], "held"))
        first.start()
        try:
            until(lambda: asked.metric("nv_inference_pending_request_count") == 1)
            yield asked, go
        finally:
            go.touch()
            first.join()


def test_a_client_that_goes_is_not_computed_for(rig: ServingRig) -> None:
    with at_work(rig) as (asked, go):
        body = json.dumps({"instances": [[1.0]]}).encode()
        with socket.create_connection(("127.0.0.1", asked.port)) as client:
            head = f"POST /v1/models/held:predict HTTP/1.1\r\nHost: a\r\nContent-Length: {len(body)}\r\n\r\n"
            client.sendall(head.encode() + body)
            until(lambda: asked.metric("nv_inference_pending_request_count") == 2)
        assert asked.get("/v2/health/live").status_code == 200  # by then the loop has seen that the client has gone
        go.touch()
        until(lambda: asked.metric("nv_inference_request_failure", reason="CANCELED") == 1)


def test_a_deadline_that_passes_is_a_504(rig: ServingRig) -> None:
    with at_work(rig) as (asked, go):
        told = {"name": "x", "datatype": "FP32", "shape": [1, 1], "data": [1]}
        body = {"inputs": [told], "parameters": {"timeout": 1000}}
        answers: list[int] = []
        late = threading.Thread(target=lambda: answers.append(asked.post("/v2/models/held/infer", body).status_code))
        late.start()
        until(lambda: asked.metric("nv_inference_pending_request_count") == 2 or bool(answers))
        time.sleep(0.002)  # the deadline itself
        go.touch()
        late.join()
        assert answers == [504]


def test_what_is_under_way_over_grpc_is_answered_when_the_server_ends(rig: ServingRig) -> None:
    go = rig.folder / "go"
    rig.point("held@prod", held(rig, "held", go))
    answers: list[Any] = []
    with rig.serving("held@prod", grpc_port=0) as asked:
        assert asked.server is not None
        server = asked.server
        with triton_grpc.InferenceServerClient(str(server.grpc)) as client:

            def ask() -> None:
                given = triton_inputs(triton_grpc, np.full((1, 1), 7, np.float32))
                answers.append(client.infer("held", given).as_numpy("y").tolist())

            threads = [threading.Thread(target=ask), threading.Thread(target=server.drain, args=(30,))]
            threads[0].start()
            until(lambda: asked.metric("nv_inference_pending_request_count") == 1)
            threads[1].start()
            until(lambda: gone(asked.port))
            go.touch()
            for one in threads:
                one.join()
    assert answers == [[[7.0]]]


def gone(port: int) -> bool:
    """Whether nobody listens there any more."""
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) != 0


def test_streams_that_say_nothing_keep_nobody_else_from_being_answered(lin: Asked) -> None:
    assert lin.server is not None
    address = lin.server.grpc
    over = threading.Event()

    def silent() -> Iterator[bytes]:
        over.wait()
        yield from ()

    with grpc.insecure_channel(str(address)) as channel:
        stream = channel.stream_stream("/inference.GRPCInferenceService/ModelStreamInfer")
        streams = [stream(silent()) for _ in range(40)]
        try:
            with triton_grpc.InferenceServerClient(str(address)) as client:
                assert client.is_server_live(client_timeout=10)
                until(lambda: sum(one.done() for one in streams) == 24)
                assert {one.code() for one in streams if one.done()} == {grpc.StatusCode.RESOURCE_EXHAUSTED}
                assert client.is_server_live(client_timeout=10)
        finally:
            over.set()
        assert all(one.code() is not None for one in streams)


def test_a_home_that_was_made_anew_is_served_as_it_is_now(rig: ServingRig) -> None:
    for scale in (1.0, 2.0):
        shutil.rmtree(rig.folder / "home", ignore_errors=True)
        now = ServingRig(rig.folder)
        now.point("lin@prod", now.linear(scale))
        with now.serving("lin@prod") as asked:
            assert asked.predict([ROW]) == [[4 * scale] * 2]


# Runtimes

ECHO = """
import os, signal, sys, time
import numpy as np
class Echo:
    one = ("float32", (None, 1))
    signatures = {"serving_default": {"inputs": {"x": one}, "outputs": {"y": one}}}
    def load(self, folder): pass
    def predict(self, inputs):
        pass  # here
        return {"y": inputs["x"]}
"""
DOUBLE = """
import os
from beside import FACTOR
class Double:
    batched = True
    signatures = {"serving_default": {"inputs": {"x": ("float32", (None,))}, "outputs": {"y": ("float32", (None,))}}}
    def load(self, folder):
        self.factor = FACTOR * float(open(os.path.join(folder, "factor.txt")).read())
        assert "AWS_SECRET_ACCESS_KEY" not in os.environ
    def predict(self, inputs):
        if (inputs["x"] < 0).any():
            raise ValueError("a negative number")
        return {"y": inputs["x"] * self.factor}
"""


def python_model(folder: Path, text: str) -> Path:
    folder.mkdir()
    (folder / "model.py").write_text(text)
    (folder / "beside.py").write_text("FACTOR = 10\n")
    (folder / "factor.txt").write_text("2")
    return folder


def test_a_class_of_python_in_a_process_of_its_own(rig: ServingRig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    rig.point("twice@prod", rig.publish(python_model(rig.folder / "twice", DOUBLE), "twice", runtime="model:Double"))
    with rig.serving("twice@prod") as asked:
        assert asked.predict([1.0, 2.0], "twice") == [20, 40]
        refused = asked.post("/v1/models/twice:predict", {"instances": [-1.0]})
        assert refused.status_code == 400
        assert "ValueError: a negative number" in refused.json()["error"]
        assert asked.predict([3.0], "twice") == [60]


def apart(folder: Path, **change: str) -> Apart:
    """A runtime of `ECHO`, with other words in the place of some of its own."""
    text = ECHO.replace("pass  # here", change.get("here", "pass")).replace(
        "folder): pass", f"folder): {change.get('load', 'pass')}"
    )
    return Apart(Load("python", str(python_model(folder, text)), 1, {"class": "model:Echo"}, {}))


def test_a_runtime_that_is_out_of_step_is_started_again(tmp_path: Path) -> None:
    noise = 'inputs["x"][0] == 7 and os.write(int(sys.argv[1]), b"\\4\\0\\0\\0what")'
    runtime = apart(tmp_path / "noise", here=noise)
    try:
        with pytest.raises(msgspec.DecodeError):
            runtime.run("serving_default", {"x": np.full((1, 1), 7, np.float32)})
        until(lambda: runtime.restarts == 1)
        given = np.full((1, 1), 3, np.float32)
        assert runtime.run("serving_default", {"x": given})["y"] == given
    finally:
        runtime.close()


class Odd(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.complex(x, x) if bool(x[0] == 7) else x


def test_numbers_that_have_no_form_are_refused_and_the_runtime_stays(tmp_path: Path) -> None:
    torch.jit.script(Odd()).save(tmp_path / "model.pt")
    one = tensors.Tensor("x", "float32", (-1,))
    told = {"serving_default": tensors.Signature((one,), (one,))}
    runtime = Apart(Load("torchscript", str(tmp_path), 1, {}, told))
    try:
        with pytest.raises(InputError, match="complex64"):
            runtime.run("serving_default", {"x": np.array([7], np.float32)})
        assert runtime.run("serving_default", {"x": np.array([3], np.float32)})["x"] == [3]
    finally:
        runtime.close()


def test_a_runtime_that_is_killed_while_it_loads_may_be_tried_again(tmp_path: Path) -> None:
    with pytest.raises(TryAgainError, match="signal 9"):
        apart(tmp_path / "killed", load="os.kill(os.getpid(), signal.SIGKILL)")
    with pytest.raises(CorruptError, match="exit code 3"):
        apart(tmp_path / "ended", load="os._exit(3)")


class Affine(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return 2 * x + 1


def test_programs_of_pytorch(rig: ServingRig) -> None:
    told = {"serving_default": Signature((Tensor("x", "float32", (None, 3)),), (Tensor("y", "float32", (None, 3)),))}
    for name, kind in (("exported", "torch-export"), ("scripted", "torchscript")):
        folder = rig.folder / name
        folder.mkdir()
        if kind == "torch-export":
            batch = torch.export.Dim("batch")
            made = torch.export.export(Affine(), (torch.ones(2, 3),), dynamic_shapes={"x": {0: batch}})
            torch.export.save(made, folder / "model.pt2")
        else:
            torch.jit.script(Affine()).save(folder / "model.pt")
        rig.point(f"{name}@prod", rig.publish(folder, name, format=kind, signatures=told))
    with rig.serving("exported@prod", "scripted@prod") as asked:
        for name in ("exported", "scripted"):
            assert asked.predict([[1, 2, 3]], name) == [[3, 5, 7]]
            assert asked.post(f"/v1/models/{name}:predict", {"instances": [[1, 2]]}).status_code == 400


def test_onnx_with_weights_beside_it(rig: ServingRig) -> None:
    import onnx

    folder = linear(rig.folder / "beside", 2.0, width=512)
    model = onnx.load(folder / "model.onnx")
    onnx.save(model, folder / "model.onnx", save_as_external_data=True, location="model.data", size_threshold=0)
    rig.point("lin@prod", rig.publish(folder))
    with rig.serving("lin@prod") as asked:
        assert asked.predict([[1.0] * 512]) == [[1024, 1024]]


def test_fraction_of_a_request_is_no_harm(lin: Asked) -> None:
    """Binary tensors of NaN are taken: only JSON has no form for them."""
    told = {"name": "x", "datatype": "FP32", "shape": [1, WIDTH], "parameters": {"binary_data_size": 4 * WIDTH}}
    text = json.dumps({"inputs": [told]}).encode()
    raw = struct.pack(f"<{WIDTH}f", *[float("nan")] * WIDTH)
    answer = lin.post("/v2/models/lin/infer", text + raw, inference_header_content_length=str(len(text)))
    assert answer.status_code == 200
    assert b"NaN" in answer.content


def test_a_window_makes_batches(rig: ServingRig) -> None:
    rig.point("lin@prod", rig.linear(1.0))
    with rig.serving("lin@prod", rules=Rules(window=5.0, rows=4)) as asked:
        found: list[Any] = []
        askers = [threading.Thread(target=lambda: found.append(asked.predict([ROW]))) for _ in range(4)]
        begun = time.monotonic()
        for one in askers:
            one.start()
        for one in askers:
            one.join()
        assert found == [[[4, 4]]] * 4
        assert asked.metric("nv_inference_exec_count") == 1
        assert time.monotonic() - begun < 60


def test_a_large_model_answers_mapped_and_its_rows_are_tried_behind_that_once_for_all_weights(rig: ServingRig) -> None:
    numbers = [rig.publish(large(rig.folder / f"large-{scale}", scale), "large") for scale in (1.0, 2.0)]
    rig.point("large@prod", numbers[0])
    with rig.serving("large@prod", rules=Rules(window=1.0, rows=4)) as asked:
        assert asked.predict([ROW], "large") == [[4.0]]

        def together() -> bool:
            before = asked.metric("nv_inference_exec_count")
            askers = [threading.Thread(target=lambda: asked.predict([ROW], "large")) for _ in range(4)]
            for one in askers:
                one.start()
            for one in askers:
                one.join()
            return asked.metric("nv_inference_exec_count") - before == 1

        until(together, 60)
        rig.point("large@prod", numbers[1])
        assert asked.serves(numbers[1], "large")
        assert together()
        assert asked.predict([ROW], "large") == [[8.0]]


def large(folder: Path, scale: float) -> Path:
    """A model of 38 MB that gives `scale` times the sum of its row."""
    count = 2_400_000
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["m"]), helper.make_node("ReduceMax", ["m", "axes"], ["y"])], "large",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", WIDTH])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 1])],
        [numpy_helper.from_array(np.full((WIDTH, count), scale, np.float32), "w"),
         numpy_helper.from_array(np.array([1]), "axes")],
    )  # fmt: skip
    return saved(folder, graph)
