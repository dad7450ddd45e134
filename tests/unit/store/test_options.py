from __future__ import annotations

import socket
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from headrace.base.errors import CredentialsError, HeadraceError, InputError, SettingError, UnsupportedError
from headrace.base.settings import Settings
from headrace.store import StoreOptions, open_store, parse_options
from headrace.store.backends.credentials import Credentials
from headrace.store.backends.s3api import find_address
from headrace.store.http1.tls import tls_of
from headrace.store.registry import matching_table, merge
from tests.fault.scripted import ScriptedServer, ok, reset

KEYS = StoreOptions(access_key_id="AK", secret_access_key="very-secret", session_token="tok-secret")


def address(bucket: str = "bucket", **changes: object):
    import dataclasses

    return find_address(bucket, dataclasses.replace(KEYS, **changes), "s3://bucket")


@pytest.fixture
def variables(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    return monkeypatch


def test_no_secret_is_shown() -> None:
    options = StoreOptions(**{f: getattr(KEYS, f) for f in ("access_key_id", "secret_access_key", "session_token")})
    store = open_store("s3://bucket/x", options)
    for text in (repr(options), repr(store), store.identity, store.url):
        assert "secret" not in text
    assert "hidden" not in repr(StoreOptions(extra=(("account_key", "hidden"),)))


def test_the_longest_prefix_wins() -> None:
    tables = {"s3://": {"region": "a"}, "s3://bucket": {"region": "b"}, "s3://bucket/deep/": {"region": "c"}}
    settings = Settings(stores=tables)
    assert matching_table("s3://bucket/deep/er", settings)["region"] == "c"
    assert matching_table("s3://bucket/deeper", settings)["region"] == "b"
    assert matching_table("s3://bucket2", settings)["region"] == "a"
    assert matching_table("gs://bucket", settings) == {}


def test_explicit_options_win_over_the_table() -> None:
    weak = parse_options({"region": "weak", "retries": 3, "anonymous": True}, scheme="s3", where="x")
    assert merge(weak, StoreOptions(region="strong")) == StoreOptions(region="strong", retries=3, anonymous=True)


@pytest.mark.parametrize(
    ("scheme", "name", "near"),
    [("s3", "regoin", "region"), ("s3", "acess_key_id", "access_key_id"), ("az", "acount_name", "account_name")],
)
def test_a_wrong_option_is_refused_with_the_nearest(scheme: str, name: str, near: str) -> None:
    with pytest.raises(SettingError, match=f"did you mean '{near}'"):
        parse_options({name: "x"}, scheme=scheme, where="here")


@pytest.mark.parametrize(
    ("name", "value"),
    [("anonymous", "yes"), ("timeout_s", "soon"), ("timeout_s", 0), ("retries", -1), ("retries", True), ("region", 3)],
)
def test_a_value_of_the_wrong_kind_is_refused(name: str, value: object) -> None:
    with pytest.raises(SettingError, match=name):
        parse_options({name: value}, scheme="s3", where="here")


def test_durations_may_have_units() -> None:
    assert parse_options({"timeout_s": "2m"}, scheme="s3", where="x").timeout_s == 120


def test_the_s3_variable_wins_over_the_general_one(variables: pytest.MonkeyPatch) -> None:
    variables.setenv("AWS_ENDPOINT_URL", "http://general:1")
    assert address().host == "general:1"
    variables.setenv("AWS_ENDPOINT_URL_S3", "http://special:2")
    assert address().host == "special:2"
    assert address(endpoint="https://given").host == "given"


def test_regions_and_styles(variables: pytest.MonkeyPatch) -> None:
    assert (address().host, address().base) == ("bucket.s3.us-east-1.amazonaws.com", "/")
    assert (address("a.b").host, address("a.b").base) == ("s3.us-east-1.amazonaws.com", "/a.b/")
    variables.setenv("AWS_DEFAULT_REGION", "eu-west-1")
    assert address().host == "bucket.s3.eu-west-1.amazonaws.com"
    variables.setenv("AWS_REGION", "cn-north-1")
    assert address().host == "bucket.s3.cn-north-1.amazonaws.com.cn"
    assert address(endpoint="http://h:9000/base/").base == "/base/bucket/"
    assert address(endpoint="http://h:9000", path_style=False).host == "bucket.h:9000"


def test_a_profile_gives_endpoint_region_and_keys(variables: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "config").write_text("[profile lab]\nregion = lab-1\nendpoint_url = http://lab:9\n")
    (tmp_path / "credentials").write_text("[lab]\naws_access_key_id = LABKEY\naws_secret_access_key = s\n")
    variables.setenv("AWS_ACCESS_KEY_ID", "OTHER")
    variables.setenv("AWS_SECRET_ACCESS_KEY", "other")
    wire = open_store("s3://bucket", StoreOptions(profile="lab")).wire()
    assert wire is not None
    assert (wire.endpoint.host, wire.endpoint.port) == ("lab", 9)
    assert b"Credential=LABKEY/" in wire.request("k", 0, None, None)
    assert b"/lab-1/s3/" in wire.request("k", 0, None, None)


def test_refused_before_any_request(variables: pytest.MonkeyPatch) -> None:
    with pytest.raises(CredentialsError, match="no such profile"):
        open_store("s3://bucket", StoreOptions(profile="nobody"))
    with pytest.raises(CredentialsError, match="half of a key pair"):
        open_store("s3://bucket", StoreOptions(access_key_id="AK"))
    with pytest.raises(InputError, match="endpoint"):
        open_store("s3://bucket", StoreOptions(endpoint="host:1", access_key_id="A", secret_access_key="B"))
    with pytest.raises(SettingError, match="plain HTTP"):
        open_store("s3://bucket", StoreOptions(endpoint="http://h", allow_http=False))
    with pytest.raises(SettingError, match="certificate file"):
        open_store("s3://bucket", StoreOptions(endpoint="https://h", ca_file="/nowhere.pem"))
    with pytest.raises(SettingError, match="no storage account"):
        open_store("az://container")
    with pytest.raises(InputError, match="unknown kind of store"):
        open_store("nonsense://x")
    with pytest.raises(UnsupportedError, match="package for smb:// is missing"):
        open_store("smb://host/x")


def test_no_credentials_at_all(variables: pytest.MonkeyPatch) -> None:
    variables.delenv("AWS_ACCESS_KEY_ID", raising=False)
    store = open_store("s3://bucket", StoreOptions(endpoint="http://127.0.0.1:1"))
    with pytest.raises(CredentialsError, match="no credentials") as caught:
        store.get("x")
    assert "anonymous" in (caught.value.hint or "")
    anonymous = open_store("s3://bucket", StoreOptions(endpoint="http://127.0.0.1:1", anonymous=True)).wire()
    assert anonymous is not None
    assert b"authorization" not in anonymous.request("x", 0, None, None).lower()


def test_requester_pays_is_signed() -> None:
    import dataclasses

    wire = open_store("s3://bucket", dataclasses.replace(KEYS, requester_pays=True)).wire()
    assert wire is not None
    head = wire.request("x", 3, 9, "abc")
    assert b"x-amz-request-payer: requester" in head
    assert b"x-amz-request-payer," in head or b";x-amz-request-payer" in head
    assert b"range: bytes=3-8\r\n" in head
    assert b'if-match: "abc"\r\n' in head
    assert head.endswith(b"\r\n\r\n")


BUNDLE = "BUNDLE"
SHARED: dict[str, tuple[str, dict[str, str]]] = {
    "a region": ("[default]\nregion = eu-west-3\n", {}),
    "a region of the environment": ("[default]\nregion = eu-west-3\n", {"AWS_DEFAULT_REGION": "us-west-2"}),
    "China": ("[default]\nregion = cn-north-1\n", {}),
    "a profile": ("[profile lab]\nregion = lab-1\nendpoint_url = http://lab:9\n", {"AWS_PROFILE": "lab"}),
    "an endpoint": ("[default]\nendpoint_url = http://every:1\n", {}),
    "a service's endpoint": (
        "[default]\nservices = ours\nendpoint_url = http://every:1\n[services ours]\ns3 =\n  endpoint_url = http://s3:2\n",
        {},
    ),
    "another service's endpoint": (
        "[default]\nservices = ours\nendpoint_url = http://every:1\n[services ours]\nec2 =\n  endpoint_url = http://e:2\n",
        {},
    ),
    "a variable before a service": (
        "[default]\nservices = ours\n[services ours]\ns3 =\n  endpoint_url = http://s3:2\n",
        {"AWS_ENDPOINT_URL": "http://variable:3"},
    ),
    "endpoints ignored": ("[default]\nendpoint_url = http://every:1\nignore_configured_endpoint_urls = true\n", {}),
    "endpoints ignored by a variable": (
        "", {"AWS_ENDPOINT_URL_S3": "http://s3:2", "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS": "true"}
    ),
    "the bucket in the path": ("[default]\ns3 =\n  addressing_style = path\n", {}),
    "the bucket in the host name": (
        "[default]\nendpoint_url = http://every:1\ns3 =\n  addressing_style = virtual\n", {}
    ),
    "two stacks": ("[default]\nuse_dualstack_endpoint = true\n", {}),
    "two stacks for S3": ("[default]\ns3 =\n  use_dualstack_endpoint = true\n", {}),
    "FIPS": ("", {"AWS_USE_FIPS_ENDPOINT": "true"}),
    "FIPS and two stacks": ("[default]\nuse_fips_endpoint = true\nuse_dualstack_endpoint = true\n", {}),
    "authorities": (f"[default]\nca_bundle = {BUNDLE}\n", {}),
    "authorities of a variable": ("[default]\nca_bundle = /nowhere.pem\n", {"AWS_CA_BUNDLE": BUNDLE}),
}  # fmt: skip


@pytest.mark.parametrize("case", SHARED)
def test_the_shared_configuration_is_read_as_botocore_reads_it(
    variables: pytest.MonkeyPatch, tmp_path: Path, case: str
) -> None:
    """Endpoint, region, where the bucket stands, and which authorities are trusted."""
    import certifi
    from botocore.session import Session

    def found(text: str) -> str:
        return text.replace(BUNDLE, certifi.where())

    text, environment = SHARED[case]
    variables.setenv("AWS_ACCESS_KEY_ID", "AK")
    variables.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    (tmp_path / "config").write_text(found(text))
    for name, value in environment.items():
        variables.setenv(name, found(value))
    variables.setenv("AWS_S3_US_EAST_1_REGIONAL_ENDPOINT", "regional")  # not the old name of that one region
    session = Session()
    client = session.create_client("s3", region_name=session.get_config_variable("region") or "us-east-1")
    sent: list[str] = []

    def instead_of_sending(request: Any, **_: object) -> None:
        sent.append(request.url)
        raise ConnectionAbortedError

    client.meta.events.register("before-send.s3", instead_of_sending)
    with pytest.raises(ConnectionAbortedError):
        client.get_object(Bucket="bucket", Key="k")
    url = urlsplit(sent[0])
    ours = find_address("bucket", StoreOptions(), "s3://bucket")
    assert (ours.host, f"{ours.base}k", ours.endpoint.tls is not None) == (url.netloc, url.path, url.scheme == "https")
    assert ours.region == client.meta.region_name
    bundle = session.get_config_variable("ca_bundle")
    assert ours.endpoint.tls is (tls_of(bundle, "s3://bucket") if url.scheme == "https" else None)


@pytest.mark.parametrize("known", ["AWS_REGION", "AWS_DEFAULT_REGION", "option", "profile", "nothing"])
def test_a_role_is_taken_in_the_region_that_is_known(
    variables: pytest.MonkeyPatch, tmp_path: Path, known: str
) -> None:
    """botocore itself does not know ``AWS_REGION``. A server stands in for STS, which needs an account."""
    asked: list[str] = []

    def answer(connection: socket.socket, path: str, number: int) -> None:
        asked.append(path)
        body = STS.format(time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 3600))).encode()
        connection.sendall(ok(body))
        reset(connection)

    server = ScriptedServer(answer)
    variables.setenv("AWS_ENDPOINT_URL_STS", f"http://127.0.0.1:{server.port}")
    variables.setenv("AWS_ACCESS_KEY_ID", "AK")
    variables.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    if known.startswith("AWS"):
        variables.setenv(known, "eu-north-1")
    if known == "profile":
        (tmp_path / "config").write_text("[default]\nregion = eu-north-1\n")
    options = StoreOptions(role_arn="arn:aws:iam::1:role/r", region="eu-north-1" if known == "option" else None)
    wire = open_store("s3://bucket", options).wire()
    assert wire is not None
    region = "us-east-1" if known == "nothing" else "eu-north-1"
    assert f"Credential=ASSUMED/{time.strftime('%Y%m%d', time.gmtime())}/{region}/s3".encode() in wire.request(
        "k", 0, None, None
    )
    assert len(asked) == 1
    server.close()


