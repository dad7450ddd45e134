"""The JSON twins of the pages, described as OpenAPI 3.1: of each page what it is asked, and what it tells."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

import msgspec

import headrace
from headrace.web.failures import Failure
from headrace.web.told import Page

API: Final = "/api/v1"
_PLACE = re.compile(r"\{(\w+)(?::path)?\}")
_REF: Final = "#/components/schemas/{name}"


def described(pages: Sequence[Page]) -> dict[str, Any]:
    """The OpenAPI document, ready for JSON."""
    (failure,), shared = msgspec.json.schema_components([Failure], ref_template=_REF)
    schemas = dict(shared)
    paths: dict[str, Any] = {}
    for page in pages:
        (shows,), more = msgspec.json.schema_components([page.shows], ref_template=_REF)
        named = {f"{page.name}.{name}": one for name, one in more.items()}
        schemas |= _renamed(named, page.name, more)
        problem = {"content": {"application/json": {"schema": failure}}}
        paths[API + _PLACE.sub(r"{\1}", page.path)] = {
            "get": {
                "operationId": page.name,
                "summary": page.summary,
                "parameters": _parameters(page),
                "responses": {
                    "200": {
                        "description": page.summary,
                        "content": {"application/json": {"schema": _renamed(shows, page.name, more)}},
                    },
                    "4XX": {"description": "What was asked cannot be had.", **problem},
                    "5XX": {"description": "The store, or this server, failed.", **problem},
                },
            }
        }
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


def _parameters(page: Page) -> list[dict[str, Any]]:
    places = set(_PLACE.findall(page.path))
    (top,), shared = msgspec.json.schema_components([page.asked], ref_template=_REF)
    schema = shared[top["$ref"].rpartition("/")[2]]
    return [
        {
            "name": name,
            "in": "path" if name in places else "query",
            "required": name in places,
            "schema": one,
        }
        for name, one in schema["properties"].items()
    ]


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
