"""Blocks of tokens, and documents packed into sequences."""
