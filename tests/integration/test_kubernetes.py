"""Manifests for Kubernetes and their chart: taken by the API's own schemas, which refuse a field that nobody knows;
probes that the real programs answer; a job's file that runs, and goes on where a pod before it was killed."""

from __future__ import annotations

import copy
import os
import shutil
import signal
import socket
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from headrace.base.errors import AlreadyExistsError, InputError
from headrace.base.ports import reserve_port
from headrace.base.units import parse_bytes
from headrace.cluster.csi import DRIVER
from headrace.cluster.kubernetes import (
    CsiPart,
    MountPart,
    ServicePart,
    Wanted,
    chart_files,
    for_csi,
    for_job,
    for_mount,
    for_service,
    manifests,
    quantity,
    stream,
    with_mount,
    write,
)
from headrace.cluster.kubernetes.pods import CODE, USER
from headrace.jobs import JobSpec
from headrace.testing.servers import EmbeddedS3
from tests.children import running
from tests.environment_kit import Podman, image_tar
from tests.kubernetes_kit import accepted, check, containers, custom, documents, pods, privileged
from tests.runs_rig import COMMAND, RunsRig
from tests.serving_rig import ServingRig
from tests.sync_rig import wait_for

HOME = "s3://bucket/home"
JOB = """
name = "digits"
command = ["python", "train.py", "--epochs", "3"]
grace = "1min"
tags.team = "y"
[inputs.train]
source = "digits@v1"
as = "copy"
[outputs]
drain = "5min"
[outputs.classes]
logs = "*.log"
[resources]
memory = "8GB"
gpus = 1
[cluster]
cpus_per_node = 4
gpus_per_node = 8
"""
EVERYTHING: dict[str, Any] = {
    "image": "registry/headrace:1", "namespace": "team", "service_account": "reader", "secret": "store",
    "identity": {"eks.amazonaws.com/role-arn": "arn:aws:iam::1:role/reader"}, "queue": "short", "gpus": 2,
    "settings": '[mounts."/data"]\nurl = "s3://bucket/data"\n', "cache": "100G", "cache_host": "/var/cache/headrace",
    "variables": {"A": "y", "B": "1e3", "C": "a: {{ b }} <&> 'x' \"y\"\nz"},
}  # fmt: skip
"""Each option that pods have."""


@pytest.fixture
def spec(tmp_path: Path) -> JobSpec:
    (tmp_path / "job.toml").write_text(JOB)
    return JobSpec.load(tmp_path / "job.toml")


def wanted(kind: Any, spec: JobSpec, **more: Any) -> Wanted:
    if kind in ("serve", "web", "gateway"):
        return for_service(kind, ServicePart(models=("digits@prod",), replicas=2, most=8), home=HOME, **more)
    if kind == "rayjob":
        spec = spec.with_flags({"cluster.nodes": 4})
    if kind == "csi":
        return for_csi(CsiPart(path="s3://bucket/data", secret="volume"), home=HOME, **more)
    return for_job(spec, kind=kind, home=HOME, **more)


def of_kind(made: list[dict[str, Any]], kind: str) -> dict[str, Any]:
    (found,) = [one for one in made if one["kind"] == kind]
    return found


KINDS = ["job", *custom("rayjob", "trainjob"), "serve", "web", "gateway"]
JOBS = {"job": "Job", "rayjob": "RayJob", "trainjob": "TrainJob"}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("more", [{}, EVERYTHING], ids=["plain", "everything"])
def test_the_api_takes_all_of_it_and_nothing_has_rights(kind: str, more: dict[str, Any], spec: JobSpec):
    asked = wanted(kind, spec, **more)
    made = documents(stream(manifests(asked)))
    assert made == manifests(asked), "what is written is what was made"
    accounts = [one for one in made if one["kind"] == "ServiceAccount"]
    assert [one["automountServiceAccountToken"] for one in accounts] == [False]
    for document in made:
        check(document)
        assert set(privileged(document)) == ({"cache"} if more and list(pods(document)) else set())
        for pod in pods(document):
            assert pod["serviceAccountName"] == accounts[0]["metadata"]["name"]
            assert kind == "trainjob" or pod["automountServiceAccountToken"] is False
    assert not {one["kind"] for one in made} & {"Role", "ClusterRole", "RoleBinding", "ClusterRoleBinding"}


