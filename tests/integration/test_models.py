"""Models of runs and of folders, over a real S3 server: by commands, and as many nodes would have them."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlsplit

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from headrace import models
from headrace.base.errors import ChangedError, InputError, NotFoundError, UnsupportedError
from headrace.models import Following, Registry, alias, aliases, promote, publish, pull, resolve, rm
from headrace.models.lineage import models_of
from headrace.namespace import Namespace
from headrace.namespace.home import Home
from headrace.store import open_store
from headrace.store.backends.objects import MemoryStore
from headrace.testing.http import FaultServer
from headrace.testing.origins import Upstream
from headrace.testing.servers import CephRGW, EmbeddedS3
from tests import models_kit
from tests.runs_rig import RunsRig
from tests.trackers_kit import said

pytestmark = pytest.mark.server

TRAIN = """
    import headrace as hr, os
    out = os.environ["HEADRACE_OUTPUTS"]
    for step, accuracy in ((1, 0.5), (2, 0.98), (3, 0.95)):
        hr.log({"accuracy": accuracy, "val/loss": 1 - accuracy}, step=step)
        os.makedirs(f"{out}/checkpoints/{step}")
        open(f"{out}/checkpoints/{step}/weights.bin", "w").write(f"weights {step}")
        open(f"{out}/checkpoints/{step}/COMMITTED", "w").close()
    os.makedirs(f"{out}/model/variables")
    open(f"{out}/model/saved_model.pb", "wb").close()
    open(f"{out}/model/variables/w", "w").write("w")
