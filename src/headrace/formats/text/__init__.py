"""CSV and JSON Lines: one line is one sample."""
