"""Shards: large objects that hold many samples, read like single objects. See README.md."""
