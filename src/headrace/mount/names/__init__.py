"""Names and node ids: what is in a folder, and what the kernel knows of it."""
