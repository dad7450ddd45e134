"""The messages of ``inference.GRPCInferenceService``, made when they are first used: no generated code, and a pool of
their own, so that a client of Triton's can live in the same process.

Source: ``grpc_service.proto`` of the Open Inference Protocol, with the repository and statistics extensions.
"""

from __future__ import annotations

from typing import Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

PACKAGE: Final = "inference"
SERVICE: Final = "inference.GRPCInferenceService"
METHODS: Final = (
    "ServerLive", "ServerReady", "ModelReady", "ServerMetadata", "ModelMetadata", "ModelInfer", "ModelStatistics",
    "RepositoryIndex", "RepositoryModelLoad", "RepositoryModelUnload",
)  # fmt: skip
"""Those that take one message and give one."""
_TENSOR: Final = (
    "name 1 string, datatype 2 string, shape 3 *int64, parameters 4 map:InferParameter, contents 5 InferTensorContents"
)
_FIELDS: Final[dict[str, str]] = {
    "ServerLiveRequest": "",
    "ServerLiveResponse": "live 1 bool",
    "ServerReadyRequest": "",
    "ServerReadyResponse": "ready 1 bool",
    "ModelReadyRequest": "name 1 string, version 2 string",
    "ModelReadyResponse": "ready 1 bool",
    "ServerMetadataRequest": "",
    "ServerMetadataResponse": "name 1 string, version 2 string, extensions 3 *string",
    "ModelMetadataRequest": "name 1 string, version 2 string",
    "ModelMetadataResponse": "name 1 string, versions 2 *string, platform 3 string, "
    "inputs 4 *ModelMetadataResponse.TensorMetadata, outputs 5 *ModelMetadataResponse.TensorMetadata",
    "ModelMetadataResponse.TensorMetadata": "name 1 string, datatype 2 string, shape 3 *int64",
    "InferParameter": "bool_param 1 bool?, int64_param 2 int64?, string_param 3 string?, double_param 4 double?, "
    "uint64_param 5 uint64?",
    "InferTensorContents": "bool_contents 1 *bool, int_contents 2 *int32, int64_contents 3 *int64, "
    "uint_contents 4 *uint32, uint64_contents 5 *uint64, fp32_contents 6 *float, fp64_contents 7 *double, "
    "bytes_contents 8 *bytes",
    "ModelInferRequest": "model_name 1 string, model_version 2 string, id 3 string, parameters 4 map:InferParameter, "
    "inputs 5 *ModelInferRequest.InferInputTensor, outputs 6 *ModelInferRequest.InferRequestedOutputTensor, "
    "raw_input_contents 7 *bytes",
    "ModelInferRequest.InferInputTensor": _TENSOR,
    "ModelInferRequest.InferRequestedOutputTensor": "name 1 string, parameters 2 map:InferParameter",
    "ModelInferResponse": "model_name 1 string, model_version 2 string, id 3 string, parameters 4 map:InferParameter, "
    "outputs 5 *ModelInferResponse.InferOutputTensor, raw_output_contents 6 *bytes",
    "ModelInferResponse.InferOutputTensor": _TENSOR,
    "ModelStreamInferResponse": "error_message 1 string, infer_response 2 ModelInferResponse",
    "ModelStatisticsRequest": "name 1 string, version 2 string",
    "StatisticDuration": "count 1 uint64, ns 2 uint64",
    "InferStatistics": "success 1 StatisticDuration, fail 2 StatisticDuration, queue 3 StatisticDuration, "
    "compute_input 4 StatisticDuration, compute_infer 5 StatisticDuration, compute_output 6 StatisticDuration",
    "ModelStatistics": "name 1 string, version 2 string, last_inference 3 uint64, inference_count 4 uint64, "
    "execution_count 5 uint64, inference_stats 6 InferStatistics",
    "ModelStatisticsResponse": "model_stats 1 *ModelStatistics",
    "ModelRepositoryParameter": "bool_param 1 bool?, int64_param 2 int64?, string_param 3 string?, "
    "bytes_param 4 bytes?",
    "RepositoryIndexRequest": "repository_name 1 string, ready 2 bool",
    "RepositoryIndexResponse": "models 1 *RepositoryIndexResponse.ModelIndex",
    "RepositoryIndexResponse.ModelIndex": "name 1 string, version 2 string, state 3 string, reason 4 string",
    "RepositoryModelLoadRequest": "repository_name 1 string, model_name 2 string, "
    "parameters 3 map:ModelRepositoryParameter",
    "RepositoryModelLoadResponse": "",
    "RepositoryModelUnloadRequest": "repository_name 1 string, model_name 2 string, "
    "parameters 3 map:ModelRepositoryParameter",
    "RepositoryModelUnloadResponse": "",
}  # fmt: skip
"""Of each message its fields: name, number, type; ``*`` repeated, ``map:`` from strings, ``?`` one of several."""

_Field: Final = descriptor_pb2.FieldDescriptorProto
_SCALARS: Final = {
    "string": _Field.TYPE_STRING, "bool": _Field.TYPE_BOOL, "bytes": _Field.TYPE_BYTES, "int32": _Field.TYPE_INT32,
    "int64": _Field.TYPE_INT64, "uint32": _Field.TYPE_UINT32, "uint64": _Field.TYPE_UINT64,
    "float": _Field.TYPE_FLOAT, "double": _Field.TYPE_DOUBLE,
}  # fmt: skip


def messages() -> dict[str, Any]:
    """The classes, by name without the package."""
    file = descriptor_pb2.FileDescriptorProto(name="headrace/inference.proto", package=PACKAGE, syntax="proto3")
    made: dict[str, Any] = {}
    for name, fields in _FIELDS.items():
        outer, _, inner = name.rpartition(".")
        message = (made[outer].nested_type if outer else file.message_type).add(name=inner)
        made[name] = message
        for told in filter(None, fields.split(", ")):
            _add(message, name, *told.split(" "))
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)  # pyright: ignore[reportDeprecated]
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{PACKAGE}.{name}")) for name in _FIELDS}


def _add(message: Any, owner: str, name: str, number: str, kind: str) -> None:
    field = message.field.add(name=name, number=int(number), label=_Field.LABEL_OPTIONAL)
    if kind.endswith("?"):
        kind = kind[:-1]
        if not message.oneof_decl:
            message.oneof_decl.add(name="parameter_choice")
        field.oneof_index = 0
    if kind.startswith("map:"):
        entry = message.nested_type.add(name="ParametersEntry")
        entry.options.map_entry = True
        _add(entry, "", "key", "1", "string")
        _add(entry, "", "value", "2", kind.removeprefix("map:"))
        kind = f"*{owner}.ParametersEntry"
    if kind.startswith("*"):
        kind = kind[1:]
        field.label = _Field.LABEL_REPEATED
    if kind in _SCALARS:
        field.type = _SCALARS[kind]
    else:
        field.type = _Field.TYPE_MESSAGE
        field.type_name = f".{PACKAGE}.{kind}"
