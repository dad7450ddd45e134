"""One bucket of an S3 service: where it is, how a request is signed, sent, tried again, and its failure named."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from headrace.base.errors import (
    ChangedError,
    CredentialsError,
    DeniedError,
    HeadraceError,
    InputError,
    SettingError,
    UnsupportedError,
)
from headrace.base.settings import environment
from headrace.store.backends.credentials import DEFAULT_REGION, Credentials, aws_session, region_of
from headrace.store.backends.errors import from_botocore, from_http
from headrace.store.backends.s3demands import Demands
from headrace.store.backends.sigv4 import EMPTY_SHA256, UNSIGNED, Signer, quote_query
from headrace.store.backends.storetime import StoreTime
from headrace.store.http1 import NOT_MODIFIED, Endpoint, Patience, Response, Transport, persist
from headrace.store.protocol import RENEWALS, Buffer, StoreOptions

_UNSIGNED_FROM = 1 << 20  # bytes from which on TLS alone checks a body: SHA-256 costs time, and proves no more
_REFUSED = (400, 403)  # what services answer to a request whose date is wrong
_LATELY_S = 10.0  # seconds for which a wrong clock is what refusals are put down to, and to ask the time
_SLOWEST = 128 << 10
"""Bytes a second that an upload may go down to before its time is up."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where a bucket answers. `base`: what stands before the key in the path, ``/`` or ``/bucket/``."""

    endpoint: Endpoint
    host: str
    base: str
    region: str
    url: str
    """``https://host:port`` of the service, without the bucket: part of the store's identity."""
    is_aws: bool


def find_address(bucket: str, options: StoreOptions, path: str) -> Address:
    """Endpoint and region, from the options, the standard variables, the profile, AWS's own pattern, in this order.

    Raises:
        InputError: the endpoint is no URL.
        SettingError: plain HTTP is forbidden by allow_http = false, the CA file cannot be read, or the proxy is none.
        CredentialsError: there is no such profile.
    """
    url = options.endpoint or environment("AWS_ENDPOINT_URL_S3") or environment("AWS_ENDPOINT_URL")
    shared = _shared(options, path)
    url = options.endpoint or (None if shared.ignored else url or shared.endpoint_url)
    region = region_of(options) or shared.region or DEFAULT_REGION
    is_aws = url is None
    domain = "amazonaws.com.cn" if region.startswith("cn-") else "amazonaws.com"
    service = f"s3{'-fips' * shared.fips}{'.dualstack' * shared.dualstack}"
    url = (url or f"https://{service}.{region}.{domain}").rstrip("/")
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc or parts.query:
        raise InputError("the endpoint is not a plain http(s) URL", path=path, hint="write it like https://host:port")
    if parts.scheme == "http" and options.allow_http is False:
        raise SettingError("the endpoint is plain HTTP", path=path, hint="set allow_http = true, or use https://")
    style = options.path_style if options.path_style is not None else shared.path_style
    style = style if style is not None else not is_aws or "." in bucket
    host = parts.hostname if style else f"{bucket}.{parts.hostname}"
    default = 443 if parts.scheme == "https" else 80
    port = _port(url, path) or default
    shown = f"[{host}]" if ":" in host else host
    ca_file = options.ca_file or environment("AWS_CA_BUNDLE") or shared.ca_bundle
    return Address(
        Endpoint.of(parts.scheme, host, port, path, ca_file),
        shown if port == default else f"{shown}:{port}",
        f"{parts.path}/{bucket}/" if style and bucket else f"{parts.path}/",
        region,
        url,
        is_aws,
    )


def _port(url: str, path: str) -> int | None:
    try:
        return urlsplit(url).port
    except ValueError:
        raise InputError(
            "the endpoint's port is not a number", path=path, hint="write it like https://host:port"
        ) from None


@dataclass(frozen=True, slots=True)
class _Shared:
    """What AWS's shared configuration says of how to reach S3: its files, and those of its variables that have a twin
    there. `ignored`: endpoints that it names, also in variables, do not count.

    Source: AWS SDKs and Tools Reference Guide, "Settings reference".
    """

    region: str | None = None
    endpoint_url: str | None = None
    ca_bundle: str | None = None
    path_style: bool | None = None
    ignored: bool = False
    fips: bool = False
    dualstack: bool = False


