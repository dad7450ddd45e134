"""Many small files read, or written, together."""
