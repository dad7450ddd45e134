"""Models into memory: ``python benchmarks/models_loading.py``

A safetensors file of 2 GB from SeaweedFS on the same machine, *cold*, and again from what lies on the node, *warm*:
headrace into memory and through its cache, against eight threads of plain range GETs, Run:ai Model Streamer,
tensorizer, fastsafetensors and safetensors after s5cmd, boto3 with load_file, and mmap of a local file. And an ONNX
model of 270 MB in one file, opened as ONNX Runtime does by default, against its weights beside it and mapped.

Each contender in turn, in a process of its own, whose imports are done before the clock starts; a load ends when every
page of all tensors was touched. Free memory is full of page cache before each (`memory.py`; ``--no-ballast`` leaves
that out). Results go to ``benchmarks/results/models-loading.md`` and ``.json``.

    python benchmarks/models_loading.py --quick             # 100 MB, one turn: whether all of it runs
    python benchmarks/models_loading.py --only headrace,ranges,streamer --turns 3
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from headrace.base.settings import Settings
from headrace.models.loading import safetensors
from headrace.models.loading.onnx_external import externalize
from headrace.namespace import Namespace
from headrace.store import open_store
from headrace.store.embedded import EmbeddedS3
from loader import RESULTS
from memory import ballast
from models_loading_clients import CONTENDERS, KEY
from report import machine

BUCKET = "models"
MB = 10**6
COLD = ("headrace-memory", "headrace-cache", "ranges", "streamer", "tensorizer", "fastsafetensors-s5cmd",
        "safetensors-s5cmd", "safetensors-boto3")  # fmt: skip
WARM = ("headrace-cache", "mmap", "safetensors-file", "fastsafetensors-file", "streamer-file")
ONNX = ("onnx-default", "onnx-mapped")
TOOLS = Path(__file__).parents[1] / ".tools/loaders/bin"
CLIENT = Path(__file__).with_name("models_loading_clients.py")
TIMEOUT_S = 600
Found = dict[str, dict[str, list[dict[str, float]]]]


@dataclass(frozen=True)
class Place:
    """A server, a folder to work in, and what every client is told. `size`: bytes of the file."""

    server: EmbeddedS3
    folder: Path
    environment: Mapping[str, str]
    size: int

    def run(self, contender: str) -> dict[str, float] | None:
        """Its figures; None: it failed, which is told."""
        python = TOOLS / "python" if (TOOLS / "python").exists() else Path(sys.executable)
        ended = subprocess.run(
            [str(python), str(CLIENT), contender], env=dict(self.environment), capture_output=True, text=True,
            timeout=TIMEOUT_S, check=False,
        )  # fmt: skip
        if ended.returncode:
            print(f"  {contender} failed: {ended.stderr.strip().splitlines()[-1:]}", flush=True)
            return None
        return json.loads(ended.stdout.splitlines()[-1])


def model(size: int) -> dict[str, Any]:
    """Layers of a transformer in bfloat16, of about `size` bytes."""
    import torch

    rng, found, left, layer = np.random.default_rng(1), dict[str, Any](), size, 0
    width = 2048 if size > 500 * MB else 512
    while left > 0:
        shapes = {"attention.qkv": (3 * width, width), "attention.out": (width, width), "up": (4 * width, width),
                  "down": (width, 4 * width), "norm": (width,)}  # fmt: skip
        for name, shape in shapes.items():
            count = int(np.prod(shape))
            bits = rng.integers(0, 1 << 14, count, np.uint16)  # finite numbers all
            found[f"layers.{layer}.{name}.weight"] = torch.from_numpy(bits).view(torch.bfloat16).reshape(shape)
            left -= 2 * count
        layer += 1
    return found


def fill(place: Path, server: EmbeddedS3, size: int, onnx_size: int) -> int:
    """Everything that is loaded, in the bucket and on the disk. Bytes of the file."""
    options = {name: value for name, value in asdict(server.options()).items() if value and isinstance(value, str)}
    ns = Namespace(Settings.load())
    ns.attach("/models", f"s3://{BUCKET}", **options)
    tensors = model(size)
    safetensors.save(tensors, f"/models/{KEY}", namespace=ns)
    safetensors.save(tensors, place / KEY, namespace=ns)
    tensorized(place, ns)
    onnx_model(place, onnx_size)
    return ns.stat(f"/models/{KEY}").size


def tensorized(place: Path, ns: Namespace) -> None:
    """In tensorizer's own format, written by it."""
    if not (TOOLS / "python").exists():
        return
    code = (
        "import sys; from safetensors.torch import load_file; from tensorizer import TensorSerializer\n"
        "s = TensorSerializer(sys.argv[2]); s.write_state_dict(load_file(sys.argv[1])); s.close()"
    )
    path = place / "model.tensors"
    made = [str(TOOLS / "python"), "-c", code, str(place / KEY), str(path)]
    if subprocess.run(made, check=False, capture_output=True).returncode == 0:
        ns.copy(path, "/models/model.tensors")
        path.unlink()


