"""What the CSI plugin refuses before it does anything: the cases that csi-sanity asks (its node service,
https://github.com/kubernetes-csi/csi-test/tree/master/pkg/sanity), and those that only a mount of ours has."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.base import errors
from headrace.base.errors import InputError
from headrace.base.settings import Settings

pytest.importorskip("google.protobuf")

from headrace.cluster.csi.asked import Volume, credentials, volume_of, where
from headrace.cluster.csi.messages import messages
from headrace.cluster.csi.volumes import BusyError

MESSAGES = messages()
SETTINGS = Settings(mounts={"/data": {"url": "s3://bucket/data"}})
GOOD: dict[str, Any] = {
    "volume_id": "v1", "target_path": "/pods/1/mount", "volume_context": {"path": "s3://bucket/prefix"},
    "volume_capability": {"mount": {}, "access_mode": {"mode": 1}},
}  # fmt: skip


def _publish(**changes: Any) -> Any:
    fields = {key: one for key, one in (GOOD | changes).items() if one is not None}
    return MESSAGES["NodePublishVolumeRequest"](**fields)


def _capability(mode: int = 1, *flags: str) -> dict[str, Any]:
    return {"mount": {"mount_flags": flags}, "access_mode": {"mode": mode}}


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"volume_id": None}, "volume_id is missing"),
        ({"volume_id": "v" * 129}, "volume_id is longer"),
        ({"target_path": None}, "target_path is missing"),
        ({"target_path": "pods/1"}, "not an absolute path"),
        ({"target_path": "/pods/../etc"}, "not an absolute path"),
        ({"volume_capability": None}, "volume_capability is missing"),
        ({"volume_capability": {"mount": {}}}, "access mode 0"),
        ({"volume_capability": {"mount": {}, "access_mode": {"mode": 99}}}, "access mode 99"),
        ({"volume_capability": {"block": {}, "access_mode": {"mode": 1}}}, "no block device"),
        ({"volume_context": {}}, "volumeAttributes.path is missing"),
        ({"volume_context": {"path": "/etc"}}, "is not attached"),
        ({"volume_context": {"path": "/data/../etc"}}, "neither a URL"),
        ({"volume_context": {"path": "/database"}}, "is not attached"),
        ({"volume_context": {"path": "file:///etc"}}, "neither a URL"),
        ({"volume_context": {"path": "etc"}}, "neither a URL"),
        ({"volume_context": {"path": "--help"}}, "neither a URL"),
        ({"volume_context": {"path": "s3://bucket", "bucket": "x"}}, "volumeAttributes.bucket is unknown"),
        ({"volume_capability": _capability(1, "tll=3")}, "did you mean 'ttl'"),
        ({"volume_capability": _capability(1, "staging=/etc")}, "'staging' cannot be chosen"),
        ({"volume_capability": _capability(1, "ttl=3,no_open")}, "'no_open' cannot be chosen"),
        ({"volume_capability": _capability(3, "rw")}, "'rw' of a volume that is read-only"),
    ],
)  # fmt: skip
def test_a_bad_request_is_refused_by_name(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError) as caught:
        volume_of(_publish(**changes), SETTINGS)
    assert says in str(caught.value)


@pytest.mark.parametrize("fields", [{}, {"volume_id": "v"}, {"volume_id": "v", "target_path": "here"}])
def test_unpublish_wants_a_volume_and_a_place(fields: dict[str, str]) -> None:
    with pytest.raises(InputError):
        where(MESSAGES["NodeUnpublishVolumeRequest"](**fields))


@pytest.mark.parametrize(("mode", "readonly", "is_read_only"), [
    (1, False, False), (5, False, False), (7, False, False), (1, True, True), (2, False, True), (3, False, True),
])  # fmt: skip
def test_read_only_is_what_the_claim_or_the_pod_says(mode: int, readonly: bool, is_read_only: bool) -> None:
    volume = volume_of(_publish(volume_capability=_capability(mode, "ttl=5s"), readonly=readonly), SETTINGS)
    assert volume == Volume(
        "v1", "/pods/1/mount", "s3://bucket/prefix", "allow_other,ttl=5s" + (",ro" if is_read_only else "")
    )


def test_an_attached_path_and_what_kubernetes_adds_are_taken() -> None:
    context = {"path": "/data/train", "region": "eu-1", "csi.storage.k8s.io/pod.name": "p"}
    assert volume_of(_publish(volume_context=context), SETTINGS).path == "/data/train"


@pytest.mark.parametrize("key", ["LD_PRELOAD", "PATH", "HEADRACE_CACHE_DIR", "AWS_CONFIG_FILE", "aws_access_key_id"])
def test_a_secret_sets_credentials_and_nothing_else(key: str) -> None:
    with pytest.raises(InputError) as caught:
        credentials(_publish(secrets={key: "the value", "AWS_REGION": "eu-1"}))
    assert key in str(caught.value)
    assert "the value" not in str(caught.value)


@pytest.mark.parametrize(("error", "code"), [
    (errors.InputError("x"), "INVALID_ARGUMENT"), (errors.NotFoundError("x"), "NOT_FOUND"),
    (errors.CredentialsError("x"), "PERMISSION_DENIED"), (errors.AlreadyExistsError("x"), "ALREADY_EXISTS"),
    (errors.ConditionError("x"), "FAILED_PRECONDITION"), (errors.UnsupportedError("x"), "FAILED_PRECONDITION"),
    (errors.UnreachableError("x"), "UNAVAILABLE"), (errors.NoRoomError("x"), "RESOURCE_EXHAUSTED"),
    (BusyError("x"), "ABORTED"), (errors.InternalError("x"), "INTERNAL"), (KeyError("x"), "INTERNAL"),
])  # fmt: skip
def test_an_error_is_told_by_the_code_that_kubernetes_acts_on(error: Exception, code: str) -> None:
    pytest.importorskip("grpc")
    from headrace.cluster.csi.plugin import code_of

    assert code_of(error) == code
