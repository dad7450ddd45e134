"""The index of a set of shards: made in parallel, kept on the node, kept beside the data."""
