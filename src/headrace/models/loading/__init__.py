"""Models from the bucket into memory, and back: safetensors, PyTorch, ONNX and the others. See README.md here."""
