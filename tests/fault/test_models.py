"""Publishers and followers that are killed, damaged versions, deletions beside aliases: nothing torn is found."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from headrace.base.errors import ChangedError, CorruptError, HeadraceError, InputError, NotFoundError
from headrace.models import Following, Registry, alias, gc, publish, pull, rm
from headrace.models.aliases import Aliases
from headrace.models.card import ModelCard
from headrace.models.clearing import clear_below
from headrace.models.holding import hold
from headrace.testing.http import FaultServer
from headrace.testing.origins import Upstream
from headrace.testing.plan import Fault, Kind, Plan
from headrace.testing.servers import EmbeddedS3
from tests import models_kit
from tests.sync_rig import wait_for

pytestmark = pytest.mark.server


@pytest.fixture
def home(seaweedfs: EmbeddedS3, tmp_path: Path) -> str:
    return f"{seaweedfs.create_bucket('models-faults')}/{tmp_path.name}-{os.getpid()}"


@pytest.fixture
def slow(seaweedfs: EmbeddedS3) -> Iterator[FaultServer]:
    """The same server, where every write and every read of an object takes a while."""
    parts = urlsplit(seaweedfs.endpoint)
    plan = Plan((Fault(Kind.LATENCY, operations=frozenset({"put", "get"}), delay_s=0.1),))
    with FaultServer(Upstream(parts.hostname or "", parts.port or 0), plan) as server:
        yield server


@pytest.fixture
def registry(seaweedfs: EmbeddedS3, home: str, tmp_path: Path) -> Iterator[Registry]:
    made, fetcher = models_kit.node(seaweedfs, home, tmp_path / "cache")
    yield made
    fetcher.close()


def child(server: EmbeddedS3, slow: FaultServer, home: str, cache: Path, *arguments: str) -> subprocess.Popen[bytes]:
    """A command of another process that comes by way of the slow server."""
    environment = {
        **os.environ, **server.variables(), "AWS_ENDPOINT_URL_S3": slow.endpoint, "HEADRACE_HOME": home,
        "HEADRACE_CACHE_DIR": str(cache), "HEADRACE_PROGRESS": "false",
    }  # fmt: skip
    return subprocess.Popen(
        [sys.executable, "-m", "headrace.cli", "models", *arguments], env=environment, stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip


def check_sound(registry: Registry, name: str) -> list[int]:
    """Every number that resolves is whole; which those are."""
    found: list[int] = []
    for number in registry.numbers(name):
        version = registry.find(name, number)
        if version is not None:
            with registry.local(version) as model:
                assert sorted(model.files) == ["sub/more.bin", "weights.bin"]
            found.append(number)
    return found


def test_a_publisher_that_is_killed_after_any_of_its_writes(
    seaweedfs: EmbeddedS3, slow: FaultServer, home: str, registry: Registry, tmp_path: Path
) -> None:
    source = models_kit.folder(tmp_path / "m")
    publish(source, "m", registry=registry)
    bucket, _, prefix = home.removeprefix("s3://").partition("/")
    ends: list[int] = []
    # its number, two files, model.json and COMMITTED: each is there, and its publisher has not heard so
    for number, last in enumerate((".numbers/2", "3/sub/more.bin", "4/weights.bin", "5/model.json", "6/COMMITTED"), 2):
        with slow.holding("put", f"{bucket}/{prefix}/models/m/{last}") as held:
            process = child(seaweedfs, slow, home, tmp_path / "cache", "publish", source, "m")
            assert wait_for(lambda held=held: held.count, every_s=0.01)
            process.send_signal(signal.SIGKILL)
            process.wait()
        assert (registry.find("m", number) is not None) == last.endswith("COMMITTED")
        sound = check_sound(registry, "m")
        assert registry.resolve("m").number == max(sound)
        ends.append(len(sound))
    assert ends == [1, 1, 1, 1, 2], "before the last write there is no version"
    again = publish(source, "m", registry=registry)
    assert again.number == 7, "a number that was taken is not taken again"
    assert gc("m", registry=registry).left == (), "they may be under way"
    left = gc("m", old_s=-60, registry=registry).left
    assert left == (3, 4, 5), "the second had sent nothing"
    assert set(registry.numbers("m")) == set(check_sound(registry, "m"))


def test_a_publisher_that_is_interrupted_leaves_nothing(
    seaweedfs: EmbeddedS3, slow: FaultServer, home: str, registry: Registry, tmp_path: Path
) -> None:
    source = models_kit.folder(tmp_path / "m")
    bucket, _, prefix = home.removeprefix("s3://").partition("/")
    with slow.holding("put", f"{bucket}/{prefix}/models/m/1/model.json") as held:
        process = child(seaweedfs, slow, home, tmp_path / "cache", "publish", source, "m")
        assert wait_for(lambda: held.count, every_s=0.01)
        process.send_signal(signal.SIGINT)
        assert process.wait(10) == 130
    assert registry.names() == [] or registry.versions("m") == []
    assert publish(source, "m", registry=registry).number == 2


def test_a_follower_that_is_killed(
    seaweedfs: EmbeddedS3, slow: FaultServer, home: str, registry: Registry, tmp_path: Path
) -> None:
    sources = [models_kit.folder(tmp_path / f"m-{one}", size=200_000) for one in range(2)]
    for source in sources:
        publish(source, "m", registry=registry)
    alias("m@prod", 1, registry=registry)
    served = tmp_path / "served"
    with Following(registry, "m@prod", served) as following:
        following.look()
    for files in range(3):  # seen to be asked for: none, one, two of the new version's
        alias("m@prod", 2, registry=registry)
        slow.seen.clear()
        process = child(seaweedfs, slow, home, tmp_path / "cache", "follow", "m@prod", str(served))

        def asked(files: int = files) -> bool:
            names = ("/2/COMMITTED", "/2/sub/more.bin", "/2/weights.bin")
            return len({one.path for one in slow.seen if one.path.endswith(names)}) > files

        assert wait_for(asked, every_s=0.002)
        process.send_signal(signal.SIGKILL)
        process.wait()
        there = [one for one in served.iterdir() if one.name.isdigit()]
        assert {one.name for one in there} <= {"1", "2"}
        assert there
        for one in there:
            card = ModelCard.from_json((one / "model.json").read_bytes(), "")
            assert card.number == int(one.name)
            assert (one / "weights.bin").read_bytes() == (
                tmp_path / f"m-{card.number - 1}" / "weights.bin"
            ).read_bytes()
        alias("m@prod", 1, registry=registry)
        with Following(registry, "m@prod", served) as following:
            following.look()
        assert sorted(one.name for one in served.iterdir()) == [".headrace-follow", "1"], "what was left is gone"


@pytest.mark.parametrize("how", ["other bytes", "shorter", "gone"])
def test_a_damaged_file_is_named(registry: Registry, tmp_path: Path, how: str) -> None:
    version = publish(models_kit.folder(tmp_path / "m"), "m", registry=registry)
    alias("m@prod", 1, registry=registry)
    store, key = registry.home.store, registry.prefix("m", 1) + "weights.bin"
    if how == "gone":
        store.delete([key])
    else:
        store.put(key, os.urandom(100 if how == "other bytes" else 99))
    with pytest.raises(CorruptError, match=r"m/1/weights\.bin"):
        registry.local(version)
    with pytest.raises(CorruptError, match=r"m/1/weights\.bin"):
        pull("m", tmp_path / "out", registry=registry)
    store.put(key, (tmp_path / "m" / "weights.bin").read_bytes())
    with registry.local(version):
        pass
    store.delete([key])
    with registry.local(version) as model:  # the node's cache has it: a store that lost it, or is away, is not asked
        assert model.files["weights.bin"].read_bytes() == (tmp_path / "m" / "weights.bin").read_bytes()
    assert not (tmp_path / "out").exists()
    assert not [one for one in tmp_path.iterdir() if one.name.startswith(".headrace")]
    with Following(registry, "m@prod", tmp_path / "served") as following:
        for _ in range(2):
            with pytest.raises(CorruptError):
                following.look()
    assert [one.name for one in (tmp_path / "served").iterdir()] == [".headrace-follow"]


def test_damage_in_the_nodes_cache_is_made_good(seaweedfs: EmbeddedS3, registry: Registry, tmp_path: Path) -> None:
    """A file whose digest was not compared since this machine was booted is compared, and fetched anew."""
    source = models_kit.folder(tmp_path / "m")
    version = publish(source, "m", registry=registry)
    with registry.local(version) as model:
        path = model.files["weights.bin"]
        os.removexattr(path, "user.headrace.sha256")
        path.write_bytes(os.urandom(100))
    with registry.local(version) as model:
        assert model.files["weights.bin"].read_bytes() == (Path(source) / "weights.bin").read_bytes()


@pytest.mark.parametrize("name", ["model.json", "COMMITTED", "aliases.json"])
def test_damaged_records_are_named(registry: Registry, tmp_path: Path, name: str) -> None:
    publish(models_kit.folder(tmp_path / "m"), "m", registry=registry)
    alias("m@prod", 1, registry=registry)
    folder = registry.home.key("models", "m", "") if name == "aliases.json" else registry.prefix("m", 1)
    registry.home.store.put(folder + name, b'{"format": 1, "format_version": 1}')
    with pytest.raises(CorruptError, match=name.replace(".", r"\.")):
        registry.resolve("m@prod")
    if name != "aliases.json":
        assert registry.versions("m") == [], "left out of lists"


def test_what_a_killed_process_held_is_swept(
    seaweedfs: EmbeddedS3, home: str, registry: Registry, tmp_path: Path
) -> None:
    version = publish(models_kit.folder(tmp_path / "m"), "m", registry=registry)
    other = publish(models_kit.folder(tmp_path / "n"), "m", registry=registry)
    told = """
