"""Bytes of the protocols into tensors and back; what is refused names its field."""

from __future__ import annotations

import base64
import json
import math
import struct
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from headrace.base.errors import HeadraceError, InputError, InternalError
from headrace.serving.packing import packed, unpacked
from headrace.serving.protocols import tensorflow_rest, v2_grpc, v2_rest
from headrace.serving.protocols.json_text import encoded
from headrace.serving.protocols.v2_messages import messages
from headrace.serving.tensors import BYTES, TO_V2, Signature, Tensor, numpy_type

ONE = {"serving_default": Signature((Tensor("x", "float32", (-1, 2)),), (Tensor("y", "float32", (-1,)),))}
TWO = {
    "serving_default": Signature(
        (Tensor("age", "int64", (-1,)), Tensor("tag", BYTES, (-1,))), (Tensor("a", "float32", (-1,)),)
    ),
    "other": ONE["serving_default"],
}


def tf(body: object, signatures: dict[str, Signature] = ONE) -> tensorflow_rest.Predict:
    return tensorflow_rest.read(body if isinstance(body, bytes) else json.dumps(body).encode(), signatures)


# TensorFlow Serving's forms


def test_rows_of_one_input_are_values() -> None:
    asked = tf({"instances": [[1, 2], [3, 4.5]]})
    assert (asked.form, asked.inputs["x"].dtype, asked.inputs["x"].tolist()) == ("row", np.float32, [[1, 2], [3, 4.5]])


def test_rows_of_several_inputs_are_objects() -> None:
    asked = tf(
        {"instances": [{"age": 7, "tag": "a"}, {"age": 8, "tag": {"b64": base64.b64encode(b"\xff").decode()}}]}, TWO
    )
    assert asked.inputs["age"].tolist() == [7, 8]
    assert asked.inputs["tag"].tolist() == [b"a", b"\xff"]


def test_columns_are_named_or_the_only_one() -> None:
    assert tf({"inputs": [[1, 2]]}).inputs["x"].tolist() == [[1, 2]]
    asked = tf({"inputs": {"age": [7], "tag": ["ä"]}, "signature_name": "serving_default"}, TWO)
    assert (asked.form, asked.inputs["tag"].tolist()) == ("column", ["ä".encode()])


