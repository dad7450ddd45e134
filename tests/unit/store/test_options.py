from __future__ import annotations

from pathlib import Path

import pytest

from headrace.base.errors import CredentialsError, InputError, SettingError, UnsupportedError
from headrace.base.settings import Settings
from headrace.store import StoreOptions, open_store, parse_options
from headrace.store.backends.s3api import find_address
from headrace.store.registry import matching_table, merge

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
