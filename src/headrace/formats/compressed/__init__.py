"""Compressed shards: their samples, and what they decompress to, kept."""