def test_another_signature_is_named() -> None:
    assert tf({"signature_name": "other", "instances": [[1, 2]]}, TWO).signature == "other"


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (b"{", "no JSON"),
        (b"\xff\xfe", "no JSON"),
        (b"[" * 100_000, "no JSON"),
        ([1], "no JSON object"),
        ({}, "instances and inputs"),
        ({"instances": [[1, 2]], "inputs": [[1, 2]]}, "instances and inputs"),
        ({"instances": []}, "instances"),
        ({"instances": 3}, "instances"),
        ({"instances": [[1, 2], [3]]}, "instances"),
        ({"instances": [["1", "2"]]}, "instances"),
        ({"instances": [[None, 2]]}, "instances"),
        ({"instances": [[True, False]]}, "instances"),
        ({"instances": [[1e300, 2]]}, "instances"),
        ({"instances": [{"x": [1, 2]}, {"z": [1, 2]}]}, "instances[1]"),
        ({"instances": [{"z": [1, 2]}]}, "'z'"),
        ({"instances": [[1, 2]], "signature_name": "none"}, "signature_name"),
        ({"instances": [[1, 2]], "signature_name": 3}, "signature_name"),
        ({"instances": [[1, 2]], "more": 3}, "more"),
        (b'{"instances": [[1, NaN]]}', "instances[0][1]: NaN"),
        (b"[" * 900 + b"NaN" + b"]" * 900, ""),
        (b'{"inputs": {"x": [[-Infinity, 1]]}}', "inputs.x[0][0]: -Infinity"),
        ({"inputs": {"x": {"b64": "AA=="}}}, "inputs.x"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_prediction_is_named(body: object, field: str) -> None:
    with pytest.raises(InputError) as caught:
        tf(body)
    assert field in caught.value.reason


@pytest.mark.parametrize(
    ("row", "field"),
    [
        ({"age": 1.5, "tag": "a"}, "instances.age"),
        ({"age": 2**70, "tag": "a"}, "instances.age"),
        ({"age": 1, "tag": 3}, "instances.tag[0]"),
        ({"age": 1, "tag": {"b64": "!"}}, "instances.tag[0].b64"),
        ({"age": 1, "tag": {"b64": 3}}, "instances.tag[0].b64"),
        (3, "instances"),
    ],
)  # fmt: skip
def test_a_value_of_another_kind_is_named(row: object, field: str) -> None:
    with pytest.raises(InputError) as caught:
        tf({"instances": [row]}, TWO)
    assert field in caught.value.reason


@pytest.mark.parametrize(
    "body",
    [
        b'{"instances": [["' + b"a" * 10_000 + b'"' + b', ""' * 10_000 + b"]]}",
        b'{"instances": [[' + b"1," * 200_000 + b"NaN]]}",
    ],
    ids=["one long string", "a number that is none"],
)
def test_a_wrong_body_takes_no_more_room_than_a_right_one(body: bytes) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(InputError, match="instances"):
            tf(body)
        assert tracemalloc.get_traced_memory()[1] < 30 * len(body)
    finally:
        tracemalloc.stop()


def test_answers_have_the_form_that_was_asked_for() -> None:
    one = {"y": np.array([1.5, 2], np.float32)}
    two = {"y": np.array([1, 2]), "z": np.array([[b"a"], [b"b"]], object)}
    assert json.loads(tensorflow_rest.write("row", one, 2)) == {"predictions": [1.5, 2.0]}
    assert json.loads(tensorflow_rest.write("row", two, 2)) == {
        "predictions": [{"y": 1, "z": ["a"]}, {"y": 2, "z": ["b"]}]
    }
    assert json.loads(tensorflow_rest.write("column", one, 2)) == {"outputs": [1.5, 2.0]}
    assert json.loads(tensorflow_rest.write("column", two, 2)) == {"outputs": {"y": [1, 2], "z": [["a"], ["b"]]}}


def test_bytes_in_an_answer_are_base64_where_their_name_or_they_say_so() -> None:
    raw = np.array([b"\xff"], object)
    for name in ("y", "y_bytes"):
        assert json.loads(tensorflow_rest.write("row", {name: raw}, 1)) == {"predictions": [{"b64": "/w=="}]}
    named = tensorflow_rest.write("row", {"y_bytes": np.array([b"a"], object)}, 1)
    assert json.loads(named) == {"predictions": [{"b64": "YQ=="}]}


def test_rows_are_refused_where_an_output_has_another_number() -> None:
    with pytest.raises(InternalError, match="'y'"):
        tensorflow_rest.write("row", {"y": np.zeros((3, 1))}, 2)


def test_numbers_that_are_none_are_written_by_name() -> None:
    text = tensorflow_rest.write("row", {"y": np.array([math.nan, math.inf, -math.inf, 1], np.float32)}, 4)
    assert text == b'{"predictions":[NaN,Infinity,-Infinity,1.0]}'
    assert encoded({"a": "null"}) == b'{"a":"null"}'


# The Open Inference Protocol


def v2(body: dict[str, object] | bytes, signature: Signature = ONE["serving_default"], length: str | None = None):
    return v2_rest.read(body if isinstance(body, bytes) else json.dumps(body).encode(), length, signature)


def tensor(**change: object) -> dict[str, object]:
    return {"inputs": [{"name": "x", "datatype": "FP32", "shape": [2, 2], "data": [1, 2, 3, 4], **change}]}


def test_data_is_flat_or_nested() -> None:
    for data in ([1, 2, 3, 4], [[1, 2], [3, 4]]):
        assert v2(tensor(data=data)).inputs["x"].tolist() == [[1, 2], [3, 4]]


def test_binary_tensors_follow_the_json() -> None:
    raw = struct.pack("<4f", 1, 2, 3, 4)
    told = {"name": "x", "datatype": "FP32", "shape": [2, 2], "parameters": {"binary_data_size": 16}}
    text = json.dumps({"inputs": [told], "parameters": {"binary_data_output": True}, "id": "7"}).encode()
    asked = v2(text + raw, length=str(len(text)))
    assert asked.inputs["x"].tolist() == [[1, 2], [3, 4]]
    made = v2_rest.write("m", 3, asked, {"y": np.array([5, 6], np.float32)})
    assert made.json_size == len(made.parts[0])
    assert json.loads(bytes(made.parts[0])) == {
        "model_name": "m", "model_version": "3", "id": "7",
        "outputs": [{"name": "y", "datatype": "FP32", "shape": [2], "parameters": {"binary_data_size": 8}}],
    }  # fmt: skip
    assert bytes(made.parts[1]) == struct.pack("<2f", 5, 6)


def test_outputs_are_those_that_are_asked_for() -> None:
    signature = Signature(ONE["serving_default"].inputs, (Tensor("y", "float32"), Tensor("z", "int64")))
    asked = v2({**tensor(), "outputs": [{"name": "z"}]}, signature)
    made = v2_rest.write("m", 1, asked, {"y": np.zeros(1, np.float32), "z": np.array([7])})
    assert [one["name"] for one in json.loads(bytes(made.parts[0]))["outputs"]] == ["z"]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "inputs"),
        ({"inputs": {}}, "inputs"),
        ({"inputs": [3]}, "inputs[0]"),
        (tensor(name=3), "inputs[0].name"),
        (tensor(name="z"), "'z'"),
        (tensor(datatype="FP64"), "inputs[0].datatype"),
        (tensor(datatype="FLOAT"), "inputs[0].datatype"),
        (tensor(datatype=["FP32"]), "inputs[0].datatype"),
        (tensor(shape=[3]), "inputs[0].data"),
        (tensor(shape=[-2, 2]), "inputs[0].shape"),
        (tensor(shape=[True, 2]), "inputs[0].shape"),
        (tensor(shape="2"), "inputs[0].shape"),
        (tensor(shape=[2**62, 2**62]), "inputs[0].shape"),
        (tensor(data=None), "inputs[0].data"),
        (tensor(data=["a", "b", "c", "d"]), "inputs[0].data"),
        (tensor(parameters=[]), None),
        (tensor(parameters=3), "inputs[0].parameters"),
        (tensor(parameters={"binary_data_size": 16}), "inputs[0].data"),
        (tensor(parameters={"shared_memory_region": "r"}), "shared_memory_region"),
        ({"inputs": tensor()["inputs"] * 2}, "inputs[1].name"),  # type: ignore[operator]
        ({**tensor(), "outputs": [{"name": "q"}]}, "outputs[0].name"),
        ({**tensor(), "outputs": 3}, "outputs"),
        (tensor(shape=[0, 2**62], data=[]), "inputs[0].shape"),
        (tensor(shape=[0, 2**31, 2**31], data=[]), "inputs[0].shape"),
        ({**tensor(), "id": 3}, "id"),
        ({**tensor(), "parameters": {"timeout": "a"}}, "parameters.timeout"),
        ({**tensor(), "parameters": {"sequence_id": 3}}, "parameters.sequence_id"),
        (b'{"inputs": [{"name": "x", "data": [NaN]}]}', "inputs[0].data[0]: NaN"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_an_inference_is_named(body: dict[str, object] | bytes, field: str | None) -> None:
    if field is None:  # an empty list is as good as no parameters
        v2(body)
        return
    with pytest.raises(InputError) as caught:
        v2(body)
    assert field in caught.value.reason


@pytest.mark.parametrize(
    ("size", "raw", "length", "field"),
    [
        (16, 12, None, "binary_data_size"),
        (12, 12, None, "inputs[0]"),
        (16, 20, None, "4 bytes are left"),
        (-1, 0, None, "binary_data_size"),
        ("16", 16, None, "binary_data_size"),
        (True, 16, None, "binary_data_size"),
        (16, 16, "9999", "Inference-Header-Content-Length"),
        (16, 16, "x", "Inference-Header-Content-Length"),
        (16, 16, "٣", "Inference-Header-Content-Length"),
        (16, 16, "3", "no JSON"),
    ],
)
def test_binary_parts_that_do_not_fit_are_named(size: object, raw: int, length: str | None, field: str) -> None:
    told = {"name": "x", "datatype": "FP32", "shape": [2, 2], "parameters": {"binary_data_size": size}}
    text = json.dumps({"inputs": [told]}).encode()
    with pytest.raises(InputError) as caught:
        v2(text + bytes(raw), length=str(len(text)) if length is None else length)
    assert field in caught.value.reason


NUMBERS = [kind for kind in TO_V2 if kind != BYTES]


@given(
    data=st.data(),
    kind=st.sampled_from(NUMBERS),
    shape=hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4),
)
def test_numbers_come_back_as_they_were(data: st.DataObject, kind: str, shape: tuple[int, ...]) -> None:
    array = data.draw(hnp.arrays(numpy_type(kind), shape))
    assert np.array_equal(unpacked(kind, shape, packed(array)), array, equal_nan=kind.startswith("float"))


