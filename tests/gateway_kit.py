"""A gateway over a bucket of the run's S3 server, with keys that may read, write, or see little."""

from __future__ import annotations

import dataclasses
import datetime
import hashlib
import hmac
import http.client
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from headrace.base.settings import CacheSettings, Settings
from headrace.gateway import Gateway, GatewayOptions, Key
from headrace.http_server import Address
from headrace.store import StoreOptions

READER = Key("READER", "reader-secret")
WRITER = Key("WRITER", "writer-secret", write=True)
NARROW = Key("NARROW", "narrow-secret", write=True, prefixes=("data/mine/",))
KEYS = (READER, WRITER, NARROW)
_FIELDS = ("endpoint", "region", "path_style", "allow_http", "access_key_id", "secret_access_key")


@dataclass
class Rig:
    """A running gateway."""

    gateway: Gateway
    settings: Settings

    @property
    def url(self) -> str:
        return self.gateway.url

    def client(self, key: Key = WRITER, **more: Any) -> Any:
        """boto3's."""
        import boto3
        from botocore.config import Config

        config = Config(retries={"max_attempts": 1, "mode": "standard"}, s3={"addressing_style": "path"}, **more)
        return boto3.client("s3", endpoint_url=self.url, aws_access_key_id=key.access_key,
                            aws_secret_access_key=key.secret, region_name="us-east-1", config=config)  # fmt: skip

    def variables(self, key: Key = WRITER) -> dict[str, str]:
        """For other programs."""
        return {
            "AWS_ENDPOINT_URL": self.url, "AWS_ENDPOINT_URL_S3": self.url, "S3_ENDPOINT_URL": self.url,
            "AWS_ACCESS_KEY_ID": key.access_key, "AWS_SECRET_ACCESS_KEY": key.secret, "AWS_REGION": "us-east-1",
            "AWS_DEFAULT_REGION": "us-east-1", "AWS_EC2_METADATA_DISABLED": "true",
        }  # fmt: skip

    def options(self, key: Key = WRITER) -> StoreOptions:
        """For headrace."""
        return StoreOptions(endpoint=self.url, region="us-east-1", access_key_id=key.access_key,
                            secret_access_key=key.secret, path_style=True, allow_http=True)  # fmt: skip


def mount(url: str, options: StoreOptions, **more: Any) -> dict[str, Any]:
    """A table of the settings' ``[mounts]``."""
    given = {name: getattr(options, name) for name in _FIELDS}
    return {"url": url, **{name: value for name, value in given.items() if value is not None}, **more}


def settings_of(mounts: Mapping[str, Mapping[str, Any]], folder: Path, **cache: Any) -> Settings:
    given = {"dir": str(folder / "cache"), "size": 4 << 30, "min_free": 0, **cache}
    kept = dataclasses.replace(CacheSettings(), **given)
    return dataclasses.replace(Settings(), mounts={path: dict(table) for path, table in mounts.items()}, cache=kept)


@contextmanager
def gateway_over(settings: Settings, folder: Path, **options: Any) -> Iterator[Rig]:
    """Started, and ended."""
    given = {"address": Address(), "keys": KEYS, "spool": str(folder / "spool"), **options}
    with Gateway(GatewayOptions(**given), settings) as gateway:
        yield Rig(gateway, settings)


def ask(
    rig: Rig, method: str, path: str, headers: dict[str, str], body: bytes = b"", host: str = ""
) -> tuple[int, dict[str, str], bytes]:  # fmt: skip
    """One request over a connection of its own."""
    connection = http.client.HTTPConnection(rig.url.removeprefix("http://"), timeout=20)
    try:
        connection.request(method, path, body or None, {**headers, **({"host": host} if host else {})})
        answer = connection.getresponse()
        return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()
    finally:
        connection.close()


def signed(
    rig: Rig, key: Key, method: str, path: str, *, headers: Mapping[str, str] | None = None, payload: bytes = b"",
    query: str = "", skew_s: float = 0, secret: str | None = None, content: str | None = None,
) -> dict[str, str]:  # fmt: skip
    """The headers of a request, written apart from what verifies them. `path`: not encoded."""
    moment = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=skew_s)
    stamp, day = f"{moment:%Y%m%dT%H%M%SZ}", f"{moment:%Y%m%d}"
    content = content or hashlib.sha256(payload).hexdigest()
    lines = {"host": rig.url.removeprefix("http://"), "x-amz-content-sha256": content, "x-amz-date": stamp}
    lines |= {name.lower(): value for name, value in (headers or {}).items()}
    names = ";".join(sorted(lines))
    canonical = "".join(f"{name}:{lines[name].strip()}\n" for name in sorted(lines))
    request = "\n".join([method, quote(path, safe="/~"), query, canonical, names, content])
    scope = f"{day}/us-east-1/s3/aws4_request"
    text = "\n".join(["AWS4-HMAC-SHA256", stamp, scope, hashlib.sha256(request.encode()).hexdigest()])
    made = f"AWS4{secret or key.secret}".encode()
    for part in (day, "us-east-1", "s3", "aws4_request"):
        made = hmac.new(made, part.encode(), hashlib.sha256).digest()
    signature = hmac.new(made, text.encode(), hashlib.sha256).hexdigest()
    credential = f"AWS4-HMAC-SHA256 Credential={key.access_key}/{scope}"
    return {**lines, "authorization": f"{credential}, SignedHeaders={names}, Signature={signature}"}
