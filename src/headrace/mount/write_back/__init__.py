"""Files being written, on their way to the bucket. Nothing here knows of FUSE."""