@given(st.lists(st.binary(max_size=9), max_size=5), st.integers(0, 60))
def test_strings_come_back_and_cut_ones_are_refused(texts: list[bytes], cut: int) -> None:
    array = np.empty(len(texts), object)
    array[:] = texts
    raw = bytes(packed(array))
    assert unpacked(BYTES, (len(texts),), raw).tolist() == texts
    if cut < len(raw):
        with pytest.raises(InputError):
            unpacked(BYTES, (len(texts),), raw[:cut])
    with pytest.raises(InputError):
        unpacked(BYTES, (len(texts),), raw + b"\0")


@given(st.binary(max_size=60), st.integers(0, 2**40))
def test_no_bytes_break_the_reading_of_strings(raw: bytes, count: int) -> None:
    try:
        unpacked(BYTES, (count,), raw)
    except HeadraceError:
        return


ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["b64", "x", "a"]), inner, max_size=3),
    max_leaves=12,
)


@given(ANY_JSON, st.sampled_from(["instances", "inputs"]), st.sampled_from([ONE, TWO]))
def test_no_json_breaks_the_reading_of_predictions(value: object, key: str, signatures: dict[str, Signature]) -> None:
    try:
        asked = tf({key: value}, signatures)
    except InputError:
        return
    assert all(array.dtype in (np.float32, np.int64, object) for array in asked.inputs.values())


