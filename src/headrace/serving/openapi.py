"""The OpenAPI document of the Open Inference Protocol as it is served here: ``/v2/openapi.json``."""

from __future__ import annotations

from functools import cache
from typing import Any, Final

from headrace import __version__
from headrace.serving.tensors import FROM_V2

_NAME: Final = {"name": "model", "in": "path", "required": True, "schema": {"type": "string"}}
_NUMBER: Final = {
    "name": "version", "in": "path", "required": True, "schema": {"type": "string", "pattern": "^[0-9]{1,18}$"},
}  # fmt: skip


@cache
def document() -> dict[str, Any]:
    """The whole of it."""
    both = {"/v2/models/{model}": [_NAME], "/v2/models/{model}/versions/{version}": [_NAME, _NUMBER]}
    paths: dict[str, Any] = {
        "/healthz": _get("Whether the process answers", None),
        "/v2": _get("The server and its extensions", "Server"),
        "/v2/health/live": _get("Whether the process answers", None),
        "/v2/health/ready": _get("Whether every model answers", None, 503),
        "/v2/models/stats": _get("What is counted of all models", "Statistics", 503),
        "/v2/repository/index": {
            "post": {
                "summary": "Models and their versions", "requestBody": _body("IndexRequest", required=False),
                "responses": _responses({"type": "array", "items": _ref("IndexEntry")}, 400),
            }
        },
    }  # fmt: skip
    for path, parameters in both.items():
        paths[path] = _get("A model's tensors", "Model", 404, 503) | {"parameters": parameters}
        paths[f"{path}/ready"] = _get("Whether a model answers", None, 404, 503) | {"parameters": parameters}
        paths[f"{path}/stats"] = _get("What is counted of a model", "Statistics", 404, 503) | {"parameters": parameters}
        paths[f"{path}/infer"] = {
            "parameters": parameters,
            "post": {
                "summary": "A prediction", "requestBody": _body("InferRequest"),
                "responses": _responses(_ref("InferResponse"), 400, 404, 503, 504),
            },
        }  # fmt: skip
    for verb in ("load", "unload"):
        paths[f"/v2/repository/models/{{model}}/{verb}"] = {
            "parameters": [_NAME],
            "post": {"summary": f"{verb.capitalize()} a model", "responses": _responses(None, 400, 401, 403, 404, 503)},
        }
    return {
        "openapi": "3.0.3",
        "info": {"title": "Open Inference Protocol v2", "version": __version__},
        "paths": paths,
        "components": {"schemas": _SCHEMAS},
    }


def _get(summary: str, schema: str | None, *errors: int) -> dict[str, Any]:
    return {"get": {"summary": summary, "responses": _responses(None if schema is None else _ref(schema), *errors)}}


def _responses(schema: dict[str, Any] | None, *errors: int) -> dict[str, Any]:
    good: dict[str, Any] = {"description": "done"}
    if schema is not None:
        good["content"] = {"application/json": {"schema": schema}}
    bad = {"description": "why not", "content": {"application/json": {"schema": _ref("Error")}}}
    plain = {"description": "not ready"}
    return {"200": good} | {str(one): plain if one == 503 and schema is None else bad for one in errors}


def _body(schema: str, *, required: bool = True) -> dict[str, Any]:
    return {"required": required, "content": {"application/json": {"schema": _ref(schema)}}}


def _ref(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{name}"}


def _object(required: list[str], **properties: Any) -> dict[str, Any]:
    return {"type": "object", "required": required, "properties": properties}


_TEXT: Final = {"type": "string"}
_SHAPE: Final = {"type": "array", "items": {"type": "integer"}}
_LENGTHS: Final = {"type": "array", "items": {"type": "integer", "minimum": 0}}
_KIND: Final = {"type": "string", "enum": list(FROM_V2)}
_PARAMETERS: Final = {"type": "object", "additionalProperties": True}
_TENSOR: Final = _object(["name", "datatype", "shape"], name=_TEXT, datatype=_TEXT, shape=_SHAPE)
_SCHEMAS: Final[dict[str, Any]] = {
    "Error": _object(["error"], error=_TEXT),
    "Server": _object(
        ["name", "version", "extensions"], name=_TEXT, version=_TEXT, extensions={"type": "array", "items": _TEXT}
    ),
    "Model": _object(
        ["name", "platform", "inputs", "outputs"],
        name=_TEXT, versions={"type": "array", "items": _TEXT}, platform=_TEXT,
        inputs={"type": "array", "items": _TENSOR}, outputs={"type": "array", "items": _TENSOR},
    ),
    "InferRequest": _object(
        ["inputs"], id=_TEXT, parameters=_PARAMETERS,
        inputs={"type": "array", "items": _object(
            ["name", "datatype", "shape", "data"], name=_TEXT, datatype=_KIND, shape=_LENGTHS, parameters=_PARAMETERS,
            data={"type": "array", "items": {}},
        )},
        outputs={"type": "array", "items": _object(["name"], name=_TEXT, parameters=_PARAMETERS)},
    ),
    "InferResponse": _object(
        ["model_name", "outputs"], model_name=_TEXT, model_version=_TEXT, id=_TEXT,
        outputs={"type": "array", "items": _object(
            ["name", "datatype", "shape"], name=_TEXT, datatype=_KIND, shape=_LENGTHS, parameters=_PARAMETERS,
            data={"type": "array", "items": {}},
        )},
    ),
    "Statistics": _object(["model_stats"], model_stats={"type": "array", "items": {"type": "object"}}),
    "IndexRequest": _object([], repository_name=_TEXT, ready={"type": "boolean"}),
    "IndexEntry": _object(["name"], name=_TEXT, version=_TEXT, state=_TEXT, reason=_TEXT),
}  # fmt: skip
