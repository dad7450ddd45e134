"""The JSON twins of the pages, and what can be done, as OpenAPI 3.1: what each is asked, and what it tells."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

import msgspec

import headrace
from headrace.web.cost import Cost
from headrace.web.failures import Failure
from headrace.web.guard import HEADER
from headrace.web.told import CONTENT, Act, Page

API: Final = "/api/v1"
ACT: Final = "/act"
"""What changes something is below it."""
_PLACE = re.compile(r"\{(\w+)(?::path)?\}")
_REF: Final = "#/components/schemas/{name}"


def described(pages: Sequence[Page], acts: Sequence[Act] = ()) -> dict[str, Any]:
    """The OpenAPI document, ready for JSON."""
    (failure, cost), shared = msgspec.json.schema_components([Failure, Cost], ref_template=_REF)
    schemas = dict(shared)
    paths: dict[str, Any] = {}
    for page in pages:
        told = _operation(page.name, page.summary, page.shows, failure, schemas)
        answer = told["responses"]["200"]["content"]["application/json"]
        answer["schema"] = {"allOf": [answer["schema"], {"required": ["cost"], "properties": {"cost": cost}}]}
        paths[API + _PLACE.sub(r"{\1}", page.path)] = {
            "get": {**told, "parameters": _parameters(page.path, page.asked)}
        }
    for act in acts:
        told = _operation(f"act.{act.name}", act.summary, act.does, failure, schemas)
        paths[ACT + _PLACE.sub(r"{\1}", act.path)] = {"post": {**told, **_given(act, schemas)}}
    return {
        "openapi": "3.1.0",
        "info": {"title": "headrace", "version": headrace.__version__},
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"token": []}],
    }


def _operation(name: str, summary: str, tells: type, failure: Any, schemas: dict[str, Any]) -> dict[str, Any]:
    """What a page, and an act, have alike. What its answer is made of is put into `schemas`."""
    (answer,), parts = msgspec.json.schema_components([tells], ref_template=_REF)
    schemas |= _renamed({f"{name}.{key}": one for key, one in parts.items()}, name, parts)
    problem = {"content": {"application/json": {"schema": failure}}}
    told = {"application/json": {"schema": _renamed(answer, name, parts)}}
    return {
        "operationId": name,
        "summary": summary,
        "responses": {
            "200": {"description": summary, "content": told},
            "4XX": {"description": "What was asked cannot be had, or is not allowed.", **problem},
            "5XX": {"description": "The store, or this server, failed.", **problem},
        },
    }


def _parameters(path: str, asked: type) -> list[dict[str, Any]]:
    places = set(_PLACE.findall(path))
    return [
        {
            "name": name,
            "in": "path" if name in places else "query",
            "required": name in places,
            "schema": one,
        }
        for name, one in _schema(asked)["properties"].items()
        if name != CONTENT
    ]


def _given(act: Act, schemas: dict[str, Any]) -> dict[str, Any]:
    """Its parameters and body. `Origin`, which a browser sends by itself, has to be this server."""
    parameters = _parameters(act.path, act.asked)
    header = {"name": HEADER, "in": "header", "required": True, "schema": {"const": "1"}}
    if act.takes_bytes:
        body: dict[str, Any] = {"application/octet-stream": {}}
        return {"parameters": [*parameters, header], "requestBody": {"required": True, "content": body}}
    (top,), parts = msgspec.json.schema_components([act.asked], ref_template=_REF)
    own, place = f"act.{act.name}", top["$ref"].rpartition("/")[2]
    schemas |= _renamed({f"{own}.{key}": one for key, one in parts.items() if key != place}, own, parts)
    whole, places = parts[place], {one["name"] for one in parameters if one["in"] == "path"}
    fields = {name: one for name, one in whole["properties"].items() if name not in places}
    required = [name for name in whole.get("required", ()) if name not in places]
    schema = {"type": "object", "properties": _renamed(fields, own, parts), "additionalProperties": False}
    schema |= {"required": required} if required else {}
    return {
        "parameters": [*(one for one in parameters if one["in"] == "path"), header],
        "requestBody": {"required": bool(required), "content": {"application/json": {"schema": schema}}},
    }


def _schema(asked: type) -> dict[str, Any]:
    (top,), shared = msgspec.json.schema_components([asked], ref_template=_REF)
    return shared[top["$ref"].rpartition("/")[2]]


def _renamed(schema: Any, page: str, names: Any) -> Any:
    """References to what several pages call alike lead to each page's own."""
    if isinstance(schema, dict):
        return {
            key: f"{_REF.format(name='')}{page}.{value.rpartition('/')[2]}"
            if key == "$ref" and value.rpartition("/")[2] in names
            else _renamed(value, page, names)
            for key, value in schema.items()
        }
    return [_renamed(one, page, names) for one in schema] if isinstance(schema, list) else schema
