"""Tar shards in the convention of WebDataset."""
