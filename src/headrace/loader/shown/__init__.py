"""Samples and batches as people look at them."""
