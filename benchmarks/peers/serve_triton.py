"""Triton's Python backend (nvidia-pytriton) over ONNX Runtime: its own batcher, 64 rows at most, no wait for more.

``python serve_triton.py MODEL PORT``, in ``.tools/servers``.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np
import onnxruntime
from pytriton.decorators import batch
from pytriton.model_config import DynamicBatcher, ModelConfig, Tensor
from pytriton.triton import Triton, TritonConfig

# Triton's stub has a libpython of its own: what it finds of a newer standard library than Debian's breaks it.
if Path("/usr/lib/python3.11").is_dir():
    os.environ["PYTHONHOME"] = "/usr"

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
