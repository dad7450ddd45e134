"""`headrace.jax` in real JAX, on four CPU devices and in two processes; digits in SeaweedFS. One child runs all."""

from __future__ import annotations

import secrets
import sys
from pathlib import Path

import pytest

import headrace as hr
from headrace.base.errors import UnsupportedError
from headrace.store import open_store
from headrace.store.embedded import EmbeddedS3
from tests.frameworks_kit import digits, names, outcomes
from tests.integration import jax_checks

pytestmark = pytest.mark.server


@pytest.fixture(scope="module")
def found(seaweedfs: EmbeddedS3, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str | None]:
    folder: Path = tmp_path_factory.mktemp("jax")
    url = f"s3://jax-{secrets.token_hex(4)}/digits"
    seaweedfs.create_bucket(url.split("/")[2])
    store = open_store(url, seaweedfs.options())
    for row, (image, label) in enumerate(zip(*digits(jax_checks.COUNT), strict=True)):
        store.put(f"{row:04d}.image", image.tobytes())
        store.put(f"{row:04d}.label", str(label).encode())
    store.close()
    variables = {
        "DIGITS_URL": url,
        **seaweedfs.variables(),
        "HEADRACE_CACHE_DIR": str(folder / "cache"),
        "XLA_FLAGS": "--xla_force_host_platform_device_count=4",
        "JAX_PLATFORMS": "cpu",
    }
    return outcomes(jax_checks.__name__, variables, folder)


@pytest.mark.parametrize("name", names(jax_checks))
def test_jax(found: dict[str, str | None], name: str) -> None:
    assert found[name] is None, found[name]


def test_without_jax(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jax", None)  # as Python says: not to be imported
    monkeypatch.setenv("HEADRACE_CACHE_SIZE", "0")
    (tmp_path / "1.x").write_bytes(b"1")
    ds = hr.Dataset.open(tmp_path.as_uri())
    for use in (hr.jax.arrays, hr.jax.shard):
        with pytest.raises(UnsupportedError, match=r"pip install 'headrace\[jax\]'"):
            use(ds)
