"""Parquet and Arrow files: samples that are rows of tables. See README.md."""