def _shared(options: StoreOptions, path: str) -> _Shared:
    """Cheap where there are neither files nor a profile, or where keys are given and no profile is.

    Raises:
        CredentialsError: there is no such profile, or a file cannot be read. SettingError: services that are nowhere.
    """
    name = options.profile or environment("AWS_PROFILE") or environment("AWS_DEFAULT_PROFILE")
    if name is None and (options.access_key_id or not any(map(os.path.exists, _shared_files()))):
        return _Shared(
            ignored=_is_true("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS"),
            fips=_is_true("AWS_USE_FIPS_ENDPOINT"),
            dualstack=_is_true("AWS_USE_DUALSTACK_ENDPOINT"),
        )
    try:
        session = aws_session(options)
        config: Mapping[str, Any] = session.get_scoped_config()
        s3, named = config.get("s3"), config.get("services")
        services: Mapping[str, Any] = session.full_config.get("services", {})
        if named and named not in services:
            hint = f"write [services {named}] into the file, or take `services` out of the profile"
            raise SettingError(f"the profile names services {named!r}, which are not described", path=path, hint=hint)
        service = services[named].get("s3", {}) if named else {}
        style = s3.get("addressing_style") if isinstance(s3, Mapping) else None
        dualstack = isinstance(s3, Mapping) and str(s3.get("use_dualstack_endpoint", "")).lower() == "true"
        return _Shared(
            session.get_config_variable("region"),
            service.get("endpoint_url") or config.get("endpoint_url"),
            session.get_config_variable("ca_bundle"),
            {"path": True, "virtual": False}.get(str(style)),
            bool(session.get_config_variable("ignore_configured_endpoint_urls")),
            bool(session.get_config_variable("use_fips_endpoint")),
            dualstack or bool(session.get_config_variable("use_dualstack_endpoint")),
        )
    except HeadraceError:
        raise
    except Exception as error:
        raise from_botocore(path, error) from error


def _shared_files() -> list[str]:
    files = (("AWS_CONFIG_FILE", "~/.aws/config"), ("AWS_SHARED_CREDENTIALS_FILE", "~/.aws/credentials"))
    return [os.path.expanduser(environment(variable) or usual) for variable, usual in files]


def _is_true(variable: str) -> bool:
    return (environment(variable) or "").lower() == "true"


class ContestedError(ChangedError):
    """A condition failed on a request sent more than once: an earlier try may itself have changed the object."""


