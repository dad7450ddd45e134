"""What an ONNX model computes, whatever its weights are."""

from __future__ import annotations

import hashlib

import onnx


def structure(path: str) -> str:
    """A digest of a model's nodes, inputs, outputs, and of those initializers that are no weights: equal for two
    versions that differ in weights alone. Reads the file of the graph, not those beside it.
    """
    graph = onnx.load_model(path, load_external_data=False).graph
    digest = hashlib.sha256()
    for one in (*graph.input, *graph.output, *graph.node):
        digest.update(one.SerializeToString(deterministic=True))
    weights = {onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16, onnx.TensorProto.DOUBLE}
    for one in graph.initializer:
        told = f"{one.name} {one.data_type} {list(one.dims)}\n".encode()
        digest.update(told if one.data_type in weights else one.SerializeToString(deterministic=True))
    return digest.hexdigest()
