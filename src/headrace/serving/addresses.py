"""Which URL means what, for both protocols."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

_PART: Final = r"(?:/versions/(?P<number>[0-9]{1,18})|/labels/(?P<label>[^/:]+))?"
_TENSORFLOW: Final = re.compile(
    rf"/v1/models/(?P<model>[^/:]+){_PART}(?:(?P<metadata>/metadata)|:(?P<verb>predict|classify|regress))?"
)
_V2_MODEL: Final = re.compile(
    r"/v2/models/(?P<model>[^/]+)(?:/versions/(?P<number>[0-9]{1,18}))?(?:/(?P<verb>infer|ready|stats|config))?"
)
_REPOSITORY: Final = re.compile(r"/v2/repository/models/(?P<model>[^/]+)/(?P<verb>load|unload)")
_PLAIN: Final = {
    "/healthz": ("live", "GET"), "/v2/health/live": ("live", "GET"), "/v2/health/ready": ("ready", "GET"),
    "/v2": ("server", "GET"), "/v2/models/stats": ("stats", "GET"), "/v2/openapi.json": ("openapi", "GET"),
    "/v2/repository/index": ("index", "POST"), "/metrics": ("metrics", "GET"),
}  # fmt: skip
ADMIN: Final = frozenset({"load", "unload"})
"""What changes the server."""
OPEN: Final = frozenset({"live", "ready"})
"""What whoever watches over the server asks without a token."""


@dataclass(frozen=True, slots=True)
class Target:
    """`kind`: what is asked for; `method`: by which method; the rest where the URL says it."""

    kind: str
    method: str
    model: str = ""
    number: int | None = None
    label: str | None = None


def target_of(path: str) -> Target | None:
    """None: there is no such URL."""
    path = path.rstrip("/") or "/"
    plain = _PLAIN.get(path)
    if plain is not None:
        return Target(*plain)
    if found := _TENSORFLOW.fullmatch(path):
        verb = found["verb"] or ("metadata" if found["metadata"] else "status")
        method = "POST" if found["verb"] else "GET"
        return Target(verb, method, found["model"], _number(found["number"]), found["label"])
    if found := _V2_MODEL.fullmatch(path):
        verb = {None: "model", "ready": "model_ready"}.get(found["verb"], found["verb"])
        return Target(verb, "POST" if verb == "infer" else "GET", found["model"], _number(found["number"]))
    if found := _REPOSITORY.fullmatch(path):
        return Target(found["verb"], "POST", found["model"])
    return None


def _number(text: str | None) -> int | None:
    return None if text is None else int(text)
