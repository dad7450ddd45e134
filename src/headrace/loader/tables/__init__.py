"""Rows of tables on their way into batches, columns at a time."""