class S3Api:
    """Signed requests to one bucket. Any thread, fork-safe.

    Args:
        bucket: its name; empty for the service itself.
        options: how to reach it.
        path: the store's URL, for errors.
    """

    def __init__(self, bucket: str, options: StoreOptions, path: str) -> None:
        self.bucket = bucket
        self.path = path
        self.address = find_address(bucket, options, path)
        self.credentials = Credentials(options, path)
        fixed = {"x-amz-request-payer": "requester"} if options.requester_pays else None
        self._time = StoreTime(self.address.host)
        self._skewed_at = float("-inf")
        """When a GET of the wire was last refused for its date; monotonic."""
        self._demands = Demands.of(options, path)
        self.signer = Signer(
            self.address.host,
            self.address.region,
            self.credentials.keys,
            fixed,
            self._time.now,
            got=self._demands.customer,
        )
        self._transport = Transport(self.address.endpoint, options.connect_timeout_s, max(1.0, options.timeout_s / 4))
        self._patience = Patience(options.timeout_s, options.retries)
        self.answered = False
        """Whether any request has succeeded: endpoint, bucket and credentials are good."""

    @property
    def service_bucket(self) -> str:
        """Which bucket of which service."""
        return f"{self.address.url}/{self.bucket}"

    def now(self) -> float:
        """Seconds since the epoch, by the store's clock where it is known to differ."""
        return self._time.now()

    def call(
        self,
        method: str,
        key: str = "",
        *,
        path: str,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        body: Buffer = b"",
        slow: bool = False,
        again: Callable[[], None] | None = None,
    ) -> Response:
        """One request, tried again while that may help.

        Args:
            method: the HTTP verb.
            key: full key in the bucket.
            path: what it is about, for errors.
            query: parameters, unquoted.
            headers: lower-case; those named ``x-amz-*`` are signed.
            body: bytes to send. Signed by their SHA-256, so the store checks them, but for large ones inside TLS,
                which checks them too. Each 128 KiB are given another second.
            slow: the server may work long before it answers, and may fail after it has said 200 (copies, completions).
            again: called before each further try.

        Raises:
            HeadraceError: as `from_http` and `from_network` say; a 404 names whether bucket or object is missing.
        """
        digest = self._digest(method, body)
        lines = {**(headers or {}), **self._demands.headers(method, key, query or {}, headers or {})}
        if len(body) or method in ("PUT", "POST"):
            lines["content-length"] = str(len(body))

        sent = 0

        def once(deadline: float) -> tuple[Response, float]:
            dated = self._time.now()
            head = self.signer.head(method, self.address.base + key, quote_query(query or {}), lines, digest)
            return self._transport.exchange(path, head, body, deadline=deadline, slow=slow), dated

        def attempt(deadline: float) -> Response:
            nonlocal sent
            sent += 1
            if sent > 1 and again is not None:
                again()
            answer, dated = once(deadline)
            if answer.status in _REFUSED and self._time.learn(answer.header("date"), dated):
                answer, _ = once(deadline)
            if answer.status == 412 and sent > 1:
                raise ContestedError("the object has changed", path=path)
            if answer.status >= 300 and not (answer.status == NOT_MODIFIED and "if-none-match" in lines):
                error = from_http(path, answer.status, answer.body, region=answer.header("x-amz-bucket-region"))
                raise self._demands.explained(error, method)
            if slow and b"<Error>" in bytes(answer.body[:2000]):
                raise from_http(path, 500, answer.body)
            self.answered = True
            return answer

        return self._with_renewal(attempt, len(body) / _SLOWEST)

    def _digest(self, method: str, body: Buffer) -> str:
        if not len(body):
            return EMPTY_SHA256 if method != "GET" else UNSIGNED
        if self.address.endpoint.tls is not None and len(body) >= _UNSIGNED_FROM:
            return UNSIGNED
        return hashlib.sha256(body).hexdigest()

    def _with_renewal(self, attempt: Callable[[float], Response], more_s: float) -> Response:
        patience = dataclasses.replace(self._patience, timeout_s=self._patience.timeout_s + more_s)
        for _ in range(RENEWALS):
            try:
                return persist(patience, attempt)
            except (CredentialsError, DeniedError):
                if not self.renew():
                    raise
        return persist(patience, attempt)

    def renew(self) -> bool:
        """Look for newer credentials after a refusal, or what time it is there; True when a retry may succeed."""
        if time.monotonic() - self._skewed_at < _LATELY_S:
            with suppress(HeadraceError):
                self._ask_time()
            return True
        renewed = self.credentials.renew()
        if renewed:
            self.signer.forget()
        return renewed

    def _ask_time(self) -> None:
        """Whatever the answer is: its date counts. Raises any network error."""
        dated = self._time.now()
        head = self.signer.head("HEAD", self.address.base)
        answer = self._transport.exchange(self.path, head, deadline=time.monotonic() + _LATELY_S)
        self._time.learn(answer.header("date"), dated)

    def presigned(self, key: str, seconds: int) -> str:
        """See `headrace.store.protocol.Store.presigned`; S3 keeps at most seven days.

        Raises:
            UnsupportedError: the objects are read by a key that no URL may hold.
        """
        if self._demands.customer:
            raise UnsupportedError("objects under sse_c are read by their key only", path=self.path)
        where = self.address
        scheme = "https" if where.endpoint.tls else "http"
        return f"{scheme}://{where.host}{self.signer.presigned(where.base + key, seconds)}"

    def error(self, path: str, status: int, body: bytes) -> HeadraceError:
        """What an answer that is no success means."""
        if b"<Code>RequestTimeTooSkewed<" in body:
            self._skewed_at = time.monotonic()
        return self._demands.explained(from_http(path, status, body), "GET")

    def close(self) -> None:
        """Close idle connections."""
        self._transport.close()