import os, signal
from pathlib import Path
from headrace.models import Registry
registry = Registry.load()
held = registry.local(registry.resolve("m@1"))
print(held.folder, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    environment = {
        **os.environ, **seaweedfs.variables(), "HEADRACE_HOME": home, "HEADRACE_CACHE_DIR": str(tmp_path / "cache")
    }  # fmt: skip
    ended = subprocess.run([sys.executable, "-c", told], env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    left = Path(ended.stdout.strip())
    assert left.exists()
    with hold(registry, other):
        assert not left.exists()
    with hold(registry, version) as model:
        assert model.files["weights.bin"].exists()


def test_a_version_of_more_files_than_may_be_open_is_brought(tmp_path: Path) -> None:
    source = Path(models_kit.folder(tmp_path / "m"))
    for number in range(150):
        (source / f"shard-{number}.bin").write_bytes(b"x" * (number + 1))
    (source / "empty.bin").touch()
    settings = models_kit.settings_of(f"file://{tmp_path}/home", tmp_path / "cache")
    publish(str(source), "m", registry=Registry.load(settings))
    told = """
import os, resource, sys
from headrace.base.errors import HeadraceError
from headrace.models import pull
def limit(more):
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + more, hard))
def held():
    return sorted(one for one in os.listdir("/proc/self/fd") if os.path.isfile(f"/proc/self/fd/{one}"))
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
pull("m", "first")
before = held()
resource.setrlimit(resource.RLIMIT_NOFILE, (4, hard))  # numbers: of those below, one may be free
try:
    pull("m", "refused")
except HeadraceError:
    limit(60)
    assert held() == before, (held(), before)
else:
    sys.exit("it was brought all the same")
pull("m", "out")
assert held() == before, (held(), before)
"""
    environment = {
        **os.environ, "HEADRACE_HOME": f"file://{tmp_path}/home", "HEADRACE_CACHE_DIR": str(tmp_path / "cache")
    }  # fmt: skip
    command = [sys.executable, "-c", told]
    ended = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    there = {one.name: one.read_bytes() for one in (tmp_path / "out").rglob("*") if one.is_file()}
    assert there.items() >= {one.name: one.read_bytes() for one in source.rglob("*") if one.is_file()}.items()


def test_a_publisher_that_was_taken_for_dead_publishes_nothing(
    seaweedfs: EmbeddedS3, slow: FaultServer, home: str, registry: Registry, tmp_path: Path
) -> None:
    source = models_kit.folder(tmp_path / "m")
    bucket, _, prefix = home.removeprefix("s3://").partition("/")
    far, fetcher = models_kit.node(seaweedfs, home, tmp_path / "far", endpoint=slow.endpoint)
    with ThreadPoolExecutor(1) as pool:
        with slow.holding("put", f"{bucket}/{prefix}/models/m/1/weights.bin") as held:
            publishing = pool.submit(publish, source, "m", registry=far)
            assert wait_for(lambda: held.count, every_s=0.01)
            assert gc("m", old_s=-60, registry=registry).left == (1,)
        with pytest.raises(ChangedError, match=r"lost .* while it was published"):
            publishing.result()
    assert registry.find("m", 1) is None
    assert publish(source, "m", registry=far).number == 2
    assert check_sound(registry, "m") == [2]
    fetcher.close()


def test_a_publication_is_as_old_as_the_store_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    registry = Registry.load(models_kit.settings_of(f"file://{tmp_path}/home", tmp_path / "cache"))
    publish(models_kit.folder(tmp_path / "m"), "m", registry=registry)
    registry.home.store.put(registry.prefix("m", 2) + "weights.bin", b"under way")
    right = time.time
    monkeypatch.setattr(time, "time", lambda: right() + 3 * 24 * 3600)  # this machine's clock is three days ahead
    assert gc("m", registry=registry).left == ()
    os.utime(tmp_path / "home" / "models" / "m" / "2" / "weights.bin", (0, right() - 2 * 24 * 3600))
    assert gc("m", registry=registry).left == (2,)


def test_what_is_served_stays_until_another_of_its_number_is_whole(registry: Registry, tmp_path: Path) -> None:
    """The home was made anew: its first version has the number of the one that is served."""
    sources, served = [Path(models_kit.folder(tmp_path / one)) for one in "mn"], tmp_path / "served"

    def weights() -> bytes:
        return (served / "1" / "weights.bin").read_bytes()

    publish(str(sources[0]), "m", registry=registry)
    alias("m@prod", 1, registry=registry)
    with Following(registry, "m@prod", served) as following:
        following.look()
    clear_below(registry.home.store, registry.home.key("models", "m", ""))
    publish(str(sources[1]), "m", registry=registry)
    alias("m@prod", 1, registry=registry)
    store, key = registry.home.store, registry.prefix("m", 1) + "weights.bin"
    store.put(key, os.urandom(100))
    with Following(registry, "m@prod", served) as following:
        with pytest.raises(CorruptError):
            following.look()
        assert weights() == (sources[0] / "weights.bin").read_bytes()
        store.put(key, (sources[1] / "weights.bin").read_bytes())
        step = following.look()
        assert step is not None
        assert (step.number, step.before) == (1, ())
        assert weights() == (sources[1] / "weights.bin").read_bytes()
    assert sorted(one.name for one in served.iterdir()) == [".headrace-follow", "1"]
    (served / "1").rename(served / ".headrace-before-1")  # as one leaves it that is killed between the renames
    with Following(registry, "m@prod", served):
        assert weights() == (sources[1] / "weights.bin").read_bytes()


def test_a_version_is_never_deleted_under_an_alias(tmp_path: Path) -> None:
    """Both at the same moment, again and again: one of them is refused."""
    settings = models_kit.settings_of(f"file://{tmp_path}/home", tmp_path / "cache")
    registry, source = Registry.load(settings), models_kit.folder(tmp_path / "m")
    ends: set[str] = set()
    for _ in range(12):
        shutil.rmtree(tmp_path / "home", ignore_errors=True)
        number = publish(source, "m", registry=registry).number
        publish(source, "m", registry=registry)
        alias("m@prod", 2, registry=registry)
        start = threading.Barrier(2)

        def tried(act: object, start: threading.Barrier = start) -> HeadraceError | None:
            start.wait()
            try:
                act()  # type: ignore[operator]
            except (InputError, NotFoundError, ChangedError) as error:
                return error
            return None

        with ThreadPoolExecutor(2) as pool:
            moved = pool.submit(tried, lambda: alias("m@prod", number, registry=registry))  # noqa: B023
            gone = pool.submit(tried, lambda: rm(f"m@{number}", registry=registry))  # noqa: B023
        assert (moved.result() is None) != (gone.result() is None)
        assert registry.resolve("m@prod").number == (number if moved.result() is None else 2)
        ends.add("moved" if moved.result() is None else "deleted")
    assert ends


def test_a_deletion_that_was_killed_is_finished_by_gc(registry: Registry, tmp_path: Path) -> None:
    from dataclasses import replace

    from headrace.models import aliases

    source = models_kit.folder(tmp_path / "m")
    for _ in range(2):
        publish(source, "m", registry=registry)

    def going(found: Aliases) -> Aliases:
        return replace(found, removing=(1,))

    aliases.change(registry.home, "m", going)
    with pytest.raises(ChangedError, match="being deleted"):
        alias("m@prod", 1, registry=registry)
    assert gc("m", registry=registry).versions == (1,)
    assert registry.numbers("m") == [2]
    assert registry.aliases("m").removing == ()


def test_a_follower_outlives_a_store_that_is_away(
    seaweedfs: EmbeddedS3, slow: FaultServer, home: str, registry: Registry, tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    publish(models_kit.folder(tmp_path / "m"), "m", registry=registry)
    publish(models_kit.folder(tmp_path / "n"), "m", registry=registry)
    alias("m@prod", 1, registry=registry)
    far, fetcher = models_kit.node(seaweedfs, home, tmp_path / "far", endpoint=slow.endpoint, timeout_s=1.0)
    steps: list[int] = []
    with Following(far, "m@prod", tmp_path / "served") as following:
        following.look()
        stop = threading.Event()
        thread = threading.Thread(
            target=following.run, args=(stop, lambda step: steps.append(step.number)), kwargs={"every_s": 0.05}
        )
        slow.plan = Plan((Fault(Kind.REFUSE),))
        thread.start()
        assert wait_for(lambda: "stays as it is" in caplog.text)
        alias("m@prod", 2, registry=registry)
        slow.plan = Plan()
        assert wait_for(lambda: steps == [2])
        stop.set()
        thread.join(10)
    assert (tmp_path / "served" / "2" / "weights.bin").exists()
    fetcher.close()
