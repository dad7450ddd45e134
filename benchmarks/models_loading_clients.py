"""What loads a model, each in a process of its own: ``python benchmarks/models_loading_clients.py CONTENDER``.

Tells, as JSON on its last line, the seconds until all tensors are there and every page of them was touched, the
processor time meanwhile, and the highest PSS and RSS of the process and its children. The place is in the environment.
"""

from __future__ import annotations

import importlib
import json
import os
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

_EVERY_S = 0.1
KEY = "model.safetensors"
Tensors = Mapping[str, Any]
Held = Iterator[Tensors]


def place(name: str) -> str:
    return os.environ[f"BENCH_{name}"]


def url(key: str = KEY) -> str:
    return f"s3://{place('BUCKET')}/{key}"


def local() -> str:
    return f"{place('FOLDER')}/{KEY}"


def fetched(by: Callable[[str], object]) -> str:
    """A copy of the object on the disk, made by somebody."""
    path = f"{place('FOLDER')}/fetched-{os.getpid()}.safetensors"
    by(path)
    return path


# headrace


def headrace(**options: Any) -> Tensors:
    import headrace as hr

    return hr.safetensors.load(url(), **options)


@contextmanager
def headrace_memory() -> Held:
    """No cache: into the tensors' memory."""
    os.environ["HEADRACE_CACHE_SIZE"] = "0"
    yield headrace()


@contextmanager
def headrace_cache() -> Held:
    """Through the node's cache: filled, then mapped; mapped at once where it is warm."""
    yield headrace()


# the others


@contextmanager
def streamer(path: str) -> Held:
    from runai_model_streamer import SafetensorsStreamer

    with SafetensorsStreamer() as stream:
        stream.stream_file(path)
        yield dict(stream.get_tensors())


@contextmanager
def streamer_s3() -> Held:
    """Run:ai Model Streamer from S3, 16 threads; tensors are its buffer's."""
    with streamer(url()) as tensors:
        yield tensors


@contextmanager
def streamer_file() -> Held:
    """Run:ai Model Streamer from a local file."""
    with streamer(local()) as tensors:
        yield tensors


def fast(path: str) -> tuple[Tensors, Any]:
    from fastsafetensors import SafeTensorsFileLoader, SingleGroup

    loader = SafeTensorsFileLoader(SingleGroup(), device="cpu", nogds=True)
    loader.add_filenames({0: [path]})
    buffer = loader.copy_files_to_device()
    return {name: buffer.get_tensor(name) for name in loader.get_keys()}, (loader, buffer)


@contextmanager
def fast_file() -> Held:
    """fastsafetensors of a local file, without GPUDirect."""
    tensors, held = fast(local())
    yield tensors
    del held


@contextmanager
def fast_s5cmd() -> Held:
    """fastsafetensors after s5cmd cp."""
    tensors, held = fast(fetched(s5cmd))
    yield tensors
    del held


@contextmanager
def tensorizer() -> Held:
    """tensorizer, its own format, from S3; the library's defaults."""
    from tensorizer import TensorDeserializer, stream_io

    endpoint = os.environ["AWS_ENDPOINT_URL_S3"]
    keys = os.environ["AWS_ACCESS_KEY_ID"], os.environ["AWS_SECRET_ACCESS_KEY"]
    with (
        stream_io.open_stream(url("model.tensors"), "rb", *keys, endpoint, force_http=True) as stream,
        TensorDeserializer(stream, device="cpu", lazy_load=False) as found,
    ):
        yield dict(found.items())


def s5cmd(path: str) -> None:
    command = ["s5cmd", "--endpoint-url", os.environ["AWS_ENDPOINT_URL_S3"], "--log", "error", "cp", url(), path]
    program = Path(sys.executable).with_name("s5cmd")
    subprocess.run([str(program) if program.exists() else place("S5CMD"), *command[1:]], check=True)


def boto3_file(path: str) -> None:
    import boto3
    from boto3.s3.transfer import TransferConfig

    client = boto3.client("s3", endpoint_url=os.environ["AWS_ENDPOINT_URL_S3"])
    client.download_file(place("BUCKET"), KEY, path, Config=TransferConfig(max_concurrency=16))


def load_file(path: str) -> Tensors:
    from safetensors.torch import load_file as load

    return load(path)


@contextmanager
def library_s5cmd() -> Held:
    """safetensors' load_file after s5cmd cp."""
    yield load_file(fetched(s5cmd))


@contextmanager
def library_boto3() -> Held:
    """safetensors' load_file after boto3's download_file, 16 threads."""
    yield load_file(fetched(boto3_file))


@contextmanager
def library_file() -> Held:
    """safetensors' load_file of a local file."""
    yield load_file(local())