def onnx_model(place: Path, size: int) -> None:
    """Linear layers, their weights in the model file; and the same with its weights beside it."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    width, rng = 1024, np.random.default_rng(2)
    count = max(1, size // (4 * width * width))
    weights = [rng.standard_normal((width, width)).astype("f4") / 32 for _ in range(count)]
    nodes = [helper.make_node("MatMul", [f"x{n}", f"w{n}"], [f"x{n + 1}"]) for n in range(count)]
    given = helper.make_tensor_value_info("x0", TensorProto.FLOAT, ("batch", width))
    made = helper.make_tensor_value_info(f"x{count}", TensorProto.FLOAT, ("batch", width))
    initializers = [numpy_helper.from_array(one, f"w{n}") for n, one in enumerate(weights)]
    graph = helper.make_graph(nodes, "layers", [given], [made], initializers)
    opset = helper.make_opsetid("", 17)
    onnx.save_model(helper.make_model(graph, opset_imports=[opset], ir_version=8), str(place / "model.onnx"))
    (place / "external").mkdir()
    externalize(place / "model.onnx", place / "external")


def measured(place: Place, turns: int, only: Sequence[str], full: Any) -> Found:
    """By state, by contender: a turn each after the other."""
    found: Found = {"cold": {}, "warm": {}, "onnx": {}}
    for turn in range(turns):
        for state, contender in works(only):
            if state == "cold":
                shutil.rmtree(place.environment["HEADRACE_CACHE_DIR"], ignore_errors=True)
            if full is not None:
                full.fill()
            told = place.run(contender)
            for left in place.folder.glob("fetched-*"):
                left.unlink()
            if told is not None:
                found[state].setdefault(contender, []).append(told)
                rate = place.size / told["seconds"] / MB
                speed = f"{rate:8.0f} MB/s" if state != "onnx" else " " * 13
                print(f"  {turn + 1}  {state:<5} {contender:<22} {told['seconds']:8.3f} s {speed}"
                      f"  CPU {told['cpu_s']:6.2f} s  PSS {told['pss'] / MB:6.0f} MB", flush=True)  # fmt: skip
    return found


def works(only: Sequence[str]) -> Iterator[tuple[str, str]]:
    """In the order of a turn. What is warm follows the one that has filled the cache."""
    for state, contenders in (("cold", COLD), ("warm", WARM), ("onnx", ONNX)):
        some = [one for one in contenders if not only or any(one.startswith(each) for each in only)]
        if state == "cold":  # the cache is emptied before each: last comes the one that fills it
            some.sort(key=lambda one: one == "headrace-cache")
        yield from ((state, one) for one in some)


def report(found: Found, size: int, onnx_size: int, turns: int) -> str:
    here = machine()
    lines = ["# Models into memory", ""]
    lines += [f"{here['cores']} cores ({here['cpu']}), Linux {here['kernel']}, Python {here['python']}."]
    lines += [f"Medians of {turns} turns. Server and client share the cores: ratios hold. A load ends when every"]
    lines += ["page of its tensors was touched. Memory: the highest PSS and RSS, less what the process had before.", ""]
    for state, base in (("cold", "ranges"), ("warm", "mmap")):
        rows = found[state]
        if not rows:
            continue
        lines += [f"## {size / MB:,.0f} MB of safetensors, {state}", ""]
        lines += [
            f"| who | seconds | MB/s | of `{base}` | CPU, seconds | PSS above the file, MB | RSS above the file, MB |"
        ]
        lines += ["|---|---|---|---|---|---|---|"]
        for name, told in rows.items():
            seconds = _of(told, "seconds")
            share = f"{_of(rows[base], 'seconds') / seconds:.2f}" if base in rows else ""
            over = [f"{(_of(told, one) - size) / MB:,.0f}" for one in ("pss", "rss")]
            what = (CONTENDERS[name].__doc__ or "").strip().rstrip(".")
            lines.append(f"| **{name}**: {what} | {seconds:.3f} | {size / seconds / MB:,.0f} | {share} "
                         f"| {_of(told, 'cpu_s'):.2f} | {' | '.join(over)} |")  # fmt: skip
        lines.append("")
    if found["onnx"]:
        lines += [f"## ONNX, {onnx_size / MB:,.0f} MB of weights, one thread", ""]
        lines += [
            "| how | open, ms | CPU, ms | PSS, MB | batch 1, ms | batch 8, ms | batch 32, ms |",
            "|---|---|---|---|---|---|---|",
        ]
        for name, told in found["onnx"].items():
            times = [f"{_of(told, one) * 1000:.1f}" for one in
                     ("seconds", "cpu_s")] + [f"{_of(told, 'pss') / MB:,.0f}"]  # fmt: skip
            times += [f"{_of(told, f'batch_{rows}_s') * 1000:.1f}" for rows in (1, 8, 32)]
            lines.append(f"| {name} | {' | '.join(times)} |")
        lines.append("")
    return "\n".join(lines)


def _of(told: Sequence[Mapping[str, float]], name: str) -> float:
    return median(one[name] for one in told)


def environment(server: EmbeddedS3, folder: Path) -> dict[str, str]:
    source = Path(__file__).parents[1] / "src"
    return {
        **os.environ, **server.variables(), "AWS_ENDPOINT_URL": server.endpoint,
        "AWS_ENDPOINT_URL_S3": server.endpoint, "AWS_DEFAULT_REGION": "us-east-1", "PYTHONPATH": str(source),
        "HEADRACE_CACHE_DIR": f"{folder}/cache", "HEADRACE_CACHE_SIZE": "100GB", "HEADRACE_CACHE_MIN_FREE": "0",
        "RUNAI_STREAMER_CONCURRENCY": "16", "RUNAI_STREAMER_S3_USE_VIRTUAL_ADDRESSING": "0",
        "RUNAI_STREAMER_MEMORY_LIMIT": "-1", "BENCH_BUCKET": BUCKET, "BENCH_FOLDER": str(folder),
        "BENCH_S5CMD": str(Path(sys.executable).with_name("s5cmd")),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--size", type=int, default=2000, help="MB of the safetensors file")
    parser.add_argument("--onnx-size", type=int, default=270, help="MB of the ONNX model")
    parser.add_argument("--only", default="", help="names of contenders begin with one of these, comma-separated")
    parser.add_argument(
        "--folder", type=Path, default=None, help="where data and caches lie: 12 GB; default: a temporary one"
    )
    parser.add_argument("--no-ballast", action="store_true")
    parser.add_argument("--quick", action="store_true", help="100 MB, one turn, no ballast; results are not kept")
    given = parser.parse_args()
    if given.quick:
        given.turns, given.size, given.onnx_size, given.no_ballast = 1, 100, 40, True
    with EmbeddedS3() as server, tempfile.TemporaryDirectory(prefix="headrace-bench-", dir=given.folder) as name:
        folder = Path(name)
        server.create_bucket(BUCKET)
        size = fill(folder, server, given.size * MB, given.onnx_size * MB)
        presigned = open_store(f"s3://{BUCKET}", server.options()).presigned(KEY, 7 * 24 * 3600)
        told = {**environment(server, folder), "BENCH_SIZE": str(size), "BENCH_PRESIGNED": presigned}
        place = Place(server, folder, told, size)
        only = [one for one in given.only.split(",") if one]
        with nullcontext() if given.no_ballast else ballast(folder / "ballast") as full:
            found = measured(place, given.turns, only, full)
    text = report(found, size, given.onnx_size * MB, given.turns)
    print(text)
    if not given.quick:
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / "models-loading.md").write_text(text)
        (RESULTS / "models-loading.json").write_text(json.dumps({"size": size, "found": found}, indent=1))


if __name__ == "__main__":
    main()
