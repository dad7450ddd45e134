"""Batches as PyTorch, TensorFlow and JAX want them."""