@given(ANY_JSON, st.sampled_from(["name", "datatype", "shape", "data", "parameters"]))
def test_no_json_breaks_the_reading_of_inferences(value: object, key: str) -> None:
    try:
        v2(tensor(**{key: value}))
    except InputError:
        return


# gRPC


def infer(**change: object):
    made = messages()["ModelInferRequest"]()
    one = made.inputs.add(name="x", datatype="FP32", shape=[1, 2])
    for name, value in change.items():
        setattr(one, name, value)
    return made


def test_grpc_takes_typed_and_raw_contents() -> None:
    typed, raw = infer(), infer()
    typed.inputs[0].contents.fp32_contents.extend([1, 2])
    raw.raw_input_contents.append(struct.pack("<2f", 1, 2))
    for made in (typed, raw):
        assert v2_grpc.read(made, ONE["serving_default"]).inputs["x"].tolist() == [[1, 2]]


def test_grpc_refuses_what_does_not_fit() -> None:
    short, several, other = infer(), infer(), infer(datatype="INT32")
    short.inputs[0].contents.fp32_contents.append(1)
    several.raw_input_contents.extend([b"", b""])
    for made, field in ((short, "inputs[0].contents"), (several, "raw_input_contents"), (other, "inputs[0].datatype")):
        with pytest.raises(InputError) as caught:
            v2_grpc.read(made, ONE["serving_default"])
        assert field in caught.value.reason
