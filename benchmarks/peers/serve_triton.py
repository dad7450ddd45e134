"""Triton's Python backend (nvidia-pytriton) over ONNX Runtime: its own batcher, 64 rows at most, no wait for more.

``python serve_triton.py MODEL PORT``, in ``.tools/servers``.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import onnxruntime
import pytriton.proxy.data
from pytriton.decorators import batch
from pytriton.model_config import DynamicBatcher, ModelConfig, Tensor
from pytriton.triton import Triton, TritonConfig

# Triton's stub has a libpython of its own, whose lock lacks what a newer standard library asks of it. What PyTriton
# copies there is a file of its own, in ``.tools/servers``: it is told.
SHIM = """
import threading as _threading
from multiprocessing import resource_tracker as _tracker
if not hasattr(_threading.RLock(), "_recursion_count"):
    _tracker._resource_tracker._lock = _threading._PyRLock()
"""
copied = Path(pytriton.proxy.data.__file__)
if SHIM not in copied.read_text():
    copied.write_text(copied.read_text() + SHIM)

options = onnxruntime.SessionOptions()
options.intra_op_num_threads = 1
session = onnxruntime.InferenceSession(sys.argv[1], options, providers=["CPUExecutionProvider"])
port, width = int(sys.argv[2]), session.get_inputs()[0].shape[1]


@batch
def infer(x):
    return session.run(None, {"x": x})


config = TritonConfig(http_port=port, grpc_port=port + 1, metrics_port=port + 2, log_verbose=0)
with Triton(config=config) as server:
    server.bind(
        model_name="small", infer_func=infer,
        inputs=[Tensor(name="x", dtype=np.float32, shape=(width,))],
        outputs=[Tensor(name="y", dtype=np.float32, shape=(session.get_outputs()[0].shape[1],))],
        config=ModelConfig(max_batch_size=64, batcher=DynamicBatcher(max_queue_delay_microseconds=0)),
    )  # fmt: skip
    server.serve()
