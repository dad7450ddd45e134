"""How shards are compressed: which formats may be, their decompressed bytes, and these as a stream."""