@pytest.mark.parametrize("kind", [*KINDS, "csi"])
def test_a_misspelt_field_is_refused_wherever_it_is(kind: str, spec: JobSpec):
    """So that it says something that all of them are taken."""
    for document in manifests(wanted(kind, spec, **EVERYTHING, **({"mount": MountPart("/")} if kind == "job" else {}))):
        tables = list(_tables(document))
        for way in tables:
            wrong = copy.deepcopy(document)
            table: Any = wrong
            for step in way:
                table = table[step]
            key = next(iter(table))
            table[f"{key}s"] = table.pop(key)
            assert not accepted(wrong), (document["kind"], way, key)


def _tables(value: Any, way: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to each table whose keys have a meaning to Kubernetes."""
    free = ("labels", "annotations", "data", "matchLabels", "requests", "limits", "rayStartParams", "nodeSelector",
            "capacity", "volumeAttributes")  # fmt: skip
    service = isinstance(value, dict) and "app.kubernetes.io/name" in value  # a Service's selector is labels
    if isinstance(value, dict) and value and not service and not (way and way[-1] in free):
        yield way
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, one in entries:
        yield from _tables(one, (*way, key))


@pytest.mark.parametrize("kind", ["job", "rayjob", "trainjob", "serve", "web", "gateway", "csi"])
@pytest.mark.parametrize("more", [{}, EVERYTHING], ids=["plain", "everything"])
def test_helm_makes_the_same_of_the_chart(kind: str, more: dict[str, Any], spec: JobSpec, tmp_path: Path):
    helm_python = pytest.importorskip("helm_python", reason="pip install helm-python-sdk: only for x86-64")
    mount = {"mount": MountPart("/data")} if more and kind == "job" else {}
    asked = wanted(kind, spec, **more, **mount)
    write(str(tmp_path / "chart"), chart_files(asked))
    assert not helm_python.lint(str(tmp_path / "chart"))["errors"]
    assert _rendered(tmp_path / "chart") == _by_kind(manifests(asked))
    for changes in ({"queue": "", "secret": "", "settings": "", "cache_host": ""}, {**EVERYTHING, "memory": "3G"}):
        again = wanted(kind, spec, **{**more, **changes}, **mount)
        assert _rendered(tmp_path / "chart", changes) == _by_kind(manifests(again)), "a value does what the option does"
    with helm_python.Chart.load(tmp_path / "chart") as chart, pytest.raises(helm_python.HelmError, match="imgae"):
        chart.render({"imgae": "misspelt"}, name="release", namespace="somewhere")


def _rendered(chart: Path, values: dict[str, Any] | None = None) -> dict[str, Any]:
    import helm_python

    with helm_python.Chart.load(chart) as loaded:
        made = loaded.render(values or {}, name="release", namespace="somewhere")
    return _by_kind([one for text in made.values() for one in documents(text) if one])


def _by_kind(made: list[dict[str, Any]]) -> dict[str, Any]:
    return {one["kind"]: one for one in made}


def test_a_job_becomes_one_pod_that_has_the_time_to_end(spec: JobSpec):
    made = manifests(wanted("job", spec, queue="short", secret="store"))
    job = of_kind(made, "Job")
    assert job["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "short"
    assert job["spec"]["suspend"] is True
    (pod,) = pods(job)
    assert pod["terminationGracePeriodSeconds"] >= spec.grace + spec.outputs.drain
    (main,) = containers(pod)
    assert main["envFrom"] == [{"secretRef": {"name": "store"}}]
    variables = {one["name"]: one["value"] for one in main["env"]}
    assert variables["HEADRACE_HOME"] == HOME
    assert main["resources"]["limits"]["nvidia.com/gpu"] == 1
    assert parse_bytes(main["resources"]["limits"]["memory"]) > spec.resources.memory, "headrace needs some, too"
    assert "suspend" not in of_kind(manifests(wanted("job", spec)), "Job")["spec"]


def test_several_nodes_become_a_ray_cluster_whose_head_does_no_work(spec: JobSpec, tmp_path: Path):
    made = manifests(wanted("rayjob", spec))
    ray = of_kind(made, "RayJob")["spec"]
    assert ray["entrypoint"] == "headrace run --go-on /job/job.toml"
    assert ray["rayClusterSpec"]["headGroupSpec"]["rayStartParams"]["num-cpus"] == "0"
    (group,) = ray["rayClusterSpec"]["workerGroupSpecs"]
    assert (group["replicas"], group["minReplicas"], group["maxReplicas"]) == (4, 4, 4)
    assert group["rayStartParams"]["num-cpus"] == "4"
    (worker,) = group["template"]["spec"]["containers"]
    assert worker["resources"]["limits"]["nvidia.com/gpu"] == 8
    (tmp_path / "rendered.toml").write_text(of_kind(made, "ConfigMap")["data"]["job.toml"])
    there = JobSpec.load(tmp_path / "rendered.toml")
    changed = {"cluster.nodes": 4, "cluster.on": "ray://auto", "code.path": "/app"}
    assert there == spec.with_flags(changed), "all else is as it was"


def test_workers_of_a_gang_are_pods_of_which_some_may_be_missing(spec: JobSpec):
    flags = {"cluster.workers": "2..6", "cluster.cpus_per_worker": "3", "cluster.gpus_per_worker": "1"}
    ray = of_kind(manifests(for_job(spec.with_flags(flags), home=HOME)), "RayJob")["spec"]["rayClusterSpec"]
    (group,) = ray["workerGroupSpecs"]
    assert (group["minReplicas"], group["replicas"], group["maxReplicas"]) == (2, 6, 6)
    assert group["rayStartParams"]["num-cpus"] == "3"
    assert group["template"]["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] == 1


def test_a_trainjob_is_torchrun_over_its_nodes(spec: JobSpec):
    asked = for_job(spec.with_flags({"cluster.nodes": 3, "processes": "2"}), kind="trainjob", home=HOME)
    made = manifests(asked)
    trainer = of_kind(made, "TrainJob")["spec"]["trainer"]
    assert (trainer["numNodes"], trainer["numProcPerNode"]) == (3, 2)
    assert trainer["args"][-2:] == ["node$(JOB_COMPLETION_INDEX)-digits", "/job/job.toml"]
    assert '["torchrun", "--no-python", "python", "train.py"' in of_kind(made, "ConfigMap")["data"]["job.toml"]


def test_what_cannot_run_there_is_refused_by_name(spec: JobSpec):
    for changes, how, says in (
        ({"inputs.train.as": "mount"}, {}, "inputs.train"),
        ({"environment.image": "other"}, {}, "environment.image"),
        ({"cluster.nodes": 2}, {"kind": "job"}, "cluster.nodes"),
        ({"cluster.workers": "2"}, {"kind": "trainjob"}, "cluster.workers"),
        ({}, {"home": "file:///home"}, "file:///home"),
        ({}, {"home": None}, "home"),
        ({}, {"name": "Not_A_Name"}, "Not_A_Name"),
        ({}, {"cpus": "many"}, "many"),
        ({}, {"kind": "trainjob", "mount": MountPart("/")}, "TrainJob"),
    ):
        with pytest.raises(InputError, match=says):
            for_job(spec.with_flags(changes), **{"home": HOME, **how})


@pytest.mark.parametrize(
    "manifest",
    [
        {"apiVersion": "v1", "kind": "Pod", "spec": {}},
        {"apiVersion": "apps/v1", "kind": "Deployment", "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": {
            "metadata": {"labels": {"a": "b"}}, "spec": {}}}},
        {"apiVersion": "batch/v1", "kind": "CronJob", "spec": {"schedule": "@daily", "jobTemplate": {"spec": {
            "template": {"spec": {"restartPolicy": "Never"}}}}}},
    ],
    ids=lambda one: one["kind"],
)  # fmt: skip
def test_the_mount_stands_beside_anybodys_container_and_alone_is_privileged(
    manifest: dict[str, Any], tmp_path: Path
):
    manifest = {**copy.deepcopy(manifest), "metadata": {"name": "theirs"}}
    own = {"name": "main", "image": "busybox", "volumeMounts": [{"name": "data", "mountPath": "/d"}]}
    (spec,) = [manifest["spec"]] if manifest["kind"] == "Pod" else [_template(manifest)["spec"]]
    spec |= {"containers": [own], "volumes": [{"name": "data", "emptyDir": {}}]}
    (tmp_path / "theirs.yaml").write_text(yaml.safe_dump(manifest))
    asked = for_mount("/training-data", home=HOME, settings="[cache]\n", secret="store")
    made = with_mount(asked, str(tmp_path / "theirs.yaml"))
    for document in made:
        check(document)
    (pod,) = pods(of_kind(made, manifest["kind"]))
    (sidecar,) = pod["initContainers"]
    assert sidecar["restartPolicy"] == "Always"
    assert sidecar["args"] == ["allow_other,ro", "/training-data"]
    assert [one["name"] for one in containers(pod) if one.get("securityContext", {}).get("privileged")] == [
        "headrace-mount"
    ]
    (main,) = pod["containers"]
    assert {key: value for key, value in main.items() if key != "volumeMounts"} == {"name": "main", "image": "busybox"}
    volume = {"name": "mount", "mountPath": "/mnt/headrace", "mountPropagation": "HostToContainer"}
    assert main["volumeMounts"] == [*own["volumeMounts"], volume]
    (tmp_path / "twice.yaml").write_text(stream(made))
    with pytest.raises(InputError, match="already"):
        with_mount(asked, str(tmp_path / "twice.yaml"))


def test_the_csi_plugin_alone_is_privileged_and_may_ask_the_api_nothing(spec: JobSpec):
    made = manifests(wanted("csi", spec, **EVERYTHING))
    for document in made:
        check(document)
    assert not {one["kind"] for one in made} & {"Role", "ClusterRole", "RoleBinding", "ClusterRoleBinding"}
    (pod,) = pods(of_kind(made, "DaemonSet"))
    assert pod["automountServiceAccountToken"] is False
    assert [one["name"] for one in containers(pod) if one["securityContext"].get("privileged")] == ["plugin"]
    plugin, registrar = pod["containers"]
    assert registrar["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert "limits" not in plugin["resources"], "Kubernetes would end keepers with the server that is too large"
    (shared,) = [one for one in plugin["volumeMounts"] if one.get("mountPropagation") == "Bidirectional"]
    assert shared["mountPath"] == "/var/lib/kubelet/pods"
    driver, volume = of_kind(made, "CSIDriver"), of_kind(made, "PersistentVolume")["spec"]
    assert driver["metadata"]["name"] == volume["csi"]["driver"] == DRIVER
    assert driver["spec"]["volumeLifecycleModes"] == ["Persistent"], "a pod's author does not say what is mounted"
    assert volume["csi"]["nodePublishSecretRef"] == {"name": "volume", "namespace": "default"}
    assert {one["kind"] for one in manifests(for_csi(CsiPart()))} == {"ServiceAccount", "CSIDriver", "DaemonSet"}


def _template(manifest: dict[str, Any]) -> Any:
    spec = manifest["spec"]
    return spec.get("template") or spec["jobTemplate"]["spec"]["template"]


@pytest.mark.parametrize("size", ["20GB", "100GiB", "512MB", "1234567", "1TB", "0"])
def test_sizes_are_the_same_there(size: str):
    assert parse_bytes(quantity(parse_bytes(size))) == parse_bytes(size)


@pytest.mark.parametrize("kind", ["serve", "web", "gateway"])
def test_probes_are_answered_by_the_real_program(kind: Any, tmp_path: Path):
    """Of the pod's own command, variables and probes; only places and the port are others."""
    port = reserve_port("127.0.0.1")
    made = manifests(for_service(kind, ServicePart(models=("lin@prod",), port=port), home=HOME))
    (pod,) = pods(of_kind(made, "Deployment"))
    (main,) = containers(pod)
    rig = ServingRig(tmp_path)
    if kind == "serve":
        rig.point("lin@prod", rig.linear(2.0))
    (tmp_path / "headrace.toml").write_text(f'[mounts."/data"]\nurl = "file://{tmp_path}/home"\n')
    (tmp_path / "keys.toml").write_text('[keys.reader]\nsecret = "a secret of the reader"\n')
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/headrace").write_text(f'#!/bin/sh\nexec {" ".join(COMMAND)} "$@"\n')
    (tmp_path / "bin/headrace").chmod(0o755)
    (tmp_path / "tmp").mkdir()
    told = {one["name"]: one.get("value", "a token of sixteen letters") for one in main["env"]}
    command = [one.replace("/keys/", f"{tmp_path}/").replace("/tmp/keys", f"{tmp_path}/tmp/keys")
               for one in (*main["command"], *main["args"])]  # fmt: skip
    environment = {**os.environ, **told, **rig.own, "PATH": f"{tmp_path}/bin:{os.environ['PATH']}"}
    with running(command, env=environment, cwd=tmp_path, stdout=subprocess.DEVNULL) as process:
        for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
            assert wait_for(lambda probe=probe: _answers(main[probe], port), 60), probe
        if kind == "gateway":
            assert (tmp_path / "tmp/keys.toml").stat().st_mode & 0o777 == 0o600
        process.send_signal(signal.SIGTERM)
        assert process.wait(pod["terminationGracePeriodSeconds"]) == 0


def _answers(probe: dict[str, Any], port: int) -> bool:
    """As the kubelet asks: by the address, without a token."""
    try:
        if "tcpSocket" in probe:
            socket.create_connection(("127.0.0.1", port), 5).close()
            return True
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{probe['httpGet']['path']}", timeout=5) as answer:
            return answer.status < 400
    except OSError:
        return False


@pytest.mark.server
def test_a_pod_that_takes_the_place_of_a_killed_one_goes_on(seaweedfs: EmbeddedS3, tmp_path: Path):
    """The rendered file, as the pod runs it: with its code in a folder of the image."""
    rig = RunsRig(seaweedfs, tmp_path)
    try:
        rig.script("""
            import os
            resumed = os.environ.get("HEADRACE_RESUME")
            step = int(open(f"{resumed}/step").read()) + 1 if resumed else 1
            print("step", step)
            if "LOST" in os.environ:
                raise SystemExit(3)
            folder = f"{os.environ['HEADRACE_OUTPUTS']}/checkpoints/{step}"
            os.makedirs(folder)
            open(f"{folder}/step", "w").write(str(step))
        """)
        spec = JobSpec.from_command(["python3", "train.py"]).with_flags({"name": "digits"})
        made = manifests(for_job(spec, home=HOME, code=str(rig.work)))
        (tmp_path / "job").mkdir()
        file = tmp_path / "job/job.toml"
        file.write_text(of_kind(made, "ConfigMap")["data"]["job.toml"])
        (main,) = containers(next(pods(of_kind(made, "Job"))))
        command = [str(file) if one == "/job/job.toml" else one for one in main["args"]]
        assert rig.headrace(*command).stdout == "step 1\n"
        rig.headrace("run", "--resume", "digits", "--env", "LOST=1", str(file), code=3)
        assert rig.headrace(*command).stdout == "step 2\n"
        assert rig.headrace(*command).stdout == "step 1\n", "that one has finished: this is another"
        with pytest.raises(AssertionError, match="exclude each other"):
            rig.headrace("run", "--go-on", "--resume", "digits", str(file))
    finally:
        rig.close()


def test_the_command_writes_all_of_it(spec: JobSpec, tmp_path: Path):
    (tmp_path / "job.toml").write_text(JOB)
    (tmp_path / "headrace.toml").write_text('home = "s3://bucket/from-the-settings"\n')
    environment = {name: value for name, value in os.environ.items() if name != "HEADRACE_HOME"}

    def headrace(*words: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        done = subprocess.run([*COMMAND, "k8s", *words], cwd=tmp_path, env=environment, text=True, capture_output=True)
        assert done.returncode == code, done.stderr
        return done

    common = ("--cache", "50GB", "--identity", "a/b=c", "--env", "X=1", "--settings", "headrace.toml")
    done = headrace("render", "job.toml", "--set", "retry.attempts=3", *common)
    given: dict[str, Any] = {
        "home": "s3://bucket/from-the-settings", "cache": "50G", "identity": {"a/b": "c"}, "variables": {"X": "1"},
        "settings": (tmp_path / "headrace.toml").read_text(),
    }  # fmt: skip
    assert documents(done.stdout) == manifests(for_job(spec.with_flags({"retry.attempts": "3"}), **given))
    done = headrace("render", "--serve", "digits@prod", "--replicas", "2..8", "--port", "9000", "-o", "out", *common)
    asked = for_service("serve", ServicePart(models=("digits@prod",), port=9000, replicas=2, most=8), **given)
    found = [one for path in (tmp_path / "out").iterdir() for one in documents(path.read_text())]
    assert _by_kind(found) == _by_kind(manifests(asked))
    assert "kubectl create secret generic digits-access" in done.stderr
    headrace("chart", "chart", "--web", "--host", "runs.example.org")
    assert yaml.safe_load((tmp_path / "chart/values.yaml").read_text())["service"]["hosts"] == "runs.example.org"
    assert "name one thing to run" in headrace("render", "job.toml", "--web", code=2).stderr
    assert "no number of pods" in headrace("render", "--web", "--replicas", "few", code=2).stderr
    with pytest.raises(AlreadyExistsError):
        write(str(tmp_path), {"a.yaml": ""})


CONTAINERFILE = Path(__file__).parents[2] / "deploy/Containerfile"


@pytest.fixture(scope="module")
def podman() -> Iterator[Podman]:
    program, busybox = shutil.which("podman"), shutil.which("busybox")
    if program is None or busybox is None:
        pytest.skip("podman or busybox is not installed: apt install podman runc catatonit busybox-static")
    made = Podman.alone(program)
    made("import", "-", "localhost/small:1", given=image_tar(busybox))
    yield made
    made.close()


def test_the_images_ground_is_nobodys(podman: Podman):
    """All of the file is read, and its first stage built; the rest needs Debian's mirror and an index of packages."""
    words = ("--target", "base", "--build-arg", "BASE=localhost/small:1", "--build-arg", "PACKAGES=")
    podman("build", "--file", str(CONTAINERFILE), *words, "--tag", "localhost/base:1", str(CONTAINERFILE.parents[1]))
    asked = b"FROM localhost/base:1\nUSER 10001:10001\nRUN id && echo in $PWD && echo path $PATH\n"
    shown = podman("build", "--file", "-", given=asked).splitlines()
    assert any("uid=10001(headrace)" in line for line in shown)
    assert f"in {CODE}" in shown
    assert any(line.startswith("path /opt/headrace/bin:") for line in shown)
    assert f"USER {USER}:{USER}" in CONTAINERFILE.read_text().splitlines()

