"""Flat arrays of tokens."""
