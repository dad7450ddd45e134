"""A shell on a node of a cluster, at the caller's terminal."""
