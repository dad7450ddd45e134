"""MLflow's REST API, as far as mirroring a run needs it: standard library only, so that no run carries MLflow itself.

The API: https://mlflow.org/docs/latest/rest-api.html , version 2.0; the artifact proxy's is that of `mlflow-artifacts`.
Honoured: ``MLFLOW_TRACKING_URI`` (http and https), ``_USERNAME``, ``_PASSWORD``, ``_TOKEN``, ``_INSECURE_TLS``,
``_SERVER_CERT_PATH``, ``_CLIENT_CERT_PATH``, as MLflow's own client does.
"""

from __future__ import annotations

import base64
import http.client
import json
import ssl
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from typing import Any, Final, cast

from headrace.base.errors import (
    DeniedError,
    HeadraceError,
    InputError,
    NotFoundError,
    SettingError,
    TryAgainError,
    UnreachableError,
    UnsupportedError,
)
from headrace.base.settings import environment

_TIMEOUT_S: Final = 10.0
"""A server that takes longer is away."""
_API: Final = "/api/2.0/mlflow/"
_PROXY: Final = "/api/2.0/mlflow-artifacts/artifacts"


class MlflowServer:
    """One tracking server. One thread; each call ends within ten seconds or so.

    Raises of every call:
        UnreachableError, TryAgainError: it is away, or busy. DeniedError: it refuses us. NotFoundError.
        InputError: it does not take what was sent.
    """

    def __init__(self, uri: str, headers: Mapping[str, str] | None = None, tls: ssl.SSLContext | None = None) -> None:
        parts = urllib.parse.urlsplit(uri)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            shown = parts.scheme if "://" in uri else uri
            hint = "headrace mlflow starts a server; mirrored are runs to http:// and https://"
            raise UnsupportedError(f"MLFLOW_TRACKING_URI: {shown!r} is no server", hint=hint)
        place = parts.hostname if ":" not in parts.hostname else f"[{parts.hostname}]"
        port = f":{parts.port}" if parts.port else ""
        self.url = f"{parts.scheme}://{place}{port}{parts.path.rstrip('/')}"
        """Without what may be secret."""
        self._headers = dict(headers or {})
        if parts.username is not None and "Authorization" not in self._headers:
            user, password = (urllib.parse.unquote(one or "") for one in (parts.username, parts.password))
            self._headers["Authorization"] = _basic(user, password)
        self._tls = tls

    @staticmethod
    def of_environment() -> MlflowServer | None:
        """That of the standard variables; None: there is none. Raises UnsupportedError, SettingError."""
        uri = environment("MLFLOW_TRACKING_URI")
        if uri is None:
            return None
        user, token = environment("MLFLOW_TRACKING_USERNAME"), environment("MLFLOW_TRACKING_TOKEN")
        headers: dict[str, str] = {}
        if user is not None:
            headers["Authorization"] = _basic(user, environment("MLFLOW_TRACKING_PASSWORD") or "")
        elif token is not None:
            headers["Authorization"] = f"Bearer {token}"
        return MlflowServer(uri, headers, _tls() if uri.startswith("https:") else None)

    @staticmethod
    def needed() -> MlflowServer:
        """That of the standard variables. Raises SettingError: there is none. As `of_environment`."""
        server = MlflowServer.of_environment()
        if server is None:
            hint = "headrace mlflow starts a server, and says its URL"
            raise SettingError("MLFLOW_TRACKING_URI is not set", hint=hint)
        return server

    def get(self, call: str, **query: str) -> dict[str, Any]:
        """``runs/get`` and the like."""
        return self._json("GET", f"{_API}{call}?{urllib.parse.urlencode(query)}", None)

    def post(self, call: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """``runs/create`` and the like."""
        return self._json("POST", f"{_API}{call}", json.dumps(body).encode())

    def delete(self, call: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """``model-versions/delete`` and the like."""
        return self._json("DELETE", f"{_API}{call}", json.dumps(body).encode())

    def put_artifact(self, path: str, data: bytes) -> None:
        """Through the server's proxy. `path`: what comes after ``mlflow-artifacts:/``."""
        self._json("PUT", f"{_PROXY}/{urllib.parse.quote(path)}", data)

    def artifacts(self, folder: str) -> list[str]:
        """Names in a folder, through the server's proxy. `folder`: what comes after ``mlflow-artifacts:/``."""
        told = self._json("GET", f"{_PROXY}?{urllib.parse.urlencode({'path': folder})}", None)
        return [str(one["path"]) for one in told.get("files") or ()]

    def _json(self, method: str, path: str, data: bytes | None) -> dict[str, Any]:
        kind = "application/octet-stream" if method == "PUT" else "application/json"
        headers = {"Content-Type": kind, "Accept": "application/json", "User-Agent": "headrace", **self._headers}
        request = urllib.request.Request(f"{self.url}{path}", data, headers, method=method)  # noqa: S310 - http only
        try:
            with urllib.request.urlopen(request, timeout=_TIMEOUT_S, context=self._tls) as answer:  # noqa: S310
                body = answer.read()
            told: Any = json.loads(body) if body.strip() else {}
        except urllib.error.HTTPError as error:
            with error:
                raise self._refusal(error) from None
        except (OSError, http.client.HTTPException) as error:
            reason = getattr(error, "reason", error)
            raise UnreachableError(f"MLflow does not answer: {reason}", path=self.url) from None
        except ValueError:
            raise TryAgainError("what answers is no MLflow server", path=self.url) from None
        return cast("dict[str, Any]", told) if isinstance(told, dict) else {}

    def _refusal(self, error: urllib.error.HTTPError) -> HeadraceError:
        try:
            told = json.loads(error.read(1 << 16))
            reason, code = str(told.get("message", ""))[:500], str(told.get("error_code", ""))
        except (ValueError, OSError, AttributeError):
            reason, code = error.reason or "", ""
        text = f"MLflow answers {error.code}: {reason}"
        if error.code in (401, 403):
            hint = "set MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, or MLFLOW_TRACKING_TOKEN"
            return DeniedError(text, path=self.url, hint=hint)
        if code == "RESOURCE_DOES_NOT_EXIST" or error.code == 404:
            return NotFoundError(text, path=self.url)
        if error.code in (408, 429) or error.code >= 500:
            return TryAgainError(text, path=self.url)
        return InputError(text, path=self.url)


def _basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


def _tls() -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=environment("MLFLOW_TRACKING_SERVER_CERT_PATH"))
        if certificate := environment("MLFLOW_TRACKING_CLIENT_CERT_PATH"):
            context.load_cert_chain(certificate)
    except OSError as error:
        raise SettingError(f"MLFLOW_TRACKING_…_CERT_PATH: {error}", hint="name a file of PEM certificates") from None
    if (environment("MLFLOW_TRACKING_INSECURE_TLS") or "").lower() in ("1", "true"):
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
