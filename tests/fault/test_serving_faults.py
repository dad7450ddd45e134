"""What goes wrong beside a server of models: killed processes, a store that is away, damaged versions."""

from __future__ import annotations

import json
import os
import secrets
import signal
import socket
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

import psutil
import pytest

from headrace.serving.live import all_live
from headrace.testing.http import FaultServer
from headrace.testing.origins import Upstream
from headrace.testing.plan import Fault, Kind, Plan
from headrace.testing.servers import EmbeddedS3
from tests.cache_kit import loop_mount
from tests.serving_rig import WIDTH, Asked, Asking, ServingRig, linear, request, until

ROW = [1.0] * WIDTH
FRAIL = """
import os, signal
class Frail:
    signatures = {"serving_default": {"inputs": {"x": ("float32", (None,))}, "outputs": {"y": ("float32", (None,))}}}
    def load(self, folder): pass
    def predict(self, inputs):
        if inputs["x"][0] < 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return {"y": inputs["x"]}
"""


@pytest.fixture
def rig(tmp_path: Path) -> ServingRig:
    return ServingRig(tmp_path)


def frail(rig: ServingRig) -> int:
    folder = rig.folder / "frail"
    folder.mkdir()
    (folder / "model.py").write_text(FRAIL)
    return rig.publish(folder, "frail", runtime="model:Frail")


def test_a_runtime_that_is_killed_is_a_503_and_comes_back(rig: ServingRig) -> None:
    rig.point("frail@prod", frail(rig))
    rig.point("lin@prod", rig.linear(1.0))
    with rig.serving("frail@prod", "lin@prod") as asked:
        for _ in range(2):
            killed = asked.post("/v1/models/frail:predict", {"instances": [-1.0]})
            assert (killed.status_code, killed.headers["retry-after"]) == (503, "1")
            assert "signal 9" in killed.json()["error"]
            assert asked.predict([ROW]) == [[4, 4]]  # nobody else notices
            until(lambda: asked.post("/v1/models/frail:predict", {"instances": [2.0]}).status_code == 200)
        assert asked.metric("headrace_serving_runtime_restarts_total", model="frail") == 2


def test_no_runtime_outlives_a_server_that_is_killed(rig: ServingRig) -> None:
    rig.point("frail@prod", frail(rig))
    with rig.command("frail@prod") as asked:
        assert asked.process is not None
        below = psutil.Process(asked.process.pid).children(recursive=True)
        assert any("headrace.serving.runtimes" in one.cmdline() for one in below)
        asked.process.kill()
        _, alive = psutil.wait_procs(below, 30)
        assert not alive


# Over a store


@pytest.fixture
def over_s3(tmp_path: Path, seaweedfs: EmbeddedS3, monkeypatch: pytest.MonkeyPatch) -> ServingRig:
    """A home in SeaweedFS; of what fails little is tried again."""
    bucket = f"models-{secrets.token_hex(4)}"
    seaweedfs.create_bucket(bucket)
    for name, value in seaweedfs.variables().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("HEADRACE_FETCH_RETRIES", "1")
    return ServingRig(tmp_path, f"s3://{bucket}/home")


def test_a_process_that_is_killed_during_a_swap_is_started_again(over_s3: ServingRig) -> None:
    rig = over_s3
    one, two = rig.linear(1.0), rig.linear(2.0)
    rig.point("lin@prod", one)
    with rig.command("lin@prod", "--processes", "2") as asked:
        assert asked.process is not None
        children = psutil.Process(asked.process.pid).children()
        assert len(children) == 2
        rig.point("lin@prod", two)
        os.kill(children[0].pid, signal.SIGKILL)
        until(lambda: asked_together(asked) == {str(two)})
        assert children[1].is_running()
        until(lambda: asked.metric("headrace_serving_processes") == 2)
    assert asked.process.wait(30) == 0


def asked_together(asked: Asked) -> set[str]:
    """The versions that several connections get, which the kernel spreads; None where there was no answer."""
    found: set[str] = set()
    for _ in range(8):
        try:
            answer = asked.post("/v2/models/lin/infer", request(ROW))
        except OSError:
            return {"none"}
        except Exception:  # a connection that went with its process
            return {"none"}
        found.add(answer.json().get("model_version", "none"))
    return found


def test_several_processes_swap_under_load_without_a_failure(over_s3: ServingRig) -> None:
    rig = over_s3
    one, two = rig.linear(1.0), rig.linear(2.0)
    rig.point("lin@prod", one)
    with rig.command("lin@prod", "--processes", "2") as asked:
        with Asking(asked.port, json.dumps(request(ROW)).encode()) as asking:
            for number in (two, one):
                rig.point("lin@prod", number)
                until(lambda number=number: asked_together(asked) == {str(number)})
                asking.more()
        assert not asking.failed
        assert not asking.broken
        until(lambda: asked.metric("headrace_serving_swaps_total") == 4)  # two each: a process may be behind
        assert asked.metric("headrace_serving_pointer_requests_total") > 0