"""


@pytest.fixture(scope="module")
def rig(seaweedfs: EmbeddedS3, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunsRig]:
    made = RunsRig(seaweedfs, tmp_path_factory.mktemp("models"))
    made.script(TRAIN)
    made.headrace("run", "-q", "--id", "one", "--", sys.executable, "train.py")
    yield made
    made.close()


@pytest.fixture
def home(seaweedfs: EmbeddedS3, tmp_path: Path) -> str:
    return f"{seaweedfs.create_bucket('models')}/{tmp_path.name}-{os.getpid()}-{threading.get_native_id()}"


@pytest.fixture
def registry(seaweedfs: EmbeddedS3, home: str, tmp_path: Path) -> Iterator[Registry]:
    made, fetcher = models_kit.node(seaweedfs, home, tmp_path / "cache")
    yield made
    fetcher.close()


def test_a_run_is_published_and_promoted(rig: RunsRig) -> None:
    """One story, by commands: what a person does after a training."""
    made = rig.json("models", "publish", "one", "digits", "--if", "max(accuracy) >= 0.97 and val/loss < 0.1")
    assert (made["id"], made["checkpoint"], made["run"], made["format"]) == ("digits@1", "3", "one", "files")
    refused = rig.headrace("models", "publish", "one", "digits", "--if", "accuracy >= 0.97", code=5)
    assert "accuracy is 0.95" in refused.stderr
    older = rig.json("models", "publish", "one:1", "digits", "--alias", "prod", "--note", "the first")
    saved = rig.json("models", "publish", "one:outputs/model", "digits")
    assert (older["id"], older["checkpoint"], older["aliases"]) == ("digits@2", "1", ["prod"])
    assert (saved["id"], saved["format"], saved["entry"], saved["files"]) == (
        "digits@3",
        "saved_model",
        "saved_model.pb",
        2,
    )
    store = rig.store()
    assert bytes(store.get("home/models/digits/1/weights.bin").data) == b"weights 3"
    (listed,) = rig.json("models")
    assert (listed["id"], listed["newest"], listed["aliases"]) == ("digits", 3, {"prod": 2})
    assert [row["id"] for row in rig.json("models", "list", "digits", "--limit", "2")] == ["digits@3", "digits@2"]
    assert rig.json("models", "promote", "digits")["number"] == 3
    assert rig.json("models", "rollback", "digits@prod")["number"] == 2
    shown = rig.json("models", "show", "digits@prod")
    assert (shown["number"], shown["aliases"], shown["note"], shown["by"] != "") == (2, ["prod"], "the first", True)
    assert shown["metrics"]["accuracy"]["max"] == 0.98
    assert shown["files"][0]["path"] == "weights.bin"
    assert "weights.bin" in rig.headrace("models", "show", "digits@prod").stdout
    changes = [(row["number"], row["what"]) for row in rig.json("models", "alias", "digits")]
    assert changes == [(2, "rollback"), (3, "promote"), (2, "alias")]
    differing = {row["id"] for row in rig.json("models", "diff", "digits@1", "digits@3")}
    assert {"model:checkpoint", "model:format", "file:weights.bin", "metric:accuracy"} <= differing
    assert [row["name"] for row in rig.json("runs", "show", "one")["models"]] == ["digits"] * 3
    assert "digits@1" in rig.headrace("runs", "show", "one").stdout
    assert "prod names" in rig.headrace("models", "rm", "digits@2", code=2).stderr.replace("what prod", "prod")
    assert rig.json("models", "rm", "digits@1")[0]["versions"] == [1]
    assert [row["number"] for row in rig.json("runs", "show", "one")["models"]] == [2, 3]
    pulled = rig.json("models", "pull", "digits@3", "here")
    assert (Path(pulled["path"]) / "variables" / "w").read_text() == "w"
    assert "is there already" in rig.headrace("models", "pull", "digits@3", "here", code=5).stderr
    assert rig.json("models", "publish", "./here", "digits")["id"] == "digits@4", "what was pulled can be published"
    assert rig.json("models", "gc", "--keep", "1")[0]["versions"] == [3]
    assert "versions: 4, 2" in rig.headrace("models", "show", "digits@1", code=3).stderr
    rig.json("models", "alias", "digits@prod", "--remove")
    assert "there is no digits@prod" in rig.headrace("models", "show", "digits@prod", code=3).stderr


def test_what_is_refused(rig: RunsRig, seaweedfs: EmbeddedS3, tmp_path: Path) -> None:
    registry, fetcher = models_kit.node(seaweedfs, f"s3://{rig.bucket}/home", tmp_path / "cache")
    for kind, reason, call in (
        (InputError, "no name of a model", lambda: publish("one", "a/b", registry=registry)),
        (NotFoundError, "written ./nobody", lambda: publish("nobody", "m", registry=registry)),
        (NotFoundError, "checkpoints: 1, 2, 3", lambda: publish("one:9", "m", registry=registry)),
        (NotFoundError, "headrace ls", lambda: publish("one:outputs/none", "m", registry=registry)),
        (InputError, "its metrics: accuracy", lambda: publish("one", "m", gate="precision > 1", registry=registry)),
        (InputError, "one of onnx", lambda: publish("one", "m", format="keras", registry=registry)),
        (InputError, "module:Class", lambda: publish("one", "m", runtime="nothing", registry=registry)),
        (InputError, "follow m@prod", lambda: Following(registry, "m", tmp_path / "there")),
        (InputError, "by its number", lambda: rm("m@prod", registry=registry)),
        (NotFoundError, "no version of m is published", lambda: resolve("m", registry=registry)),
    ):
        with pytest.raises(kind, match=re.escape(reason)):
            call()
    assert "m" not in registry.names(), "nothing was begun"
    assert "no alias" in rig.headrace("models", "publish", "one", "m", "--alias", "v7", code=2).stderr
    fetcher.close()


def test_copies_are_the_stores_own(seaweedfs: EmbeddedS3, rig: RunsRig, tmp_path: Path) -> None:
    parts = urlsplit(seaweedfs.endpoint)
    with FaultServer(Upstream(parts.hostname or "", parts.port or 0)) as server:
        registry, fetcher = models_kit.node(
            seaweedfs, f"s3://{rig.bucket}/home", tmp_path / "cache", endpoint=server.endpoint
        )
        publish("one:2", "copied", registry=registry)
        fetcher.close()
        of_files = [one.operation for one in server.seen if one.path.endswith("/weights.bin")]
    assert sorted(of_files) == ["copy", "get"], "one copy inside the store, and one look for the digest"


def test_looking_for_what_is_new_is_one_request(seaweedfs: EmbeddedS3, home: str, tmp_path: Path) -> None:
    parts = urlsplit(seaweedfs.endpoint)
    with FaultServer(Upstream(parts.hostname or "", parts.port or 0)) as server:
        registry, fetcher = models_kit.node(seaweedfs, home, tmp_path / "cache", endpoint=server.endpoint)
        nothing = registry.pointer("m")
        publish(models_kit.folder(tmp_path / "m"), "m", registry=registry)
        server.seen.clear()
        assert registry.newer(nothing) is None
        assert [(one.operation, one.if_none_match) for one in server.seen] == [("get", None)]
        alias("m@prod", 1, registry=registry)
        server.seen.clear()
        seen = registry.newer(nothing)
        assert seen is not None
        assert dict(seen.aliases) == {"prod": 1}
        assert [one.operation for one in server.seen] == ["get"]
        server.seen.clear()
        for _ in range(3):
            assert registry.newer(seen) is None
        assert [(one.operation, one.if_none_match) for one in server.seen] == [("get", f'"{seen.token}"')] * 3
        with Following(registry, "m@prod", tmp_path / "f") as following:
            assert following.look() is not None
            server.seen.clear()
            assert following.look() is None
            assert [(one.operation, one.if_none_match) for one in server.seen] == [("get", f'"{seen.token}"')]
        fetcher.close()


def test_a_node_keeps_the_files(seaweedfs: EmbeddedS3, home: str, tmp_path: Path) -> None:
    parts = urlsplit(seaweedfs.endpoint)
    source = models_kit.folder(tmp_path / "m", size=20_000_000, empty=b"")
    with FaultServer(Upstream(parts.hostname or "", parts.port or 0)) as server:
        registry, fetcher = models_kit.node(seaweedfs, home, tmp_path / "cache", endpoint=server.endpoint)
        version = publish(source, "m", registry=registry)
        with registry.local(version) as model:
            for name, path in model.files.items():
                assert path.read_bytes() == (Path(source) / name).read_bytes()
            server.seen.clear()
            with registry.local(version) as other:
                assert other.folder == model.folder
            assert server.seen == [], "it is here already"
            held = model.files["weights.bin"]
            assert fetcher.cache is not None
            fetcher.cache.evict()
            assert held.read_bytes() == (Path(source) / "weights.bin").read_bytes(), "held, so it stays"
        assert list((tmp_path / "cache" / "models").iterdir()) == []
        with registry.local(version):
            pass
        server.seen.clear()
        with registry.local(version) as model:
            assert (model.folder / "sub" / "more.bin").exists()
        assert server.seen == [], "of the cache"
        fetcher.close()


def test_a_node_without_a_cache(seaweedfs: EmbeddedS3, home: str, tmp_path: Path) -> None:
    registry, fetcher = models_kit.node(seaweedfs, home, tmp_path / "cache", size=0)
    version = publish(models_kit.folder(tmp_path / "m", size=9_000_000), "m", registry=registry)
    with registry.local(version) as model, registry.local(version) as other:
        model.close()
        assert other.files["weights.bin"].stat().st_size == 9_000_000
    assert list((tmp_path / "cache" / "models").iterdir()) == []
    fetcher.close()


def test_from_another_store(registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    registry.namespace.attach("/other", f"memory://{tmp_path.name}")
    registry.namespace.write("/other/net/a.bin", b"x" * 1000)
    registry.namespace.write("/other/net/b/c.bin", b"y")
    version = publish("/other/net", "m", registry=registry)
    assert [one.path for one in version.card.files] == ["a.bin", "b/c.bin"]
    assert isinstance(registry.namespace.resolve("/other").store, MemoryStore)
    with registry.local(version) as model:
        assert model.files["a.bin"].read_bytes() == b"x" * 1000


def test_a_lone_file_is_called_as_servers_expect(registry: Registry, tmp_path: Path) -> None:
    file = models_kit.onnx_model(tmp_path / "net.onnx")
    version = publish(str(file), "plus", registry=registry)
    card = resolve("plus", registry=registry).card
    assert (card.format, card.entry, [one.path for one in card.files]) == ("onnx", "model.onnx", ["model.onnx"])
    assert card.signatures["serving_default"].inputs[0].shape == ("batch", 4)
    folder = pull("plus", tmp_path / "plus", registry=registry)
    assert (folder / "model.onnx").read_bytes() == file.read_bytes()
    assert json.loads((folder / "model.json").read_text())["number"] == version.number
    assert not (os.stat(folder / "model.onnx").st_mode & 0o077) ^ (0o666 & ~_umask() & 0o077)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_two_publishers_at_once(seaweedfs: EmbeddedS3, home: str, tmp_path: Path) -> None:
    nodes = [models_kit.node(seaweedfs, home, tmp_path / f"cache-{one}") for one in range(4)]
    sources = [models_kit.folder(tmp_path / f"m-{one}") for one in range(8)]
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda at: publish(sources[at], "m", registry=nodes[at % 4][0]), range(8)))
    assert sorted(one.number for one in made) == list(range(1, 9))
    for one, source in zip(made, sources, strict=True):
        with nodes[0][0].local(nodes[0][0].resolve(one.id)) as model:
            assert model.files["weights.bin"].read_bytes() == (Path(source) / "weights.bin").read_bytes()
    for _, fetcher in nodes:
        fetcher.close()


def test_two_who_move_aliases_at_once(seaweedfs: EmbeddedS3, home: str, tmp_path: Path) -> None:
    nodes = [models_kit.node(seaweedfs, home, tmp_path / f"cache-{one}") for one in range(4)]
    source = models_kit.folder(tmp_path / "m")
    for _ in range(2):
        publish(source, "m", registry=nodes[0][0])

    def move(at: int) -> object:
        """Half of them the same alias, half one of their own."""
        name = "prod" if at % 2 else f"own-{at}"
        try:
            return alias(f"m@{name}", 1 + at % 2, registry=nodes[at % 4][0])
        except ChangedError as error:
            return error

    with ThreadPoolExecutor(8) as pool:
        ended = list(pool.map(move, range(8)))
    found = nodes[0][0].aliases("m")
    assert dict(found.aliases) == {"prod": 2, **{f"own-{at}": 1 for at in (0, 2, 4, 6)}}
    lost = [one for one in ended if isinstance(one, ChangedError)]
    assert all("prod" in str(one) and "changed underneath" in str(one) for one in lost)
    assert len(found.history) == 8 - len(lost) - sum(getattr(one, "before", None) == 2 for one in ended)
    for _, fetcher in nodes:
        fetcher.close()


def test_a_folder_follows_an_alias(rig: RunsRig, registry: Registry, tmp_path: Path) -> None:
    first = publish(models_kit.folder(tmp_path / "m"), "m", registry=registry)
    second = publish(models_kit.folder(tmp_path / "n"), "m", registry=registry)
    alias("m@prod", first.number, registry=registry)
    target = tmp_path / "served"
    with Following(registry, "m@prod", target) as following:
        step = following.look()
        assert step is not None
        assert (step.number, step.before, following.look()) == (1, (), None)
        (target / "7").mkdir()
        (target / "7" / "theirs").write_text("not ours")
        promote("m@2", registry=registry)
        step = following.look()
        assert step is not None
        assert (step.number, step.before) == (2, (1,))
        assert sorted(one.name for one in target.iterdir() if not one.name.startswith(".")) == ["2", "7"]
        assert (target / "2" / "weights.bin").read_bytes() == (tmp_path / "n" / "weights.bin").read_bytes()
        alias("m@prod", 1, registry=registry)
        step = following.look()
        assert step is not None
        assert (step.number, step.before) == (1, (2,))
        with pytest.raises(ChangedError, match="another process"):
            Following(registry, "m@prod", target)
    assert second.number == 2
    with pytest.raises(NotFoundError), Following(registry, "m@none", target) as following:
        following.look()
    assert (target / "1").exists(), "what lies there stays"


def test_the_same_words_in_python(registry: Registry, tmp_path: Path) -> None:
    publish(models_kit.folder(tmp_path / "m"), "m", note="so", registry=registry)
    alias("m@prod", 1, registry=registry)
    (one,) = models.list(registry=registry)
    assert (one.name, one.newest.number, dict(one.aliases)) == ("m", 1, {"prod": 1})
    assert models.show("m@prod", registry=registry).note == "so"
    stop, steps = threading.Event(), list[int]()

    def tell(step: models.Step) -> None:
        steps.append(step.number)
        stop.set()

    models.follow("m@prod", tmp_path / "served", stop=stop, tell=tell, registry=registry)
    assert steps == [1]


def test_the_command_follows_until_it_is_told_to_stop(rig: RunsRig) -> None:
    rig.headrace("models", "publish", "one:1", "followed", "--alias", "prod")
    process = rig.start("models", "follow", "followed@prod", "served", "--every", "0.2s", "--json")
    said(process, '"number": 1')
    rig.headrace("models", "publish", "one:2", "followed", "--alias", "prod")
    said(process, '"number": 2')
    assert [one.name for one in (rig.work / "served").iterdir() if not one.name.startswith(".")] == ["2"]
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=20)
    assert process.returncode == 0, err


def test_from_a_run_to_its_models_and_back(rig: RunsRig, seaweedfs: EmbeddedS3, tmp_path: Path) -> None:
    registry, fetcher = models_kit.node(seaweedfs, f"s3://{rig.bucket}/home", tmp_path / "cache")
    version = publish("one", "traced", registry=registry)
    assert version.card.code["kind"] in ("folder", "git")
    assert version.card.run == "one"
    assert [str(one) for one in models_of(registry, "one") if one.name == "traced"] == ["traced@1"]
    fetcher.close()


def test_a_store_that_keeps_no_condition_is_refused(tmp_path: Path) -> None:
    fsspec.register_implementation("plain", MemoryFileSystem, clobber=True)
    store = open_store(f"plain://{tmp_path.name}")
    registry = Registry(Namespace(models_kit.settings_of("", tmp_path)), Home(store))
    with pytest.raises(UnsupportedError, match="keep a condition"):
        publish(models_kit.folder(tmp_path / "m"), "m", registry=registry)
    with pytest.raises(UnsupportedError, match="keep a condition"):
        aliases.change(registry.home, "m", lambda found: found.pointing("prod", 1, "alias"))


def test_a_store_that_creates_only_takes_no_first_alias(rgw: CephRGW, tmp_path: Path) -> None:
    """It could never be moved: seen on Ceph, whose `If-Match` of writes is ignored."""
    registry, fetcher = models_kit.node(rgw, f"{rgw.create_bucket('models')}/home", tmp_path / "cache")
    publish(models_kit.folder(tmp_path / "m"), "m", registry=registry)
    with pytest.raises(UnsupportedError, match="keep a condition"):
        alias("m@prod", 1, registry=registry)
    assert dict(registry.aliases("m").aliases) == {}
    fetcher.close()