@contextmanager
def ranges() -> Held:
    """Eight threads with a connection each, plain range GETs of 16 MiB into one buffer."""
    import http.client
    from urllib.parse import urlsplit

    size, part = int(place("SIZE")), 16 << 20
    at, buffer = urlsplit(place("PRESIGNED")), np.empty(size, np.uint8)
    into, starts = buffer.data, iter(range(0, size, part))

    def read() -> None:
        connection = http.client.HTTPConnection(at.netloc)
        for start in starts:
            stop = min(start + part, size)
            headers = {"Range": f"bytes={start}-{stop - 1}"}
            connection.request("GET", f"{at.path}?{at.query}", headers=headers)
            response, done = connection.getresponse(), start
            while done < stop:
                done += response.readinto(into[done:stop])

    threads = [threading.Thread(target=read) for _ in range(8)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    yield {"all": buffer}


@contextmanager
def mapping() -> Held:
    """mmap of a local file."""
    yield {"all": np.memmap(local(), np.uint8, "r")}


CONTENDERS: Mapping[str, Callable[[], Any]] = {
    "headrace-memory": headrace_memory,
    "headrace-cache": headrace_cache,
    "ranges": ranges,
    "streamer": streamer_s3,
    "tensorizer": tensorizer,
    "fastsafetensors-s5cmd": fast_s5cmd,
    "safetensors-s5cmd": library_s5cmd,
    "safetensors-boto3": library_boto3,
    "mmap": mapping,
    "safetensors-file": library_file,
    "fastsafetensors-file": fast_file,
    "streamer-file": streamer_file,
}


IMPORTS: Mapping[str, tuple[str, ...]] = {
    "headrace": ("headrace.models.loading.safetensors", "headrace.fetch", "headrace.store.backends.s3"),
    "streamer": ("runai_model_streamer",),
    "fastsafetensors": ("fastsafetensors",),
    "tensorizer": ("tensorizer",),
    "safetensors": ("safetensors.torch", "boto3.s3.transfer"),
}
"""By how a contender's name begins."""


# ONNX


def onnx_session(kind: str) -> tuple[Any, Any]:
    """A session, and an input of it."""
    from headrace.models.loading.onnx_external import open_mapped, open_prepacked

    if kind == "onnx-mapped":
        session = open_mapped(f"{place('FOLDER')}/external/model.onnx", threads=1)
    else:
        session = open_prepacked(f"{place('FOLDER')}/model.onnx", threads=1)
    width = int(session.get_inputs()[0].shape[1])
    return session, lambda rows: {session.get_inputs()[0].name: np.zeros((rows, width), np.float32)}


def onnx(kind: str) -> dict[str, float]:
    import onnxruntime  # noqa: F401 - its import is none of the load

    with peaks() as peak:
        began, cpu = time.perf_counter(), cpu_s()
        session, given = onnx_session(kind)
        told = {"seconds": time.perf_counter() - began, "cpu_s": cpu_s() - cpu}
        for rows in (1, 8, 32):
            session.run(None, given(rows))
            began = time.perf_counter()
            for _ in range(5):
                session.run(None, given(rows))
            told[f"batch_{rows}_s"] = (time.perf_counter() - began) / 5
    return {**told, **peak}


# measuring


def cpu_s() -> float:
    used = [resource.getrusage(one) for one in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def touch(tensors: Tensors) -> int:
    """Read a byte of every page."""
    total = 0
    for one in tensors.values():
        array = one if isinstance(one, np.ndarray) else _bytes_of(one)
        total += int(array[::4096].sum(dtype=np.int64))
    return total


def _bytes_of(tensor: Any) -> np.ndarray:
    import torch

    return tensor.detach().reshape(-1).view(torch.uint8).numpy()


@contextmanager
def peaks() -> Iterator[dict[str, float]]:
    """The highest PSS and RSS of this process and its children, above what it had at first; sampled."""
    told: dict[str, float] = {"pss": 0.0, "rss": 0.0}
    before, over = _memory(), threading.Event()

    def look() -> None:
        while not over.wait(_EVERY_S):
            for name, value in _memory().items():
                told[name] = max(told[name], value - before[name])

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield told
    finally:
        for name, value in _memory().items():
            told[name] = max(told[name], value - before[name])
        over.set()
        thread.join()


def _memory() -> dict[str, float]:
    total = {"pss": 0.0, "rss": 0.0}
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    for process in ("self", *children):
        with suppress(OSError):
            for line in Path(f"/proc/{process}/smaps_rollup").read_text().splitlines():
                name, _, value = line.partition(":")
                if name.lower() in total:
                    total[name.lower()] += int(value.split()[0]) * 1024
    return total


def load(contender: str) -> dict[str, float]:
    for module in ("torch", *IMPORTS.get(contender.partition("-")[0], ())):  # which are none of the load
        importlib.import_module(module)
    with peaks() as peak:
        began, cpu = time.perf_counter(), cpu_s()
        with CONTENDERS[contender]() as tensors:
            loaded = time.perf_counter() - began
            touch(tensors)
            told = {"seconds": time.perf_counter() - began, "loaded_s": loaded, "cpu_s": cpu_s() - cpu}
            size = sum(one.nbytes for one in tensors.values())
    if abs(size - int(place("SIZE"))) > 1 << 20:
        raise SystemExit(f"{contender} has {size} bytes of tensors")
    return {**told, **peak}


def main() -> None:
    contender = sys.argv[1]
    told = onnx(contender) if contender.startswith("onnx") else load(contender)
    sys.stdout.write(f"\n{json.dumps(told)}\n")
    sys.stdout.flush()
    os._exit(0)  # giving back gigabytes is none of the load, nor do peers' threads matter


if __name__ == "__main__":
    main()