STS = """<AssumeRoleResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><AssumeRoleResult><Credentials>
<AccessKeyId>ASSUMED</AccessKeyId><SecretAccessKey>s</SecretAccessKey><SessionToken>t</SessionToken>
<Expiration>{}</Expiration></Credentials><AssumedRoleUser><Arn>arn:aws:sts::1:assumed-role/r/s</Arn>
<AssumedRoleId>A:s</AssumedRoleId></AssumedRoleUser></AssumeRoleResult></AssumeRoleResponse>"""


def test_keys_that_are_replaced_twice_within_seconds(variables: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def replaced(key: str) -> None:
        (tmp_path / "credentials").write_text(f"[default]\naws_access_key_id = {key}\naws_secret_access_key = s\n")

    now = 1000.0
    replaced("FIRST")
    credentials = Credentials(StoreOptions(), "s3://bucket", clock=lambda: now)
    assert credentials.keys().access_key == "FIRST"  # pyright: ignore[reportOptionalMemberAccess]
    for key in ("SECOND", "THIRD", "FOURTH"):
        replaced(key)
        now += 3
        assert credentials.renew()
        assert credentials.keys().access_key == key  # pyright: ignore[reportOptionalMemberAccess]
    now += 5
    assert credentials.renew(), "others may still be told that the old ones are refused"
    now += 100
    assert not credentials.renew(), "the source has no others"


@pytest.mark.parametrize("nested", [True, False])
def test_what_a_backend_takes_stands_in_its_table_or_beside_the_rest(nested: bool) -> None:
    for scheme, own in (
        ("gs", {"service_account": "/key.json"}),
        ("az", {"account_name": "ours"}),
        ("sftp", {"username": "me", "port": 2222}),
    ):
        table = {"timeout_s": 3, **({"extra": own} if nested else own)}
        parsed = parse_options(table, scheme=scheme, where="here")
        assert (parsed.timeout_s, dict(parsed.extra)) == (3, own)


@pytest.mark.parametrize(
    ("scheme", "extra", "says"),
    [
        ("gs", {"service_acount": "x"}, "did you mean 'service_account'"),
        ("s3", {"anything": "x"}, "unknown store option 'anything'"),
        ("gs", "service_account", "must be a table"),
        ("sftp", {"username": {"a": 1}}, "must be a plain value"),
    ],
)
def test_a_wrong_table_of_a_backend_is_refused(scheme: str, extra: object, says: str) -> None:
    with pytest.raises(SettingError, match=says):
        parse_options({"extra": extra}, scheme=scheme, where="here")


def test_a_wrong_region_is_named_where_a_head_is_refused_with_400() -> None:
    """An answer to a HEAD has no body that says why."""
    why = b"<Error><Code>AuthorizationHeaderMalformed</Code><Region>eu-far-1</Region></Error>"

    def answer(connection: socket.socket, path: str, number: int) -> None:
        body = why if server.requests[number].startswith("GET") else b""
        connection.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: %d\r\n\r\n" % len(body) + body)

    server = ScriptedServer(answer)
    endpoint = f"http://127.0.0.1:{server.port}"
    options = StoreOptions(endpoint=endpoint, region="us-east-1", access_key_id="AK", secret_access_key="s")
    with pytest.raises(HeadraceError) as caught:
        open_store("s3://bucket", options).head("k")
    assert "eu-far-1" in (caught.value.hint or "")
    server.close()


def test_services_that_are_described_nowhere(variables: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Else a slip of the pen would send the requests to AWS."""
    (tmp_path / "config").write_text("[default]\nservices = ours\n[services other]\ns3 =\n  endpoint_url = http://s3:2\n")
    with pytest.raises(SettingError, match="'ours'"):
        find_address("bucket", StoreOptions(), "s3://bucket")
