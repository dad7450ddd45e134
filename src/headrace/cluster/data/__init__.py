"""Data work on a cluster: what one machine's commands do, cut into pieces. See ../README.md."""