def test_the_store_goes_away_and_what_was_served_is_served(
    over_s3: ServingRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = over_s3
    rig.point("lin@prod", rig.linear(1.0))
    place = urlsplit(os.environ["AWS_ENDPOINT_URL_S3"])
    plan = Plan([])
    with FaultServer(Upstream(place.hostname or "", place.port or 0), plan) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", proxy.endpoint)
        with rig.command("lin@prod") as asked:
            assert asked.predict([ROW]) == [[4, 4]]
            proxy.plan = Plan([Fault(Kind.REFUSE, operations=frozenset({"get", "head", "list"}))])
            until(lambda: asked.metric("headrace_serving_store_away") == 1, 60)
            assert asked.predict([ROW]) == [[4, 4]]
            assert asked.ready()
        with rig.command("lin@prod") as again:  # while it is away, from what this node has
            assert again.predict([ROW]) == [[4, 4]]
            assert again.metric("headrace_serving_store_away") == 1
            proxy.plan = plan
            rig.point("lin@prod", rig.linear(2.0))
            until(lambda: again.predict([ROW]) == [[8, 8]], 60)
            assert again.metric("headrace_serving_store_away") == 0


def test_a_version_that_is_damaged_or_torn_never_serves(over_s3: ServingRig) -> None:
    rig = over_s3
    good, bad, torn = rig.linear(1.0), rig.linear(2.0), rig.linear(3.0)
    rig.point("lin@prod", good)
    with rig.serving("lin@prod") as asked:
        store, registry = rig.registry.home.store, rig.registry
        key = registry.prefix("lin", bad) + "model.onnx"
        data = bytearray(store.get(key).data)
        data[-1] ^= 1
        store.put(key, bytes(data))
        store.delete([registry.prefix("lin", torn) + "COMMITTED"])
        pointer = registry.home.key("models", "lin", "aliases.json")
        for number, told in ((bad, "model.onnx"), (torn, "not published")):
            aliases = json.loads(bytes(store.get(pointer).data))  # by hand: nobody may point at what is torn
            store.put(pointer, json.dumps({**aliases, "aliases": {"prod": number}}).encode())
            until(lambda number=number: asked.states().get(number, ("", ""))[0] == "END")
            assert told in asked.states()[number][1]
            assert asked.version() == str(good)


def test_a_full_disk_leaves_the_old_version_until_there_is_room(over_s3: ServingRig) -> None:
    with loop_mount(over_s3.folder, 16) as disk:
        cache = str(disk / "cache")
        rig = ServingRig(over_s3.folder, over_s3.home, {"HEADRACE_CACHE_DIR": cache, "HEADRACE_CACHE_MIN_FREE": "0"})
        small, large = rig.linear(1.0), linear(rig.folder / "large", 2.0)
        (large / "vocabulary.bin").write_bytes(secrets.token_bytes(6 << 20))
        number = rig.publish(large, "lin")
        rig.point("lin@prod", small)
        # A command, since a process has one cache, and this one has another already.
        with rig.command("lin@prod") as asked, Asking(asked.port, json.dumps(request(ROW)).encode()) as asking:
            others = fill_up(disk)
            rig.point("lin@prod", number)
            until(lambda: "no room" in asked.states().get(number, ("", ""))[1])
            os.truncate(others, others.stat().st_size - (2 << 20))  # it can be begun, which takes what is left
            until(lambda: "no room for a model's file" in asked.states()[number][1])
            until(lambda: "no room" in reason(cache, number))
            asking.more()
            assert asked.version() == str(small)
            assert asked.ready()
            assert asked.metric("headrace_serving_refused_versions_total", model="lin") >= 1
            others.unlink()
            until(lambda: asked.version() == str(number), 120)  # it is tried again within a minute
            asking.more()
        assert not asking.failed
        assert not asking.broken


def fill_up(disk: Path) -> Path:
    """A file that takes all that is left."""
    path = disk / "others"
    with path.open("wb", buffering=0) as file:
        for size in (1 << 20, 1 << 12, 1):
            with suppress(OSError):
                while True:
                    file.write(bytes(size))
    return path


def reason(cache: str, number: int) -> str:
    """Why the version does not serve, as it is told on the node."""
    (server,) = all_live(cache)
    return next((one.reason for one in server.models[0].versions if one.number == number), "")


def test_ctrl_c_ends_a_server_with_open_connections_in_two_seconds(rig: ServingRig) -> None:
    rig.point("lin@prod", rig.linear(1.0))
    with rig.command("lin@prod") as asked, socket.create_connection(("127.0.0.1", asked.port)):
        assert asked.process is not None
        asked.process.send_signal(signal.SIGINT)
        asked.process.wait(10)
