"""Compressed shards: recognised, decompressed as a stream, and read by pieces of what they decompress to."""
